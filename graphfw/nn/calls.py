"""Calls of modules: their name scope, and whether they are for training."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Sequence
from typing import Any

from graphfw.errors import ArgumentError, CallError
from graphfw.hints.calls import FOREIGN, raise_refusal, refuse_mismatch
from graphfw.ir import ambient
from graphfw.ir.evaluation import Evaluation
from graphfw.ir.graph import Graph, current_graph
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Update, Variable
from graphfw.loc import capture
from graphfw.nn import outside
from graphfw.nn.checks import called
from graphfw.nn.deferred import make_deferred
from graphfw.nn.hooks import hooked
from graphfw.nn.interface import ModuleInterface
from graphfw.utils import nest


def call(module: ModuleInterface, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return the result of a module's `forward`: see `Module.__call__`."""
    if current_graph().is_ambient and outside.is_run(module, args, kwargs):
        try:
            return outside.run(module, args, kwargs)
        except CallError:  # of the layer, about which more is known than of a function, or in it
            _mode(module, args, kwargs)
            refuse_mismatch(module.forward, args, kwargs, type(module).__name__)
            raise
    path = module.path
    outer = ambient.outer_scope.get()
    prefix = ambient.current_scope.get() if outer is None else outer
    # Also for a module that was made in the scope it is called in.
    scope = path if path.startswith(f"{prefix}.") else ambient.join_scope(prefix, path)
    mode = _mode(module, args, kwargs)
    flag = ambient.training_flag.get() if mode is None else mode
    evaluated = ambient.evaluated.get()
    modes = current_graph().root.modes
    if modes is not None:
        modes.note(module.modules() if outer is None else (module,))
    position = _mode_position(module)
    if position is not None and mode is None:
        args, kwargs = _with_mode(position, args, kwargs, flag and module._training)
    begins = evaluated is None and not (flag and module._training)
    layers = [] if begins else evaluated
    graph, count = current_graph(), len(current_graph().nodes) if begins else 0
    with called(module, prefix, scope):
        try:
            if mode is None and not begins:
                result = _computed(module, args, kwargs)
            else:
                with (
                    ambient.override(ambient.training_flag, flag),
                    ambient.override(ambient.evaluated, layers),
                ):
                    result = _computed(module, args, kwargs)
        except FOREIGN as error:
            raise_refusal(error, module.forward, args, kwargs, type(module).__name__)
    # Who writes training=False, or evaluates one layer of a model in training, means it.
    is_meant = mode is not None or (outer is not None and layers == [module])
    if begins and layers and not is_meant:
        _note(module, layers, graph, count, result)
    return result


def _computed(module: ModuleInterface, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return the result of `forward` and of the hooks, and tell it to who watches the calls."""
    if module._deferred is not None:
        make_deferred(module, module._deferred, args, kwargs)
    graph = current_graph()
    updates = len(graph.updates)
    result = module.forward(*args, **kwargs)
    if module._forward_hooks:
        result = hooked(module, args, kwargs, result)
    if len(graph.updates) > updates:
        _carry(graph, graph.updates[updates:], result)
    watcher = ambient.call_watcher.get()
    if watcher is not None:
        watcher(module, result)
    return result


def _carry(graph: Graph, updates: Sequence[Update], result: Any) -> None:
    """Have what minimises a loss that a result is part of make updates, too.

    Updates that are part of the result are left to the caller. A function makes all in each call.

    Args:
        graph: The graph.
        updates: Those that `forward` has made.
        result: What it returned.
    """
    if graph.root.modes is not None:
        return
    leaves = [*nest.leaves(result)]
    known = {id(update) for update, _ in graph.carried} | set(map(id, leaves))
    anchors = [one for one in leaves if isinstance(one, Tensor)]
    new = [update for update in updates if id(update) not in known]
    graph.carried += [(update, anchor) for update in new for anchor in anchors]


def signature_of(module: ModuleInterface) -> inspect.Signature:
    """Return the signature of a module's calls: that of `forward`, with an optional `training`."""
    own = inspect.signature(module.forward)
    names = list(own.parameters.values())
    mode = own.parameters.get("training")
    if mode is not None:
        is_last = all(one.default is not one.empty for one in names[names.index(mode) + 1 :])
        optional = mode.replace(default=None) if is_last else mode
        return own.replace(parameters=[optional if one is mode else one for one in names])
    mode = inspect.Parameter(
        "training", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="bool | None"
    )
    is_open = bool(names) and names[-1].kind is inspect.Parameter.VAR_KEYWORD
    end = len(names) - is_open
    return own.replace(parameters=[*names[:end], mode, *names[end:]])


_positions: weakref.WeakKeyDictionary[Any, int | None] = weakref.WeakKeyDictionary()
"""The position of the parameter `training` in functions `forward` that have been called."""


def _mode_position(module: ModuleInterface) -> int | None:
    """Return the position of the parameter `training` in a module's `forward`, or None."""
    forward = module.forward
    function = getattr(forward, "__func__", forward)
    if function not in _positions:
        names = [*inspect.signature(forward).parameters]
        _positions[function] = names.index("training") if "training" in names else None
    return _positions[function]


def _with_mode(
    position: int, args: Sequence[Any], kwargs: dict[str, Any], mode: bool
) -> tuple[Sequence[Any], dict[str, Any]]:
    """Return the arguments of a call with one for the parameter `training` of `forward`."""
    if position < len(args):
        return (*args[:position], mode, *args[position + 1 :]), kwargs
    return args, {**kwargs, "training": mode}


def _mode(module: ModuleInterface, args: Sequence[Any], kwargs: dict[str, Any]) -> bool | None:
    """Return the argument `training` of a call, and take it out where `forward` has none.

    Returns:
        None where the call does not say it.

    Raises:
        ArgumentError: It is no bool, or it is True after `eval`.
    """
    position = _mode_position(module)
    if position is None:
        mode = kwargs.pop("training", None)
    else:
        mode = args[position] if position < len(args) else kwargs.get("training")
    name = type(module).__name__
    if mode is not None and not isinstance(mode, bool):
        raise ArgumentError(
            f"{name}: training={mode!r} must be True, False or None",
            fix="write training=False for evaluation: it is settled when the call is described",
        )
    if mode and not module._training:
        raise ArgumentError(
            f"{name}: training=True in a call after eval(), which holds until train()",
            fix="call train() before; instead of eval(), write training=False in calls",
        )
    return mode


def _note(
    module: ModuleInterface,
    layers: Sequence[ModuleInterface],
    graph: Graph,
    count: int,
    result: Any,
) -> None:
    """Have a graph know of a call for evaluation.

    Args:
        module: What was called.
        layers: The layers in it that would have computed something else in training.
        graph: The graph.
        count: How many nodes it had before.
        result: What the call returned.
    """
    made = {*graph.nodes[count:]}
    results = [t for t in nest.leaves(result) if isinstance(t, Tensor) and t.node in made]
    results = [t for t in results if not isinstance(t, Variable)]
    if results:
        hooks = [hook for one in module.modules() for hook in one._forward_hooks]
        held = [v for _, v in module._held_variables()]
        held += [v for hook in hooks for v in hook.variables()]
        parameters = tuple([v for v in held if v.is_trained])
        named = dict.fromkeys([f"{layer.path} ({type(layer).__name__})" for layer in layers])
        graph.evaluations.append(
            Evaluation(module.path, capture(), tuple(named), parameters, tuple(results))
        )
