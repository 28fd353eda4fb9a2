"""Checksums of a checkpoint, kept in its metadata, where other readers ignore them.

Every entry has a CRC-32 for each block of 1 MiB of its bytes, so that a slice can be checked
without the rest. A BLAKE2b hash covers the names, shapes and dtypes of all entries, and all other
metadata: these checksums, the step and the seed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from typing import Any
from zlib import crc32

import numpy as np

CHECKSUMS_KEY = "graphfw.checksums"
"""Metadata: the checksums of the blocks of each entry, as JSON."""
HEADER_KEY = "graphfw.header"
"""Metadata: the hash of names, shapes, dtypes and all other metadata."""
BLOCK_BYTES = 1 << 20
_PARALLEL_BYTES = 16 << 20
"""From how many bytes on threads share the work."""

_Arrays = Mapping[str, "np.ndarray[Any, Any]"]


def checksums_of(arrays: _Arrays, metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata that lets `damage_of` check a file.

    Args:
        arrays: The entries as they are stored, C-contiguous.
        metadata: All other metadata.
    """
    content = {
        "algorithm": "crc32",
        "block_bytes": BLOCK_BYTES,
        "entries": {name: "".join(found) for name, found in _block_checksums(arrays).items()},
    }
    text = {**metadata, CHECKSUMS_KEY: json.dumps(content)}
    return {CHECKSUMS_KEY: text[CHECKSUMS_KEY], HEADER_KEY: _header_hash(arrays, text)}


def has_checksums(metadata: Mapping[str, str]) -> bool:
    """Return whether a file was written with checksums, also if damage has hit a part of them."""
    return CHECKSUMS_KEY in metadata or HEADER_KEY in metadata


def damage_of(arrays: _Arrays, metadata: Mapping[str, str]) -> str:
    """Describe the damaged part of a file with checksums; return "" if there is none.

    Args:
        arrays: The entries as they are stored, C-contiguous.
        metadata: All metadata of the file.
    """
    others = {key: text for key, text in metadata.items() if key != HEADER_KEY}
    if metadata.get(HEADER_KEY) != _header_hash(arrays, others):
        return "its header (names, shapes, dtypes, step, seed or checksums) is damaged"
    # The hash has no key, so a made-up file may have a right one around anything.
    written = from_json(metadata.get(CHECKSUMS_KEY, ""))
    form = (written.get("algorithm"), written.get("block_bytes")) if type(written) is dict else ()
    if form != ("crc32", BLOCK_BYTES):
        return "its checksums are damaged, or of a newer version of graphfw"
    expected = written.get("entries")
    for name, found in _block_checksums(arrays).items():
        text = expected.get(name) if type(expected) is dict else None
        if type(text) is not str or len(text) != 8 * len(found):
            return f"the checksums of entry {name!r} are damaged"
        for block, checksum in enumerate(found):
            if text[8 * block : 8 * block + 8] != checksum:
                first = block * BLOCK_BYTES
                last = min(first + BLOCK_BYTES, arrays[name].nbytes)
                return f"bytes {first} to {last} of entry {name!r} are damaged"
    return ""


def from_json(text: str) -> Any:
    """Return the value of a piece of metadata; None if it is no JSON, or nested too deep."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _block_checksums(arrays: _Arrays) -> dict[str, list[str]]:
    """Return the checksums of the blocks of each entry, 8 hexadecimal digits each."""
    if sum(array.nbytes for array in arrays.values()) < _PARALLEL_BYTES:
        return {name: [_checksum(b) for b in _blocks(array)] for name, array in arrays.items()}
    # crc32 releases the interpreter's lock.
    with ThreadPoolExecutor(min(os.cpu_count() or 1, 8)) as pool:
        pending = {name: pool.map(_checksum, _blocks(array)) for name, array in arrays.items()}
        return {name: list(found) for name, found in pending.items()}


def _blocks(array: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    content = array.reshape(-1).view(np.uint8)
    for first in range(0, content.size, BLOCK_BYTES):
        yield content[first : first + BLOCK_BYTES]


def _checksum(block: np.ndarray[Any, Any]) -> str:
    return f"{crc32(block.data):08x}"


def _header_hash(arrays: _Arrays, metadata: Mapping[str, str]) -> str:
    entries = [[name, array.dtype.name, array.shape] for name, array in sorted(arrays.items())]
    content = json.dumps([entries, sorted(metadata.items())])
    return blake2b(content.encode(), digest_size=16).hexdigest()
