"""Streams: runs on several of them see each other's variables in the right order."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import Any, TypeAlias

from graphfw.utils import locks

PER_THREAD = 2
"""The address that stands for each thread's own default stream."""

Key: TypeAlias = "tuple[int, int]"
"""A key that tells streams apart: an address, and the thread where that has its own stream."""

_LEFT: deque[tuple[tuple[Any, ...], Any]] = deque()
"""Arrays that nobody has any more, closed sessions' too, each with events of streams that may still
read it. CuPy would hand their memory out again, knowing only of the stream it was asked for on."""


def collect(*, wait: bool = False) -> bool:
    """Give back the memory of arrays that nobody has any more, where streams are done with it.

    Args:
        wait: Whether to wait for them.

    Returns:
        Whether there was any.
    """
    found = False
    while _LEFT:
        try:
            left = _LEFT.popleft()
        except IndexError:  # another thread was quicker
            break
        events, _ = left
        is_done = False
        try:
            if wait:
                for event in events:
                    event.synchronize()
            is_done = wait or all([event.done for event in events])
        finally:
            if not is_done:
                _LEFT.appendleft(left)
        if not is_done:
            break
        found = True
    return found


def key_of(stream: Any) -> Key:
    """Return a key that tells a stream, which this thread uses, from others."""
    return stream.ptr, threading.get_ident() if stream.ptr == PER_THREAD else 0


class StreamEvents:
    """The events that streams have to wait for.

    What is launched on one stream happens in order; on two of them it need not. A run begins after
    the last one that has given variables new contents; new contents go over old ones after all runs
    that read these.

    Args:
        cupy: The module.
    """

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._lock = locks.reentrant()
        self._events: dict[Key, Any] = {}
        self._readers: set[Key] = set()
        self._writer: Key | None = None
        self._last: Key | None = None
        self._are_several = False

    def lasting(self, array: Any) -> Any:
        """Return an array whose memory stays until all streams are done that may read it.

        Who launches what reads it has to keep it until that is noted.
        """
        view = array.view()
        weakref.finalize(view, self._leave, array).atexit = False
        return view

    def _leave(self, array: Any) -> None:
        if self._are_several:  # on a single one memory is handed out in order
            _LEFT.append((tuple(self._events.values()), array))

    def reads(self, stream: Any) -> None:
        """Have a stream wait for the contents of the variables as they are now."""
        if _LEFT:
            collect()
        with self._lock:
            self._wait(stream, {self._writer} if self._writer else set())

    def has_read(self, stream: Any) -> None:
        """Note that what reads the variables has been launched."""
        with self._lock:
            self._record(stream)
            self._readers.add(key_of(stream))

    def overwrites(self, stream: Any) -> None:
        """Have a stream wait for who reads the variables, before it changes them."""
        with self._lock:
            self._wait(stream, self._readers)
            self._record(stream)
            self._readers = {key_of(stream)}  # who waits for this stream waits for them all

    def has_written(self, stream: Any) -> None:
        """Note that what writes variables has been launched, after `reads`."""
        with self._lock:
            self._record(stream)
            self._writer = key_of(stream)
            self._readers.discard(self._writer)  # who waits for what is new waits for that, too

    def _wait(self, stream: Any, others: set[Key]) -> None:
        for other in others - {key_of(stream)}:
            stream.wait_event(self._events[other])

    def _record(self, stream: Any) -> None:
        key = key_of(stream)
        self._are_several |= self._last not in (None, key)
        self._last = key
        if key not in self._events:
            self._forget_what_is_done()
            self._events[key] = self._cupy.cuda.Event(disable_timing=True)
        self._events[key].record(stream)

    def _forget_what_is_done(self) -> None:
        """Forget streams that nobody has to wait for: there may be another one for each run."""
        for key in [key for key, event in self._events.items() if event.done]:
            del self._events[key]
            self._readers.discard(key)
            self._writer = None if self._writer == key else self._writer
