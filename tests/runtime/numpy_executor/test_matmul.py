from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from graphfw.ir.dim import DimLike, symbol
from graphfw.ir.dtype import DType, as_dtype, float32
from graphfw.runtime.kernels.ir import (
    Access,
    Axis,
    Buffer,
    Call,
    Const,
    Expr,
    InnerLoop,
    Kernel,
    Load,
    Param,
    Size,
    Store,
)
from graphfw.runtime.kernels.steps import Epilogue, Storage, Temp, View
from graphfw.runtime.numpy_executor.codegen import host
from graphfw.runtime.numpy_executor.matmul import matmul_steps, supported
from tests.runtime.numpy_executor.matmul_runs import (
    LAYOUTS,
    Array,
    assert_product,
    product,
    random,
    run,
    storage_of,
    view_of,
)
from tests.support.kernels import TARGETS


@pytest.mark.exhaustive
@pytest.mark.parametrize("fixed_b", [False, True])
@pytest.mark.parametrize(("transposed_a", "transposed_b"), LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sizes_around_the_tiles(dtype, transposed_a, transposed_b, fixed_b, rng):
    for m, n, k in [
        *[(1, 1, 1), (1, 65, 40), (2, 31, 3), (3, 33, 64), (4, 5, 33), (5, 16, 2), (7, 17, 1)],
        *[(8, 64, 8), (13, 15, 100), (14, 47, 31), (15, 32, 300), (16, 10, 35), (17, 1, 50)],
        *[(28, 48, 12), (29, 65, 7), (33, 63, 5), (100, 96, 260), (260, 33, 9)],
        *[(30, 256, 1), (271, 300, 7), (9, 257, 8)],
    ]:
        a = random(rng, (m, k), dtype, transposed=transposed_a)
        b = random(rng, (k, n), dtype, transposed=transposed_b)
        assert_product(product(a, b, fixed_b=fixed_b), a, b)


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize(("transposed_a", "transposed_b"), LAYOUTS)
def test_every_shape_with_unknown_sizes(transposed_a, transposed_b, rng):
    """The code for unknown sizes is one; so all sizes can be run with it."""
    m, n, k = symbol("m"), symbol("n"), symbol("k")
    left = storage_of(np.empty(0, np.float32))
    right, out = storage_of(np.empty(0, np.float32)), storage_of(np.empty(0, np.float32))
    a_strides: tuple[DimLike, ...] = (1, m) if transposed_a else (k, 1)
    b_strides: tuple[DimLike, ...] = (1, k) if transposed_b else (n, 1)
    steps = matmul_steps(
        (), View(left, 0, (m, k), a_strides), View(right, 0, (k, n), b_strides), out, None
    )
    for rows in [*range(1, 34), 130]:
        for columns in [1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 47, 48, 49, 64, 65, 140]:
            length = int(rng.choice([0, 1, 2, 5, 31, 32, 33, 70, 129, 300]))
            a = random(rng, (rows, length), "float32", transposed=transposed_a)
            b = random(rng, (length, columns), "float32", transposed=transposed_b)
            got = np.full((rows, columns), np.nan, np.float32)
            memory = {
                left: np.swapaxes(a, 0, 1) if transposed_a else a,
                right: np.swapaxes(b, 0, 1) if transposed_b else b,
                out: got,
            }
            run(steps, memory, {"m": rows, "n": columns, "k": length})
            assert_product(got, a, b)


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_vectors_of_every_size(target, dtype, rng):
    for transposed_a, transposed_b in LAYOUTS:
        for m, n, k in [(13, 37, 21), (3, 9, 40), (1, 40, 70)]:
            a = random(rng, (m, k), dtype, transposed=transposed_a)
            b = random(rng, (k, n), dtype, transposed=transposed_b)
            assert_product(product(a, b, target=target), a, b)


def test_slices_and_steps(rng):
    a, b = rng.standard_normal((40, 61)), rng.standard_normal((61, 90))
    for left, right in [
        (a[3:20, 5:40], b[6:41, 7:51]),
        (a[::2, ::3], b[::3, ::2]),
        (a[::-1, ::-1], b[::-1, ::-1]),
        (a[:3, 5:40], b[6:41, 7:51]),
        (a[:3, 1:60:2], b.T[1:60:2, :30]),
        (a.T[::2, 1:31], b[:30, ::-3]),
    ]:
        if left.shape[1] == right.shape[0]:
            assert_product(product(left, right), left, right)


@pytest.mark.parametrize("transposed_b", [False, True])
def test_batches(transposed_b, rng):
    for batch, m, n, k in [((3,), 5, 7, 9), ((2, 3), 17, 33, 20), ((4, 1, 2), 1, 40, 33)]:
        a = random(rng, (*batch, m, k), "float32")
        b = random(rng, (*batch, k, n), "float32", transposed=transposed_b)
        assert_product(product(a, b), a, b)
        mixed = np.swapaxes(a, 0, -3)
        other = np.swapaxes(b, 0, -3)
        assert_product(product(mixed, other), mixed, other)


def test_broadcast_batches(rng):
    a = rng.standard_normal((4, 3, 6, 9)).astype("float32")
    for b in (random(rng, (9, 35), "float32"), random(rng, (3, 9, 35), "float32")):
        wide = np.broadcast_to(b, (4, 3, 9, 35))
        assert_product(product(a, wide), a, wide)
        assert_product(product(a, wide, fixed_b=True), a, wide)
    one = np.broadcast_to(a[:1, :1], (4, 3, 6, 9))
    b = random(rng, (4, 3, 9, 1), "float32")
    assert_product(product(one, b), one, b)


@pytest.mark.parametrize(("m", "n", "k"), [(7, 33, 20), (300, 200, 300)])
def test_batches_of_unknown_size(m, n, k, rng):
    count = symbol("count")
    left, right, out = (Temp(float32, count, "") for _ in range(3))
    views = (
        View(left, 0, (count, m, k), (m * k, k, 1)),
        View(right, 0, (count, k, n), (n * k, 1, k)),
    )
    steps = matmul_steps((), *views, out, None)
    for size in (0, 1, 5):
        a = random(rng, (size, m, k), "float32")
        b = random(rng, (size, k, n), "float32", transposed=True)
        got = np.full((size, m, n), np.nan, np.float32)
        run(steps, {left: a, right: np.swapaxes(b, 1, 2), out: got}, {"count": size})
        assert_product(got, a, b)


def test_large_enough_for_several_chunks(rng):
    for m, n, k in [(520, 300, 300), (300, 1200, 70)]:
        a, b = random(rng, (m, k), "float32"), random(rng, (k, n), "float32", transposed=True)
        assert_product(product(a, b), a, b)
        assert_product(product(a, b.copy(), fixed_b=True), a, b)


def test_long_sums_are_split(rng):
    a, b = random(rng, (9, 20000), "float32", transposed=True), random(rng, (20000, 40), "float32")
    memory: dict[Storage, Array] = {}
    out = np.empty((9, 40), np.float32)
    steps = matmul_steps((), view_of(a, memory), view_of(b, memory), storage_of(out), None)
    assert len(steps) == 2
    assert steps[0].work_items == 16
    assert_product(product(a, b), a, b)


@pytest.mark.parametrize(("m", "n", "k"), [(0, 5, 4), (5, 0, 4), (5, 3, 0), (1, 40, 0), (5, 1, 0)])
@pytest.mark.parametrize("transposed_b", [False, True])
def test_sizes_of_zero(m, n, k, transposed_b, rng):
    for fixed_b in (False, True):
        a, b = (
            random(rng, (m, k), "float32"),
            random(rng, (k, n), "float32", transposed=transposed_b),
        )
        np.testing.assert_array_equal(product(a, b, fixed_b=fixed_b), np.zeros((m, n)))
    a, b = random(rng, (0, m, k), "float32"), random(rng, (0, k, n), "float32")
    assert product(a, b).shape == (0, m, n)


@pytest.mark.parametrize(("transposed_a", "transposed_b"), LAYOUTS)
def test_nan_and_infinity_stay_in_their_rows_and_columns(transposed_a, transposed_b, rng):
    for rows in (3, 20):
        a = random(rng, (rows, 50), "float32", transposed=transposed_a)
        b = random(rng, (50, 37), "float32", transposed=transposed_b)
        a[1, 4], b[7, 36], b[9, 20] = np.inf, np.nan, -np.inf
        with np.errstate(invalid="ignore"):
            expected = a.astype(np.float64) @ b
        got = product(a, b)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
        np.testing.assert_array_equal(np.isinf(got), np.isinf(expected))
        np.testing.assert_array_equal(np.sign(got[np.isinf(got)]), np.sign(expected[np.isinf(got)]))


def test_the_order_of_work_items_does_not_matter(rng):
    a, b = random(rng, (130, 400), "float32"), random(rng, (400, 333), "float32")
    np.testing.assert_array_equal(product(a, b), product(a, b, order=-1))


def test_packing_ahead_does_not_change_what_is_read_later(rng):
    a, b = random(rng, (20, 30), "float32"), random(rng, (30, 70), "float32")
    memory: dict[Storage, Array] = {}
    out = np.empty((20, 70), np.float32)
    pack, step = matmul_steps(
        (), view_of(a, memory), view_of(b, memory), storage_of(out), None, fixed_b=True
    )
    assert (pack.prepacks, step.prepacks) == (True, False)
    assert pack.operands[0] is next(s for s in memory if memory[s] is b)
    assert step.operands[1] is pack.operands[1]


def relu_after_bias(columns: DimLike, rows: DimLike) -> tuple[Kernel, tuple[DimLike, ...]]:
    """max(product + bias, 0), with the number of the product's row stride: 2."""
    x = Load(float32, 0, Access(0, (("i", Param(2)), ("j", 1))))
    bias = Load(float32, 1, Access(0, (("j", 1),)))
    value = Call(float32, "max", (Call(float32, "add", (x, bias)), Const(float32, 0.0)))
    store = Store(2, Access(0, (("i", Param(3)), ("j", 1))), value)
    kernel = Kernel(
        form="rows",
        outer=(Axis("i", Param(0)),),
        inner=(Axis("j", Param(1)),),
        per_item=1,
        split=None,
        buffers=(Buffer(float32, False), Buffer(float32, False), Buffer(float32, True)),
        params=4,
        body=(InnerLoop((store,)),),
    )
    return kernel, (rows, columns, -1, columns)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize(
    ("batch", "m", "n", "k"),
    [
        ((), 37, 70, 50),
        ((), 300, 600, 40),
        ((), 1, 70, 50),
        ((), 9, 1, 50),
        ((3,), 9, 1, 50),
        ((), 6, 40, 0),
        ((2, 3), 18, 33, 20),
        ((), 9, 40, 20000),
    ],
)
def test_epilogue(batch, m, n, k, kept, rng):
    a, b = random(rng, (*batch, m, k), "float32"), random(rng, (*batch, k, n), "float32")
    bias = rng.standard_normal(n).astype("float32")
    expected = np.maximum(product(a, b) + bias, 0)
    for fixed_b in (False, True):
        memory: dict[Storage, Array] = {}
        left, right = view_of(a, memory), view_of(b, memory)
        given, out, whole = storage_of(bias), storage_of(expected), storage_of(expected)
        memory |= {given: bias, out: np.full(expected.shape, np.nan, np.float32)}
        memory[whole] = memory[out].copy()
        kernel, params = relu_after_bias(n, math.prod(batch) * m)
        epilogue = Epilogue(kernel, (None, given, out), params, product=0, row_stride=2)
        steps = matmul_steps((), left, right, whole if kept else None, epilogue, fixed_b=fixed_b)
        run(steps, memory)
        tolerance = {"rtol": 1e-5, "atol": 1e-5 + 1e-7 * k}
        np.testing.assert_allclose(memory[out], expected, **tolerance)
        if kept:
            np.testing.assert_allclose(memory[whole], product(a, b), **tolerance)


def test_epilogue_with_an_unknown_batch(rng):
    rows = symbol("rows")
    left, right, given, out = (Temp(float32, rows, "") for _ in range(4))
    kernel, params = relu_after_bias(70, rows)
    steps = matmul_steps(
        (),
        View(left, 0, (rows, 50), (50, 1)),
        View(right, 0, (50, 70), (70, 1)),
        None,
        Epilogue(kernel, (None, given, out), params, product=0, row_stride=2),
    )
    b, bias = random(rng, (50, 70), "float32"), random(rng, (70,), "float32")
    for count in (0, 1, 3, 8, 100, 700):
        a = random(rng, (count, 50), "float32")
        got = np.full((count, 70), np.nan, np.float32)
        run(steps, {left: a, right: b, given: bias, out: got}, {"rows": count})
        np.testing.assert_allclose(got, np.maximum(a @ b + bias, 0), rtol=1e-5, atol=1e-5)


def test_products_with_equal_epilogues_share_its_function():
    kernel, params = relu_after_bias(70, 5)
    codes = []
    for m, kernel_of in ((28, kernel), (26, kernel), (26, replace(kernel, per_item=2))):
        a, b, bias, out = (Temp(float32, 1, "") for _ in range(4))
        epilogue = Epilogue(kernel_of, (None, bias, out), params, product=0, row_stride=2)
        left, right = View(a, 0, (m, 50), (50, 1)), View(b, 0, (50, 70), (70, 1))
        (step,) = matmul_steps((), left, right, None, epilogue)
        codes.append(step.code)
    first, other_tiles, other_epilogue = (code.follow.name for code in codes)
    assert first == other_tiles != other_epilogue
    assert len({code.key for code in codes}) == 3


def test_few_of_an_unknown_number_of_rows_with_a_sum_in_pieces(rng):
    """Tiles that have fewer rows than they could add each of them once."""
    rows = symbol("rows")
    left, right, out = (Temp(float32, rows, "") for _ in range(3))
    a_view, b_view = View(left, 0, (rows, 3000), (3000, 1)), View(right, 0, (3000, 45), (45, 1))
    steps = matmul_steps((), a_view, b_view, out, None)
    b = random(rng, (3000, 45), "float32")
    for count in (5, 7, 9, 11, 29):
        a = random(rng, (count, 3000), "float32")
        got = np.full((count, 45), np.nan, np.float32)
        run(steps, {left: a, right: b, out: got}, {"rows": count})
        assert_product(got, a, b)


@pytest.mark.skipif(not host().large, reason="the processor has no such stores")
@pytest.mark.parametrize("begin", [0, 3])
def test_large_results_of_epilogues_go_past_the_caches(begin, rng):
    """Aligned results go past them; results known to be small have no code for that."""
    m, n, k = 70, 256, 20
    a, b = random(rng, (m, k), "float32"), random(rng, (k, n), "float32")
    bias = rng.standard_normal(n).astype("float32")
    codes = []
    for large in (1, 1 << 30):
        memory: dict[Storage, Array] = {}
        left, right = view_of(a, memory), view_of(b, memory)
        room = np.zeros(m * n + 64, np.float32)
        skip = -room.ctypes.data % 64 // 4 + begin
        got = room[skip : skip + m * n].reshape(m, n)
        given, out = storage_of(bias), storage_of(got)
        memory |= {given: bias, out: got}
        kernel, params = relu_after_bias(n, m)
        epilogue = Epilogue(kernel, (None, given, out), params, product=0, row_stride=2)
        target = host()._replace(large=large)
        steps = matmul_steps((), left, right, None, epilogue, target=target)
        run(steps, memory)
        np.testing.assert_allclose(got, np.maximum(a @ b + bias, 0), 1e-5, 1e-5)
        assert not room[:skip].any()
        assert not room[skip + m * n :].any()
        codes.append(steps[0].code)
    past = ["nontemporal !" in code.follow.llvm("f") for code in codes]
    assert past == [True, False]
    assert codes[0].key != codes[1].key


def gated(dtype: DType, width: int, rows: int) -> tuple[Kernel, tuple[DimLike, ...]]:
    """max(first, third) + second, of thirds of a product's columns; see `relu_after_bias`."""
    inner = float32 if dtype.is_low_precision else dtype

    def third(begin: Size) -> Expr:
        x = Load(dtype, 0, Access(begin, (("i", Param(2)), ("j", 1))))
        return Call(inner, "cast", (x,)) if inner is not dtype else x

    larger = Call(inner, "max", (third(0), third(Param(5))))
    value: Expr = Call(inner, "add", (larger, third(Param(4))))
    if inner is not dtype:
        value = Call(dtype, "cast", (value,))
    store = Store(1, Access(0, (("i", Param(3)), ("j", 1))), value)
    kernel = Kernel(
        form="rows",
        outer=(Axis("i", Param(0)),),
        inner=(Axis("j", Param(1)),),
        per_item=1,
        split=None,
        buffers=(Buffer(dtype, False), Buffer(dtype, True)),
        params=6,
        body=(InnerLoop((store,)),),
    )
    return kernel, (rows, width, -1, width, -1, -1)


@pytest.mark.exhaustive(every=2)
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("batch", "m", "width", "k"),
    [
        ((), 32, 64, 70),
        ((), 1, 32, 50),
        ((), 3, 7, 40),
        ((), 37, 33, 300),
        ((), 300, 160, 40),
        ((2,), 18, 96, 20),
        ((), 9, 40, 20000),
        ((), 6, 40, 0),
    ],
)
def test_sections(batch, m, width, k, dtype, kept, rng):
    """An element of each section of the columns at a time, in whatever way the product is made."""
    kind = as_dtype(dtype)
    for transposed_b, fixed_b in [(False, False), (True, False), (False, True), (True, True)]:
        a = random(rng, (*batch, m, k), kind.dtype)
        b = random(rng, (*batch, k, 3 * width), kind.dtype, transposed=transposed_b)
        whole = product(a, b)
        first, second, third = np.split(whole, 3, axis=-1)
        expected = np.maximum(first, third) + second
        memory: dict[Storage, Array] = {}
        left, right = view_of(a, memory), view_of(b, memory)
        out, target = storage_of(expected), storage_of(whole)
        memory[out], memory[target] = np.zeros_like(expected), np.zeros_like(whole)
        kernel, params = gated(kind, width, math.prod(batch) * m)
        begins = ((1, 4), (2, 5))
        epilogue = Epilogue(kernel, (None, out), params, 0, 2, sections=3, begins=begins)
        steps = matmul_steps((), left, right, target if kept else None, epilogue, fixed_b=fixed_b)
        run(steps, memory)
        scale = float(np.abs(whole.astype("float64")).max(initial=1))
        eps = {"float64": 1e-12, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}[dtype]
        close = np.abs(memory[out].astype("float64") - expected.astype("float64")) <= eps * scale
        assert close.all()
        if kept:
            assert_product(memory[target], a, b)


def test_equal_layers_of_other_widths_share_code():
    def code(n: int) -> str:
        a, b, out = (Temp(float32, 64 * 1024, "") for _ in range(3))
        views = View(a, 0, (128, 256), (256, 1)), View(b, 0, (256, n), (n, 1))
        return matmul_steps((), *views, out, None)[0].code.key

    assert code(128) == code(512)


def test_supported_dtypes():
    names = ("float32", "float64", "float16", "bfloat16", "int32", "complex64")
    assert [supported(as_dtype(name)) for name in names] == [*[True] * 4, False, False]


def test_a_matrix_from_memory_that_one_row_reads_is_not_packed():
    def packs(m: int, n: int) -> bool:
        a, b = Temp(float32, m * 4096, ""), Temp(float32, n * 4096, "")
        left, right = View(a, 0, (m, 4096), (4096, 1)), View(b, 0, (4096, n), (1, 4096))
        steps = matmul_steps((), left, right, Temp(float32, m * n, ""), None, fixed_b=True)
        return any(step.prepacks for step in steps)

    assert not packs(1, 3000)
    assert packs(1, 300)
    assert packs(17, 3000)
