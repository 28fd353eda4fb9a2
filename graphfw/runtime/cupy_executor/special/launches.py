"""How kernels of this folder are launched."""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.runtime.cupy_executor.codegen.launch import BLOCKS, NARROW

THREADS = 256
"""How many threads a block has."""


def blocks_for(threads: int) -> int:
    """Return how many blocks have so many threads; if it is too many, threads do more."""
    return min(-(-threads // THREADS), BLOCKS)


def is_wide(*lasts: int) -> bool:
    """Return whether indices up to these need 64 bits."""
    return max(lasts) >= NARROW


def reach(dims: Sequence[int], lies: Sequence[int]) -> int:
    """Return the last element of an array that lies at an offset, with strides after that."""
    offset, *strides = lies
    return offset + sum([abs(s) * max(d - 1, 0) for d, s in zip(dims, strides, strict=True)])
