"""Recurrent layers: LSTM, GRU and RNN, as loops over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import graphfw as gf
from graphfw.ir.tensor import Tensor
from graphfw.onnx.errors import OnnxError
from graphfw.onnx.node import ModelNode
from graphfw.onnx.table import reads

Step = Callable[[tuple[Tensor, ...], Tensor], tuple[Tensor, ...]]
"""The function from the states and the input's summand of the gates to the next states."""

_ACTIVATIONS: dict[str, Callable[[Tensor, Any, Any], Tensor]] = {
    "affine": lambda x, a, b: x * (1.0 if a is None else a) + (0.0 if b is None else b),
    "elu": lambda x, a, b: gf.elu(x, alpha=1.0 if a is None else a),
    "hardsigmoid": lambda x, a, b: gf.clip(
        x * (0.2 if a is None else a) + (0.5 if b is None else b), 0, 1
    ),
    "leakyrelu": lambda x, a, b: gf.leaky_relu(x, negative_slope=0.01 if a is None else a),
    "relu": lambda x, a, b: gf.relu(x),
    "scaledtanh": lambda x, a, b: (
        gf.tanh(x * (1.0 if b is None else b)) * (1.0 if a is None else a)
    ),
    "sigmoid": lambda x, a, b: gf.sigmoid(x),
    "softplus": lambda x, a, b: gf.softplus(x),
    "softsign": lambda x, a, b: gf.softsign(x),
    "tanh": lambda x, a, b: gf.tanh(x),
    "thresholdedrelu": lambda x, a, b: gf.where(x > (1.0 if a is None else a), x, gf.zeros_like(x)),
}
_TAKES_ALPHA = ("affine", "elu", "hardsigmoid", "leakyrelu", "scaledtanh", "thresholdedrelu")
_TAKES_BETA = ("affine", "hardsigmoid", "scaledtanh")
_USUAL = {
    "LSTM": ("sigmoid", "tanh", "tanh"),
    "GRU": ("sigmoid", "tanh"),
    "RNN": ("tanh",),
}


@reads("LSTM", "GRU", "RNN")
def _recurrent(
    node: ModelNode,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    *states: Tensor | None,
) -> tuple[Tensor, ...]:
    """Run one layer in one direction or both.

    x: [time, batch, inputs]; w: [directions, gates * hidden, inputs]; r: the same with hidden.
    """
    directions = {"forward": (0,), "reverse": (1,), "bidirectional": (0, 1)}
    backwards = directions[node.choice("direction", "forward", directions)]
    node.require(
        x.ndim == w.ndim == r.ndim == 3 and w.shape[0] == r.shape[0] == len(backwards),
        f"its x, W and R are {x.shape}, {w.shape} and {r.shape}, "
        f"not [time, batch, inputs] and [{len(backwards)}, gates, …]",
    )
    is_lstm = node.op_type == "LSTM"
    peepholes = states[2] if is_lstm and len(states) > 2 else None
    first = [s for s in states[: 2 if is_lstm else 1]]
    if node.attr("layout", 0):
        x = gf.swapaxes(x, 0, 1)
        first = [None if s is None else gf.swapaxes(s, 0, 1) for s in first]
    hidden = r.shape[-1]
    zero = gf.zeros((len(backwards), x.shape[1], hidden), dtype=x.dtype)
    first = [*first, *[None] * ((2 if is_lstm else 1) - len(first))]
    begun = [zero if s is None else s for s in first]
    outputs, lasts = [], []
    for i, backward in enumerate(backwards):
        step, z = _cell(
            node, i, len(backwards), x, w[i], r[i], None if b is None else b[i], peepholes
        )
        y, last = _run(step, z, tuple([s[i] for s in begun]), lengths, bool(backward))
        outputs.append(y)
        lasts.append(last)
    stacked = gf.stack(outputs, axis=1)  # [time, directions, batch, hidden]
    ends = [gf.stack([last[i] for last in lasts]) for i in range(len(begun))]
    if node.attr("layout", 0):
        stacked = gf.permute_dims(stacked, (2, 0, 1, 3))
        ends = [gf.swapaxes(s, 0, 1) for s in ends]
    return (stacked, *ends)


