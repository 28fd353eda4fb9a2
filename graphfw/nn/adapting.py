"""`lora`: gives layers of a model low-rank updates, and freezes the rest."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from numbers import Real
from typing import Any

from graphfw.errors import ArgumentError, GraphError
from graphfw.hints.calls import explained
from graphfw.ir.graph import current_graph
from graphfw.ir.model_graph import ModelGraph
from graphfw.ir.owners import owners
from graphfw.nn.adapters import LowRankAdapters
from graphfw.nn.checks import checked_size
from graphfw.nn.hooks import set_hooks
from graphfw.nn.low_rank import LowRankUpdate, largest_rank, takes_update
from graphfw.nn.module import Module
from graphfw.nn.module_variables import Patterns
from graphfw.nn.names import snake_case
from graphfw.nn.registration import checked_module
from graphfw.nn.weight_norms import SpectralNorm, WeightNorm
from graphfw.ops.composed import demand, demand_probability
from graphfw.utils.patterns import NameChoice, fits_one, name_choice


@explained
def lora(
    model: Module,
    targets: str | Sequence[str],
    rank: int,
    *,
    alpha: float | None = None,
    dropout: float = 0.0,
    ignore: Patterns = None,
) -> LowRankAdapters:
    """Give layers of a model low-rank updates, and freeze everything else in it.

    A layer with the weight W computes with W + alpha / rank A B instead. A has `rank` columns and B
    has `rank` rows; only these are trained. B begins as 0, so the model computes the same at first.
    E. J. Hu et al., "LoRA: Low-rank adaptation of large language models", 2021.

    No layer is replaced: the weights keep their names, and load as without adapters. The updates
    are part of calls from now on.

    Args:
        model: The model.
        targets: The layers, by their paths in the model: names, scopes ("encoder"), or names with *
            ("*.q_proj"). Of the chosen layers, `Linear`, `Embedding` and `Conv1d` to `Conv3d`
            get updates, except convolutions with groups and layers in `WeightNorm` or
            `SpectralNorm`.
        rank: The rank of the updates.
        alpha: The updates are scaled by alpha / rank; above 0, rank by default.
        dropout: In training, the probability of leaving out a feature of an update's input.
        ignore: Layers to leave out, as `targets`.

    Returns:
        The adapters, with `parameters()`, `merge(session)`, `save(session, path)` and others.

    Raises:
        ArgumentError: A pattern fits no layer, or none that takes an update; a layer has an update
            already, shares its weight, is not of real floats, or its rank is less; or a number
            makes no sense. Nothing has changed.
        GraphError: Another graph than the model's is open, or none, or a layer makes its variables
            in its first call and was not called yet.

    >>> import graphfw as gf
    >>> with gf.Graph() as g:
    ...     model = gf.nn.TransformerEncoder(64, 8, num_layers=2)
    ...     adapters = gf.nn.lora(model, ["*.q_proj", "*.v_proj"], rank=4)
    ...     loss = gf.mean(model(gf.placeholder(("batch", "time", 64))) ** 2)
    ...     train = gf.optim.Adam(1e-3).minimize(loss, adapters.parameters())
    >>> adapters
    LowRankAdapters(4 layers, rank=4, alpha=4, dropout=0)  # 2,048 parameters
    >>> adapters.parameters()[0].name
    'adapters.layers.0.self_attn.q_proj.lora_A.weight'
    """
    checked_module("lora", "model", model)
    rank = checked_size("lora", "rank", rank)
    alpha = _checked_alpha(rank if alpha is None else alpha)
    demand_probability("lora", "dropout", dropout)
    here, own = current_graph().root, model._names.graph.root
    is_outside = here.is_ambient and isinstance(own, ModelGraph)
    if not is_outside and here is not own and not here.succeeds(own):
        raise GraphError(
            "lora: the model belongs to another graph than the one that is open",
            why=owners(own, here),
            fix="write it inside `with` of the model's graph",
        )
    model.variables()  # which are made
    choice = name_choice("lora", targets, ignore, "targets")
    demand(choice.only is not None, "lora: targets=None chooses no layers", fix='write "*"')
    layers = _chosen(model, choice)
    for path, layer in layers.items():
        _check_layer(model, path, layer, rank)
    updates = {
        path or snake_case(type(layer).__name__): LowRankUpdate(layer, rank, alpha / rank, dropout)
        for path, layer in layers.items()
    }
    adapters = LowRankAdapters(updates, rank, alpha, float(dropout), choice.only or ())
    model._join(adapters.module._names.graph)
    model.freeze()
    for update in updates.values():
        hooks = update.layer._forward_hooks  # before the user's, which see the layer's result
        set_hooks(update.layer, (update, *hooks))
    return adapters


def _checked_alpha(alpha: Any) -> float:
    is_number = isinstance(alpha, Real) and not isinstance(alpha, bool)
    fits = is_number and math.isfinite(alpha) and alpha > 0
    demand(fits, f"lora: alpha={alpha!r} is no number above 0", fix="use alpha=16")
    return float(alpha)


def _chosen(model: Module, choice: NameChoice) -> dict[str, Any]:
    """Return the layers that patterns choose, by path.

    Raises:
        ArgumentError: A pattern fits no layer, or none that takes an update.
    """
    kind = type(model).__name__
    named = dict(model.named_modules())
    chosen = choice.chosen(named, f"layer of {kind}", ArgumentError)
    normed = [m.layer for m in named.values() if isinstance(m, (WeightNorm, SpectralNorm))]
    able = [p for p, m in named.items() if takes_update(m) and all(m is not n for n in normed)]
    for pattern in choice.only or ():
        if not any(fits_one([pattern], path) for path in able):
            fitting = next(m for path, m in named.items() if fits_one([pattern], path))
            raise ArgumentError(
                f'lora: targets="{pattern}" fits {type(fitting).__name__}, and nothing that takes '
                "an update",
                why="Linear, Embedding and Conv layers do, without groups and without WeightNorm",
                fix="choose one of these" + (f': "{able[0]}"' if able and able[0] else ""),
            )
    found = {path: named[path] for path in able if path in chosen}
    demand(bool(found), "lora: ignore leaves no layers", fix="ignore less")
    return found


def _check_layer(model: Module, path: str, layer: Any, rank: int) -> None:
    """See that a layer can have an update.

    Raises:
        ArgumentError: It can't.
    """
    name = f'"{path}"' if path else type(layer).__name__
    leave = f'leave it out: ignore="{path}"' if path else "choose another model"
    has_one = any(isinstance(hook, LowRankUpdate) for hook in layer._forward_hooks)
    message = f"lora: {name} has an update already"
    demand(not has_one, message, fix=f"call remove() of its adapters, or {leave}")
    weight = layer.weight
    shown = {"weight": weight}
    message = f"lora: the weight of {name} is {weight.dtype.name}, and updates are of floats"
    demand(weight.dtype.is_floating, message, shown, fix=leave)
    uses = Counter(id(v) for one in model.modules() for v in one._variables.values())
    message = f"lora: {name} shares its weight with another layer, which has no such update"
    demand(uses[id(weight)] == 1, message, shown, fix=leave)
    most = largest_rank(layer)
    message = f"lora: rank={rank} is more than the rank of the weight of {name}, {most}"
    demand(rank <= most, message, shown, fix=f"use rank={most}, or {leave}")
