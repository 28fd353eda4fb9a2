"""Tasks on several threads, where a computation may use these: NumPy computes on one."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

_threads: contextvars.ContextVar[int] = contextvars.ContextVar("threads", default=1)


@contextmanager
def allowed(threads: int) -> Iterator[None]:
    """Let what is computed here use so many threads, the caller's included."""
    token = _threads.set(threads)
    try:
        yield
    finally:
        _threads.reset(token)


def threads_here() -> int:
    """Return how many threads a computation may use."""
    return _threads.get()


def both(first: Callable[[], None], second: Callable[[], None]) -> None:
    """Do two tasks: at once where there is more than one thread, each with half of them."""
    threads = _threads.get()
    if threads == 1:
        first()
        second()
        return

    def separate() -> None:
        with allowed(threads // 2):
            second()

    context = contextvars.copy_context()
    with ThreadPoolExecutor(1, "graphfw side by side") as helper:
        done = helper.submit(context.run, separate)
        with allowed(threads - threads // 2):
            first()
        done.result()
