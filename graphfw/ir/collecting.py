"""Python's garbage collector, kept still for a moment."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """Keep the garbage collector still while many objects are made that all stay.

    It would walk all of them again and again: almost a third of the time to differentiate a graph,
    or to compile 100,000 nodes.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
