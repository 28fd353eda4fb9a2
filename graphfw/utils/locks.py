"""Locks that an interrupt never leaves taken.

Ctrl-C raises in the main thread between two bytecodes. Before Python 3.14 there is no such moment
between the end of a lock's own `__enter__`, which is no Python, and the beginning of the `with`
block that gives the lock back. From 3.14 on there is one: `with lock:` may take it and never get as
far as its block.
"""

from __future__ import annotations

import sys
import threading
from typing import Any, TypeAlias

RLock: TypeAlias = Any
"""The type that `reentrant` returns: `threading.RLock`'s type has no public name."""


class _Kept(type(threading.RLock())):  # type: ignore[misc]  # a type without a public name
    """A reentrant lock that gives itself back where it is interrupted before the block.

    Its `__exit__` is the original one: a function of Python's could be interrupted at its start.
    """

    def __enter__(self) -> bool:
        taken: list[bool] = []
        try:
            # One call of functions that are no Python: an interrupt comes before it or after it.
            taken.extend(map(self.acquire, (True,)))
        except BaseException:
            if taken:
                self.release()
            raise
        return True


def reentrant() -> RLock:
    """Return a new lock, for `with`, that its thread may take again, in a signal handler, too."""
    return _Kept() if sys.version_info >= (3, 14) else threading.RLock()
