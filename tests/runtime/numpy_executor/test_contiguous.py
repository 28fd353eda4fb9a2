"""C-contiguous copies of arrays of any layout are made natively."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphfw as gf
from graphfw.runtime.numpy_executor import contiguous as module
from graphfw.runtime.numpy_executor.contiguous import as_contiguous
from tests.runtime.numpy_executor.special_runs import same

DTYPES = (bool, np.int8, np.uint16, ml_dtypes.bfloat16, np.float32, np.int64, np.complex64)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have small arrays copied natively, too."""
    monkeypatch.setattr(module, "_SMALL", 0)


def lying(rng: np.random.Generator, dtype: Any) -> Any:
    """Return an array of some layout."""
    sizes = (1, 2, 3, 5, 17, 40)
    shape = [int(rng.choice(sizes)) for _ in range(int(rng.integers(1, 5)))]
    steps = [int(rng.choice([1, 1, 1, -1, 2, -3, 9])) for _ in shape]
    margin = [int(rng.integers(0, 3)) for _ in shape]
    held = [m + n * abs(s) for m, n, s in zip(margin, shape, steps, strict=True)]
    array = rng.integers(0, 100, held).astype(dtype)
    if rng.integers(2):
        array = array.transpose(rng.permutation(array.ndim))
        steps = [1 if rng.integers(2) else -1 for _ in steps]
    view = array[tuple([slice(None, None, step) for step in steps])]
    if rng.integers(3) == 0:
        axis = int(rng.integers(view.ndim))
        one = view[(slice(None),) * axis + (slice(0, 1),)]
        view = np.broadcast_to(one, view.shape)
    return view


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", range(2))
def test_any_array(small, dtype, seed):
    rng = np.random.default_rng(seed)
    for _ in range(6):
        view = lying(rng, dtype)
        for threads in (1, 2):
            found = as_contiguous(view, threads)
            assert found.flags.c_contiguous
            assert found.flags.aligned
            same(found, np.ascontiguousarray(view))


def test_what_lies_in_a_row_stays(small):
    array = np.arange(12.0).reshape(3, 4)
    for one in (array, array[1:], array[:0], array[:, :0].T, np.float32(3) + np.zeros(())):
        assert as_contiguous(one, 2) is one


def test_what_no_kernel_copies(small):
    words = np.zeros(41, np.uint8)
    words[:] = np.arange(41)
    misaligned = words[1:].view(np.float32)
    swapped = np.arange(12, dtype=">i4")[::2]
    between = np.lib.stride_tricks.as_strided(np.arange(9, dtype=np.int32), (4,), (6,))
    wide = np.arange(8).astype(np.complex128)[::2]
    for array in (misaligned, swapped, between, wide):
        found = as_contiguous(array, 2)
        assert found.flags.c_contiguous
        assert found.flags.aligned
        np.testing.assert_array_equal(found, array)


def test_overlapping_windows(small):
    windows = np.lib.stride_tricks.sliding_window_view(np.arange(50, dtype=np.float32), 7)
    same(as_contiguous(windows, 2), np.ascontiguousarray(windows))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have plans compiled: NumPy itself adds up other layouts in another order."""
    monkeypatch.setenv("GRAPHFW_JIT", "1")


@pytest.mark.parametrize("shape", [(300, 200), (70, 9, 64), (40, 40, 3)])
def test_feeds_have_the_bits_of_those_in_a_row(compiled, shape):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    with gf.Graph() as g:
        fed = gf.placeholder(shape)
        made = [gf.softmax(fed), gf.sum(fed * fed, axis=0), gf.sort(fed, axis=0)]
    plan = gf.Session(g).compile(made, [fed])
    wanted = plan(x)
    reversed_rows = x[::-1].copy()[::-1]
    for array in (np.asfortranarray(x), np.repeat(x, 2, axis=1)[:, ::2], reversed_rows):
        assert not array.flags.c_contiguous
        for got, right in zip(plan(array), wanted, strict=True):
            same(got, right)


def test_loops_are_fed_such_arrays(compiled):
    x = np.random.default_rng(0).standard_normal((200, 130)).astype(np.float32)
    with gf.Graph() as g:
        fed, start = gf.placeholder(x.shape), gf.placeholder(x.shape[:1])
        made = gf.scan(lambda c, i: (gf.tanh(c @ fed @ fed.T), c[0]), start, gf.arange(5))
    plan = gf.Session(g).compile(list(made), [fed, start])
    wanted = plan(x, x[:, 3].copy())
    for got, right in zip(plan(np.asfortranarray(x), x[:, 3]), wanted, strict=True):
        same(got, right)
