"""The CRC-32 of bytes: zlib's function, or a quicker one with the same values.

File-format code knows no compiler, so what generates a quicker one offers it here.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

Bytes: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.uint8]]"
Crc32: TypeAlias = "Callable[[Bytes], int]"
"""Return the CRC-32 of contiguous bytes, which `zlib.crc32` returns, too."""

_offers: list[Callable[[], Crc32 | None]] = []
_MUCH = 1 << 20
"""Bytes below which zlib takes no longer than another function takes to be loaded."""


def offer(find: Callable[[], Crc32 | None]) -> None:
    """Offer a function that is quicker than zlib's, for much.

    Args:
        find: Returns it when it is first needed; None where there is none.
    """
    _offers.append(find)


def crc32_for(nbytes: int) -> Crc32:
    """Return the function to compute the checksums of so many bytes with."""
    for find in _offers if nbytes >= _MUCH else ():
        found = find()
        if found is not None:
            return found
    return _zlib


def _zlib(block: Bytes) -> int:
    return zlib.crc32(block.data)


def bytes_of(array: np.ndarray[Any, Any]) -> Bytes:
    """Return the bytes of a C-contiguous array, which share its memory."""
    return array.reshape(-1).view(np.uint8)
