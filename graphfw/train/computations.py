"""Computations on batches: metrics by name, of tensors in a session or of a function."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from inspect import isroutine
from typing import Any

from graphfw.data.feeds import Feeds
from graphfw.data.feeds import feeds as feeds_of
from graphfw.data.fitting import Feed
from graphfw.errors import ArgumentError, a_type
from graphfw.ir.graph import Graph
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import TensorType
from graphfw.ir.variable import Update
from graphfw.runtime.functions import Function
from graphfw.runtime.plan import Plan
from graphfw.runtime.session import Session

LOSS = "loss"
"""The name of a function's result that has none."""


class Computation(ABC):
    """Computes metrics of a batch, and perhaps makes a step.

    Attributes:
        names: The names of the metrics.
        plan: The plan; of a function, the one for its first batch.
    """

    names: list[str]
    plan: Plan

    @property
    @abstractmethod
    def session(self) -> Session:
        """The session."""

    @abstractmethod
    def feeds(self, data: Any, **options: Any) -> Feeds:
        """Return the feeds of a dataset, as `gf.data.feeds` does with these options."""

    @abstractmethod
    def metrics(self, feed: Feed) -> list[Any]:
        """Run on a feed, and return the metrics in the order of their names."""

    def prepare(self, data: Any) -> None:  # noqa: B027  (a plan is ready)
        """Find mistakes and make variables, by the first batch of data that can be read again."""


class FetchedMetrics(Computation):
    """Metrics that are tensors of a session's graph, with an update or none.

    Args:
        session: The session.
        metrics: The tensors, which have no dims.
        feeds: The placeholders, in the order of tuples in the data.
        step: The update.
    """

    def __init__(
        self,
        session: Session,
        metrics: Mapping[str, Tensor],
        feeds: Sequence[Tensor | str],
        step: Update | None = None,
    ) -> None:
        values = list(metrics.values())
        self.names = list(metrics)
        self.plan = session.compile([*([] if step is None else [step]), values], feeds)
        self._session = session

    @property
    def session(self) -> Session:
        """The session."""
        return self._session

    def feeds(self, data: Any, **options: Any) -> Feeds:
        """Return the feeds of a dataset."""
        return feeds_of(data, self.plan, **options)

    def metrics(self, feed: Feed) -> list[Any]:
        """Run the plan."""
        found: list[Any] = self.plan(*feed.values())[-1]
        return found


class FunctionMetrics(Computation):
    """Metrics that a function returns: a dict of them, or one, which is the loss.

    The names and the plan are known after `feeds` or `prepare`.

    Args:
        what: What messages call it.
        function: The function.
        trains: Whether it must update variables; else it must not update trainable ones.
        taken: The names that metrics must not have.
    """

    def __init__(self, what: str, function: Function, trains: bool, taken: Sequence[str]) -> None:
        self._what = what
        self._function = function
        self._trains = trains
        self._taken = taken

    @property
    def session(self) -> Session:
        """The session of the function."""
        return self._function.session

    def feeds(self, data: Any, **options: Any) -> Feeds:
        """Return the feeds of a dataset; the function is built for the first one.

        Raises:
            ArgumentError: The data has no batch, or the function is none for it: see `_build`.
        """
        found = feeds_of(data, self._function, **options)
        try:
            if found.first is not None:
                self._build(found.first)
            elif isinstance(data, Iterator):
                raise self._lacks_batches()
            else:  # a training goes on at the end of its data
                self.prepare(data)
        except BaseException:
            found.close()
            raise
        return found

    def prepare(self, data: Any) -> None:
        """Build the function for the first batch of data.

        Raises:
            ArgumentError: As for `feeds`; or the data can be read only once.
        """
        if isinstance(data, Iterator):
            raise ArgumentError(
                f"{self._what}: {self._name} is built for the first batch of the data, and "
                f"{a_type(data)} can't be read again",
                fix="pass data that can, as gf.data.batches or a list",
            )
        with feeds_of(data, self._function, ahead=0) as found:
            if found.first is None:
                raise self._lacks_batches()
            self._build(found.first)

    def _lacks_batches(self) -> ArgumentError:
        return ArgumentError(
            f"{self._what}: the data has no batches, so {self._name} can't be built",
            fix="pass data with examples, which can be read again",
        )

    def _build(self, feed: Feed) -> None:
        """Look at what the function returns and updates.

        Raises:
            ArgumentError: It returns no metrics, or updates nothing and should, or trains and
                should not.
        """
        types = self._function.result_types(**feed)
        by_name = {LOSS: types} if isinstance(types, TensorType) else types
        if not by_name or not isinstance(by_name, Mapping):
            returned = f"{a_type(types)} without names" if by_name else "no metrics"
            raise ArgumentError(
                f"{self._what}: {self._name} returns {returned}",
                fix='return the loss, or a dict of metrics: return {"loss": loss}',
            )
        _check_metrics(f"{self._what}: {self._name}", by_name, self._taken)
        self.plan = self._function.plan(**feed)
        updated = self.plan.program.updated
        if self._trains and not updated:
            raise ArgumentError(
                f"{self._what}: {self._name} updates no variables",
                fix="call optimizer.minimize(loss) in it",
            )
        trained = [variable for variable in updated if variable.trainable]
        if trained and not self._trains:
            raise ArgumentError(
                f'{self._what}: {self._name} evaluates, and updates "{trained[0].name}"',
                fix="write a function without optimizer.minimize, of model(x, training=False)",
            )
        self.names = list(by_name)

    def metrics(self, feed: Feed) -> list[Any]:
        """Call the function."""
        result = self._function(**feed)
        return [result[name] for name in self.names] if isinstance(result, Mapping) else [result]

    @property
    def _name(self) -> str:
        return getattr(self._function, "__name__", "the function")


