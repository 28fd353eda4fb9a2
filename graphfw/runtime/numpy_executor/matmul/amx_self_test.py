"""`passes_self_test`: whether the matrix tiles of this machine compute correct products."""

from __future__ import annotations

import ctypes
import warnings

import numpy as np

from graphfw.ir.dtype import float32
from graphfw.ir.literal import Array
from graphfw.runtime.kernels.steps import Temp, View
from graphfw.runtime.numpy_executor.engine import compile_codes
from graphfw.runtime.numpy_executor.matmul.amx import Form
from graphfw.runtime.numpy_executor.matmul.lowering import matmul_steps

_SIZES = 45, 50, 70
"""Rows, columns and length of the product: more than one tile, and none whole."""

_FUNCTION = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p
)


def passes_self_test(form: Form) -> bool:
    """Return whether tiles give the same products as vectors; warn if they don't.

    Generated code is tested with emulated tiles. Whether the processor's do the same can be known
    only where there is one.
    """
    m, n, k = _SIZES
    rng = np.random.default_rng(0)
    a = rng.standard_normal((m, k), np.float32)
    b = rng.standard_normal((k, n), np.float32)
    with_tiles, without = _product(a, b, form), _product(a, b, None)
    bound = 1e-6 * np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(b, axis=0)
    if (np.abs(with_tiles - without) <= bound).all():
        return True
    warnings.warn(
        "the matrix tiles (AMX) of this processor give other products than its vectors: they are "
        "not used. Please report this",
        RuntimeWarning,
        stacklevel=2,
    )
    return False


def _product(a: Array, b: Array, form: Form | None) -> Array:
    """Compute a product by the steps of a plan, on this thread."""
    (m, k), (_, n) = a.shape, b.shape
    left, right, out = (Temp(float32, size, "a trial") for size in (m * k, k * n, m * n))
    views = View(left, 0, (m, k), (k, 1)), View(right, 0, (k, n), (n, 1))
    (step,) = matmul_steps((), *views, out, None, tiles=form)
    assert isinstance(step.work_items, int)
    assert isinstance(step.scratch, int)
    result = np.empty((m, n), np.float32)
    scratch = np.empty(step.scratch + 64, np.uint8)
    buffers = (ctypes.c_void_p * 3)(*[array.ctypes.data for array in (a, b, result)])
    numbers = [n for n in step.params if isinstance(n, int)]  # all: the sizes are known
    params = (ctypes.c_int64 * len(numbers))(*numbers)
    function = _FUNCTION(compile_codes([step.code])[0])
    for work_item in range(step.work_items):
        function(buffers, params, work_item, scratch.ctypes.data + -scratch.ctypes.data % 64)
    return result
