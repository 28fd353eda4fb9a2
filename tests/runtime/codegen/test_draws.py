"""Random bits in kernels: those of the reference, to the last one, wherever loops begin."""

import numpy as np
import pytest

from graphfw.ir.dtype import float32, float64, int64, uint32, uint64
from graphfw.ops.numerics import philox_blocks
from graphfw.runtime.kernels.ir import (
    Access,
    Draw,
    InnerLoop,
    Load,
    Param,
    Store,
    Term,
)
from graphfw.runtime.kernels.scalars import Scalars
from tests.support.cuda_kernels import CUDA
from tests.support.kernels import (
    COLUMNS,
    MATRIX,
    ROWS,
    TARGETS,
    at,
    matrix_kernel,
    random,
    run,
)

k = Scalars()
KEY, FIRST, STRIDE = map(Param, range(3, 6))
ON_EACH = pytest.mark.parametrize("target", [*TARGETS, CUDA], ids=lambda target: target.name)
WORDS = pytest.mark.parametrize("dtype", [uint32, uint64], ids=str)


def kernel_of(form, body, *dtypes, split=None):
    """A kernel over [n, m] whose last buffer is written; with "columns" over m alone."""
    buffers = [(d, n == len(dtypes) - 1) for n, d in enumerate(dtypes)]
    return matrix_kernel(body, *buffers, form=form, split=split, params=6)


def elements(rng, step, key, dtype, first, count):
    """Return the words of a run's draws, and elements of a stream from the first one on."""
    keys = [int(word) for word in rng.integers(0, 2**32, 2)] if key is None else key
    drawn = np.array([step, 0, 0, keys[0] | keys[1] << 32], np.uint64).view(np.int64)
    each = 16 // dtype.itemsize
    block = first // each
    words = philox_blocks(np, tuple(keys), step, block, count // each + 2)
    return drawn, words.reshape(-1).view(dtype.dtype)[first % each :][:count].copy()


@pytest.mark.exhaustive
@ON_EACH
@WORDS
@pytest.mark.parametrize(
    ("n", "m", "first"),
    [(1, 1, 3), (2, 0, 0), (2, 64, 0), (5, 131, 1), (3, 200, 2**34 - 5), (4, 77, 2**61 + 2)],
)
def test_elements_in_a_row(n, m, first, dtype, target, rng):
    drawn, wanted = elements(rng, 2**32 + 7, None, dtype, first, n * m)
    access = Access(FIRST, (("i", COLUMNS), ("j", 1)))
    body = (InnerLoop((Store(1, MATRIX, Draw(dtype, 0, KEY, access)),)),)
    found = np.zeros(n * m, dtype.dtype)
    kernel = kernel_of("rows", body, int64, dtype)
    assert run(kernel, [drawn, found], [n, m, 2, 3, first, 0], target) == 0
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.exhaustive
@ON_EACH
@WORDS
def test_work_items_that_begin_anywhere(dtype, target, rng):
    m = 1003
    drawn, wanted = elements(rng, 2**64 - 1, (2**32 - 1, 2**32 - 1), dtype, 0, m)
    body = (InnerLoop((Store(1, at(j=1), Draw(dtype, 0, KEY, at(j=1))),)),)
    found = np.zeros(m, dtype.dtype)
    kernel = kernel_of("rows", body, int64, dtype, split=FIRST)
    assert run(kernel, [drawn, found], [1, m, 1, 3, 77, 0], target) == 0
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.exhaustive(every=2)
@ON_EACH
@WORDS
@pytest.mark.parametrize("form", ["rows", "columns"])
def test_any_strides(form, dtype, target, rng):
    n, m = 7, 133
    drawn, stream = elements(rng, 5, None, dtype, 0, n * m)
    for strides in ({"i": 1, "j": ROWS}, {"i": COLUMNS, "j": 1}, {"i": 1}, {"j": 1}, {}):
        values = {ROWS: n, COLUMNS: m}
        indices = sum(
            np.indices((n, m))["ij".index(axis)] * values.get(stride, stride)
            for axis, stride in strides.items()
        )
        body = (InnerLoop((Store(1, MATRIX, Draw(dtype, 0, KEY, at(**strides))),)),)
        found = np.zeros((n, m), dtype.dtype)
        kernel = kernel_of(form, body, int64, dtype)
        assert run(kernel, [drawn, found], [n, m, 3, 3, 0, 0], target) == 0
        np.testing.assert_array_equal(found, np.broadcast_to(stream[indices], (n, m)))


@ON_EACH
def test_an_element_that_an_index_names(target, rng):
    n, m = 3, 85
    drawn, stream = elements(rng, 0, None, uint32, 0, 50)
    indices = rng.integers(0, 50, (n, m))
    access = Access(0, (), (Term(Load(int64, 1, MATRIX), 1, FIRST),))
    body = (InnerLoop((Store(2, MATRIX, Draw(uint32, 0, KEY, access)),)),)
    found = np.zeros((n, m), np.uint32)
    kernel = kernel_of("rows", body, int64, int64, uint32)
    assert run(kernel, [drawn, indices, found], [n, m, 2, 3, 50, 0], target) == 0
    np.testing.assert_array_equal(found, stream[indices])
    indices[1, 80] = 50
    assert run(kernel, [drawn, indices, found], [n, m, 2, 3, 50, 0], target) != 0


@pytest.mark.exhaustive
@ON_EACH
@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_beside_other_values(dtype, target, rng):
    n, m = 5, 77
    drawn, stream = elements(rng, 1, None, uint32, 0, n * m)
    x = random(rng, dtype, n * m)
    keeps = k.lt(k.cast(k.shr(Draw(uint32, 0, KEY, MATRIX), 8), dtype), 2.0**23)
    body = (InnerLoop((Store(2, MATRIX, k.select(keeps, Load(dtype, 1, MATRIX), 0.0)),)),)
    found = np.zeros(n * m, dtype.dtype)
    kernel = kernel_of("rows", body, int64, dtype, dtype)
    assert run(kernel, [drawn, x, found], [n, m, 2, 3, 0, 0], target) == 0
    np.testing.assert_array_equal(found, np.where(stream >> 8 < 2**23, x, 0))
