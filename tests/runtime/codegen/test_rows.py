"""Kernels of the form "rows": elementwise code, row reductions, kept rows."""

import math

import numpy as np
import pytest

from graphfw.ir.dtype import (
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint64,
)
from graphfw.runtime.kernels.ir import (
    Access,
    Axis,
    BoundsCheck,
    Const,
    InnerLoop,
    Keep,
    Load,
    Param,
    Position,
    Reduce,
    Ref,
    SizeValue,
    Store,
    Term,
)
from graphfw.runtime.kernels.scalars import Scalars
from graphfw.runtime.numpy_executor.codegen import BASE, host
from tests.support.cuda_kernels import CUDA
from tests.support.kernels import (
    COLUMNS,
    MATRIX,
    ROWS,
    TARGETS,
    at,
    check,
    matrix_kernel,
    random,
    run,
)

k = Scalars()
EITHER = pytest.mark.parametrize("target", [host(), CUDA], ids=lambda target: target.name)
DTYPES = [bool_, int8, uint8, int32, int64, uint64, float16, bfloat16, float32, float64]
SIZES = [(1, 1), (3, 5), (4, 64), (5, 131), (2, 0), (7, 1)]


def rows(body, *dtypes, outputs=1, **fields):
    """A kernel over a matrix; the last dtypes are of outputs."""
    first = len(dtypes) - outputs
    buffers = [(dtype, n >= first) for n, dtype in enumerate(dtypes)]
    return matrix_kernel(body, *buffers, **fields)


def wide(x):
    """The value as the primitives take it."""
    return k.cast(x, float32) if x.dtype.is_low_precision else x


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", [*TARGETS, CUDA], ids=lambda target: target.name)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_elementwise_with_a_broadcast_row(dtype, target, rng):
    x, bias = Load(dtype, 0, MATRIX), Load(dtype, 1, at(j=1))
    y = k.xor(x, bias) if dtype is bool_ else k.cast(k.add(wide(x), wide(bias)), dtype)
    kernel = rows((InnerLoop((Store(2, MATRIX, y),)),), dtype, dtype, dtype)
    n, m = 3, 139
    arrays = [random(rng, dtype, n * m), random(rng, dtype, m), np.ones(n * m, dtype.dtype)]
    check(kernel, arrays, [n, m, 2], target=target)


NARROWED = [(int64, int32), (int64, int8), (int32, int16), (int32, bool_), (float32, bfloat16)]


@pytest.mark.exhaustive
@EITHER
@pytest.mark.parametrize("form", ["rows", "columns"])
@pytest.mark.parametrize(("dtype", "narrow"), NARROWED, ids=str)
def test_narrowed_rows_of_a_known_length_end_where_they_end(dtype, narrow, form, target, rng):
    """One lane is left of a vector: LLVM 22 would store it as wide as it was before."""
    for length in (1, 17, 65):
        store = Store(1, at(i=length, j=1), k.cast(Load(dtype, 0, at(i=1)), narrow))
        body = (InnerLoop((store,)),) if form == "rows" else (store,)
        axes = {"inner": (Axis("j", length),)}
        if form == "columns":
            axes = {"outer": (Axis("i", ROWS), Axis("j", length)), "inner": ()}
        kernel = rows(body, dtype, narrow, form=form, **axes)
        arrays = [random(rng, dtype, 4), np.ones(4 * length, narrow.dtype)]
        check(kernel, arrays, [4, length, 1], target=target)


@pytest.mark.exhaustive
@EITHER
@pytest.mark.parametrize(("n", "m"), SIZES)
def test_sizes_scalars_and_columns(n, m, target, rng):
    x, of_row = Load(float32, 0, MATRIX), Load(float32, 1, at(i=1))
    y = k.div(k.sub(x, of_row), k.add(k.sqrt(k.abs(of_row)), 1.0))
    y = k.add(y, k.cast(SizeValue(int64, COLUMNS), float32))
    kernel = rows((InnerLoop((Store(2, MATRIX, y),)),), float32, float32, float32)
    arrays = [random(rng, float32, n * m), random(rng, float32, n), np.ones(n * m, np.float32)]
    check(kernel, arrays, [n, m, 2], target=target)


