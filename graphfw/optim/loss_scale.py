"""`LossScale`: gradients in float16 that neither vanish nor overflow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import SupportsFloat

import numpy as np

from graphfw.hints.calls import explained
from graphfw.ir import ambient
from graphfw.ir.dtype import float32, int64
from graphfw.ir.functions import CALLED as F
from graphfw.ir.graph import Graph
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Update, Variable
from graphfw.ops.args import as_tensor, converted
from graphfw.ops.composed import demand, wide
from graphfw.optim.base import Differentiate, Moves, Optimizer
from graphfw.optim.parameters import ParameterGroup
from graphfw.optim.slots import OptimizerState
from graphfw.optim.wrapper import StatefulWrapper, Wrapper
from graphfw.utils.collecting import without_collection


class _LossScaleState(OptimizerState):
    """The scale, for how many steps it has held, how many it has cost."""

    def __init__(self, graph: Graph, name: str, initial: float) -> None:
        super().__init__(graph, name)
        self.scale = self._variable("scale", initial, (), float32)
        self.good_steps = self._variable("good_steps", 0, (), int64)
        self.skipped = self._variable("skipped", 0, (), int64)

    @property
    def variables(self) -> list[Variable]:
        return [self.scale, self.good_steps, self.skipped]


@explained
class LossScale(StatefulWrapper[_LossScaleState]):
    """An optimiser whose gradients are those of the loss times a scale, and divided by it.

    In float16 small gradients become 0. Scaled up, they don't; scaled too far, some overflow. So
    the scale is found as training goes: a step whose gradients hold NaN or infinity changes
    nothing, but that the scale is multiplied by `backoff`; after `interval` steps without one it is
    multiplied by `growth`. A step that is skipped leaves what layers carry along (statistics of
    batches) as it is, too. All of it is part of the graph: nothing is asked of Python, and the
    scale is saved and restored with the other variables (`loss_scale.scale`, and beside it
    `good_steps` and `skipped`). bfloat16 has the range of float32 and needs none of this.

    The rule and its numbers are those of PyTorch's `torch.amp.GradScaler`; unlike there, the scale
    is never less than 1. P. Micikevicius et al., "Mixed precision training", 2018.

    Args:
        optimizer: The optimiser that makes the steps. It gets the gradients of the loss without the
            scale, which `clip_norm` limits. Its count of steps leaves skipped ones out.
        initial: The first scale.
        growth: The factor of the scale when it has held for long enough.
        backoff: The factor of the scale when a gradient has overflowed.
        interval: The number of steps without overflow after which it grows.
        name: The prefix of its variables' names.

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
        optimizer: Optimizer | Wrapper,
        initial: float = 2.0**16,
        growth: float = 2.0,
        backoff: float = 0.5,
        interval: int = 2000,
        *,
        name: str = "loss_scale",
    ) -> None:
        super().__init__(optimizer, name)
        _check("initial", initial, 1 <= _number(initial) < 2.0**128, "from 1 to 2**127", 2.0**16)
        _check("growth", growth, 1 < _number(growth) < 2.0**128, "above 1", 2.0)
        _check("backoff", backoff, 0 < _number(backoff) < 1, "above 0 and below 1", 0.5)
        _check("interval", interval, _is_count(interval), "an int of 1 or more", 2000)
        self.growth = growth
        self.backoff = backoff
        self.interval = interval
        self._initial = initial

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
            loss: The loss, if updates that its layers carry along are to be part of this one.

        Raises:
            ArgumentError, GraphError: As the optimiser's.
        """
        return super().apply_gradients(pairs, loss=loss)

    def scale(self) -> Tensor:
        """Return the scale that the next step uses, a 0-d float32 tensor, to fetch and log."""
        return self._open().scale

    def skipped(self) -> Tensor:
        """Return the number of steps that have been skipped so far, a 0-d int64 tensor."""
        return self._open().skipped

    def _made(self, graph: Graph) -> _LossScaleState:
        return _LossScaleState(graph, self._name, self._initial)

    def _minimizing(
        self,
        loss: Tensor,
        parameters: Iterable[Variable] | Iterable[ParameterGroup] | None,
        differentiate: Differentiate,
    ) -> Moves:
        finite: list[Tensor] = []

        def gradients(loss: Tensor, variables: list[Variable]) -> Sequence[Tensor]:
            found, is_finite = self._unscaled(differentiate(self.scaled(loss), variables))
            finite.append(is_finite)
            return found

        return self._where(finite, self.optimizer._minimizing(loss, parameters, gradients))

    def _applying(
        self,
        pairs: Iterable[tuple[Tensor, Variable]],
        loss: Tensor | None,
        changed: Callable[[list[Tensor]], Sequence[Tensor]],
    ) -> Moves:
        finite: list[Tensor] = []

        def unscaled(gradients: list[Tensor]) -> Sequence[Tensor]:
            found, is_finite = self._unscaled(changed(gradients))
            finite.append(is_finite)
            return found

        return self._where(finite, self.optimizer._applying(pairs, loss, unscaled))

    def _unscaled(self, gradients: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
        """Return gradients of the loss itself, and whether all their elements are finite."""
        state = self._open()
        with without_collection(), ambient.override(ambient.current_scope, state.name):
            inverse = 1 / state.scale
            found = [wide(g) * converted(inverse, wide(g).dtype) for g in gradients]
            return found, reduce(F.logical_and, [F.all(F.isfinite(g)) for g in found])

    def _where(self, finite: Sequence[Tensor], moves: Moves) -> Moves:
        """Return the new values of a step that is made where all is finite, and of the scale."""
        state = self._open()
        with without_collection(), ambient.override(ambient.current_scope, state.name):
            is_finite = reduce(F.logical_and, finite)
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
        return made


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
