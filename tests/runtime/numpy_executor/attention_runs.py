"""Running the native steps of attention on arrays, and comparing with the reference, for tests."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

import graphfw as gf
from graphfw.ir.build import emit_all
from graphfw.ir.op import Op, lookup
from graphfw.ir.tensor import Tensor
from graphfw.runtime.kernels.steps import Step, Storage, Temp, View
from graphfw.runtime.numpy_executor.attention.steps import attention_grad_steps, attention_steps
from graphfw.runtime.numpy_executor.engine import compile_codes
from tests.support.lying import lying, whole_of
from tests.support.work_items import WORK_ITEM, in_a_run

Array = np.ndarray[Any, Any]

LOW = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]


def draw(rng: np.random.Generator, *shape: int, dtype: Any = np.float32) -> Array:
    return rng.normal(size=shape).astype(dtype)


def operands(
    rng: np.random.Generator, sizes: tuple[int, ...], dtype: Any = np.float32
) -> tuple[Array, ...]:
    to, time, width, values = sizes
    lead = (2, 3)
    q, k = draw(rng, *lead, to, width, dtype=dtype), draw(rng, *lead, time, width, dtype=dtype)
    return q, k, draw(rng, *lead, time, values, dtype=dtype)


def gradient_operands(op: Any, q: Array, k: Array, v: Array, *mask: Array) -> list[Array]:
    """Return the operands of `attention_grad` after `attention` was given these."""
    with np.errstate(all="ignore"):
        out, lse, rest = op.eval(np, q, k, v, *mask)
    d_out = np.random.default_rng(3).normal(size=out.shape).astype(out.dtype)
    return [q, k, v, lse, rest, (out * d_out).sum(-1, dtype=lse.dtype), d_out, *mask]


def check(causal: bool, scale: float | None, inputs: tuple[Array, ...], slack: float = 1) -> None:
    """Compare values and gradients with the reference."""
    forward, backward = lookup("attention")(causal, scale), lookup("attention_grad")(causal, scale)
    agree(run_natively(forward, inputs), forward, inputs, slack)
    more = gradient_operands(forward, *inputs)
    agree(run_natively(backward, more), backward, more, slack)


def agree(values: list[Array], op: Any, inputs: Any, slack: float = 1) -> None:
    with np.errstate(all="ignore"):
        expected = op.eval(np, *inputs)
        pairs = list(zip(values, expected, strict=True))
        for value, wanted in pairs:
            assert value.dtype == wanted.dtype
        if op.name == "attention":  # right is the sum of lse and rest
            pairs[1:] = [tuple(np.longdouble(pairs[1][i]) + pairs[2][i] for i in range(2))]
    tolerance = (1e-14 if inputs[0].dtype == np.float64 else 2e-6) * slack
    for value, wanted in pairs:
        last_bit = 0.0
        if value.dtype in LOW:  # rounded once: the neighbour at most
            last_bit = float(ml_dtypes.finfo(value.dtype).eps)
            value, wanted = value.astype(np.float32), wanted.astype(np.float32)
        finite = np.abs(wanted[np.isfinite(wanted) & (np.abs(wanted) < 1e30)])
        scale = max(1.0, float(finite.max(initial=0)))
        rtol = max(tolerance, last_bit)
        np.testing.assert_allclose(value, wanted, rtol=rtol, atol=tolerance * scale)


def run_natively(op: Op, inputs: Sequence[Array], order: int = 1) -> list[Array]:
    """Return the results of an op's steps for arrays, which are read as they lie."""
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
        order: 1, or -1 to compute the work items in reverse order.
    """
    with gf.Graph():
        given = [gf.placeholder(x.shape, str(x.dtype)) for x in inputs]
        made = emit_all(op, *given)
    arrays: dict[Storage, Array] = {}
    read, written = (
        [_view(*pair, arrays) for pair in pairs]
        for pairs in (zip(given, inputs, strict=True), zip(made, outputs, strict=True))
    )
    count = 3 if op.name == "attention" else 7
    mask = read[count] if len(read) > count else None
    if op.name == "attention":
        out, *sums = written
        steps = attention_steps(made[0].node, *read[:3], mask, out, *[x.storage for x in sums])
    else:
        steps = attention_grad_steps(made[0].node, *read[:7], mask, *written)
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
        call_work_items(address, buffers, params, int(step.work_items), int(step.scratch), order)


def call_work_items(
    address: int,
    buffers: Sequence[int],
    params: Sequence[int],
    work_items: int,
    scratch: int = 0,
    order: int = 1,
) -> None:
    """Call a native function for all work items, the first one first or, with order -1, last."""
    function = WORK_ITEM(address)
    operands = (ctypes.c_void_p * max(1, len(buffers)))(*buffers)
    numbers = (ctypes.c_int64 * max(1, len(params)))(*params)
    room = np.empty(scratch + 64, np.uint8)
    start = room.ctypes.data + -room.ctypes.data % 64
    for work_item in range(work_items)[::order]:
        room[:] = 255  # NaN: what a kernel has not written it must not read
        assert function(operands, numbers, work_item, start, *in_a_run()) == 0
