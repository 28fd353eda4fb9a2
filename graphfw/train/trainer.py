"""`Trainer`: a loop over data with reports, evaluation, checkpoints and an end."""

from __future__ import annotations

import math
import os
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from graphfw.data.feeds import Feeds
from graphfw.errors import (
    ArgumentError,
    CheckpointError,
    ExecutionError,
    GraphfwError,
    a_type,
    did_you_mean,
    first_line,
)
from graphfw.hints.calls import explained
from graphfw.hints.names import Answering, raise_unset
from graphfw.ir.graph import Graph
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Update
from graphfw.loc import capture
from graphfw.runtime.contents import kept_metadata
from graphfw.runtime.functions import Function
from graphfw.runtime.session import Session
from graphfw.train.checkpoints import Checkpoints
from graphfw.train.computations import Computation, FunctionMetrics, computation
from graphfw.train.evaluation import mean_over
from graphfw.train.loggers import Logger
from graphfw.train.progress import interrupts, progress_bar
from graphfw.train.records import run_record
from graphfw.utils import nest

EVALUATED = "eval/"
"""The prefix of the names of evaluated metrics in a history."""

_OWN = ("step", "seconds", "waiting", "memory")
"""The names in a report that are no metrics."""


@dataclass
class Training(Answering):
    """The state of a training, and what `Trainer.fit` returns.

    Attributes:
        step: The number of steps so far.
        history: The reports: the step, the means of the metrics since the report before, the
            metrics of the evaluation as `eval/…`, `seconds` (the time of a step), `waiting` (the
            fraction of it in which steps waited for data) and `memory` (see `Trainer`).
        best: The best value of the metric that is monitored, or None.
        best_step: The step of it.
        ended_by: The reason of the end: "data" if the data ended, else "patience", "callback",
            "interrupt" or "nan".
    """

    _answers_as = "Training"

    step: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    best: float | None = None
    best_step: int = 0
    ended_by: str = ""


Callback: TypeAlias = Callable[[Training], object]
"""A function that is called after each report; if it returns a true value, training ends."""

Shapes: TypeAlias = tuple[tuple[int, ...], ...]


