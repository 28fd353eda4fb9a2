"""Calls of kernels' work items that a test makes without the runner."""

import ctypes
import functools

from graphfw.runtime.numpy_executor.runner import Run, Tables

WORK_ITEM = ctypes.CFUNCTYPE(
    ctypes.c_int32, *[ctypes.c_void_p] * 2, ctypes.c_int64, *[ctypes.c_void_p] * 2, ctypes.c_int64
)
"""A native function that computes a work item."""


@functools.cache
def _run(ended: bool) -> Run:
    run = Run(Tables([], 0, 0), 1)
    run._state[12] = ended
    return run


def in_a_run() -> tuple[int, int]:
    """Return a run that goes on, and a thread other than the caller's, which would ask signals."""
    return _run(False).address, 1


def in_an_ended_run() -> tuple[int, int]:
    """Return a run in which another thread's work item has ended the call, and a thread."""
    return _run(True).address, 1
