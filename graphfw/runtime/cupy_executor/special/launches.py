"""The launches of this folder's kernels."""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.runtime.cupy_executor.codegen.launch import BLOCKS, NARROW

THREADS = 256
"""The threads of a block."""


def blocks_for(threads: int) -> int:
    """Return the number of blocks for some threads, at most a limit: then threads do more."""
    return min(-(-threads // THREADS), BLOCKS)


def is_wide(*lasts: int) -> bool:
    """Return whether indices up to some limits need 64 bits."""
    return max(lasts) >= NARROW


def reach(dims: Sequence[int], lies: Sequence[int]) -> int:
    """Return the index of the last element of an array with an offset and strides."""
    offset, *strides = lies
    return offset + sum([abs(s) * max(d - 1, 0) for d, s in zip(dims, strides, strict=True)])
