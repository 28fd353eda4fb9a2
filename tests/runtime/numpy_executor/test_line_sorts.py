"""Sorts of many lines that are compiled, beside stable sorts that compare."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.dtype import as_dtype
from graphfw.runtime.numpy_executor.codegen.target import host
from graphfw.runtime.numpy_executor.sorting.network import BLOCK, levels_of
from tests.support.orders import KINDS, drawn, indices_of, same

DTYPES = "int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64".split()


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHFW_JIT", "1")


def is_native(dtype: str, size: int) -> bool:
    if dtype.endswith("int64"):
        return host().vector_bytes == 64
    return host().vector_bytes >= 32 or size <= 512


def compiled(x: Any, function: Any, dims: Any = None, threads: int = 1) -> tuple[Any, bool]:
    """Return a plan of a function of an array, and whether all of it is native."""
    with gf.Graph() as graph:
        feed = gf.placeholder(dims or x.shape, dtype=x.dtype.name, name="x")
        result = function(feed)
    plan = gf.Session(graph, threads=threads).compile(result, feeds=[feed])
    return plan, "outside of native code" not in plan.explain(x)


def check(x: Any, axis: int, descending: bool, **how: Any) -> None:
    """See that a sort is native, and what a stable one makes of an array."""
    ordered = np.take_along_axis(x, indices_of(x, axis, descending), axis)
    plan, native = compiled(x, lambda x: gf.sort(x, axis=axis, descending=descending), **how)
    assert native is is_native(x.dtype.name, x.shape[axis])
    same(np.asarray(plan(x)), ordered)


@pytest.mark.exhaustive(every=6)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_lines_are_those_of_stable_sorts(rng, dtype, descending):
    for shape, axis in [((64, 100), 1), ((33, 3, 33), 0), ((2, 45, 31), 1)]:
        for kind in KINDS:
            check(drawn(rng, shape, dtype, kind), axis, descending)


@pytest.mark.parametrize("dtype", ["int16", "float32", "float64"])
def test_lines_of_any_length(rng, dtype):
    sizes = [2, 3, 7, 15, 16, 17, 31, 33, 48, 63, 65, 95, 129, 240, 257, 272, 449, 513, 801, 1100]
    for size in sizes:
        check(drawn(rng, (32, size), dtype, "wide"), 1, False)
        check(drawn(rng, (size, 32), dtype, "extremes"), 0, True)


@pytest.mark.parametrize("dtype", ["uint16", "int32", "float64"])
def test_any_number_of_lines(rng, dtype):
    lanes = host().vector_bytes // np.dtype(as_dtype(dtype).dtype).itemsize
    for count in [lanes - 1, lanes, 2 * lanes - 1, 4 * lanes + 1, 7 * lanes - 2]:
        check(drawn(rng, (count, 50), dtype, "extremes"), 1, False)
        check(drawn(rng, (3, 50, count), dtype, "extremes"), 1, True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_lines_that_lie_in_any_way(rng, dtype):
    x = drawn(rng, (70, 3, 66), dtype, "extremes")
    views = {
        "transposed": lambda x: gf.permute_dims(x, (2, 1, 0)),
        "reversed": lambda x: x[:, :, ::-1],
        "strided": lambda x: x[:, :, ::2],
        "part": lambda x: x[1:, :, 5:60],
        "broadcast": lambda x: gf.broadcast_to(x[:1], (40, 3, 66)),
    }
    for view in views.values():
        for axis in (0, 2):
            wanted = np.asarray(view(gf.asarray(x)))
            plan, native = compiled(x, lambda x, view=view, axis=axis: gf.sort(view(x), axis=axis))
            assert native
            ordered = np.take_along_axis(wanted, indices_of(wanted, axis, False), axis)
            same(np.asarray(plan(x)), ordered)


def test_zeros_of_two_signs_need_no_order_where_a_sort_is_not_stable(rng):
    x = drawn(rng, (40, 90), "float64", "extremes")
    plan, _ = compiled(x, lambda x: gf.sort(x, stable=False))
    found, wanted = np.asarray(plan(x)), np.sort(x)
    np.testing.assert_array_equal(found, wanted)
    signs = [np.count_nonzero(np.signbit(a) & (a == 0), axis=1) for a in (found, x)]
    np.testing.assert_array_equal(*signs)


def test_a_symbolic_number_of_lines(rng):
    for axis, dims in ((1, ("n", 60)), (0, (60, "n"))):
        for n in (0, 1, 5, 64, 77):
            shape = tuple([n if dim == "n" else dim for dim in dims])
            check(drawn(rng, shape, "float32", "extremes"), axis, False, dims=dims)


def test_empty_axes(rng):
    for shape, axis in [((0, 40), 1), ((40, 0), 1), ((40, 0), 0), ((40, 1), 1), ((0, 40), 0)]:
        x = drawn(rng, shape, "float32", "wide")
        plan, _ = compiled(x, lambda x, axis=axis: gf.sort(x, axis=axis))
        same(np.asarray(plan(x)), np.sort(x, axis=axis))


def test_any_number_of_threads_finds_the_same(rng):
    x = drawn(rng, (1000, 130), "float64", "extremes")
    found = [compiled(x, gf.sort, threads=threads)[0](x) for threads in (1, 2, 3)]
    assert len({np.asarray(array).tobytes() for array in found}) == 1


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_long_lines_are_sorted_in_runs(rng, dtype, descending):
    for shape in [(513,), (2049,), (9001,), (2, 8200), (70_001,)]:
        for kind in KINDS:
            x = drawn(rng, shape, dtype, kind)
            ordered = np.take_along_axis(x, indices_of(x, -1, descending), -1)
            plan, native = compiled(x, lambda x: gf.sort(x, descending=descending), threads=2)
            assert native or host().vector_bytes < 64
            same(np.asarray(plan(x)), ordered)
    x = drawn(rng, (3, 8195), dtype, "extremes")
    plan, _ = compiled(x, lambda x: gf.sort(x[::-1, ::-1], descending=descending))
    ordered = np.take_along_axis(x[::-1, ::-1], indices_of(x[::-1, ::-1], -1, descending), -1)
    same(np.asarray(plan(x)), ordered)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", ["int32", "uint32", "float32"])
def test_lines_that_are_not_long_are_sorted_in_runs(rng, dtype, descending):
    for size in (600, 2048, 8192):
        for kind in KINDS:
            x = drawn(rng, (size,), dtype, kind)
            plan, native = compiled(x, lambda x: gf.sort(x, descending=descending))
            assert native is (host().vector_bytes >= 32)
            same(np.asarray(plan(x)), x[indices_of(x, 0, descending)])


def test_few_short_lines(rng):
    for shape in [(2,), (5,), (300,), (2, 100), (512, 1)]:
        x = drawn(rng, shape, "float64", "extremes")
        axis = shape.index(max(shape))
        check(x, axis, False)


@pytest.mark.parametrize("order", ["ascending", "descending", "equal", "halves"])
def test_runs_of_which_one_comes_first(order):
    n = 5000
    x = {
        "ascending": np.arange(n),
        "descending": np.arange(n)[::-1],
        "equal": np.ones(n),
        "halves": np.arange(n) % (n // 2),
    }[order].astype(np.float32)
    plan, _ = compiled(x, gf.sort)
    np.testing.assert_array_equal(plan(x), np.sort(x))


def test_what_numpy_sorts_as_quickly_is_left_to_it(rng):
    for shape, dtype in [((9000,), "int32"), ((20, 9000), "int16"), ((300, 200), "int8")]:
        x = drawn(rng, shape, dtype, "wide")
        plan, native = compiled(x, gf.sort)
        assert not native
        same(np.asarray(plan(x)), np.sort(x))


def test_levels_of_sizes():
    for size in range(1, 10 * BLOCK):
        runs = -(-size // BLOCK)
        assert 1 << levels_of(size) >= runs > (1 << levels_of(size)) // 2
