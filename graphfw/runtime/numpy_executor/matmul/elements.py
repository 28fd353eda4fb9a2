"""`Elements`: vectors read from and written to memory that may hold another dtype."""

from __future__ import annotations

import numpy as np

from graphfw.ir.dtype import DType, bfloat16
from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody, declared
from graphfw.runtime.numpy_executor.codegen.registers import iota, literal, memory, splat, vector
from graphfw.runtime.numpy_executor.matmul.tile import DOT_OF_PAIRS, TileShape


class Elements:
    """Writes loads that convert to the dtype of the computation, and stores that round.

    Args:
        body: The function's body.
        shape: The shape of tiles, for its vectors.
        dtype: The dtype of the elements in memory.
        align: Their addresses are multiples of it; 0 for the bytes of an element.
    """

    def __init__(self, body: FunctionBody, shape: TileShape, dtype: DType, align: int = 0) -> None:
        self.body = body
        self.shape = shape
        self.dtype = dtype
        self.align = align or dtype.itemsize
        self.mask_type = f"<{shape.lanes} x i1>"
        element = memory(dtype)
        self._moved = vector(element, shape.lanes)
        suffix = element if dtype.is_low_precision else f"f{dtype.itemsize * 8}"
        self._suffix = f"v{shape.lanes}{suffix}.p0"

    def declarations(self) -> dict[str, str]:
        """Return, by symbol, the declarations of the functions for masked loads and stores."""
        v, mask = self._moved, self.mask_type
        return declared(
            f"{v} @llvm.masked.load.{self._suffix}(ptr, i32, {mask}, {v})",
            f"void @llvm.masked.store.{self._suffix}({v}, ptr, i32, {mask})",
        )

    def mask(self, count: str, n: int = 0) -> str:
        """Return a mask of the lanes of the n-th vector that lie before `count`."""
        body, lanes = self.body, f"<{self.shape.lanes} x i64>"
        first = body.let(f"insertelement {lanes} poison, i64 {count}, i32 0")
        every = body.let(
            f"shufflevector {lanes} {first}, {lanes} poison, "
            f"<{self.shape.lanes} x i32> zeroinitializer"
        )
        steps = iota("i64", self.shape.lanes, n * self.shape.lanes)
        return body.let(f"icmp slt {lanes} {steps}, {every}")

    def load(self, address: str, lanes: int = 0) -> str:
        """Read a vector, of fewer lanes than there are or of all."""
        lanes = lanes or self.shape.lanes
        kind = vector(memory(self.dtype), lanes)
        value = self.body.let(f"load {kind}, ptr {address}, align {self.align}")
        return self.body.primitives(lanes).from_memory(self.dtype, value)

    def load_some(self, address: str, mask: str, others: float = 0.0) -> str:
        """Read the lanes of a mask; the others are one number."""
        value = self.moved(address, mask, self._splat(others))
        return self.body.primitives(self.shape.lanes).from_memory(self.dtype, value)

    def moved(self, address: str, mask: str, others: str = "zeroinitializer") -> str:
        """Read a vector without a conversion: 16-bit floats as their bits."""
        v = self._moved
        return self.body.let(
            f"call {v} @llvm.masked.load.{self._suffix}(ptr {address}, i32 {self.align}, "
            f"{self.mask_type} {mask}, {v} {others})"
        )

    def _splat(self, number: float) -> str:
        """Return a vector of one number, in the dtype of the memory."""
        if number == 0:
            return "zeroinitializer"
        if self.dtype.is_low_precision:
            bits = np.asarray(number, self.dtype.dtype).view(np.uint16)
            return splat("i16", str(int(bits)), self.shape.lanes)
        return splat(memory(self.dtype), literal(number, self.dtype), self.shape.lanes)

    def spread(self, address: str) -> str:
        """Read one element into all lanes."""
        shape, body = self.shape, self.body
        one = self.load(address, 1)
        first = body.let(f"insertelement {shape.vector} poison, {shape.element} {one}, i32 0")
        return body.let(
            f"shufflevector {shape.vector} {first}, {shape.vector} poison, "
            f"<{shape.lanes} x i32> zeroinitializer"
        )

    def store(self, value: str, address: str) -> None:
        """Write a vector."""
        content = self.body.primitives(self.shape.lanes).to_memory(self.dtype, value)
        kind = vector(memory(self.dtype), self.shape.lanes)
        self.body.line(f"store {kind} {content}, ptr {address}, align {self.align}")

    def store_first(self, value: str, address: str) -> None:
        """Write the first lane.

        `store_some` is not for that: of a mask that is known to have one lane, LLVM 22 makes an
        instruction that writes as many bytes as the element had before it was rounded.
        """
        kind = memory(self.dtype)
        content = self.body.primitives(self.shape.lanes).to_memory(self.dtype, value)
        first = self.body.let(f"extractelement {vector(kind, self.shape.lanes)} {content}, i32 0")
        self.body.line(f"store {kind} {first}, ptr {address}, align {self.align}")

    def store_some(self, value: str, address: str, mask: str) -> None:
        """Write the lanes of a mask."""
        content = self.body.primitives(self.shape.lanes).to_memory(self.dtype, value)
        self.move(content, address, mask)

    def move(self, content: str, address: str, mask: str) -> None:
        """Write a vector without a conversion."""
        self.body.line(
            f"call void @llvm.masked.store.{self._suffix}({self._moved} {content}, ptr {address}, "
            f"i32 {self.align}, {self.mask_type} {mask})"
        )


def declarations(shape: TileShape) -> dict[str, str]:
    """Return, by symbol, the declarations of the functions that this package's code calls."""
    v, element = shape.vector, shape.element
    result = declared(
        f"{v} @llvm.fmuladd.{shape.suffix}({v}, {v}, {v})",
        f"{element} @llvm.vector.reduce.fadd.{shape.suffix}({element}, {v})",
        "i64 @llvm.smin.i64(i64, i64)",
        "i64 @llvm.smax.i64(i64, i64)",
        "void @llvm.prefetch.p0(ptr, i32, i32, i32)",
    )
    for dtype in (shape.dtype, shape.stored):
        result |= Elements(FunctionBody(), shape, dtype).declarations()
    if shape.k_pack == 2:
        result |= Elements(
            FunctionBody(), shape._replace(lanes=shape.columns), bfloat16
        ).declarations()
        result |= declared(f"{v} @{DOT_OF_PAIRS}({v}, {shape.words}, {shape.words})")
    return result
