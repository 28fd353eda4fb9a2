"""`LossScale`: gradients in float16 that neither vanish nor overflow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import SupportsFloat

import numpy as np

from graphfw.errors import ArgumentError, GraphError, a_type
from graphfw.hints.calls import explained
from graphfw.ir import ambient
from graphfw.ir.dtype import DType, float32, int64
from graphfw.ir.functions import CALLED as F
from graphfw.ir.graph import Graph, open_graph
from graphfw.ir.owners import owners
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Filled, Update, Variable
from graphfw.ops.args import as_tensor, converted
from graphfw.ops.composed import demand, wide
from graphfw.optim.base import Moves, Optimizer
from graphfw.optim.parameters import ParameterGroup, gradients_of
from graphfw.utils.collecting import without_collection


class _LossScaleState:
    """The state in a graph: the scale, for how many steps it has held, how many it has cost."""

    def __init__(self, graph: Graph, name: str, initial: float) -> None:
        self.graph = graph
        self.name = graph.unique(ambient.join_scope(ambient.current_scope.get(), name))
        self.scale = self._variable("scale", initial, float32)
        self.good_steps = self._variable("good_steps", 0, int64)
        self.skipped = self._variable("skipped", 0, int64)

    def _variable(self, name: str, value: float, dtype: DType) -> Variable:
        made = Variable(Filled(value), shape=(), dtype=dtype, trainable=False)
        made.rename(lambda: f"{self.name}.{name}")
        return made


@explained
class LossScale:
    """An optimiser whose gradients are those of the loss times a scale, and divided by it.

    In float16 small gradients become 0. Scaled up, they don't; scaled too far, some overflow. So
    the scale is found as training goes: a step whose gradients hold NaN or infinity changes
    nothing, but that the scale is multiplied by `backoff`; after `interval` steps without one it is
    multiplied by `growth`. All of it is part of the graph: nothing is asked of Python, and the
    scale is saved and restored with the other variables (`loss_scale.scale`, and beside it
    `good_steps` and `skipped`). bfloat16 has the range of float32 and needs none of this.

    The rule and its numbers are those of PyTorch's `torch.amp.GradScaler`; unlike there, the scale
    is never less than 1. P. Micikevicius et al., "Mixed precision training", 2018.

    Args:
        optimizer: What makes the steps. It gets the gradients of the loss itself, so its
            `clip_norm` means what it says, and its count of steps leaves skipped ones out.
        initial: The first scale.
        growth: What the scale is multiplied by when it has held for long enough.
        backoff: What it is multiplied by when a gradient has overflowed.
        interval: After how many steps without overflow it grows.
        name: What its variables are named by.

    Raises:
        ArgumentError: `optimizer` is none, or a number makes no sense.

    >>> import graphfw as gf
    >>> with gf.Graph() as g:
    ...     w = gf.Variable(4.0, name="w")
    ...     optimizer = gf.optim.LossScale(gf.optim.SGD(0.25))
    ...     train, scale = optimizer.minimize(w * w), optimizer.scale()
    >>> with gf.Session(g, precision="mixed-fp16") as session:
    ...     _, used = session.run((train, scale))
    ...     float(used), float(session[w])
    (65536.0, 2.0)
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial: float = 2.0**16,
        growth: float = 2.0,
        backoff: float = 0.5,
        interval: int = 2000,
        *,
        name: str = "loss_scale",
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise ArgumentError(
                f"LossScale: optimizer is {a_type(optimizer)}, no optimiser",
                fix="write gf.optim.LossScale(gf.optim.AdamW(1e-3))",
            )
        _check("initial", initial, 1 <= _number(initial) < 2.0**128, "from 1 to 2**127", 2.0**16)
        _check("growth", growth, 1 < _number(growth) < 2.0**128, "above 1", 2.0)
        _check("backoff", backoff, 0 < _number(backoff) < 1, "above 0 and below 1", 0.5)
        _check("interval", interval, _is_count(interval), "an int of 1 or more", 2000)
        self.optimizer = optimizer
        self.growth = growth
        self.backoff = backoff
        self.interval = interval
        self._initial = initial
        self._name = name
        self._state: _LossScaleState | None = None

    def minimize(
        self,
        loss: Tensor,
        parameters: Iterable[Variable] | Iterable[ParameterGroup] | None = None,
    ) -> Update:
        """Return the update of one step, as the optimiser's `minimize` does.

        Where the step is skipped, what layers carry along (statistics of batches) stays, too.

        Raises:
            GradientError, ArgumentError, GraphError: As the optimiser's.
        """
        open_graph("a training step")
        finite: list[Tensor] = []

        def differentiate(loss: Tensor, variables: list[Variable]) -> Sequence[Tensor]:
            gradients, is_finite = self._unscaled(gradients_of(self.scaled(loss), variables))
            finite.append(is_finite)
            return gradients

        return self._update(self.optimizer._minimizing(loss, parameters, differentiate), finite)

    def scaled(self, loss: Tensor) -> Tensor:
        """Return the loss times the scale, to differentiate by yourself: see `apply_gradients`."""
        state = self._open()
        with without_collection(), ambient.override(ambient.current_scope, state.name):
            whole = wide(as_tensor(loss))
            product: Tensor = whole * converted(state.scale, whole.dtype)
        return product

    def apply_gradients(
        self, pairs: Iterable[tuple[Tensor, Variable]], *, loss: Tensor | None = None
    ) -> Update:
        """Return the update of one step along gradients of the `scaled` loss.

        Args:
            pairs: These gradients with their variables: `zip(gradients, parameters)`.
            loss: Where given, what its layers carry along is part of the update.

        Raises:
            ArgumentError, GraphError: As the optimiser's.
        """
        open_graph("a training step")
        finite: list[Tensor] = []

        def unscaled(gradients: list[Tensor]) -> Sequence[Tensor]:
            found, is_finite = self._unscaled(gradients)
            finite.append(is_finite)
            return found

        return self._update(self.optimizer._applying(pairs, loss, unscaled), finite)

    def scale(self) -> Tensor:
        """Return the scale that the next step uses, a 0-d float32 tensor, to fetch and log."""
        return self._open().scale

    def skipped(self) -> Tensor:
        """Return how many steps have been skipped so far, a 0-d int64 tensor."""
        return self._open().skipped

    def learning_rate(self) -> Tensor:
        """Return the rate that the next update will use, a 0-d float64 tensor."""
        return self.optimizer.learning_rate()

    @property
    def variables(self) -> list[Variable]:
        """The variables it keeps in its graph, and those of its optimiser."""
        state = self._state
        own = [] if state is None else [state.scale, state.good_steps, state.skipped]
        return [*own, *self.optimizer.variables]

    def _open(self) -> _LossScaleState:
        graph = open_graph("a loss scale")
        if self._state is None or graph.succeeds(self._state.graph):
            self._state = _LossScaleState(graph, self._name, self._initial)
        if self._state.graph is not graph:
            raise GraphError(
                "this LossScale belongs to another graph",
                why=owners(self._state.graph, graph),
                fix="it belongs to the graph it is first used in: make another",
            )
        return self._state

    def _unscaled(self, gradients: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
        """Return gradients of the loss itself, and whether all their elements are finite."""
        state = self._open()
        with without_collection(), ambient.override(ambient.current_scope, state.name):
            inverse = 1 / state.scale
            found = [wide(g) * converted(inverse, wide(g).dtype) for g in gradients]
            return found, reduce(F.logical_and, [F.all(F.isfinite(g)) for g in found])

    def _update(self, moves: Moves, finite: Sequence[Tensor]) -> Update:
        """Return the update that makes a step where all is finite, and adapts the scale."""
        (is_finite,) = finite
        state = self._open()
        with without_collection(), ambient.override(ambient.current_scope, state.name):
            made: Moves = [(v, F.where(is_finite, new, v)) for v, new in moves]
            steps = state.good_steps + 1
            grows = steps >= self.interval
            grown = state.scale * self.growth
            higher = F.where(grows & F.isfinite(grown), grown, state.scale)
            lower = F.maximum(state.scale * self.backoff, 1.0)
            made += [
                (state.scale, F.where(is_finite, higher, lower)),
                (state.good_steps, F.where(is_finite & ~grows, steps, 0)),
                (state.skipped, F.where(is_finite, state.skipped, state.skipped + 1)),
            ]
        return self.optimizer._update(made)


def _number(value: object) -> float:
    """Return a number as a float, and what is none as NaN, which fits no bounds."""
    if not isinstance(value, SupportsFloat) or isinstance(value, (bool, Tensor)):
        return float("nan")
    return float(value)


def _is_count(value: object) -> bool:
    is_int = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return is_int and _number(value) > 0


def _check(option: str, value: object, fits: bool, wanted: str, default: float) -> None:
    demand(fits, f"LossScale: {option}={value!r} must be {wanted}", fix=f"use {option}={default:g}")
