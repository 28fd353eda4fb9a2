"""Python's garbage collector, kept still for a moment."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from graphfw.utils import forks

_stopped_by: list[int] = []
"""The threads that have stopped it."""


@contextmanager
def without_collection() -> Iterator[None]:
    """Keep the garbage collector still while many objects are made that all stay.

    It would walk all of them again and again: almost a third of the time to differentiate a graph,
    or to compile 100,000 nodes.
    """
    if not gc.isenabled():
        yield
        return
    me = threading.get_ident()
    _stopped_by.append(me)
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        _stopped_by.remove(me)


def _after_fork() -> None:
    if _stopped_by and threading.get_ident() not in _stopped_by:
        _stopped_by.clear()
        gc.enable()


forks.in_child(_after_fork)
