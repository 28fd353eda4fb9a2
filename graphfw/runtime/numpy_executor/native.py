"""Native code that is written by hand (`runner.ll`, `pool.ll`, …), made ready for this machine."""

from __future__ import annotations

from pathlib import Path
from string import Template

from graphfw.runtime.numpy_executor.machine import machine

MAX_WORKERS = 255
SPIN_NS = 200_000
"""The time for which a worker looks for work before it sleeps."""
POLITE_NS = 20_000
"""The time after which it offers its processor to others between looks."""
CONTENDED_NS = 50_000
"""After a turn of others as long as this it sleeps at once: spinning would take time from them, and
a worker that sleeps is woken sooner than one that has given its turn away."""
JOIN_SPINS = 2000
"""The number of times that a caller looks whether its workers are done before it yields."""
DATA_OFFSET = 16
"""The offset of the elements' address in an ndarray object, in 64-bit CPython."""
FLAGS_OFFSET = 64
"""The offset of the flags in an ndarray object."""
ITEMS_OFFSET = tuple.__basicsize__
"""The offset of the items in a tuple: Python 3.14 has the tuple's hash before them."""

_PAUSE = {
    "x86_64": "call void @llvm.x86.sse2.pause()",
    "aarch64": "call void @llvm.aarch64.isb(i32 15)",
}


_CLOCK = 10_000_000
"""Ticks between two questions whether a run should end: about 10 ms. Those of the clock are ns."""
_COUNTER = 1 << 25
"""Counts of an x86-64 processor's counter, of which a second has 1 to 5 thousand millions."""
_MANY_WORK_ITEMS = 32
"""Work items of little work after which a caller looks at the clock."""


def is_windows() -> bool:
    """Return whether there are no POSIX threads."""
    return "windows" in machine().triple


class RunnerCode:
    """The function `i64 (ptr stretch, ptr tuple)` that runs a stretch; see `runner.ll`."""

    tidy = True

    @property
    def key(self) -> str:
        # Its text belongs to the generator, whose version each function's name contains.
        return "runner"

    def llvm(self, symbol: str) -> str:
        here = machine()
        apple = _is_apple()
        pool = ["single_thread.ll"]
        if not is_windows():
            pool = ["pool.ll", "linux.ll" if "linux" in here.triple else "no_affinity.ll"]
        return text_of(
            "arrays.ll",
            "runner.ll",
            *pool,
            clock_file(),
            symbol=symbol,
            max_workers=MAX_WORKERS,
            spin_ns=SPIN_NS,
            polite_ns=POLITE_NS,
            contended_ns=CONTENDED_NS,
            join_spins=JOIN_SPINS,
            many=_MANY_WORK_ITEMS,
            pause=_PAUSE.get(here.architecture, ""),
            block=1 if apple else 0,  # SIG_BLOCK
            restore=3 if apple else 2,  # SIG_SETMASK
        )


class PollCode:
    """The function `i32 (ptr run, i64 thread)` that says whether to end; see `poll.ll`."""

    tidy = True
    key = "poll"

    def llvm(self, symbol: str) -> str:
        # As Python's `get_ident` has it.
        name, kind, widened = "pthread_self", "i64", "add i64 %self, 0"
        if is_windows():
            name, kind, widened = "GetCurrentThreadId", "i32", "zext i32 %self to i64"
        return text_of(
            "poll.ll",
            clock_file(),
            symbol=symbol,
            thread=kind,
            thread_self=name,
            widened=widened,
            longest=3 * period(),
        )


def text_of(*files: str, **values: object) -> str:
    """Return the text of files in this folder, with what is known of this machine put in."""
    folder = Path(__file__).parent
    text = "\n".join((folder / name).read_text("utf-8") for name in files)
    return Template(text).substitute(
        data_offset=DATA_OFFSET,
        flags_offset=FLAGS_OFFSET,
        items_offset=ITEMS_OFFSET,
        clock=6 if _is_apple() else 1,  # CLOCK_MONOTONIC
        ticks="@llvm.readcyclecounter" if period() == _COUNTER else "@now",
        period=period(),
        **values,
    )


def clock_file() -> str:
    """Return the name of the file with the clocks."""
    return "counter.ll" if is_windows() else "clock.ll"


def period() -> int:
    """Return the ticks between two questions whether a run should end."""
    return _COUNTER if machine().architecture == "x86_64" else _CLOCK


def _is_apple() -> bool:
    triple = machine().triple
    return "darwin" in triple or "macos" in triple
