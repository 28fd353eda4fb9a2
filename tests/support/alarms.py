"""Ctrl-C at moments that a test chooses: the timer's signal comes with microseconds' precision."""

import gc
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

needs_timers = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs POSIX timers")


@contextmanager
def garbage_left_alone() -> Iterator[None]:
    """Keep interrupts from what the garbage collector calls, where they are lost with a warning.

    Test tools watch it, and other tests' garbage may run code as it is collected.
    """
    callbacks, gc.callbacks[:] = gc.callbacks[:], []
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.callbacks[:] = callbacks


@contextmanager
def alarm_is_ctrl_c() -> Iterator[None]:
    """Let the timer's signal do what Ctrl-C does."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
