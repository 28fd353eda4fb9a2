"""`Processor`: what the generated code assumes of the processor."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from graphfw.ir.dim import DimLike
from graphfw.runtime.numpy_executor.machine import machine


class Processor(NamedTuple):
    """The vectors of a processor.

    Attributes:
        name: As it stands in the key of generated code.
        vector_bytes: The size of a vector register.
        masked: Whether loads and stores under a mask are one instruction for all dtypes. Otherwise
            what doesn't fill a vector is done element by element.
        large: From how many bytes on results are stored past the caches, with x86's instructions:
            more than the caches of most processors hold, so that who reads the result would not
            find it there. 0: none are.
    """

    name: str
    vector_bytes: int
    masked: bool
    large: int


AVX512 = Processor("avx512", 64, True, 32 << 20)
AVX2 = Processor("avx2", 32, False, 32 << 20)
BASE = Processor("base", 16, False, 0)
"""The instructions that every 64-bit processor has: SSE2, NEON."""


_LONGEST = 8
"""The bytes of the longest elements that there are native kernels for."""


def with_stores(target: Processor, *sizes: DimLike) -> Processor:
    """The processor; without stores past the caches where all results are known to be small.

    Loops that may use such stores are written twice, and compiled twice.

    Args:
        target: The processor.
        sizes: How many elements each result has.
    """
    is_small = all([isinstance(n, int) and n * _LONGEST < target.large for n in sizes])
    return target._replace(large=0) if is_small else target


@cache
def host() -> Processor:
    """Return the vectors of the machine that code is generated for."""
    return {512: AVX512, 256: AVX2}.get(machine().vector_bits, BASE)