@explained
class Trainer(Answering):
    """Makes training steps over data: a loop over `gf.data.feeds` that calls a plan or function.

    A training step is a `gf.function`, or an update in a session. A function makes the step and
    returns its metrics: a dict of them by name, or one, which is the loss. Batches are its
    arguments: dicts by name, tuples in order. It is built for the first batch before the first
    step, and so is the function for evaluation.

    After each `every` steps it reports: it averages the metrics, evaluates, calls the loggers,
    writes a checkpoint and calls the callbacks. Ctrl-C ends the training after the step, with a
    checkpoint.

    The entry `memory` of a report is the planned peak memory of a step in bytes, for the largest
    batch since the report before: the peak of `plan.memory`. It is left out if the executor plans
    no memory.

    Args:
        session: The training step as a function; or the session; or a graph, of which a session is
            made.
        step: The update of each step: `optimizer.minimize(loss)`. Not with a function.
        metrics: Tensors without dims by name, computed in each step. Not with a function.
        feeds: The placeholders, in the order of tuples in the data. Not with a function.
        evaluation: Tensors without dims by name, which are averaged over the data for evaluation:
            of the model called with `training=False`. With a function, another function that
            returns them.
        checkpoints: The folder of checkpoints, if any are to be written.
        loggers: Functions that are called with each report: `(step, values)`. See
            `gf.train.Logger`.
        callbacks: Functions that are called with the `Training` after each report. If one returns
            a true value, training ends.
        monitor: The name of the metric by which a checkpoint is best: of the evaluation if that has
            the name, else of the training.
        maximize: Whether larger values of it are better.
        patience: The number of reports in a row without a better value after which training ends;
            None for no such end.
        on_nan: The reaction to a metric that is not finite in a report.
        progress: Whether a progress bar is shown, by the package rich or else tqdm, with steps a
            second, the latest means and the fraction of the time that steps waited for data; None
            shows it on a terminal, and not in CI.

    Raises:
        ArgumentError: An argument makes no sense.

    >>> import numpy as np
    >>> import graphfw as gf
    >>> with gf.Graph() as g:
    ...     x = gf.placeholder(("batch", 3), name="x")
    ...     loss = gf.mean((gf.nn.Linear(3, 1)(x) - gf.sum(x, axis=1, keepdims=True)) ** 2)
    ...     step = gf.optim.Adam(0.1).minimize(loss)
    >>> data = np.random.default_rng(0).standard_normal((64, 3)).astype(np.float32)
    >>> with gf.Session(g) as session:
    ...     trainer = gf.train.Trainer(session, step, {"loss": loss}, feeds=[x])
    ...     result = trainer.fit(gf.data.batches({"x": data}, 16, seed=0, epochs=25), every=50)
    >>> [report["step"] for report in result.history], result.ended_by
    ([50, 100], 'data')
    >>> result.history[0]["loss"] > result.history[1]["loss"]
    True

    The same with a function:

    >>> model, optimizer = gf.nn.Linear(3, 1), gf.optim.Adam(0.1)
    >>> @gf.function
    ... def train_step(x):
    ...     loss = gf.mean((model(x) - gf.sum(x, axis=1, keepdims=True)) ** 2)
    ...     optimizer.minimize(loss)
    ...     return loss
    >>> result = gf.train.Trainer(train_step).fit(gf.data.batches({"x": data}, 16, epochs=25))
    >>> [report["step"] for report in result.history], result.ended_by
    ([100], 'data')
    """

    _answers_as = "Trainer"

    def __init__(
        self,
        session: Session | Graph | Function,
        step: Update | None = None,
        metrics: Mapping[str, Tensor] | None = None,
        *,
        feeds: Sequence[Tensor | str] | None = None,
        evaluation: Mapping[str, Tensor] | Function | None = None,
        checkpoints: Checkpoints | None = None,
        loggers: Sequence[Logger] = (),
        callbacks: Sequence[Callback] = (),
        monitor: str = "loss",
        maximize: bool = False,
        patience: int | None = None,
        on_nan: Literal["raise", "stop", "ignore"] = "raise",
        progress: bool | None = None,
    ) -> None:
        if patience is not None and (type(patience) is not int or patience < 1):
            raise ArgumentError(
                f"Trainer: patience={patience!r} is no number of reports", fix="write patience=5"
            )
        if on_nan not in ("raise", "stop", "ignore"):
            raise ArgumentError(
                f"Trainer: on_nan={on_nan!r}", fix='write on_nan="raise", "stop" or "ignore"'
            )
        if checkpoints is not None and not isinstance(checkpoints, Checkpoints):
            raise ArgumentError(
                f"Trainer: checkpoints is {a_type(checkpoints)}",
                fix="write checkpoints=gf.train.Checkpoints(folder)",
            )
        self._step = computation("Trainer", session, metrics, feeds, step, trains=True, taken=_OWN)
        self._evaluation = self._evaluating(evaluation, feeds)
        self._checkpoints = checkpoints
        self._loggers = _functions("loggers", loggers)
        self._callbacks = _functions("callbacks", callbacks)
        self._monitor = monitor
        self._sign = -1 if maximize else 1
        self._patience = patience
        self._on_nan = on_nan
        self._shows_progress = progress
        self._peaks: dict[Shapes, int | None] = {}
        self._record: dict[str, Any] = {}
        self._unsaved: bool | None = None
        """Whether a checkpoint that could not be written was the best one; None where all were."""
        if not isinstance(session, Function):  # whose metrics are known when it is built
            self._check_monitor()

    if not TYPE_CHECKING:

        def __setattr__(self, name, value):
            # Arguments are checked once; subclasses may have attributes of their own.
            if type(self) is Trainer and not name.startswith("_"):
                raise_unset(self, "Trainer", name)
            object.__setattr__(self, name, value)

    @property
    def session(self) -> Session:
        """The session; of a function, `function.session`."""
        return self._step.session

    def _evaluating(
        self,
        evaluation: Mapping[str, Tensor] | Function | None,
        feeds: Sequence[Tensor | str] | None,
    ) -> Computation | None:
        """Return the computation of the evaluation, where there is one.

        Raises:
            ArgumentError: It is a function and the step is not, or the other way round, or a metric
                has dims.
        """
        if evaluation is None or evaluation == {}:
            return None
        if isinstance(evaluation, Function) != isinstance(self._step, FunctionMetrics):
            raise ArgumentError(
                "Trainer: one of step and evaluation is a function, and the other is not",
                fix="write both as functions, with @gf.function above them, or none",
            )
        if isinstance(evaluation, Function):
            return computation("Trainer", evaluation, None, None)
        return computation("Trainer", self.session, evaluation, feeds)

    def _check_monitor(self) -> None:
        """See that there is a metric to monitor.

        Raises:
            ArgumentError: There is none.
        """
        evaluated = [] if self._evaluation is None else self._evaluation.names
        names = list(dict.fromkeys([*evaluated, *self._step.names]))
        if self._monitor not in names:
            near = did_you_mean(self._monitor.removeprefix(EVALUATED), names)
            there_are = f"the metrics are: {', '.join(names)}"
            raise ArgumentError(
                f"Trainer: there is no metric {self._monitor!r} to monitor",
                fix="; ".join(filter(None, [near, there_are])),
            )

    @property
    def _monitored(self) -> str:
        """The name in a report of the metric that is monitored."""
        evaluated = [] if self._evaluation is None else self._evaluation.names
        return f"{EVALUATED}{self._monitor}" if self._monitor in evaluated else self._monitor

    def fit(
        self,
        data: Any,
        *,
        eval_data: Any = None,
        every: int = 100,
        resume: bool = False,
        ahead: int = 2,
        workers: int = 0,
    ) -> Training:
        """Make a step for each batch of the data, and return the training.

        Args:
            data: Batches, as `gf.data.feeds` takes them; epochs are a matter of the data.
            eval_data: Batches for the evaluation, which can be gone through more than once.
            every: The number of steps from report to report. There is one at the end, too.
            resume: Whether to go on from the latest checkpoint, if there is one.
            ahead: As for `gf.data.feeds`.
            workers: As for `gf.data.feeds`.

        Raises:
            ArgumentError: An argument makes no sense, or the checkpoint is of other data; or the
                function returns no metrics, or updates nothing.
            FeedError: A batch does not fit the placeholders, or the function's parameters.
            ExecutionError: A metric is not finite, and `on_nan` is "raise"; or a step failed.
            CheckpointError: The checkpoint can't be read, or the last one not written.
        """
        if type(every) is not int or every < 1:
            raise ArgumentError(
                f"fit: every={every!r} is no number of steps", fix="write every=100"
            )
        if (eval_data is None) != (self._evaluation is None):
            raise ArgumentError(
                "fit: evaluation wants both the metrics and the data",
                fix="Trainer(…, evaluation={…}) and fit(…, eval_data=…), or neither",
            )
        training, position, path = self._resumed() if resume else (Training(), None, None)
        self._unsaved = None
        reading = {"ahead": ahead, "workers": workers, "position": position}
        batches = self._step.feeds(data, **reading)
        with ExitStack() as stack:
            stack.enter_context(batches)
            if self._evaluation is not None:
                self._evaluation.prepare(eval_data)
            self._check_monitor()
            if path is not None:
                self.session.restore(path)  # only now: where the data is another, nothing changes
            self._begin(stack)
            interrupted = stack.enter_context(interrupts())
            bar = stack.enter_context(progress_bar(batches, self._shows_progress))
            self._steps(training, batches, eval_data, every, interrupted, bar)
        return training

    def _steps(
        self,
        training: Training,
        batches: Feeds,
        eval_data: Any,
        every: int,
        interrupted: threading.Event,
        bar: Any,
    ) -> None:
        step = self._step.metrics
        found: list[Any] = []
        shapes: set[Shapes] = set()
        begun = time.perf_counter()
        for feed in batches:
            found.append(step(feed))
            shapes.add(tuple([array.shape for array in nest.leaves(feed)]))
            training.step += 1
            bar.update()
            if len(found) == every or interrupted.is_set():
                training.ended_by = "interrupt" if interrupted.is_set() else ""
                self._report(training, found, shapes, begun, batches, eval_data, bar)
                if training.ended_by:
                    break
                found, shapes, begun = [], set(), time.perf_counter()
        else:
            training.ended_by = "data"
            if found:
                self._report(training, found, shapes, begun, batches, eval_data, bar)
        if self._unsaved is not None and training.ended_by != "nan":
            self._save(training, batches, self._unsaved)

    def _report(
        self,
        training: Training,
        found: Sequence[Any],
        shapes: set[Shapes],
        begun: float,
        batches: Feeds,
        eval_data: Any,
        bar: Any,
    ) -> None:
        means = np.mean([[float(value) for value in values] for values in found], axis=0)
        report = dict(zip(self._step.names, means.tolist(), strict=True))
        report["seconds"] = (time.perf_counter() - begun) / len(found)
        report["waiting"] = batches.waiting
        memory = self._peak(max(shapes, key=lambda some: sum(map(math.prod, some))))
        if memory is not None:
            report["memory"] = memory
        if self._evaluation is not None:
            own = mean_over(self._evaluation, eval_data, 2)
            report |= {f"{EVALUATED}{name}": value for name, value in own.items()}
        odd = [name for name, value in report.items() if not math.isfinite(value)]
        training.history.append({"step": training.step, **report})
        shown = {name: f"{report[name]:.4g}" for name in self._step.names}
        bar.set_postfix(shown | {"waiting": f"{batches.waiting:.0%}"})
        self._log(training.step, report)
        if odd and self._on_nan != "ignore":
            if self._on_nan == "raise":
                raise ExecutionError(
                    f"fit: {odd[0]!r} is {report[odd[0]]} after step {training.step}",
                    fix="find where it begins with gf.Session(g, debug=True), or lower the "
                    'learning rate; the earlier checkpoints are kept, and on_nan="stop" only ends',
                )
            training.ended_by = "nan"
            return
        is_best = self._is_better(training, report[self._monitored])
        try:
            self._save(training, batches, is_best)
        except (CheckpointError, OSError) as error:
            _warn(f"no checkpoint of step {training.step}: {first_line(error)}")
        late = sum([one["step"] > training.best_step for one in training.history])
        if self._patience is not None and late >= self._patience:
            training.ended_by = training.ended_by or "patience"
        for callback in self._callbacks:
            if callback(training):
                training.ended_by = training.ended_by or "callback"

    def _peak(self, shapes: Shapes) -> int | None:
        """Return the memory that is planned for feeds of these shapes, where there is a plan."""
        if shapes not in self._peaks:
            try:
                self._peaks[shapes] = self._step.plan.memory(*shapes).peak
            except GraphfwError:
                self._peaks[shapes] = None
        return self._peaks[shapes]

    def _is_better(self, training: Training, value: float) -> bool:
        best = training.best
        is_worse = best is not None and self._sign * value >= self._sign * best
        if is_worse or not math.isfinite(value):
            return False
        training.best, training.best_step = value, training.step
        return True

    # What may fail without harm to the training.

    def _begin(self, stack: ExitStack) -> None:
        """Write the record of the run, and begin with the loggers; the stack's end closes them."""
        begin = [getattr(logger, "begin", None) for logger in self._loggers]
        if self._checkpoints is not None or any(begin):
            self._record = run_record(self.session, self._step.plan)
        if self._checkpoints is not None:
            try:
                self._checkpoints.add_run(self._record)
            except (CheckpointError, OSError) as error:
                _warn(f"no record of this run in {self._checkpoints.runs}: {first_line(error)}")
        for logger, method in zip(self._loggers, begin, strict=True):
            if method is not None:
                method(self._record)
            stack.callback(_close, logger)

    def _log(self, step: int, values: Mapping[str, float]) -> None:
        for logger in [*self._loggers]:
            try:
                logger(step, values)
            except Exception as error:
                self._loggers.remove(logger)
                _warn(f"a logger failed, and is left out from now on: {first_line(error)}")

    def _save(self, training: Training, batches: Feeds, is_best: bool) -> None:
        if self._checkpoints is None:
            return
        kept = {
            "training": {
                "step": training.step, "history": training.history, "best": training.best,
                "best_step": training.best_step,
            },
            "data": batches.position,
            "run": self._record,
        }  # fmt: skip
        self._unsaved = is_best
        self._checkpoints.save(self.session, training.step, kept, is_best=is_best)
        self._unsaved = None

    def _resumed(self) -> tuple[Training, Mapping[str, Any] | None, Path | None]:
        """Return the training in the latest checkpoint, the data's position, and the path."""
        if self._checkpoints is None:
            raise ArgumentError(
                "fit: there are no checkpoints to resume from",
                fix="Trainer(…, checkpoints=gf.train.Checkpoints(folder))",
            )
        path = self._checkpoints.latest
        if path is None:
            return Training(), None, None
        kept = kept_metadata(path)
        if "training" not in kept:
            raise CheckpointError(
                f"{os.fspath(path)!r} is no checkpoint of a Trainer",
                fix="choose another folder, or leave resume out",
            )
        return Training(**kept["training"]), kept["data"], path


def _functions(option: str, given: Any) -> list[Any]:
    """Return functions as a list.

    Raises:
        ArgumentError: They are none.
    """
    if not isinstance(given, Sequence) or not all(map(callable, given)):
        raise ArgumentError(
            f"Trainer: {option}={given!r} is no list of functions", fix=f"write {option}=[function]"
        )
    return list(given)


def _close(logger: Logger) -> None:
    """Close a logger that can be closed; the training is over, whatever comes of that."""
    try:
        getattr(logger, "close", lambda: None)()
    except Exception as error:
        _warn(f"a logger could not be closed: {first_line(error)}")


def _warn(text: str) -> None:
    here = capture()
    warnings.warn_explicit(text, UserWarning, here.file, here.line)
