"""Streams, events and CUDA graphs without a GPU: launches happen at once, or are recorded."""

from __future__ import annotations

import random
import threading
import time
import types
from collections.abc import Callable
from functools import partial
from typing import Any


class CUDARuntimeError(RuntimeError):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Recording:
    """The calls that are recorded, with what each piece has to wait for.

    Attributes:
        work: The pieces.
        after: For each piece the places of those that come before it.
        ends: By stream, the places of those that its next piece comes after.
        open: The streams that have joined, and whose ends nobody has waited for.
    """

    def __init__(self, stream: int) -> None:
        self.work: list[Callable[[], None]] = []
        self.after: list[frozenset[int]] = []
        self.ends: dict[int, frozenset[int]] = {stream: frozenset()}
        self.open: set[int] = set()

    def add(self, work: Callable[[], None], stream: int) -> None:
        self.after.append(self.ends[stream])
        self.ends[stream] = frozenset([len(self.work)])
        self.work.append(work)
        if stream in self.open or len(self.ends) == 1:
            return
        if stream != next(iter(self.ends)):
            self.open.add(stream)


class Streams:
    """All of them.

    Attributes:
        graphs: Those that have been recorded.
        waits: Of each wait for an event, the addresses of the stream that waits, and of that which
            recorded the event.
        require: Raises an error where the GPU has failed.
        refuses: What CUDA says at the end of a recording, where that is not empty.
        is_done: Whether what was launched is done already, for who asks and does not wait.
    """

    def __init__(self, require: Callable[[], None]) -> None:
        self.require = require
        self.graphs: list[FakeGraph] = []
        self.waits: list[tuple[int, int]] = []
        self.refuses = ""
        self.is_done = True
        self.null = FakeStream(self, 0)
        self._own = threading.local()
        self._count = 100
        self._recording: dict[int, Recording] = {}

    @property
    def stack(self) -> list[FakeStream]:
        """This thread's current streams."""
        return self._own.__dict__.setdefault("stack", [self.null])

    def current(self) -> FakeStream:
        return self.stack[-1]

    @property
    def is_recording(self) -> bool:
        """Whether what happens on the current stream is recorded: nothing may wait for it then."""
        return self.current().ptr in self._recording

    def perform(self, work: Callable[[], None], stream: int | None = None) -> None:
        """Do a piece of work, or record it."""
        on = self.current().ptr if stream is None else stream
        recording = self._recording.get(on)
        if recording is None:
            work()
        else:
            recording.add(work, on)

    def new(self, *, non_blocking: bool = False) -> FakeStream:
        self._count += 1
        return FakeStream(self, self._count, non_blocking=non_blocking)


class FakeStream:
    def __init__(self, streams: Streams, ptr: int, *, non_blocking: bool = False) -> None:
        self._streams = streams
        self.ptr = ptr
        self.non_blocking = non_blocking

    def __enter__(self) -> FakeStream:
        self._streams.stack.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._streams.stack.pop()

    def begin_capture(self, mode: int | None = None) -> None:
        assert self.ptr, "cannot capture on the default (legacy) stream"
        assert self.non_blocking
        assert self.ptr not in self._streams._recording
        self._streams._recording[self.ptr] = Recording(self.ptr)

    def end_capture(self) -> FakeGraph:
        known = self._streams._recording
        recording = known[self.ptr]
        for stream in [stream for stream, found in known.items() if found is recording]:
            del known[stream]
        if self._streams.refuses:
            raise CUDARuntimeError(901, self._streams.refuses)
        assert not recording.open, "cudaErrorStreamCaptureUnjoined"
        self._streams.graphs.append(FakeGraph(self._streams, recording))
        return self._streams.graphs[-1]

    def synchronize(self) -> None:
        assert not self._streams.is_recording, "waits for what is only recorded"

    def wait_event(self, event: FakeEvent) -> None:
        assert event.stream is not None
        if event.recording is None:
            assert self.ptr not in self._streams._recording, "cudaErrorStreamCaptureIsolation"
            self._streams.waits.append((self.ptr, event.stream))
            return
        self._streams._recording[self.ptr] = event.recording
        ends = event.recording.ends
        ends[self.ptr] = ends.get(self.ptr, frozenset()) | event.ends
        if event.ends == ends[event.stream]:
            event.recording.open.discard(event.stream)

    def launch_host_func(self, function: Callable[[Any], Any], given: Any) -> None:
        threading.Thread(target=function, args=(given,)).start()


class FakeGraph:
    """A graph; each launch takes another order of what need not wait for one another.

    Attributes:
        work: What it does.
        after: See `Recording`.
        launches: How often it was launched.
    """

    def __init__(self, streams: Streams, recording: Recording) -> None:
        self._streams = streams
        self.work = recording.work
        self.after = recording.after
        self.launches = 0

    def launch(self, stream: FakeStream) -> None:
        assert stream.ptr not in self._streams._recording
        self._streams.require()
        self.launches += 1
        order = random.Random(self.launches)
        left = {*range(len(self.work))}
        while left:
            piece = order.choice([n for n in sorted(left) if not self.after[n] & left])
            left.remove(piece)
            self.work[piece]()


class FakeEvent:
    def __init__(self, streams: Streams, *, disable_timing: bool = False) -> None:
        self._streams = streams
        self.is_timed = not disable_timing
        self.stream: int | None = None
        self.recording: Recording | None = None
        self.ends: frozenset[int] = frozenset()
        self.time = 0.0

    def record(self, stream: FakeStream) -> None:
        self.stream = stream.ptr
        self.recording = self._streams._recording.get(stream.ptr)
        if self.recording is not None:
            self.ends = self.recording.ends[stream.ptr]
        self.time = time.perf_counter()

    @property
    def done(self) -> bool:
        assert self.recording is None, "cudaErrorCapturedEvent"
        return self._streams.is_done

    def synchronize(self) -> None:
        assert self.stream is not None
        assert self.recording is None, "cudaErrorCapturedEvent"


def elapsed(first: FakeEvent, last: FakeEvent) -> float:
    """Return the milliseconds between two events."""
    assert first.is_timed, "cudaErrorInvalidResourceHandle"
    assert last.is_timed, "cudaErrorInvalidResourceHandle"
    return (last.time - first.time) * 1e3


def stream_names(streams: Streams) -> types.SimpleNamespace:
    """Return the names of `cupy.cuda` for streams, graphs and events."""

    class Stream:
        begin_capture = FakeStream.begin_capture

        def __new__(cls, *, non_blocking: bool = False) -> Any:
            return streams.new(non_blocking=non_blocking)

    return types.SimpleNamespace(
        Stream=Stream,
        Graph=FakeGraph,
        Event=partial(FakeEvent, streams),
        get_elapsed_time=elapsed,
        get_current_stream=streams.current,
    )
