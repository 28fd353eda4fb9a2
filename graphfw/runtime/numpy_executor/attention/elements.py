"""Elements of operands between memory and registers: 16-bit floats are float32 in registers."""

from __future__ import annotations

from graphfw.ir.dtype import DType
from graphfw.runtime.numpy_executor.codegen.llvm_module import LlvmFunction
from graphfw.runtime.numpy_executor.codegen.primitives import Primitives
from graphfw.runtime.numpy_executor.codegen.registers import memory, vector
from graphfw.runtime.numpy_executor.codegen.writer import Writer


def read(f: LlvmFunction, dtype: DType, lanes: int, address: str) -> str:
    """Load `lanes` neighbours at any address; return them as register content."""
    kind = vector(memory(dtype), lanes)
    value = f.let(f"load {kind}, ptr {address}, align {dtype.itemsize}")
    return Primitives(_Into(f), lanes, 0).from_memory(dtype, value)


def write(f: LlvmFunction, dtype: DType, lanes: int, value: str, address: str) -> None:
    """Store register content, rounded to the dtype, at any address."""
    kind = vector(memory(dtype), lanes)
    stored = Primitives(_Into(f), lanes, 0).to_memory(dtype, value)
    f.do(f"store {kind} {stored}, ptr {address}, align {dtype.itemsize}")


class _Into(Writer):
    """A writer that appends its instructions to a body."""

    def __init__(self, body: LlvmFunction) -> None:
        super().__init__()
        self._body = body

    def pure(self, text: str, level: int) -> str:
        return self._body.let(text)
