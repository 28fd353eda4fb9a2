"""`Target`: what the generated code assumes of the processor."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple


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
"""What every 64-bit processor has: SSE2, NEON."""


@cache
def host() -> Target:
    """Return what this machine's processor has."""
    from llvmlite import binding  # here, as the engine does: plans that are cached do without

    features = binding.get_host_cpu_features()
    if all([features.get(f"avx512{part}", False) for part in ("f", "bw", "dq", "vl")]):
        return AVX512
    return AVX2 if features.get("avx2", False) and features.get("fma", False) else BASE
