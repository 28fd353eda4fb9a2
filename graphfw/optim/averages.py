"""`EMA` and `SWA`: averages of the parameters, to evaluate a model with."""

from __future__ import annotations

import abc
from typing import Any

from graphfw.errors import ArgumentError, a_type
from graphfw.hints.calls import explained
from graphfw.ir import ambient, concrete
from graphfw.ir.body import rewired
from graphfw.ir.dtype import float64
from graphfw.ir.functions import CALLED as F
from graphfw.ir.graph import Graph
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Variable
from graphfw.ops.args import as_tensor, converted
from graphfw.ops.composed import demand, wide_dtype
from graphfw.optim.base import Moves, Optimizer
from graphfw.optim.slots import OptimizerSlots
from graphfw.optim.wrapper import StatefulWrapper, Wrapper
from graphfw.utils.collecting import without_collection


@explained
class _Average(StatefulWrapper[OptimizerSlots]):
    """The frame of averages: a = a + w (p - a) after each step, where w depends on its number."""

    def averaged(self, tensor: Tensor) -> Tensor:
        """Return a tensor as it is with the averages in place of the parameters.

        Until there are averages, it is that of the parameters. Call it after `minimize`. A layer's
        running statistics stay as they are.

        Args:
            tensor: A tensor that depends on the parameters, such as a model's output; or one of
                them.

        Raises:
            ArgumentError: It is no tensor, or depends on none of the parameters.
            GraphError: It belongs to another graph.
        """
        if not isinstance(tensor, Tensor):
            this = type(self).__name__
            message = f"{this}: averaged() is given {a_type(tensor)}, no tensor"
            raise ArgumentError(message, fix="pass the model's output")
        state = self._open()
        graph = tensor.graph
        with without_collection(), ambient.override(ambient.current_scope, state.name):
            here = [(graph.standing_for(variable), variable) for variable in state.slots]
            result = rewired(tensor, {t: self._now(v, state) for t, v in here if t is not None})
        if result is tensor:
            raise ArgumentError(
                f"{type(self).__name__}: the tensor depends on no parameter that is averaged",
                operands=[concrete.describe("tensor", tensor)],
                fix="call averaged() after minimize(), with what the trained model returns",
            )
        return result

    @abc.abstractmethod
    def _first(self) -> int:
        """The number of the step after which the average begins."""

    @abc.abstractmethod
    def _weight(self, number: Tensor) -> Tensor:
        """Return the weight of the parameters after a step; `number` is 1 after the first."""

    def _made(self, graph: Graph) -> OptimizerSlots:
        return OptimizerSlots(graph, self._name)

    def _now(self, variable: Variable, state: OptimizerSlots) -> Tensor:
        average = converted(state.slots[variable]["average"], variable.dtype)
        value: Tensor = F.where(state.step >= self._first(), average, variable)
        return value

    def _changed(self, moves: Moves) -> Moves:
        state = self._open()
        changed = list(moves)
        with without_collection(), ambient.override(ambient.current_scope, state.name):
            weight = self._weight(state.next_step)
            for variable, new in moves:
                if variable.trainable:
                    dtype = wide_dtype(variable.dtype)
                    average = state.slots_of(variable, {"average": 0.0}, dtype)["average"]
                    apart = converted(new, dtype) - average
                    changed.append((average, average + apart * converted(weight, dtype)))
            changed.append((state.step, state.next_step))
        return changed


@explained
class EMA(_Average):
    """An optimiser that keeps exponential moving averages of the parameters, for evaluation.

    After each step a = decay a + (1 - decay) p; a begins as p after the first. `averaged` returns a
    model's output as it is with them; so training goes on undisturbed. B. T. Polyak, A. B.
    Juditsky, "Acceleration of stochastic approximation by averaging", 1992.

    Args:
        optimizer: The optimiser that makes the steps.
        decay: The fraction of the averages that is kept, in [0, 1).
        name: The prefix of its variables' names.

    Raises:
        ArgumentError: `optimizer` is none, or decay makes no sense.

    >>> import graphfw as gf
    >>> with gf.Graph() as g:
    ...     w = gf.Variable(8.0, name="w")
    ...     optimizer = gf.optim.EMA(gf.optim.SGD(0.25), decay=0.5)
    ...     train = optimizer.minimize(w * w)
    ...     smooth = optimizer.averaged(w * 10)
    >>> with gf.Session(g) as session:
    ...     for _ in range(3):
    ...         session.run(train)
    ...     float(session[w]), float(session.run(smooth))
    (1.0, 20.0)
    """

    def __init__(
        self, optimizer: Optimizer | Wrapper, decay: float = 0.999, *, name: str = "ema"
    ) -> None:
        super().__init__(optimizer, name)
        message = f"EMA: decay={decay} must be at least 0 and below 1"
        demand(0 <= decay < 1, message, fix="use decay=0.999")
        self.decay = decay

    def _first(self) -> int:
        return 1

    def _weight(self, number: Tensor) -> Tensor:
        weight: Tensor = F.where(number == 1, as_tensor(1.0, float64), 1 - self.decay)
        return weight


@explained
class SWA(_Average):
    """An optimiser that keeps the mean of the parameters after some of the steps, for evaluation.

    The mean is of those after step `start`, `start + every`, and so on. `averaged` returns a
    model's output as it is with it. P. Izmailov et al., "Averaging weights leads to wider optima
    and better generalization", 2018.

    Args:
        optimizer: The optimiser that makes the steps.
        start: The first step after which the parameters are averaged, from 1 up.
        every: The number of steps from one that is averaged to the next.
        name: The prefix of its variables' names.

    Raises:
        ArgumentError: `optimizer` is none, or a number makes no sense.

    >>> import graphfw as gf
    >>> with gf.Graph() as g:
    ...     w = gf.Variable(8.0, name="w")
    ...     optimizer = gf.optim.SWA(gf.optim.SGD(0.25), start=2)
    ...     train = optimizer.minimize(w * w)
    ...     mean = optimizer.averaged(w)
    >>> with gf.Session(g) as session:
    ...     for _ in range(3):
    ...         session.run(train)
    ...         print(float(session[w]), float(session.run(mean)))
    4.0 4.0
    2.0 2.0
    1.0 1.5
    """

    def __init__(
        self,
        optimizer: Optimizer | Wrapper,
        start: int = 1,
        every: int = 1,
        *,
        name: str = "swa",
    ) -> None:
        super().__init__(optimizer, name)
        for option, value in (("start", start), ("every", every)):
            message = f"SWA: {option}={value} must be at least 1"
            demand(value >= 1, message, fix=f"use {option}=1")
        self.start = start
        self.every = every

    def _first(self) -> int:
        return self.start

    def _weight(self, number: Tensor) -> Tensor:
        since = number - self.start
        count = converted(F.maximum(since, 0) // self.every, float64) + 1
        is_averaged: Any = F.logical_and(since >= 0, since % self.every == 0)
        weight: Tensor = F.where(is_averaged, 1 / count, 0.0)
        return weight
