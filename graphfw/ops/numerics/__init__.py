"""Numerics that array modules lack, or do in another way: special functions, random bits."""

from graphfw.ops.numerics.division import floor_divide
from graphfw.ops.numerics.philox import philox_blocks, random_bits, stream_key
from graphfw.ops.numerics.special import erf, erfc, erfinv

__all__ = [
    "erf",
    "erfc",
    "erfinv",
    "floor_divide",
    "philox_blocks",
    "random_bits",
    "stream_key",
]
