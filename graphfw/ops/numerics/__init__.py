"""Numerics that array modules lack: special functions and counter-based random bits."""

from graphfw.ops.numerics.philox import philox_blocks, random_bits, stream_key
from graphfw.ops.numerics.special import digamma, erf, erfc, erfinv, lgamma

__all__ = [
    "digamma",
    "erf",
    "erfc",
    "erfinv",
    "lgamma",
    "philox_blocks",
    "random_bits",
    "stream_key",
]