def computation(
    what: str,
    source: Any,
    metrics: Mapping[str, Tensor] | None,
    feeds: Sequence[Tensor | str] | None,
    step: Update | None = None,
    *,
    trains: bool = False,
    taken: Sequence[str] = (),
) -> Computation:
    """Return the computation of a function, or of tensors in a session.

    Args:
        what: What messages call it.
        source: A function, a session, or a graph, of which a session is made.
        metrics: The tensors in a session.
        feeds: The placeholders.
        step: The update.
        trains: Whether there must be a step; else there must be none.
        taken: The names that metrics must not have.

    Raises:
        ArgumentError: The source is something else, or the other arguments don't go with it.
    """
    if isinstance(source, Function):
        if not (metrics is None and feeds is None and step is None):
            raise ArgumentError(
                f"{what}: a function has its step, metrics and arguments, and others are given",
                fix="pass the function, and neither step, metrics nor feeds; data is for fit(data)"
                if trains
                else "write gf.train.evaluate(function, data=batches)",
            )
        return FunctionMetrics(what, source, trains, taken)
    if not isinstance(source, (Session, Graph)):
        raise ArgumentError(
            f"{what}: the session is {a_type(source)}",
            fix="make it a function of arrays, and pass that: gf.function(…)"
            if isroutine(source)
            else "pass a function with @gf.function above it, which calls the model and returns "
            "metrics; or gf.Session(graph), or the graph",
        )
    if trains and not isinstance(step, Update):
        raise ArgumentError(
            f"{what}: the step is {step!r}, not an update",
            fix="pass what optimizer.minimize(loss) returned",
        )
    if metrics is None or feeds is None:
        missing = "metrics" if metrics is None else "feeds"
        raise ArgumentError(
            f"{what}: a session needs {missing}",
            fix='pass the metrics, as {"loss": loss}, and feeds=[x, y], the placeholders',
        )
    _check_metrics(what, metrics, taken)
    session = Session(source) if isinstance(source, Graph) else source
    return FetchedMetrics(session, metrics, feeds, step)


def _check_metrics(what: str, metrics: Any, taken: Sequence[str]) -> None:
    """Check metrics: tensors, or their types.

    Raises:
        ArgumentError: One has dims, or they have no names, or one that is taken.
    """
    if not isinstance(metrics, Mapping):
        raise ArgumentError(
            f"{what}: the metrics have no names", fix='pass a dict, as {"loss": loss}'
        )
    for name, metric in metrics.items():
        if not isinstance(name, str):
            raise ArgumentError(
                f"{what}: the name {name!r} of a metric is no string", fix='write {"loss": loss}'
            )
        if name in taken:
            raise ArgumentError(
                f"{what}: {name!r} is what a report has of its own",
                fix=f"choose another name for the metric than {', '.join(taken)}",
            )
        found = metric.type if isinstance(metric, Tensor) else metric
        if not isinstance(found, TensorType) or found.shape:
            shown = found if isinstance(found, TensorType) else repr(metric)
            raise ArgumentError(
                f"{what}: the metric {name!r} is {shown}, not a tensor without dims",
                fix="take the mean over the batch: gf.mean(…)",
            )
