"""Running the native steps of matrix products on arrays, for tests."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from graphfw.ir.dim_text import evaluate
from graphfw.ir.dtype import as_dtype, float16, float64
from graphfw.runtime.kernels.steps import Step, Storage, Temp, View
from graphfw.runtime.numpy_executor.buffer_pool import aligned
from graphfw.runtime.numpy_executor.engine import compile_codes
from graphfw.runtime.numpy_executor.matmul import matmul_steps
from tests.support.lying import lying, whole_of
from tests.support.work_items import WORK_ITEM, in_a_run

Array = np.ndarray[Any, Any]


def run(
    steps: list[Step],
    memory: dict[Storage, Array],
    sizes: Mapping[str, int] | None = None,
    order: int = 1,
) -> None:
    """Run steps on arrays, the items in order or backwards; check that scratch memory is enough."""
    sizes = sizes or {}
    for step, address in zip(steps, compile_codes([s.code for s in steps]), strict=True):
        for storage in step.operands:
            if storage not in memory:
                assert isinstance(storage, Temp)
                nbytes = evaluate(storage.size, sizes) * storage.dtype.itemsize
                room = aligned(nbytes)
                room.fill(0xFF)  # NaN, of any float
                memory[storage] = room.view(storage.dtype.dtype)
        buffers = (ctypes.c_void_p * len(step.operands))(
            *[memory[s].ctypes.data for s in step.operands]
        )
        params = (ctypes.c_int64 * len(step.params))(*[evaluate(p, sizes) for p in step.params])
        scratch_bytes = evaluate(step.scratch, sizes)
        scratch = np.full(scratch_bytes + 128, 0xA5, np.uint8)
        skip = -scratch.ctypes.data % 64
        for work_item in range(evaluate(step.work_items, sizes))[::order]:
            start = scratch.ctypes.data + skip
            assert WORK_ITEM(address)(buffers, params, work_item, start, *in_a_run()) == 0
        assert (scratch[skip + scratch_bytes :] == 0xA5).all()


def storage_of(array: Array) -> Temp:
    return Temp(as_dtype(array.dtype), array.size, "an array of the test")


def view_of(array: Array, memory: dict[Storage, Array], shape: Any = None) -> View:
    """The view of an array in the memory of its base."""
    whole = whole_of(array)
    storage = next((s for s, known in memory.items() if known is whole), None) or storage_of(whole)
    memory[storage] = whole
    view = lying(storage, array)
    return view._replace(shape=shape or view.shape)


def product(a: Array, b: Array, *, fixed_b: bool = False, order: int = 1, **options: Any) -> Array:
    """The product of arrays as the steps compute it, with nothing written around it."""
    memory: dict[Storage, Array] = {}
    left, right = view_of(a, memory), view_of(b, memory)
    shape = (*a.shape[:-1], b.shape[-1])
    room = np.full(math.prod(shape) + 128, 7, a.dtype)
    out = room[64 : 64 + math.prod(shape)]
    storage = storage_of(out)
    memory[storage] = out
    steps = matmul_steps((), left, right, storage, None, fixed_b=fixed_b, **options)
    run(steps, memory, order=order)
    assert (room[:64] == 7).all()
    assert (room[64 + out.size :] == 7).all()
    return out.reshape(shape)


def assert_product(got: Array, a: Array, b: Array) -> None:
    """Check against float64, relative to the norms of rows and columns; 16 bits: rounded once."""
    dtype = as_dtype(got.dtype)
    a, b, got = (x.astype(np.float64) for x in (a, b, got))
    exact = a @ b
    bound = (1e-14 if dtype is float64 else 2e-6) * norms(a, b)
    if dtype.is_low_precision:
        bound += np.abs(exact) * (2.0**-11 if dtype is float16 else 2.0**-8) + 2.0**-25
    assert (np.abs(got - exact) <= bound).all()


def norms(a: Array, b: Array) -> Array:
    """The norms of rows times those of columns."""
    return np.linalg.norm(a, axis=-1)[..., :, None] * np.linalg.norm(b, axis=-2)[..., None, :]


def random(rng: np.random.Generator, shape: Any, dtype: Any, *, transposed: bool = False) -> Array:
    """A random array, with `transposed` its last two dims the other way round in memory."""
    if not transposed:
        return rng.standard_normal(shape).astype(dtype)
    kept = (*shape[:-2], shape[-1], shape[-2])
    return np.swapaxes(rng.standard_normal(kept).astype(dtype), -1, -2)


LAYOUTS = [(False, False), (False, True), (True, False), (True, True)]
"""The operands that are transposed in memory."""
