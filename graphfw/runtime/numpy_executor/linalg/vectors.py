"""Vectors of elements of matrices: masked, gathered, spread and added up."""

from __future__ import annotations

from graphfw.runtime.numpy_executor.codegen.llvm_module import LlvmFunction
from graphfw.runtime.numpy_executor.codegen.numbers import Number
from graphfw.runtime.numpy_executor.codegen.registers import iota, splat, vector


class Vector(Number):
    """Elements in the lanes of a vector: neighbours in a row, or those of as many matrices."""

    @property
    def suffix(self) -> str:
        """The end of the names of LLVM's functions of such vectors."""
        lanes = f"v{self.lanes}" if self.lanes > 1 else ""
        return f"{lanes}{'f' if self.dtype.is_floating else 'i'}{8 * self.dtype.itemsize}"

    def call(self, f: LlvmFunction, function: str, *values: str) -> str:
        """Call a function of LLVM that takes and returns vectors."""
        operands = [(self.kind, value) for value in values]
        return f.call(self.kind, f"llvm.{function}.{self.suffix}", *operands)

    def multiply_add(self, f: LlvmFunction, x: str, y: str, z: str) -> str:
        """Return the product of two vectors, and a sum."""
        return self.call(f, "fmuladd", x, y, z)

    def spread(self, f: LlvmFunction, value: str) -> str:
        """Return a vector of one element, again and again."""
        return in_all_lanes(f, value, self.single, self.lanes)

    def reduce(self, f: LlvmFunction, how: str, value: str) -> str:
        """Return the lanes, reduced by a function of LLVM."""
        name = f"llvm.vector.reduce.{how}.{self.suffix}"
        return f.call(self.single, name, (self.kind, value))

    def sum(self, f: LlvmFunction, value: str) -> str:
        """Return the sum of the lanes, in any order."""
        name = f"llvm.vector.reduce.fadd.{self.suffix}"
        symbol = f.module.declare(self.single, name, self.single, self.kind)
        return f.let(f"call reassoc {self.single} {symbol}({self.single} 0.0, {self.kind} {value})")

    # Memory.

    def mask(self, f: LlvmFunction, count: str, first: int = 0) -> str:
        """Return the mask of the lanes below a count, of which lane 0 has the number `first`."""
        every = in_all_lanes(f, count, "i64", self.lanes)
        return f.let(f"icmp slt <{self.lanes} x i64> {iota('i64', self.lanes, first)}, {every}")

    def load_masked(self, f: LlvmFunction, address: str, mask: str) -> str:
        """Load the lanes of a mask; the others are 0."""
        return self._loaded(f, f"load.{self.suffix}.p0", "ptr", address, mask)

    def store_masked(self, f: LlvmFunction, value: str, address: str, mask: str) -> None:
        """Store the lanes of a mask."""
        self._stored(f, f"store.{self.suffix}.p0", value, "ptr", address, mask)

    def addresses(self, f: LlvmFunction, base: str, apart: str, first: int = 0) -> str:
        """Return addresses so many elements apart; lane 0 has the number `first`."""
        every = in_all_lanes(f, apart, "i64", self.lanes)
        steps = f.let(f"mul <{self.lanes} x i64> {iota('i64', self.lanes, first)}, {every}")
        return f.let(f"getelementptr {self.stored}, ptr {base}, <{self.lanes} x i64> {steps}")

    def gather(self, f: LlvmFunction, addresses: str, mask: str) -> str:
        """Load the lanes of a mask from addresses of their own; the others are 0."""
        name = f"gather.{self.suffix}.v{self.lanes}p0"
        return self._loaded(f, name, f"<{self.lanes} x ptr>", addresses, mask)

    def scatter(self, f: LlvmFunction, value: str, addresses: str, mask: str) -> None:
        """Store the lanes of a mask to addresses of their own."""
        name = f"scatter.{self.suffix}.v{self.lanes}p0"
        self._stored(f, name, value, f"<{self.lanes} x ptr>", addresses, mask)

    def _loaded(self, f: LlvmFunction, name: str, pointer: str, address: str, mask: str) -> str:
        return f.call(
            self.kind,
            f"llvm.masked.{name}",
            (pointer, address),
            ("i32", str(self.dtype.itemsize)),
            (f"<{self.lanes} x i1>", mask),
            (self.kind, "zeroinitializer"),
        )

    def _stored(
        self, f: LlvmFunction, name: str, value: str, pointer: str, address: str, mask: str
    ) -> None:
        types = (self.kind, pointer, "i32", f"<{self.lanes} x i1>")
        symbol = f.module.declare("void", f"llvm.masked.{name}", *types)
        values = (value, address, str(self.dtype.itemsize), mask)
        operands = ", ".join([f"{kind} {text}" for kind, text in zip(types, values, strict=True)])
        f.do(f"call void {symbol}({operands})")


def in_all_lanes(f: LlvmFunction, value: str, kind: str, count: int) -> str:
    """Return a vector of `count` lanes that all have one value; the value, if it is one lane."""
    if count == 1:
        return value
    if value.isdigit():
        return splat(kind, value, count)
    whole = vector(kind, count)
    first = f.let(f"insertelement {whole} poison, {kind} {value}, i64 0")
    zeros = f"<{count} x i32> zeroinitializer"
    return f.let(f"shufflevector {whole} {first}, {whole} poison, {zeros}")
