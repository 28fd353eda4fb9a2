"""One op by the steps that a GPU has for it, run on the CPU, beside its own `eval`."""

from __future__ import annotations

from typing import Any

import numpy as np

import graphfw as gf
from graphfw.ir.build import emit
from graphfw.ir.op import Op
from graphfw.passes.fuse_views import contiguous
from graphfw.runtime.cupy_executor.codegen import module
from graphfw.runtime.cupy_executor.target import GpuTarget
from graphfw.runtime.kernels.steps import Storage, View
from graphfw.runtime.limits import Precision
from graphfw.runtime.planning.draws import Draws
from tests.support.cuda_kernels import run_once
from tests.support.kernel_interpreter import Array, new_array


def computed(
    op: Op, *arrays: Array, precision: Precision = "highest", wide: bool = False
) -> tuple[Array, list[str]]:
    """Return the result of hand-written kernels for arrays, and the kernels' names.

    Of each kernel only the variant is compiled that is launched.

    Args:
        op: The op.
        arrays: Its inputs.
        precision: See `Options`.
        wide: Whether indices are computed in 64 bits.
    """
    with gf.Graph():
        xs = [gf.placeholder(a.shape, a.dtype) for a in arrays]
        y = emit(op, *xs)
    views = [View(t, 0, t.shape, contiguous(t.shape)) for t in (*xs, y)]
    steps = GpuTarget(Draws(()), precision).lower_node(y.node, views[:-1], views[-1:])
    assert steps, "there are no kernels for it"
    memory: dict[Storage, Any] = dict(zip(xs, arrays, strict=True))
    for step in steps:
        buffers = [
            new_array(storage, {}) if written else np.ascontiguousarray(memory[storage])
            for storage, written in zip(step.operands, step.written, strict=True)
        ]
        code, params = step.code, list(step.params)
        one = code.launch(params)
        wanted = {one.variant} if one.grid else set()
        source = module([code], {code.symbol: wanted})
        found = run_once(code, one, buffers, params, source, wide=wide)
        memory.update(zip(step.operands, found, strict=True))
    return np.asarray(memory[y]).reshape(y.shape), [
        getattr(step.code, "name", "copy") for step in steps
    ]
