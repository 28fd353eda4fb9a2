"""The runner and its thread pool: `runner.ll`, `pool.ll` and so on, made ready for this machine."""

from __future__ import annotations

from pathlib import Path
from string import Template

from graphfw.runtime.numpy_executor.machine import machine

MAX_WORKERS = 255
SPIN_NS = 200_000
"""For how long a worker looks for work before it sleeps."""
POLITE_NS = 20_000
"""For how long it does so before it offers its processor to others between looks."""
CONTENDED_NS = 50_000
"""After a turn of others as long as this it sleeps at once: spinning would take time from them, and
a worker that sleeps is woken sooner than one that has given its turn away."""
JOIN_SPINS = 2000
"""How often a caller looks whether its workers are done before it yields its processor."""
DATA_OFFSET = 16
"""Where in an ndarray object the address of its elements lies, in 64-bit CPython."""
FLAGS_OFFSET = 64
"""Where in an ndarray object its flags lie."""
ITEMS_OFFSET = tuple.__basicsize__
"""Where in a tuple its items begin: Python 3.14 has the tuple's hash before them."""

_PAUSE = {
    "x86_64": "call void @llvm.x86.sse2.pause()",
    "aarch64": "call void @llvm.aarch64.isb(i32 15)",
}


class RunnerCode:
    """The function `i64 (ptr stretch, ptr tuple)` that runs a stretch; see `runner.ll`."""

    tidy = True

    @property
    def key(self) -> str:
        # Its text belongs to the generator, whose version is a part of each function's name.
        return "runner"

    def llvm(self, symbol: str) -> str:
        here = machine()
        apple = "darwin" in here.triple or "macos" in here.triple
        files = ["arrays.ll", "runner.ll"]
        if "windows" in here.triple:
            files += ["alone.ll"]
        else:
            files += ["pool.ll", "linux.ll" if "linux" in here.triple else "elsewhere.ll"]
        folder = Path(__file__).parent
        text = "\n".join((folder / name).read_text("utf-8") for name in files)
        return Template(text).substitute(
            symbol=symbol,
            data_offset=DATA_OFFSET,
            flags_offset=FLAGS_OFFSET,
            items_offset=ITEMS_OFFSET,
            max_workers=MAX_WORKERS,
            spin_ns=SPIN_NS,
            polite_ns=POLITE_NS,
            contended_ns=CONTENDED_NS,
            join_spins=JOIN_SPINS,
            pause=_PAUSE.get(here.architecture, ""),
            clock=6 if apple else 1,  # CLOCK_MONOTONIC
            block=1 if apple else 0,  # SIG_BLOCK
            restore=3 if apple else 2,  # SIG_SETMASK
        )
