"""The flag that native code looks at to see whether a run should end. `poll.ll` has the offsets."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
from numpy.typing import NDArray

from graphfw.errors import ExecutionError
from graphfw.ir import time_limits
from graphfw.runtime.numpy_executor.engine import compile_codes
from graphfw.runtime.numpy_executor.native import PollCode
from graphfw.utils import forks

_FUNCTIONS = (
    "PyGILState_Ensure",
    "PyGILState_Release",
    "PyErr_CheckSignals",
    "PyErr_SetNone",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
)


class ForkedError(ExecutionError):
    """A signal handler has forked inside of a run, whose other threads the child does not have."""

    def __init__(self) -> None:
        super().__init__(
            "a signal handler forked while this run was under way, so the child can't finish it",
            fix="note the signal in the handler, and fork when the run is over",
        )


class _Watch:
    """The function that asks, and the words that it reads.

    Attributes:
        address: Of the function.
        words: The words.
    """

    def __init__(self) -> None:
        (self.address,) = compile_codes([PollCode()])
        functions = [getattr(ctypes.pythonapi, name) for name in _FUNCTIONS]
        self.words: NDArray[np.int64] = np.array(
            [
                0,
                time_limits.table.ctypes.data,
                0,
                id(time_limits.TimeOverError),
                *[ctypes.cast(f, ctypes.c_void_p).value or 0 for f in functions],
                id(ForkedError),
            ],
            np.int64,
        )
        self.renew()

    def renew(self) -> None:
        """Say which thread hears signals: in a forked child it may be another one."""
        self.words[2] += 1
        self.words[0] = threading.main_thread().ident or 0


_made: list[_Watch] = []
_lock = forks.renewed_lock()


def _watch() -> _Watch:
    with _lock:
        if not _made:
            _made.append(_Watch())
        return _made[0]


def poll_address() -> int:
    """Return where the function is that says whether a run should end."""
    return _watch().address


def watch_address() -> int:
    """Return where the words are that it reads."""
    return _watch().words.ctypes.data


def _after_fork() -> None:
    for watch in _made:
        watch.renew()


forks.in_child(_after_fork)
