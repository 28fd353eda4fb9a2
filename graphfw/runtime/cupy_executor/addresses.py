"""Addresses in the GPU's memory, and in that of a run."""

from __future__ import annotations

from typing import Any, NamedTuple

WELL = 16
"""The number that an array's address must be a multiple of: threads read so many bytes at once."""


class GpuAddress(NamedTuple):
    """An address in the GPU's memory.

    Attributes:
        address: Its address.
        holder: The array that it is in, whose elements are contiguous.
        offset: Where it begins there, in bytes.
    """

    address: int
    holder: Any
    offset: int

    def offset_by(self, nbytes: int) -> GpuAddress:
        """Return the address so many bytes after it."""
        return GpuAddress(self.address + nbytes, self.holder, self.offset + nbytes)


class StorageAddress(NamedTuple):
    """The address of a storage in a run: in the arena, or in an array of its own.

    Attributes:
        slot: The number of the array; -1: the arena.
        offset: In the arena, in bytes.
    """

    slot: int
    offset: int

    def offset_by(self, nbytes: int) -> StorageAddress:
        """Return the address so many bytes after it."""
        return StorageAddress(self.slot, self.offset + nbytes)
