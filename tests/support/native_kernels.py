"""Runs kernels' machine code, work item by work item, in the place of interpreting them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphfw.ir.dim import DimLike
from graphfw.ir.dim_text import evaluate
from graphfw.runtime.kernels.ir import Kernel
from graphfw.runtime.kernels.steps import Step, Storage
from graphfw.runtime.numpy_executor.codegen import KernelCode, scratch_bytes
from graphfw.runtime.numpy_executor.engine import compile_codes
from tests.support.kernel_interpreter import Array, Failed, Interpreted, new_array
from tests.support.work_items import WORK_ITEM, in_a_run


class Native(Interpreted):
    """The target whose kernels are machine code, and whose products are interpreted."""

    def kernel(self, kernel: Kernel, sizes: Sequence[DimLike]) -> Any:
        del sizes
        return KernelCode(kernel)

    def scratch(self, kernel: Kernel) -> tuple[int, int]:
        return tuple(scratch_bytes(kernel))


def execute(steps: Sequence[Step]) -> Any:
    """Compile steps; return what runs one of them on a memory."""
    codes = [step.code for step in steps]
    addresses = dict(zip(steps, compile_codes(codes), strict=True))

    def run(step: Step, memory: dict[Storage, Array], sizes: Mapping[str, int]) -> None:
        arrays = []
        for storage, written in zip(step.operands, step.written, strict=True):
            if written:
                # What is not written, and what is written outside, shows.
                arrays.append(_guarded(new_array(storage, sizes)))
            else:
                arrays.append(np.ascontiguousarray(memory[storage]))
        buffers = (ctypes.c_void_p * len(arrays))(*[array.ctypes.data for array in arrays])
        params = (ctypes.c_int64 * max(len(step.params), 1))(
            *[evaluate(p, sizes) for p in step.params]
        )
        scratch = np.zeros(evaluate(step.scratch, sizes) + 64, np.uint8)
        aligned = scratch.ctypes.data + (-scratch.ctypes.data) % 64
        function = WORK_ITEM(addresses[step])
        for work_item in range(evaluate(step.work_items, sizes)):
            if function(buffers, params, work_item, aligned, *in_a_run()):
                raise Failed
        for storage, written, array in zip(step.operands, step.written, arrays, strict=True):
            if written:
                assert array.base is not None
                tail = array.base.view(np.uint8)[array.nbytes :]
                assert (tail == 0xA5).all(), "written outside of an output"
                memory[storage] = array

    return run


def _guarded(array: Array) -> Array:
    """Return an array of the same size, full of rubbish, with as much after it."""
    whole = np.full((array.size + 64) * array.itemsize, 0xA5, np.uint8).view(array.dtype)
    return whole[: array.size]
