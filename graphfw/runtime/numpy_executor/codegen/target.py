"""`Target`: what the generated code assumes of the processor."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from graphfw.runtime.numpy_executor.machine import machine


class Target(NamedTuple):
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


AVX512 = Target("avx512", 64, True, 32 << 20)
AVX2 = Target("avx2", 32, False, 32 << 20)
BASE = Target("base", 16, False, 0)
"""The instructions that every 64-bit processor has: SSE2, NEON."""


@cache
def host() -> Target:
    """Return the vectors of the machine that code is generated for."""
    return {512: AVX512, 256: AVX2}.get(machine().vector_bits, BASE)
