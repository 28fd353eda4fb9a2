"""The times of a run by step and source line, as a table and as a trace."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from graphfw.hints.names import Answering
from graphfw.utils.records import record


@record
class Timing(Answering):
    """One step of a run.

    Attributes:
        step: Its number.
        label: The ops inside.
        location: The source lines that made them.
        seconds: Added up over the threads.
        begin: When its first piece began, in seconds after the run's first.
        end: When its last piece was done.
        least: What the machine needs at least, as `plan.explain` predicts it; 0 where not known.
    """

    _answers_as = "Report"

    step: int
    label: str
    location: str
    seconds: float
    begin: float
    end: float
    least: float


class Event(NamedTuple):
    """One piece of a step on one thread; times in seconds after the run's first."""

    step: int
    thread: int
    begin: float
    end: float


@record
class Profile:
    """The times of one run; print it for a table.

    Attributes:
        timings: The steps, the longest first.
        events: What each thread did when.
        seconds: From the first piece's beginning to the last one's end.
    """

    timings: tuple[Timing, ...]
    events: tuple[Event, ...]
    seconds: float

    def __repr__(self) -> str:
        busy = sum(timing.seconds for timing in self.timings) or 1.0
        rows = [("step", "ms", "share", "least ms", "ops", "made at")]
        for t in self.timings:
            least = f"{t.least * 1e3:.4f}" if t.least else "-"
            share = f"{100 * t.seconds / busy:.1f}%"
            rows.append((str(t.step), f"{t.seconds * 1e3:.4f}", share, least, t.label, t.location))
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        head = f"{self.seconds * 1e3:.3f} ms on the clock, {busy * 1e3:.3f} ms over all threads"
        lines = [
            f"{a:>{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}  {d:>{widths[3]}}  "
            f"{e:<{widths[4]}}  {f}".rstrip()
            for a, b, c, d, e, f in rows
        ]
        return "\n".join([head, *lines])

    def trace(self, path: str | os.PathLike[str]) -> None:
        """Write a trace that Perfetto and Chrome's `about:tracing` show.

        The format: "Trace Event Format", complete events (`"ph": "X"`), times in microseconds.
        """
        import json  # 2 ms of the import of graphfw, for those who write traces

        known = {timing.step: timing for timing in self.timings}
        events = [
            {
                "name": known[event.step].label,
                "cat": "step",
                "ph": "X",
                "ts": event.begin * 1e6,
                "dur": (event.end - event.begin) * 1e6,
                "pid": 0,
                "tid": event.thread,
                "args": {"step": event.step, "at": known[event.step].location},
            }
            for event in self.events
        ]
        text = json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})
        Path(path).write_text(text, encoding="utf-8")


class Label(NamedTuple):
    """The name of a step, and the least time it needs, in seconds."""

    label: str
    location: str
    least: float


def profile(events: Sequence[Event], labels: Sequence[Label]) -> Profile:
    """Add up the events of each step; their times may count from anywhere."""
    start = min((event.begin for event in events), default=0.0)
    shifted = [event._replace(begin=event.begin - start, end=event.end - start) for event in events]
    pieces: dict[int, list[Event]] = {}
    for event in shifted:
        pieces.setdefault(event.step, []).append(event)
    timings = [
        Timing(
            step,
            labels[step].label,
            labels[step].location,
            sum(event.end - event.begin for event in own),
            min(event.begin for event in own),
            max(event.end for event in own),
            labels[step].least,
        )
        for step, own in pieces.items()
    ]
    timings.sort(key=lambda timing: -timing.seconds)
    return Profile(
        tuple(timings), tuple(shifted), max((event.end for event in shifted), default=0.0)
    )
