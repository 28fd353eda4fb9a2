"""Numbers of less than 8 bits, side by side in bytes, as executors keep variables of them.

An element lies in the lowest bits of its byte that are free, as in ONNX: `int4` 1, 2 is 0x21. The
bytes are followed by some that are 0: vectors are read whole, also from the last element on.

Nobody writes these ops, and nothing differentiates them: `runtime/packed_variables.py` makes them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from graphfw.errors import DTypeError
from graphfw.ir.dim import DimLike
from graphfw.ir.dtype import BY_NAME, DType, uint8
from graphfw.ir.op import NONDIFF, PURE, Case, Op, bad, ok, op
from graphfw.ir.shape import require, size_of
from graphfw.ir.types import Shape

VECTOR = 64
"""The bytes of the longest vector that is read."""

_FIX = "use gf.astype; executors make this op themselves"


def is_packed(dtype: DType) -> bool:
    """Return whether several numbers of a dtype lie in one byte of a variable."""
    return dtype.bits < 8 * dtype.itemsize


def packed_size(dtype: DType, size: DimLike) -> DimLike:
    """Return how many bytes are kept for so many elements."""
    return ((size * dtype.bits + 8 * VECTOR - 1) // (8 * VECTOR) + 1) * VECTOR


@op("unpack_bits")
class UnpackBits(Op):
    """Each number in a byte of its own.  x: [bytes] -> dims

    Attributes:
        dims: The shape of the numbers.
        to: Their dtype.
    """

    dims: Shape
    to: DType
    traits = frozenset({PURE})
    vjp = NONDIFF

    def shape(self, x: Shape) -> Shape:
        wanted = (packed_size(self.to, size_of(self.dims)),)
        require(x == wanted, f"the bytes must be {wanted}", [(0, 0)] * len(x), fix=_FIX)
        return self.dims

    def dtype(self, x: DType) -> DType:
        fits = x is uint8 and is_packed(self.to)
        message = f"{self.to.name} does not lie packed in {x.name}"
        require(fits, message, fix=_FIX, error=DTypeError)
        return self.to

    def eval(self, xp: Any, x: Any) -> Any:
        bits, count = self.to.bits, math.prod(self.dims)
        used = x[: -(-count * bits // 8), None]
        codes = used >> xp.arange(0, 8, bits, dtype=xp.uint8) & (2**bits - 1)
        return codes.reshape(-1)[:count].view(self.to.dtype).reshape(self.dims)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("uint8[128]", dims=(3, 5), to=BY_NAME["int4"])
        yield ok("uint8[128]", dims=(7,), to=BY_NAME["uint2"])
        yield ok("uint8[64]", dims=(0, 2), to=BY_NAME["float4_e2m1fn"])
        yield bad("uint8[15]", dims=(3, 5), to=BY_NAME["int4"], match="must be")
        yield bad("int8[128]", dims=(3,), to=BY_NAME["int4"], match="int8", error=DTypeError)
        yield bad("uint8[128]", dims=(3,), to=uint8, match="uint8", error=DTypeError)


@op("pack_bits")
class PackBits(Op):
    """Numbers side by side.  x: [*A] -> [bytes]

    Attributes:
        of: Their dtype.
    """

    of: DType
    traits = frozenset({PURE})
    vjp = NONDIFF

    def shape(self, x: Shape) -> Shape:
        return (packed_size(self.of, size_of(x)),)

    def dtype(self, x: DType) -> DType:
        message = f"{x.name} is no {self.of.name} that could be packed"
        require(x is self.of and is_packed(x), message, fix=_FIX, error=DTypeError)
        return uint8

    def eval(self, xp: Any, x: Any) -> Any:
        bits = self.of.bits
        each, made = 8 // bits, xp.zeros(packed_size(self.of, x.size), dtype=xp.uint8)
        codes = xp.ascontiguousarray(x).reshape(-1).view(xp.uint8) & (2**bits - 1)
        for index in range(each):
            some = codes[index::each]
            made[: some.size] |= some << xp.uint8(index * bits)
        return made

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("int4[3, 5]", of=BY_NAME["int4"])
        yield ok("uint2[n]", of=BY_NAME["uint2"])
        yield ok("float4_e2m1fn[]", of=BY_NAME["float4_e2m1fn"])
        yield bad("int8[3]", of=BY_NAME["int4"], match="int8", error=DTypeError)
        yield bad("float8_e5m2[3]", of=BY_NAME["float8_e5m2"], match="packed", error=DTypeError)
