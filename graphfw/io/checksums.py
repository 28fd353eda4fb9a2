"""Checksums of a checkpoint, kept in its metadata, where other readers ignore them.

Every entry has a CRC-32 for each block of 1 MiB of its bytes, so that a slice can be checked
without the rest. A BLAKE2b hash covers the names, shapes and dtypes of all entries, and all other
metadata: these checksums, the step and the seed.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, TypeAlias

import numpy as np

from graphfw.io.blocks import BLOCK_BYTES, block_count

CHECKSUMS_KEY = "graphfw.checksums"
"""Metadata: the checksums of the blocks of each entry, as JSON."""
HEADER_KEY = "graphfw.header"
"""Metadata: the hash of names, shapes, dtypes and all other metadata."""

_HASH_BYTES = 16

_Arrays: TypeAlias = "Mapping[str, np.ndarray[Any, Any]]"
_Found: TypeAlias = "Mapping[str, Sequence[str]]"


def checksums_of(arrays: _Arrays, metadata: Mapping[str, str], found: _Found) -> dict[str, str]:
    """Return the metadata that lets a file be checked.

    Args:
        arrays: The entries as they are stored.
        metadata: All other metadata.
        found: The checksums of each entry's blocks.
    """
    checksums = _as_json(found)
    text = {**metadata, CHECKSUMS_KEY: checksums}
    return {CHECKSUMS_KEY: checksums, HEADER_KEY: _header_hash(arrays, text)}


def room_for_checksums(arrays: _Arrays) -> dict[str, str]:
    """Return as much metadata as `checksums_of` does, before the checksums are known."""
    found = {name: ["0" * 8] * block_count(array.nbytes) for name, array in arrays.items()}
    return {CHECKSUMS_KEY: _as_json(found), HEADER_KEY: "0" * 2 * _HASH_BYTES}


def has_checksums(metadata: Mapping[str, str]) -> bool:
    """Return whether a file was written with checksums, also if damage has hit a part of them."""
    return CHECKSUMS_KEY in metadata or HEADER_KEY in metadata


def damage_of_header(arrays: _Arrays, metadata: Mapping[str, str]) -> str:
    """Describe the damage of what a file with checksums says of its entries; "" for none.

    Args:
        arrays: The entries as they are stored, whose bytes are not looked at.
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
    for name, array in arrays.items():
        text = expected.get(name) if type(expected) is dict else None
        if type(text) is not str or len(text) != 8 * block_count(array.nbytes):
            return f"the checksums of entry {name!r} are damaged"
    return ""


def damage_of_blocks(arrays: _Arrays, metadata: Mapping[str, str], found: _Found) -> str:
    """Describe the first damaged block of a file whose header has no damage; "" for none.

    Args:
        arrays: The entries as they are stored.
        metadata: All metadata of the file.
        found: The checksums that each entry's blocks have.
    """
    expected = json.loads(metadata[CHECKSUMS_KEY])["entries"]
    for name, checksums in found.items():
        for block, checksum in enumerate(checksums):
            if expected[name][8 * block : 8 * block + 8] != checksum:
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


def _as_json(found: _Found) -> str:
    content = {
        "algorithm": "crc32",
        "block_bytes": BLOCK_BYTES,
        "entries": {name: "".join(checksums) for name, checksums in found.items()},
    }
    return json.dumps(content)


@functools.cache
def _name_of(dtype: np.dtype[Any]) -> str:
    return dtype.name  # for which NumPy takes 10 µs


def _header_hash(arrays: _Arrays, metadata: Mapping[str, str]) -> str:
    entries = [[name, _name_of(array.dtype), array.shape] for name, array in sorted(arrays.items())]
    content = json.dumps([entries, sorted(metadata.items())])
    return blake2b(content.encode(), digest_size=_HASH_BYTES).hexdigest()
