"""The executor `"numpy"`: NumPy arrays in and out, on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphfw.errors import ExecutorError
from graphfw.ir.literal import Array
from graphfw.ir.tensor import Tensor
from graphfw.runtime import feeding
from graphfw.runtime.array_executor import ArrayExecutable
from graphfw.runtime.executor import Executor
from graphfw.runtime.program import Program


class NumpyExecutor(Executor):
    """Runs programs with NumPy."""

    name = "numpy"
    is_host = True

    def __init__(self, device: str = "") -> None:
        if device:
            raise ExecutorError(
                f'"numpy:{device}": the NumPy executor has no devices', fix='write "numpy"'
            )

    def load(self, program: Program) -> ArrayExecutable:
        return ArrayExecutable(program, np)

    def feed(self, placeholder: Tensor, value: Any) -> Array:
        return feeding.host_array(placeholder, value)

    def from_host(self, array: Array) -> Array:
        return np.array(array)

    def to_host(self, array: Array) -> Array:
        return np.array(array)
