"""`ReduceOnPlateau`: a learning rate that falls when a metric no longer gets better."""

from __future__ import annotations

import sys
from typing import Any

from graphfw.errors import ArgumentError, a_type
from graphfw.hints.calls import explained
from graphfw.ir import ambient, concrete
from graphfw.ir.dtype import float64, int64
from graphfw.ir.functions import CALLED as F
from graphfw.ir.graph import Graph, current_graph, open_graph
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Update, Variable
from graphfw.loc import capture
from graphfw.ops.args import as_tensor, converted, is_whole
from graphfw.ops.composed import demand
from graphfw.optim.schedules import Schedule
from graphfw.optim.slots import OptimizerState, Stateful
from graphfw.utils.collecting import without_collection


class _PlateauState(OptimizerState):
    """The factor of the rate, the best value of the metric, and counts of the reports after it."""

    def __init__(self, graph: Graph, name: str) -> None:
        super().__init__(graph, name)
        self.scale = self._variable("scale", 1.0, (), float64)
        self.best = self._variable("best", sys.float_info.max, (), float64)
        self.bad = self._variable("bad", 0, (), int64)
        self.waits = self._variable("waits", 0, (), int64)
        self.total = self._variable("total", 0.0, (), float64)
        self.number = self._variable("number", 0, (), int64)

    @property
    def variables(self) -> list[Variable]:
        return [self.scale, self.best, self.bad, self.waits, self.total, self.number]


@explained
class ReduceOnPlateau(Stateful[_PlateauState]):
    """A learning rate that is multiplied by a factor when a metric no longer gets better.

    Give it to an optimiser as its rate, and fetch the update `report(metric)`: of the loss in the
    training step, or of a placeholder after each evaluation. Its state is variables, which are
    saved and restored with all others. The rule is that of PyTorch's
    `ReduceLROnPlateau`: after more than `patience` reports in a row that are not better than the
    best one by the fraction `rtol` of it and by `atol`.

    Args:
        lr: The rate to begin with: a number, or a schedule, which is multiplied, too.
        factor: The factor of the rate, above 0 and below 1.
        patience: The number of reports in a row that may be no better.
        maximize: Whether larger values are better.
        rtol: The least improvement, as a fraction of the best value.
        atol: The least improvement besides.
        cooldown: The number of reports after the rate has fallen that do not count as worse.
        min_scale: The smallest product of the factors.
        every: The number of values whose mean is a report, such as losses of batches.
        name: The prefix of its variables' names.

    Raises:
        ArgumentError: A number makes no sense.

    >>> import graphfw as gf
    >>> rate = gf.optim.ReduceOnPlateau(0.5, factor=0.5, patience=0)
    >>> optimizer = gf.optim.SGD(rate)
    >>> with gf.Graph() as g:
    ...     w, x = gf.Variable(8.0, name="w"), gf.placeholder((), name="x")
    ...     train = gf.group(optimizer.minimize(w * x), rate.report(x))
    ...     lr = optimizer.learning_rate()
    >>> with gf.Session(g) as session:
    ...     for loss in (2.0, 1.0, 1.0, 1.0):
    ...         session.run(train, {x: loss})
    ...     float(session.run(lr))
    0.125
    """

    def __init__(
        self,
        lr: float | Schedule,
        factor: float = 0.1,
        patience: int = 10,
        *,
        maximize: bool = False,
        rtol: float = 1e-4,
        atol: float = 0.0,
        cooldown: int = 0,
        min_scale: float = 0.0,
        every: int = 1,
        name: str = "reduce_on_plateau",
    ) -> None:
        def check(option: str, value: Any, fits: bool, wanted: str, default: float) -> None:
            message = f"ReduceOnPlateau: {option}={value!r} must be {wanted}"
            demand(fits, message, fix=f"use {option}={default}")

        check("lr", lr, callable(lr) or lr >= 0, "at least 0", 1e-3)
        check("factor", factor, 0 < factor < 1, "above 0 and below 1", 0.1)
        for option, value, least, default in (
            ("patience", patience, 0, 10),
            ("cooldown", cooldown, 0, 0),
            ("every", every, 1, 1),
        ):
            fits = is_whole(value) and value >= least
            check(option, value, fits, f"an int of at least {least}", default)
        check("rtol", rtol, rtol >= 0, "at least 0", 1e-4)
        check("atol", atol, atol >= 0, "at least 0", 0.0)
        check("min_scale", min_scale, 0 <= min_scale <= 1, "from 0 to 1", 0.0)
        super().__init__(name)
        self.lr = lr
        self.factor = factor
        self.patience = patience
        self.maximize = maximize
        self.rtol = rtol
        self.atol = atol
        self.cooldown = cooldown
        self.min_scale = min_scale
        self.every = every

    def __call__(self, step: Tensor) -> Tensor:
        """Return the rate for an optimiser: a 0-d float64 tensor."""
        rate = self.lr(step) if callable(self.lr) else self.lr
        return as_tensor(rate, float64) * self._open().scale

    def __repr__(self) -> str:
        return f"ReduceOnPlateau({self.lr!r}, factor={self.factor}, patience={self.patience})"

    @property
    def variables(self) -> list[Variable]:
        """The variables that it keeps in its graph; `scale` is the factor of lr."""
        return self._own_variables

    def report(self, value: Tensor) -> Update:
        """Return the update that reports a value of the metric, to be fetched.

        Args:
            value: A real scalar: the loss, or a placeholder for the result of an evaluation.

        Raises:
            ArgumentError: It is no such tensor.
            GraphError: No graph is open, or it is another than the rate's or the value's.
        """
        open_graph("a report")
        graph = current_graph()
        demand(
            isinstance(value, Tensor),
            f"report: the value is {a_type(value)}, not a tensor",
            fix='pass the loss, or gf.placeholder((), name="metric") and feed that',
        )
        if value.shape != () or value.dtype.is_complex:
            raise ArgumentError(
                f"report: the value is {value.type}, not a real scalar",
                operands=[concrete.describe("value", value)],
                fix="reduce it: gf.mean(value)",
            )
        state = self._open()
        loc = graph.provenance or capture()
        graph.check_update(state.scale, loc)
        with without_collection(), ambient.override(ambient.current_scope, state.name):
            return Update(self._reported(converted(value, float64), state), graph, loc)

    def _reported(self, value: Tensor, state: _PlateauState) -> list[tuple[Variable, Tensor]]:
        """Return the new values of the state."""
        total, number = state.total + value, state.number + 1
        is_whole_report = number >= self.every
        mean = total / self.every * (-1 if self.maximize else 1)
        best: Any = state.best
        is_better = mean < best - F.abs(best) * self.rtol - self.atol
        is_waiting = state.waits > 0
        bad = F.where(is_better | is_waiting, 0, state.bad + 1)
        falls = bad > self.patience
        lower = F.maximum(state.scale * self.factor, self.min_scale)
        after = {
            state.scale: F.where(falls, lower, state.scale),
            state.best: F.where(is_better, mean, best),
            state.bad: F.where(falls, 0, bad),
            state.waits: F.where(falls, self.cooldown, F.maximum(state.waits - 1, 0)),
            state.total: as_tensor(0.0, float64),
            state.number: as_tensor(0, int64),
        }
        before = {**{v: v for v in after}, state.total: total, state.number: number}
        return [(v, F.where(is_whole_report, new, before[v])) for v, new in after.items()]

    def _made(self, graph: Graph) -> _PlateauState:
        # Not in the scope of the optimiser that asks first.
        with ambient.override(ambient.current_scope, ""):
            return _PlateauState(graph, self._name)