@EITHER
def test_one_axis_cut_into_work_items(target, rng):
    flat = at(j=1)
    y = k.mul(Load(float64, 0, flat), k.cast(Position(int64, "j"), float64))
    kernel = rows((InnerLoop((Store(1, flat, y),)),), float64, float64, outer=(), split=Param(0))
    for n, split in ((1000, 96), (17, 100), (64, 64)):
        check(kernel, [random(rng, float64, n), np.ones(n)], [split, n, 1], target=target)


@EITHER
def test_rows_cut_into_work_items(target, rng):
    y = k.neg(Load(float32, 0, MATRIX))
    kernel = rows((InnerLoop((Store(1, MATRIX, y),)),), float32, float32, split=Param(3), params=4)
    arrays = [random(rng, float32, 5 * 70), np.ones(5 * 70, np.float32)]
    check(kernel, arrays, [5, 70, 2, 32], target=target)


@EITHER
def test_many_axes_and_strides(target, rng):
    a, b, c, d = 3, 1, 4, 37
    axes = (Axis("a", Param(0)), Axis("b", Param(1)), Axis("c", Param(3)))
    dense = at(a=Param(4), b=Param(5), c=Param(6), d=1)
    # The input is transposed: "d" is its slowest axis.
    across = at(Param(9), d=Param(7), c=Param(8), a=1)
    y = k.sub(Load(int32, 0, across), k.cast(Position(int64, "c"), int32))
    kernel = rows(
        (InnerLoop((Store(1, dense, y), Store(2, across, k.mul(y, y)))),),
        *(int32, int32, int32),
        outputs=2,
        outer=axes,
        inner=(Axis("d", Param(10)),),
        params=11,
    )
    params = [a, b, 5, c, b * c * d, c * d, d, c * a, a, 2, d]
    size = a * b * c * d
    arrays = [random(rng, int32, size + 2), np.ones(size, np.int32), np.ones(size + 2, np.int32)]
    check(kernel, arrays, params, target=target)


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", [host(), BASE, CUDA], ids=lambda target: target.name)
@pytest.mark.parametrize("dtype", [float32, float64, int8, int64, bool_, bfloat16], ids=str)
def test_gathers_and_scatters_along_vectors(dtype, target, rng):
    n, m = 3, 83
    index = Load(int32, 1, at(j=1))
    gathered = Load(dtype, 0, Access(0, (("i", 1),), (Term(index, ROWS, COLUMNS),)))
    kernel = rows((InnerLoop((Store(2, at(i=1, j=ROWS), gathered),)),), dtype, int32, dtype)
    indices = rng.integers(0, m, m).astype(np.int32)
    arrays = [random(rng, dtype, n * m), indices, np.ones(n * m, dtype.dtype)]
    check(kernel, arrays, [n, m, 2], target=target)


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", [host(), BASE, CUDA], ids=lambda target: target.name)
@pytest.mark.parametrize("bad", [-1, 83, 2**40])
@pytest.mark.parametrize("where", [0, 70, 82])
def test_an_index_out_of_range_fails(bad, where, target, rng):
    index = Load(int64, 1, at(j=1))
    gathered = Load(float32, 0, Access(0, (), (Term(index, 1, COLUMNS),)))
    kernel = rows((InnerLoop((Store(2, MATRIX, gathered),)),), float32, int64, float32)
    indices = rng.integers(0, 83, 83)
    indices[where] = bad
    arrays = [random(rng, float32, 83), indices, np.ones(83, np.float32)]
    assert run(kernel, arrays, [1, 83, 1], target) == 1


@EITHER
@pytest.mark.parametrize("m", [3, 83])
def test_indices_of_lanes_that_are_off_do_not_count(m, target, rng):
    last = k.sub(SizeValue(int64, COLUMNS), 1)
    mirrored = k.sub(last, Position(int64, "j"))
    x = Load(float32, 0, Access(0, (("i", COLUMNS),), (Term(mirrored, 1, COLUMNS),)))
    kernel = rows((InnerLoop((Store(1, MATRIX, x),)),), float32, float32)
    check(
        kernel, [random(rng, float32, 2 * m), np.ones(2 * m, np.float32)], [2, m, 2], target=target
    )


