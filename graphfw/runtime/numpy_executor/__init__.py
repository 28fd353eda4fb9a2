"""The executor `"numpy"`: NumPy arrays in and out, on the CPU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from graphfw.errors import ExecutorError
from graphfw.io import crc32
from graphfw.ir.literal import Array
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import TensorType
from graphfw.ir.variable import Variable
from graphfw.passes.base import Pass
from graphfw.runtime import feeding
from graphfw.runtime.array_executor import ArrayExecutable
from graphfw.runtime.executor import Executable, Executor, Options
from graphfw.runtime.limits import compiles
from graphfw.runtime.numpy_executor.buffer_pool import Arenas, copied_together
from graphfw.runtime.numpy_executor.contiguous import contiguous_copy
from graphfw.runtime.numpy_executor.executables import executable
from graphfw.runtime.packed_variables import (
    packed,
    packed_type,
    unpacked,
    with_packed_variables,
)
from graphfw.runtime.program import Program


class NumpyExecutor(Executor):
    """Compiles programs for the CPU; `GRAPHFW_JIT=0` has NumPy compute node by node instead."""

    name = "numpy"
    is_host = True
    keeps_time_limits = True

    def __init__(self, device: str = "") -> None:
        if device:
            raise ExecutorError(
                f'"numpy:{device}": the NumPy executor has no devices', fix='write "numpy"'
            )
        self._arenas = Arenas()

    def load(self, program: Program, options: Options) -> Executable:
        if not compiles():
            options.require_no_limit("GRAPHFW_JIT=0", "leave it out, or unset GRAPHFW_JIT")
            return ArrayExecutable(program, np)
        if options.memory_limit is None:
            return executable(program, options, self._arenas)
        # Not at the top: it imports the compiler.
        limited = import_module("graphfw.runtime.numpy_executor.memory_limited")
        try:
            made: Executable = limited.MemoryLimitedExecutable(program, options, self._arenas)
        except OverflowError:
            options.require_no_limit(
                "a program with numbers of more than 64 bits",
                "leave it out, or use smaller numbers",
            )
            raise
        return made

    def passes(self) -> Sequence[Pass]:
        if not compiles():
            return super().passes()
        found: Sequence[Pass] = import_module("graphfw.runtime.numpy_executor.passes").passes()
        return found

    def feed(self, placeholder: Tensor, value: Any) -> Array:
        return feeding.host_array(placeholder, value)

    def from_host(self, array: Array) -> Array:
        return contiguous_copy(array)

    def from_hosts(self, arrays: Iterable[Array], sizes: Sequence[int]) -> Sequence[Array]:
        return copied_together(arrays, sizes)

    def to_host(self, array: Array) -> Array:
        return np.array(array)

    def adopted(self, array: Array) -> Array:
        return array

    def with_kept_variables(self, program: Program) -> Program:
        return with_packed_variables(program)

    def kept_type(self, variable: Variable) -> TensorType:
        return packed_type(variable)

    def to_kept(self, contents: Array) -> Array:
        return packed(contents)

    def from_kept(self, variable: Variable, array: Array) -> Array:
        return unpacked(variable, array)


def _native_crc32() -> crc32.Crc32 | None:
    if not compiles():
        return None
    # Not at the top: it imports the compiler.
    found: crc32.Crc32 | None = import_module("graphfw.runtime.numpy_executor.crc32").native_crc32()
    return found


crc32.offer(_native_crc32)
