"""The header of a safetensors file: names, dtypes and shapes of arrays, and where their bytes are.

A file is the length of the header in 8 bytes, the header as JSON, and the bytes of all arrays, one
right after the other. Numbers are in the order of little-endian processors.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping
from io import FileIO
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

DTYPES: dict[str, np.dtype[Any]] = {  # by the format's own codes
    "BOOL": np.dtype(np.bool_),
    "I8": np.dtype(np.int8),
    "I16": np.dtype(np.int16),
    "I32": np.dtype(np.int32),
    "I64": np.dtype(np.int64),
    "U8": np.dtype(np.uint8),
    "U16": np.dtype(np.uint16),
    "U32": np.dtype(np.uint32),
    "U64": np.dtype(np.uint64),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F32": np.dtype(np.float32),
    "F64": np.dtype(np.float64),
    "C64": np.dtype(np.complex64),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E4M3FNUZ": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F8_E5M2FNUZ": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "F8_E8M0": np.dtype(ml_dtypes.float8_e8m0fnu),
}
METADATA = "__metadata__"
"""The name under which the header has the metadata, so that no array can have it."""

_CODES = {dtype: code for code, dtype in DTYPES.items()}
_LENGTH = 8
_LONGEST = 100_000_000
"""The most bytes of a header, by the format's definition."""
_ALIGNMENT = 8
_MOST_DIMS = 64
"""Of NumPy's arrays."""


class HeaderError(Exception):
    """A file has no header of this format; the text says why."""


class OtherFormatError(Exception):
    """A file is of another format; the text says which."""


ZIP = "a zip archive, as torch.save and np.savez write it"
PICKLE = "a pickle"
_OTHERS = {
    b"PK\x03\x04": ZIP,
    b"\x93NUMPY": "an array, as np.save writes it",
    b"\x89HDF": "an HDF5 file, as Keras writes it",
    b"\x80": PICKLE,
}
"""The first bytes of files of other formats."""


class UnknownDtypeError(Exception):
    """An entry has a dtype that NumPy and graphfw do not have; the text says which."""


class HeaderEntry(NamedTuple):
    """An array in a file.

    Attributes:
        dtype: Of its elements.
        shape: Its shape.
        position: Where in the file its bytes begin.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    position: int


class Header(NamedTuple):
    """The contents of a header.

    Attributes:
        entries: The arrays, in the order of their names.
        metadata: The text beside them.
    """

    entries: dict[str, HeaderEntry]
    metadata: dict[str, str]


def read_header(file: FileIO) -> Header:
    """Read the header at the begin of a file, and check that the file has all bytes it speaks of.

    Raises:
        HeaderError: It is none.
        OtherFormatError: It is the begin of another kind of file.
        UnknownDtypeError: An array can't be read.
        OSError: The file can't be read.
    """
    size = os.fstat(file.fileno()).st_size
    begin = file.read(_LENGTH) or b""
    length = int.from_bytes(begin, "little")
    if len(begin) < _LENGTH:
        raise HeaderError("it has less than 8 bytes")
    if length > _LONGEST:
        other = other_format(begin)
        raise OtherFormatError(other) if other else HeaderError("its header would be too large")
    text = file.read(length) or b""
    if len(text) < length:
        raise HeaderError("its header is cut short")
    content = _object(text)
    metadata = _metadata(content.pop(METADATA, None))
    spans = sorted([(*_span(name, entry), name) for name, entry in content.items()])
    positions: dict[str, int] = {}
    position = 0
    for first, last, name in spans:
        entry = content[name]
        if first != position or last - first != _nbytes(name, entry):
            raise HeaderError(f"entry {name!r} does not have the bytes that its shape needs")
        positions[name] = _LENGTH + length + first
        position = last
    if _LENGTH + length + position != size:
        raise HeaderError(f"it has {size} bytes instead of {_LENGTH + length + position}")
    entries = {
        name: HeaderEntry(
            DTYPES[content[name]["dtype"]], tuple(content[name]["shape"]), positions[name]
        )
        for name in sorted(content)
    }
    return Header(entries, metadata)


def other_format(begin: bytes) -> str:
    """Name the kind of a file of another format by its first bytes; return "" for this one."""
    if int.from_bytes(begin[:_LENGTH], "little") <= _LONGEST:
        return ""
    return next((kind for first, kind in _OTHERS.items() if begin.startswith(first)), "")


def header_of(
    arrays: Mapping[str, np.ndarray[Any, Any]], metadata: Mapping[str, str]
) -> tuple[bytes, dict[str, int]]:
    """Return the begin of a file, and the positions of the arrays in it.

    Args:
        arrays: The arrays, of dtypes of `DTYPES`.
        metadata: Text to keep beside them.
    """
    # The largest elements first, as the package safetensors has it: so all are aligned.
    names = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    content: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    offsets: dict[str, int] = {}
    offset = 0
    for name in names:
        array, offsets[name] = arrays[name], offset
        offset += array.nbytes
        content[name] = {
            "dtype": _CODES[array.dtype],
            "shape": array.shape,
            "data_offsets": (offsets[name], offset),
        }
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    begin = len(text).to_bytes(_LENGTH, "little") + text
    return begin, {name: len(begin) + offset for name, offset in offsets.items()}


def is_text(value: object) -> bool:
    """Return whether a value is a str that UTF-8, the format's encoding, can hold."""
    try:
        return isinstance(value, str) and isinstance(value.encode(), bytes)
    except UnicodeEncodeError:
        return False


def _object(text: bytes) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise HeaderError("its header has a name twice")
        return found

    try:
        content = json.loads(text.decode(), object_pairs_hook=unique)
    except (ValueError, RecursionError):
        raise HeaderError("its header is no JSON") from None
    if not isinstance(content, dict) or not all(map(is_text, content)):
        raise HeaderError("its header is no JSON object with names that are Unicode")
    return content


def _metadata(found: object) -> dict[str, str]:
    if found is None:
        return {}
    if isinstance(found, dict) and all(map(is_text, (*found, *found.values()))):
        return found
    raise HeaderError("its metadata is not text")


def _span(name: str, entry: object) -> tuple[int, int]:
    """Return where an entry's bytes begin and end, after the header; check the entry's form."""
    if isinstance(entry, dict) and isinstance(entry.get("dtype"), str):
        span: Any = entry.get("data_offsets")
        if _are_sizes(span) and len(span) == 2 and _are_sizes(entry.get("shape")):
            if entry["dtype"] not in DTYPES:
                raise UnknownDtypeError(f"entry {name!r} has dtype {entry['dtype']}")
            return span[0], span[1]
    raise HeaderError(f"entry {name!r} has no dtype, shape and position")


def _are_sizes(values: Any) -> bool:
    return (
        isinstance(values, list) and {*map(type, values)} <= {int} and min(values, default=0) >= 0
    )


def _nbytes(name: str, entry: dict[str, Any]) -> int:
    shape: list[int] = entry["shape"]
    itemsize = DTYPES[entry["dtype"]].itemsize
    # NumPy has no arrays that are larger but for a dim of 0.
    if len(shape) > _MOST_DIMS or math.prod(filter(None, shape)) * itemsize > sys.maxsize:
        raise HeaderError(f"entry {name!r} has a shape that NumPy does not have")
    return math.prod(shape) * itemsize
