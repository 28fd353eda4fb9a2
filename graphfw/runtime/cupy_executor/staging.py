"""Arrays between the host and a GPU, through pinned memory, which can be copied meanwhile."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from graphfw.ir.dtype import DType
from graphfw.ir.literal import Array
from graphfw.runtime.planning.arena import rounded, side_by_side
from graphfw.utils import locks

_MOST = 64 << 20
"""Bytes of results that are copied to the host through pinned memory."""

_LOCK = locks.reentrant()

_SENT: defaultdict[int, deque[tuple[Any, Any]]] = defaultdict(deque)
"""The pinned memory of each GPU that may still be copied, and the event after the copy; that of
closed sessions, too, as CuPy would hand it out again."""


class HostArray(NamedTuple):
    """An array of the host that a run is given.

    Attributes:
        array: The array.
        offset: Where it goes, in bytes.
    """

    array: Array
    offset: int


class PendingCopy(NamedTuple):
    """A copy of a few bytes from the GPU to the host, not finished yet.

    Attributes:
        event: The end of the copy.
        room: The memory of the host that it writes, as bytes.
    """

    event: Any
    room: Array


class Staging:
    """Copies arrays from the host to a GPU and back. The caller's arrays are free again at once.

    Args:
        cupy: The module.
        number: Which GPU it is.
    """

    def __init__(self, cupy: Any, number: int) -> None:
        self._cupy = cupy
        self._sent = _SENT[number]

    def send(self, pieces: Sequence[HostArray], base: int, stream: Any) -> list[Array]:
        """Copy arrays to a piece of the GPU's memory: those that lie side by side there, together.

        The caller's arrays are free at once; the copies that are returned stay as they are.

        Args:
            pieces: The arrays, in the order of their offsets.
            base: The address that the offsets count from.
            stream: On which stream.
        """
        begin = 0
        copies: list[Array] = []
        for end in range(1, len(pieces) + 1):
            if end == len(pieces) or not _adjoin(pieces[end - 1], pieces[end]):
                copies += self._send(pieces[begin:end], base, stream)
                begin = end
        return copies

    def _send(self, pieces: Sequence[HostArray], base: int, stream: Any) -> list[Array]:
        first, last = pieces[0].offset, pieces[-1]
        nbytes = last.offset + last.array.nbytes - first
        if not nbytes:
            return [array for array, _ in pieces]
        memory, room = self._room(nbytes)
        copies = []
        for array, offset in pieces:
            begin = offset - first
            flat = room[begin : begin + array.nbytes].view(array.dtype)
            copies.append(flat.reshape(array.shape))
            np.copyto(copies[-1], array)
        runtime = self._cupy.cuda.runtime
        copy = runtime.memcpyHostToDevice
        runtime.memcpyAsync(base + first, memory.ptr, nbytes, copy, stream.ptr)
        event = self._cupy.cuda.Event(disable_timing=True)
        event.record(stream)
        self._sent.append((event, memory))
        return copies

    def fetch(self, arrays: Sequence[Any], stream: Any) -> list[Array]:
        """Return arrays of the GPU as NumPy arrays, which are waited for once."""
        runtime = self._cupy.cuda.runtime
        rows = [a if a.flags.c_contiguous else self._cupy.array(a, order="C") for a in arrays]
        begins, nbytes = side_by_side([row.nbytes for row in rows])
        if nbytes > _MOST:  # CUDA has pinned memory of its own, and copies piece by piece
            return [self._cupy.asnumpy(row) for row in rows]
        memory, room = self._room(max(nbytes, 1))
        for row, begin in zip(rows, begins, strict=True):
            if row.nbytes:
                target, kind = memory.ptr + begin, runtime.memcpyDeviceToHost
                runtime.memcpyAsync(target, row.data.ptr, row.nbytes, kind, stream.ptr)
        stream.synchronize()
        # Copies: pinned memory is scarce, and who collects results would keep all of it.
        return [
            room[begin : begin + row.nbytes].view(row.dtype).reshape(row.shape).copy()
            for row, begin in zip(rows, begins, strict=True)
        ]

    def coming(self, address: int, stream: Any) -> PendingCopy:
        """Begin to copy an int32 to the host."""
        runtime = self._cupy.cuda.runtime
        memory, room = self._room(4)
        runtime.memcpyAsync(memory.ptr, address, 4, runtime.memcpyDeviceToHost, stream.ptr)
        event = self._cupy.cuda.Event(disable_timing=True)
        event.record(stream)
        return PendingCopy(event, room)

    def numbers(self, addresses: Sequence[tuple[int, DType]], stream: Any) -> list[int]:
        """Return numbers at addresses of the GPU, once all that was launched before is done."""
        runtime = self._cupy.cuda.runtime
        memory, room = self._room(8 * len(addresses))
        for index, (address, dtype) in enumerate(addresses):
            kind = runtime.memcpyDeviceToHost
            runtime.memcpyAsync(memory.ptr + 8 * index, address, dtype.itemsize, kind, stream.ptr)
        stream.synchronize()
        words = [room[8 * index :] for index in range(len(addresses))]
        return [
            int(word[: dtype.itemsize].view(dtype.dtype)[0])
            for word, (_, dtype) in zip(words, addresses, strict=True)
        ]

    def _room(self, nbytes: int) -> tuple[Any, Array]:
        """Return pinned memory, and it as an array of bytes."""
        with _LOCK:
            while self._sent and self._sent[0][0].done:
                self._sent.popleft()
        memory = self._cupy.cuda.alloc_pinned_memory(nbytes)
        return memory, np.frombuffer(memory, np.uint8, nbytes)


def _adjoin(one: HostArray, other: HostArray) -> bool:
    return other.offset <= rounded(one.offset + one.array.nbytes)