def _run(
    step: Step, z: Tensor, begun: tuple[Tensor, ...], lengths: Tensor | None, backward: bool
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Make the steps; those after the end of a sequence change nothing and yield zeros."""

    def iteration(state: tuple[Tensor, ...], each: Any) -> tuple[tuple[Tensor, ...], Tensor]:
        gates, time = each
        made = step(state, gates)
        if lengths is None:
            return made, made[0]
        lasts = gf.expand_dims(time < gf.astype(lengths, gf.int64), -1)
        made = tuple([gf.where(lasts, new, old) for new, old in zip(made, state, strict=True)])
        return made, gf.where(lasts, made[0], gf.zeros_like(made[0]))

    last, y = gf.scan(iteration, begun, (z, gf.arange(z.shape[0])), reverse=backward)
    return y, last


def _cell(
    node: ModelNode,
    i: int,
    directions: int,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None,
    peepholes: Tensor | None,
) -> tuple[Step, Tensor]:
    """Return a direction's step, and what the whole input gives to its gates."""
    f = _activations(node, i, directions)
    hidden = r.shape[-1]
    half = w.shape[0]  # the biases of the input, then those of the state
    at_input = gf.zeros((half,), dtype=x.dtype) if b is None else b[:half]
    at_state = gf.zeros((half,), dtype=x.dtype) if b is None else b[half:]
    if node.op_type == "GRU":
        later = bool(node.attr("linear_before_reset", 0))
        return _gru(f, r, at_state, hidden, later), x @ w.mT + at_input
    z = x @ w.mT + (at_input + at_state)
    if node.op_type == "RNN":
        return (lambda state, gates: (f[0](gates + state[0] @ r.mT),)), z
    p = None if peepholes is None else peepholes[i]
    return _lstm(f, r, p, hidden, bool(node.attr("input_forget", 0))), z


def _lstm(
    f: Sequence[Callable[[Tensor], Tensor]], r: Tensor, p: Tensor | None, hidden: Any, coupled: bool
) -> Step:
    def peep(gate: Tensor, cell: Tensor, index: int) -> Tensor:
        return gate if p is None else gate + cell * p[index * hidden : (index + 1) * hidden]

    def step(state: tuple[Tensor, ...], gates: Tensor) -> tuple[Tensor, ...]:
        h, c = state
        i, o, forget, new = gf.split(gates + h @ r.mT, 4, axis=-1)
        enters = f[0](peep(i, c, 0))
        stays = 1 - enters if coupled else f[0](peep(forget, c, 2))
        cell = stays * c + enters * f[1](new)
        return f[0](peep(o, cell, 1)) * f[2](cell), cell

    return step


def _gru(
    f: Sequence[Callable[[Tensor], Tensor]], r: Tensor, bias: Tensor, hidden: Any, later: bool
) -> Step:
    def step(state: tuple[Tensor, ...], gates: Tensor) -> tuple[Tensor, ...]:
        (h,) = state
        z, reset, new = gf.split(gates, 3, axis=-1)
        from_state = h @ r[: 2 * hidden].mT + bias[: 2 * hidden]
        update = f[0](z + from_state[..., :hidden])
        kept = f[0](reset + from_state[..., hidden:])
        if later:
            new = f[1](new + kept * (h @ r[2 * hidden :].mT + bias[2 * hidden :]))
        else:
            new = f[1](new + (kept * h) @ r[2 * hidden :].mT + bias[2 * hidden :])
        return ((1 - update) * new + update * h,)

    return step


def _activations(node: ModelNode, i: int, directions: int) -> list[Callable[[Tensor], Tensor]]:
    """Return a direction's functions, clipped as the node says."""
    usual = _USUAL[node.op_type]
    names = [str(n).lower() for n in node.attr("activations", usual * directions)]
    if len(names) != len(usual) * directions or not set(names) <= set(_ACTIVATIONS):
        raise OnnxError(f"{node.op_type}: its activations are {names}")
    alphas, betas = list(node.attr("activation_alpha", ())), list(node.attr("activation_beta", ()))
    chosen = []
    for index, name in enumerate(names):
        # Numbers are given for those functions that take one, in order.
        takes_alpha, takes_beta = name in _TAKES_ALPHA, name in _TAKES_BETA
        alpha = alphas.pop(0) if takes_alpha and alphas else None
        beta = betas.pop(0) if takes_beta and betas else None
        if index // len(usual) == i:
            chosen.append(_clipped(_ACTIVATIONS[name], alpha, beta, node.attr("clip", 0.0)))
    return chosen


def _clipped(
    function: Callable[[Tensor, Any, Any], Tensor], alpha: Any, beta: Any, clip: float
) -> Callable[[Tensor], Tensor]:
    if clip:
        return lambda x: function(gf.clip(x, -clip, clip), alpha, beta)
    return lambda x: function(x, alpha, beta)
