"""Large weights of a model's file, read into arrays of their own.

Protobuf would copy them from the file's bytes into its messages, and NumPy out of these. So the
file's fields are looked through first: all but the bytes of large initializers is handed on to
protobuf, and those are read straight into the arrays that become constants.

The format: https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from io import BufferedReader
from typing import Any, NamedTuple

import numpy as np

from graphfw.ir.literal import Array

_LARGE = 1 << 14
"""The least bytes of a tensor that is read apart."""

_VARINT, _EIGHT, _LENGTH, _FOUR = 0, 1, 2, 5
_WINDOW = 1 << 16
_LINE = 64

_GRAPH, _INITIALIZER = 7, 5  # fields of ModelProto and GraphProto
_RAW, _LOCATION = 9, 14  # fields of TensorProto


class Apart(NamedTuple):
    """A model's file without the bytes of its large initializers.

    Attributes:
        rest: The file's message without them.
        spans: Where they are in the file, by the initializers' numbers: first byte and length.
    """

    rest: bytes
    spans: dict[int, tuple[int, int]]


def apart(file: BufferedReader, size: int) -> Apart | None:
    """Look through a model's file.

    Returns:
        None where anything is unusual: protobuf is to read it then, or to refuse it.
    """
    if sys.byteorder != "little":  # as the bytes in the file are
        return None
    try:
        return _Scan(file, size).result()
    except _Unusual:
        return None


class Wanted(NamedTuple):
    """An array that is in a file.

    Attributes:
        offset: Its first byte.
        dtype, dims: The array's.
    """

    offset: int
    dtype: np.dtype[Any]
    dims: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """The number of bytes."""
        return math.prod(self.dims) * self.dtype.itemsize


def read(file: BufferedReader, wanted: Sequence[Wanted]) -> list[Array] | None:
    """Return arrays that are read from a file, read-only; None if the file ends too early.

    All of it is in one piece of memory, which the system gives sooner than many.
    """
    sizes = [-(-one.nbytes // _LINE) * _LINE for one in wanted]
    memory = np.empty(sum(sizes) + _LINE, np.uint8)
    begin = -memory.ctypes.data % _LINE
    found: list[Array] = []
    for one, size in zip(wanted, sizes, strict=True):
        room = memory[begin : begin + one.nbytes]
        begin += size
        file.seek(one.offset)
        if file.readinto(room.data) != one.nbytes:
            return None
        array = room.view(one.dtype).reshape(one.dims)
        array.flags.writeable = False
        found.append(array)
    return found


class _Unusual(Exception):
    """The file is not as those that write models write it."""


class _Field(NamedTuple):
    number: int
    kind: int
    start: int
    content: int
    end: int


class _Scan:
    def __init__(self, file: BufferedReader, size: int) -> None:
        self._file = file
        self._size = size
        self._from = 0
        self._window = b""

    def result(self) -> Apart:
        fields = list(self._fields(0, self._size))
        graphs = [field for field in fields if field.number == _GRAPH]
        if len(graphs) != 1 or graphs[0].kind != _LENGTH:
            raise _Unusual
        spans: dict[int, tuple[int, int]] = {}
        (graph,) = graphs
        inside = self._without_weights(graph, spans)
        chunks = [
            self._bytes(0, graph.start),
            _message(_GRAPH, inside),
            self._bytes(graph.end, self._size),
        ]
        return Apart(b"".join(chunks), spans)

    def _without_weights(self, graph: _Field, spans: dict[int, tuple[int, int]]) -> bytes:
        chunks: list[bytes] = []
        kept = graph.content  # from here on nothing has been copied yet
        number = 0
        for field in self._fields(graph.content, graph.end):
            if field.number != _INITIALIZER:
                continue
            if field.end - field.content >= _LARGE:
                raw = self._raw(field)
                if raw is not None:
                    spans[number] = raw.content, raw.end - raw.content
                    chunks.append(self._bytes(kept, field.start))
                    before = self._bytes(field.content, raw.start)
                    after = self._bytes(raw.end, field.end)
                    chunks.append(_message(_INITIALIZER, before + after))
                    kept = field.end
            number += 1
        chunks.append(self._bytes(kept, graph.end))
        return b"".join(chunks)

    def _raw(self, tensor: _Field) -> _Field | None:
        """Return the field with a tensor's bytes, where it has them, once, and in this file."""
        fields = list(self._fields(tensor.content, tensor.end))
        found = [field for field in fields if field.number == _RAW]
        elsewhere = any(field.number == _LOCATION for field in fields)
        if len(found) != 1 or found[0].kind != _LENGTH or elsewhere:
            return None
        return found[0] if found[0].end - found[0].content >= _LARGE else None

    def _fields(self, start: int, end: int) -> Iterator[_Field]:
        """Yield the fields of the message that lies there."""
        offset = start
        while offset < end:
            key, content = self._varint(offset, end)
            number, kind = key >> 3, key & 7
            if kind == _LENGTH:
                length, content = self._varint(content, end)
            elif kind == _VARINT:
                _, begin = self._varint(content, end)
                length = begin - content
            elif kind in (_EIGHT, _FOUR):
                length = 8 if kind == _EIGHT else 4
            else:
                raise _Unusual
            if not number or content + length > end:
                raise _Unusual
            yield _Field(number, kind, offset, content, content + length)
            offset = content + length

    def _varint(self, offset: int, end: int) -> tuple[int, int]:
        """Return the number that lies there, and where it ends."""
        value = shift = 0
        while offset < end and shift < 64:
            if not self._from <= offset < self._from + len(self._window):
                self._from, self._window = offset, self._bytes(offset, min(offset + _WINDOW, end))
            byte = self._window[offset - self._from]
            value |= (byte & 127) << shift
            offset += 1
            shift += 7
            if byte < 128:
                return value, offset
        raise _Unusual

    def _bytes(self, start: int, end: int) -> bytes:
        self._file.seek(start)
        found: bytes = self._file.read(end - start)
        if len(found) != end - start:
            raise _Unusual
        return found


def _message(number: int, content: bytes) -> bytes:
    """Return a field that is a message."""
    return _varint(number << 3 | _LENGTH) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)
