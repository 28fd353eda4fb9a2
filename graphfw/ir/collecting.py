"""Python's garbage collector, kept still for a moment."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from graphfw.ir import forks

_stopped_by: list[int] = []
"""The threads that have stopped it."""

_SETTLED = 200_000
"""So many objects are called old as soon as they are made; see `_settle`."""

_settled = 0
"""How many have been."""


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
        _settle()
        gc.enable()
        _stopped_by.remove(me)


def _settle() -> None:
    """Have the collector call all objects old, which it else does when it has walked them twice.

    A first result comes sooner so. What is garbage among them stays until all objects are
    collected, which comes the later for it: so only a process's first ones are treated like this.
    """
    global _settled
    if _settled >= _SETTLED or not hasattr(gc, "freeze"):
        return
    if gc.get_freeze_count():
        # Whoever has frozen objects wants them to stay so; to count them takes long, so only once.
        _settled = _SETTLED
        return
    _settled += gc.get_count()[0]
    gc.freeze()
    gc.unfreeze()


def _after_fork() -> None:
    if _stopped_by and threading.get_ident() not in _stopped_by:
        _stopped_by.clear()
        gc.enable()


forks.in_child(_after_fork)