@pytest.mark.exhaustive
@EITHER
@pytest.mark.parametrize("m", [1, 70])
def test_checks(m, target, rng):
    index, x = Load(int64, 0, at(j=1)), Load(float32, 1, at(j=1))
    body = (
        BoundsCheck(SizeValue(int64, ROWS), 4),
        InnerLoop((BoundsCheck(index, 9), Store(2, MATRIX, x))),
    )
    kernel = rows(body, int64, float32, float32)
    arrays = [rng.integers(0, 9, m), random(rng, float32, m), np.ones(4 * m, np.float32)]
    check(kernel, arrays, [1, m, 2], target=target)
    arrays[0][-1] = 9
    assert run(kernel, arrays, [1, m, 2], target) == 1
    arrays[0][-1] = 8
    assert run(kernel, arrays, [4, m, 4], target) == 1


@EITHER
def test_rows_are_chosen_by_an_index(target, rng):
    vocabulary, n, m = 11, 5, 70
    word = Load(int64, 1, at(i=1))
    table = Load(float32, 0, Access(0, (("j", 1),), (Term(word, COLUMNS, Param(3)),)))
    body = (InnerLoop((Store(2, MATRIX, table),)),)
    kernel = rows(body, float32, int64, float32, params=4)
    words = rng.integers(0, vocabulary, n)
    arrays = [random(rng, float32, vocabulary * m), words, np.ones(n * m, np.float32)]
    params = [n, m, 2, vocabulary]
    check(kernel, arrays, params, target=target)
    words[3] = vocabulary
    assert run(kernel, arrays, params) == 1


@EITHER
def test_an_output_may_lie_where_an_input_does(target, rng):
    x, y = Load(float32, 0, MATRIX), Load(float32, 1, MATRIX)
    # Loaded again: after the first output was written it would be that.
    again = Load(float32, 0, MATRIX)
    body = (InnerLoop((Store(2, MATRIX, k.add(x, y)), Store(3, MATRIX, k.mul(again, y)))),)
    kernel = rows(body, *[float32] * 4, outputs=2)
    a, b = (random(rng, float32, 3 * 75) for _ in range(2))
    added, multiplied = a + b, a * b
    assert run(kernel, [a, b, a, b], [3, 75, 2], target) == 0
    np.testing.assert_array_equal(a, added)
    np.testing.assert_array_equal(b, multiplied)


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", [host(), BASE, CUDA], ids=lambda target: target.name)
@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min", "argmax", "argmin"])
@pytest.mark.parametrize("dtype", [int8, uint8, int64, float32, float64], ids=str)
def test_row_reductions(dtype, kind, target, rng):
    result = int64 if kind.startswith("arg") else dtype
    body = (
        InnerLoop((Reduce("r", kind, Load(dtype, 0, MATRIX)),)),
        Store(1, at(i=1), Ref(result, "r")),
    )
    kernel = rows(body, dtype, result)
    for n, m in ((3, 1), (2, 33), (3, 300)):
        arrays = [random(rng, dtype, n * m), np.ones(n, result.dtype)]
        check(kernel, arrays, [n, m, 2], rtol=1e-5, target=target)


@pytest.mark.parametrize("kind", ["max", "min", "argmax", "argmin"])
def test_extremes_of_special_values(kind, rng):
    result = int64 if kind.startswith("arg") else float32
    body = (
        InnerLoop((Reduce("r", kind, Load(float32, 0, MATRIX)),)),
        Store(1, at(i=1), Ref(result, "r")),
    )
    kernel = rows(body, float32, result)
    m = 201
    x = rng.integers(-3, 3, (8, m)).astype(np.float32)
    x[1, [40, 150]] = np.nan
    x[2, 200] = np.nan
    x[3] = -np.inf
    x[4] = np.inf
    x[5, 7] = -np.inf
    x[6, 77:] = np.nan
    x[7, 0] = np.nan
    check(kernel, [x, np.ones(8, result.dtype)], [8, m, 3])


