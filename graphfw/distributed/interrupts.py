"""Ctrl-C while processes commit together: it waits until this one has committed, too."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class HeldInterrupts:
    """A `with` block in which interrupts can be held back; they come at its end."""

    def __init__(self) -> None:
        self._handler: Any = None
        self._came: tuple[int, FrameType | None] | None = None

    def __enter__(self) -> HeldInterrupts:
        return self

    def hold(self) -> None:
        """Hold interrupts back from here to the end of the block."""
        # Python calls handlers in the main thread, and lets only that one set them.
        if threading.current_thread() is not threading.main_thread():
            return
        handler = signal.getsignal(signal.SIGINT)
        if self._handler is None and callable(handler):
            self._handler = handler
            signal.signal(signal.SIGINT, self._note)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        handler, self._handler = self._handler, None
        came, self._came = self._came, None
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
        if came is not None:
            handler(*came)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came = number, frame
