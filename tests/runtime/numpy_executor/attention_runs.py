"""Running the native steps of attention on arrays, for tests."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

import graphfw as gf
from graphfw.ir.build import emit_all
from graphfw.ir.op import Op
from graphfw.ir.tensor import Tensor
from graphfw.runtime.kernels.steps import Step, Storage, Temp, View
from graphfw.runtime.numpy_executor.attention.steps import attention_grad_steps, attention_steps
from graphfw.runtime.numpy_executor.engine import compile_codes
from tests.support.lying import lying, whole_of

Array = np.ndarray[Any, Any]


def run_natively(op: Op, inputs: Sequence[Array], order: int = 1) -> list[Array]:
    """Return what the steps of an op compute from arrays, which are read as they lie."""
    outputs = [np.full(shape, 99, dtype) for shape, dtype in _types(op, inputs)]
    run_into(op, inputs, outputs, order)
    return outputs


def run_into(
    op: Op, inputs: Sequence[Array], outputs: Sequence[Array], order: int = 1
) -> list[Step]:
    """Let the steps of an op write to arrays, as they lie; return the steps.

    Args:
        op: `attention` or `attention_grad`.
        inputs: What it reads.
        outputs: Where it writes to.
        order: 1, or -1 to compute the cells in reverse order.
    """
    with gf.Graph():
        given = [gf.placeholder(x.shape, str(x.dtype)) for x in inputs]
        made = emit_all(op, *given)
    arrays: dict[Storage, Array] = {}
    read, written = (
        [_view(*pair, arrays) for pair in pairs]
        for pairs in (zip(given, inputs, strict=True), zip(made, outputs, strict=True))
    )
    count = 3 if op.name == "attention" else 6
    mask = read[count] if len(read) > count else None
    if op.name == "attention":
        out, lse = written
        steps = attention_steps(made[0].node, *read[:3], mask, out, lse.storage)
    else:
        steps = attention_grad_steps(made[0].node, *read[:6], mask, *written)
    _run(steps, arrays, order)
    return steps


def _types(op: Op, inputs: Sequence[Array]) -> list[tuple[tuple[int, ...], Any]]:
    with gf.Graph():
        made = emit_all(op, *[gf.placeholder(x.shape, str(x.dtype)) for x in inputs])
    return [(t.shape, t.dtype.dtype) for t in made]


def _view(tensor: Tensor, array: Array, arrays: dict[Storage, Array]) -> View:
    arrays[tensor] = whole_of(array)
    return lying(tensor, array)


def _run(steps: Sequence[Step], arrays: dict[Storage, Array], order: int) -> None:
    for step in steps:
        for storage in step.operands:
            if isinstance(storage, Temp) and storage not in arrays:
                arrays[storage] = np.full(int(storage.size), np.nan, storage.dtype.dtype)
    for step, address in zip(steps, compile_codes([s.code for s in steps]), strict=True):
        buffers = [arrays[storage].ctypes.data for storage in step.operands]
        params = [int(p) for p in step.params]
        call_cells(address, buffers, params, int(step.cells), int(step.scratch), order)


def call_cells(
    address: int,
    buffers: Sequence[int],
    params: Sequence[int],
    cells: int,
    scratch: int = 0,
    order: int = 1,
) -> None:
    """Call a native function for all cells, the first one first or, with order -1, last."""
    pointer = ctypes.c_void_p
    function = ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer, ctypes.c_int64, pointer)(address)
    operands = (pointer * max(1, len(buffers)))(*buffers)
    numbers = (ctypes.c_int64 * max(1, len(params)))(*params)
    room = np.empty(scratch + 64, np.uint8)
    start = room.ctypes.data + -room.ctypes.data % 64
    for cell in range(cells)[::order]:
        room[:] = 255  # NaN: what a kernel has not written it must not read
        assert function(operands, numbers, cell, start) == 0