def test_truth_of_rows(rng):
    x = Load(bool_, 0, MATRIX)
    loop = InnerLoop((Reduce("some", "any", x), Reduce("every", "all", x)))
    stores = Store(1, at(i=1), Ref(bool_, "some")), Store(2, at(i=1), Ref(bool_, "every"))
    kernel = rows((loop, *stores), bool_, bool_, bool_, outputs=2)
    x = np.zeros((6, 77), bool)
    x[1, 76] = x[2, 3] = True
    x[3:] = True
    x[4, 64] = False
    check(kernel, [x, np.zeros(6, bool), np.zeros(6, bool)], [6, 77, 4])


def normalised(shared):
    """(x - mean) / deviation, with the squares kept or computed again."""
    x = Load(float32, 0, MATRIX)
    count = k.cast(SizeValue(int64, COLUMNS), float32)
    mean = k.div(Ref(float32, "total"), count)
    centred = k.sub(x, mean)
    kept = Ref(float32, "centred") if shared else centred
    deviation = k.sqrt(k.add(k.div(Ref(float32, "squares"), count), 1e-5))
    second = (Reduce("squares", "sum", k.mul(centred, centred)),)
    return rows(
        (
            InnerLoop((Reduce("total", "sum", x),)),
            InnerLoop((*second, Keep("centred", centred)) if shared else second),
            InnerLoop((Store(1, MATRIX, k.div(kept, deviation)),)),
            Store(2, at(i=1), deviation),
        ),
        *(float32, float32, float32),
        outputs=2,
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("target", [*TARGETS[:2], CUDA], ids=lambda target: target.name)
def test_several_loops_over_a_row(shared, target, rng):
    for n, m in ((3, 1), (5, 37), (2, 300)):
        arrays = [random(rng, float32, n * m), np.ones(n * m, np.float32), np.ones(n, np.float32)]
        check(normalised(shared), arrays, [n, m, 2], rtol=2e-5, target=target)


@pytest.mark.exhaustive
@EITHER
@pytest.mark.parametrize("dtype", [float32, bool_, float16, bfloat16, int64], ids=str)
def test_kept_rows_over_two_axes(dtype, target, rng):
    a, b, c = 3, 4, 35
    dense = at(a=Param(4), b=Param(5), c=1)
    x = Load(dtype, 0, dense)
    big = k.gt(wide(x), Const(wide(x).dtype, 0))
    body = (
        InnerLoop((Keep("x", x), Keep("big", big), Reduce("r", "any", big))),
        InnerLoop((Store(1, dense, k.select(Ref(bool_, "big"), Ref(dtype, "x"), x)),)),
        Store(2, at(a=1), Ref(bool_, "r")),
    )
    axes = (Axis("a", Param(0)),), (Axis("b", Param(1)), Axis("c", Param(3)))
    kernel = rows(body, dtype, dtype, bool_, outputs=2, outer=axes[0], inner=axes[1], params=6)
    size = a * b * c
    arrays = [random(rng, dtype, size), np.ones(size, dtype.dtype), np.zeros(a, bool)]
    check(kernel, arrays, [a, b, 2, c, b * c, c], target=target)


@EITHER
def test_every_order_of_addition_is_the_same(target):
    body = (
        InnerLoop((Reduce("r", "sum", Load(float32, 0, MATRIX)),)),
        Store(1, at(i=1), Ref(float32, "r")),
    )
    kernel = rows(body, float32, float32)
    x = np.random.default_rng(0).standard_normal((6, 1111)).astype(np.float32)
    results = []
    for per_item in (1, 4, 6):
        out = np.ones(6, np.float32)
        assert run(kernel, [x, out], [6, 1111, per_item], target) == 0
        results.append(out)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])
    assert math.isclose(results[0][0], x[0].astype(np.float64).sum(), rel_tol=1e-4)
