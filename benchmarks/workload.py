"""Workloads, and the results of measuring one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from benchmarks import timing
from benchmarks.machine import FLOORS, PEERS

Steps = list[tuple[str, float]]
"""The steps of a call with their shares of its time, the longest first."""


@dataclass(frozen=True)
class Case:
    """A contender that is ready to run.

    Attributes:
        run: The call that is timed.
        check: What the results to compare come from, where `run` does not return them.
        settle: What is done after each round, untimed.
        steps: Says where the time of a call goes, for contenders that can tell.
    """

    run: Callable[[], object]
    check: Callable[[], object] | None = None
    settle: Callable[[], None] | None = None
    steps: Callable[[], Steps] | None = None


Maker = Callable[[], Case]
"""Makes a contender in the process it runs in; picklable: a function of a module, or a partial."""


@dataclass(frozen=True)
class Target:
    """The figure that graphfw should reach.

    Attributes:
        limit: The largest ratio to `of`, or the most seconds.
        of: "best peer", a contender's name, or "seconds".
        row: Which figure is meant, where it is not graphfw's.
    """

    limit: float
    of: str = "best peer"
    row: str = "graphfw"

    def value(self, seconds: Mapping[str, float]) -> float | None:
        """Return the ratio, or the seconds; None where a figure that it needs is missing."""
        own = seconds.get(self.row)
        if own is None or self.of == "seconds":
            return own
        if self.of == "best peer":
            peers = [s for name, s in seconds.items() if name in PEERS]
            return own / min(peers) if peers else None
        return own / seconds[self.of] if self.of in seconds else None

    def __str__(self) -> str:
        row = "" if self.row == "graphfw" else f"{self.row}: "
        if self.of == "seconds":
            return f"{row}≤ {timing.text(self.limit)}"
        return f"{row}≤ {self.limit:g} × {self.of}"


@dataclass
class Result:
    """One workload's figures.

    Attributes:
        name: The workload.
        title: What it computes, on what.
        seconds: The median time of each contender (or another figure, see `unit`).
        minima: The least time of each, of stretches of a millisecond or of one call.
        targets: What graphfw should reach.
        notes: Anything to know when reading a figure, by contender: why there is none, say.
        failed: Contenders whose results differ, or that raised an error.
        unit: What the figures are: "s" or "MiB".
        steps: Where graphfw's time goes, if the settings ask for it.
    """

    name: str
    title: str
    seconds: dict[str, float]
    minima: dict[str, float] = field(default_factory=dict)
    targets: tuple[Target, ...] = ()
    notes: dict[str, str] = field(default_factory=dict)
    failed: tuple[str, ...] = ()
    unit: str = "s"
    steps: Steps = field(default_factory=list)

    def text(self, value: float) -> str:
        """Say a figure with its unit."""
        return timing.text(value) if self.unit == "s" else f"{value:.0f} {self.unit}"


@dataclass(frozen=True)
class Settings:
    """The settings of a measurement.

    Attributes:
        contenders: Who takes part.
        threads: How many threads, which is also how many cores, each of them has.
        rounds: How many turns each of them takes; 0: results are compared, and nothing is timed.
        budget_s: After how long a workload ends early, with three rounds at least.
        device: Where they compute: "cpu" or "cuda".
        patience_s: How long one may take until it is ready for a workload; None: as long as it
            wants to.
        steps: Whether graphfw says where its time goes.
    """

    contenders: tuple[str, ...]
    threads: int = 2
    rounds: int = 7
    budget_s: float = 3.0
    device: str = "cpu"
    patience_s: float | None = None
    steps: bool = False

    def takes(self, name: str) -> bool:
        """Return whether a contender takes part; floors always do."""
        return name in self.contenders or name in FLOORS


class Failure(Exception):
    """A contender raised an error, or its process died; the text is the error's last line."""


class Runner(Protocol):
    """The runner of the contenders' processes; see `workers.Pool`."""

    settings: Settings

    def call(self, contender: str, function: Callable[..., Any], *args: Any) -> Any:
        """Return what a function returns in the contender's process.

        Raises:
            Failure: It raised an error there.
        """

    def measure(self, workload: Contest) -> Result:
        """Compare the contenders' results, then their times."""


class Workload(Protocol):
    """Something with a name that can be measured."""

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def targets(self) -> tuple[Target, ...]: ...

    def measure(self, runner: Runner) -> Result: ...


@dataclass(frozen=True)
class Contest:
    """A workload in which contenders do the same.

    Attributes:
        name: How it is called on the command line.
        title: What is computed, on what.
        makers: How each contender is made.
        targets: What graphfw should reach.
        rtol, atol: How far results may be apart: atol is relative to the largest element.
        checks: How many calls' results are compared: several for training steps.
    """

    name: str
    title: str
    makers: Mapping[str, Maker]
    targets: tuple[Target, ...] = ()
    rtol: float = 1e-4
    atol: float = 1e-5
    checks: int = 1

    def measure(self, runner: Runner) -> Result:
        return runner.measure(self)


@dataclass(frozen=True)
class Probe:
    """A workload that measures in a way of its own.

    Attributes:
        name, title, targets: As in `Contest`.
        function: Returns the figures, by row, and notes.
        unit: See `Result`.
    """

    name: str
    title: str
    function: Callable[[Runner], tuple[dict[str, float], dict[str, str]]]
    targets: tuple[Target, ...] = ()
    unit: str = "s"

    def measure(self, runner: Runner) -> Result:
        result = Result(self.name, self.title, {}, targets=self.targets, unit=self.unit)
        try:
            result.seconds, result.notes = self.function(runner)
        except Failure as error:
            result.notes = {"graphfw": f"failed: {error}"}
        result.failed = tuple(n for n, note in result.notes.items() if note.startswith("failed"))
        return result
