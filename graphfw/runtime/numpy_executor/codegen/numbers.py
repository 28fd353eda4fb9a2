"""Elements in registers: loaded, stored, added and multiplied, one or some at a time.

Floats of 16 bits are computed in float32.
"""

from __future__ import annotations

from graphfw.ir.dtype import DType
from graphfw.runtime.numpy_executor.codegen.halves import narrowed, widened
from graphfw.runtime.numpy_executor.codegen.llvm_module import LlvmFunction
from graphfw.runtime.numpy_executor.codegen.registers import memory, splat, vector


class Number:
    """Values of a dtype, `lanes` at a time.

    Attributes:
        dtype: The dtype in memory.
        stored: The LLVM type of one in memory.
        single: The LLVM type of one in a register.
        kind: The LLVM type of `lanes` in registers.
        nbytes: The bytes of one in a register.
    """

    def __init__(self, dtype: DType, lanes: int = 1) -> None:
        self.dtype = dtype
        self.lanes = lanes
        self.stored = memory(dtype)
        self.single = "float" if dtype.is_low_precision else self.stored
        self.kind = vector(self.single, lanes)
        self.nbytes = 4 if dtype.is_low_precision else dtype.itemsize
        self._is_float = dtype.is_floating

    def load(self, f: LlvmFunction, address: str) -> str:
        """Load, and widen."""
        align = self.dtype.itemsize
        value = f.let(f"load {vector(self.stored, self.lanes)}, ptr {address}, align {align}")
        is_half = self.dtype.is_low_precision
        return widened(f.let, self.dtype, self.lanes, value) if is_half else value

    def store(self, f: LlvmFunction, value: str, address: str) -> None:
        """Round to the dtype, and store."""
        if self.dtype.is_low_precision:
            value = narrowed(f.let, self.dtype, self.lanes, value)
        align = self.dtype.itemsize
        f.do(f"store {vector(self.stored, self.lanes)} {value}, ptr {address}, align {align}")

    def add(self, f: LlvmFunction, a: str, b: str) -> str:
        """Return the sum; integers wrap around."""
        return f.let(f"{'fadd' if self._is_float else 'add'} {self.kind} {a}, {b}")

    def multiply(self, f: LlvmFunction, a: str, b: str) -> str:
        """Return the product."""
        return f.let(f"{'fmul' if self._is_float else 'mul'} {self.kind} {a}, {b}")

    def constant(self, value: float) -> str:
        """Return a small whole number, which may be -0.0, in all lanes."""
        text = repr(float(value)) if self._is_float else str(int(value))
        return splat(self.single, text, self.lanes)

    def choose(self, f: LlvmFunction, condition: str, a: str, b: str) -> str:
        """Return one of two values, by an i1."""
        return f.let(f"select i1 {condition}, {self.kind} {a}, {self.kind} {b}")
