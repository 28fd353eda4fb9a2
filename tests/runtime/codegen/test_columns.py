"""Kernels of the form "columns", and partial results of work items."""

import functools

import numpy as np
import pytest

from graphfw.ir.dtype import bool_, float16, float32, float64, int8, int32, int64
from graphfw.runtime.cupy_executor.codegen import variants
from graphfw.runtime.kernels.ir import (
    Access,
    Accumulate,
    Axis,
    InnerLoop,
    Keep,
    Load,
    Param,
    Position,
    Reduce,
    Ref,
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
    check,
    matrix_kernel,
    random,
    run,
)

k = Scalars()
ON_EACH = pytest.mark.parametrize("target", [*TARGETS[:2], CUDA], ids=lambda target: target.name)


rows, columns = [functools.partial(matrix_kernel, form=form) for form in ("rows", "columns")]


@pytest.mark.exhaustive
@ON_EACH
@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min", "argmax", "argmin"])
@pytest.mark.parametrize("dtype", [int8, int64, float32, float64], ids=str)
def test_reductions_of_columns(dtype, kind, target, rng):
    result = int64 if kind.startswith("arg") else dtype
    x = Load(dtype, 0, MATRIX)
    body = (InnerLoop((Reduce("r", kind, x),)), Store(1, at(j=1), Ref(result, "r")))
    kernel = columns(body, (dtype, False), (result, True))
    for n, m, per_item in ((5, 1, 1), (7, 300, 128), (1, 65, 100)):
        arrays = [random(rng, dtype, n * m), np.ones(m, result.dtype)]
        check(kernel, arrays, [n, m, per_item], rtol=1e-5, target=target)


@pytest.mark.exhaustive
@ON_EACH
@pytest.mark.parametrize("make", [columns, rows], ids=["columns", "rows"])
def test_what_is_reduced_and_stored_besides(make, target, rng):
    """On a GPU several blocks share that, too: each stores what it goes through."""
    y = k.mul(Load(float32, 0, MATRIX), Load(float32, 0, MATRIX))
    result = Store(2, at(j=1) if make is columns else at(i=1), Ref(float32, "r"))
    body = (InnerLoop((Reduce("r", "sum", y), Store(1, MATRIX, y))), result)
    kernel = make(body, (float32, False), (float32, True), (float32, True))
    assert {"apart", "split"} & {*variants(kernel)}
    for n, m in ((5, 1), (70, 300), (1, 65)):
        ends = np.ones(m if make is columns else n, np.float32)
        arrays = [random(rng, float32, n * m), np.ones(n * m, np.float32), ends]
        check(kernel, arrays, [n, m, 64], rtol=1e-5, target=target)


@ON_EACH
def test_softmax_of_columns_with_kept_values(target, rng):
    x = Load(float32, 0, MATRIX)
    body = (
        InnerLoop((Reduce("m", "max", x),)),
        InnerLoop(
            (
                Keep("e", k.exp(k.sub(x, Ref(float32, "m")))),
                Reduce("s", "sum", k.exp(k.sub(x, Ref(float32, "m")))),
            )
        ),
        InnerLoop((Store(1, MATRIX, k.div(Ref(float32, "e"), Ref(float32, "s"))),)),
    )
    kernel = columns(body, (float32, False), (float32, True))
    for n, m in ((3, 5), (9, 131)):
        arrays = [random(rng, float32, n * m), np.ones(n * m, np.float32)]
        check(kernel, arrays, [n, m, 64], rtol=1e-5, target=target)


@ON_EACH
def test_columns_without_inner_axes(target, rng):
    flat = at(a=COLUMNS, j=1)
    y = k.add(Load(int32, 0, flat), k.cast(Position(int64, "j"), int32))
    body = (Store(1, flat, k.mul(y, Load(int32, 2, at(a=1)))),)
    buffers = (int32, False), (int32, True), (int32, False)
    kernel = columns(body, *buffers, outer=(Axis("a", ROWS), Axis("j", COLUMNS)), inner=())
    n, m = 3, 211
    arrays = [random(rng, int32, n * m), np.ones(n * m, np.int32), random(rng, int32, n)]
    check(kernel, arrays, [n, m, 100], target=target)


@pytest.mark.exhaustive
@ON_EACH
@pytest.mark.parametrize("dtype", [float32, bool_, float16, int64], ids=str)
def test_columns_of_batches_over_two_axes(dtype, target, rng):
    """x: [b, i, j, h] -> transposed and centred; `h` runs along vectors."""
    b, i, j, h = 2, 3, 4, 37
    access = at(b=Param(3), i=Param(4), j=Param(1), h=1)
    x = Load(dtype, 0, access)
    value = k.cast(x, float32)
    kept = InnerLoop((Keep("x", x), Reduce("s", "max", value)))
    out = at(b=Param(3), i=Param(5), j=1, h=Param(6))
    body = (
        kept,
        InnerLoop((Store(1, out, k.sub(k.cast(Ref(dtype, "x"), float32), Ref(float32, "s"))),)),
    )
    axes = {
        "outer": (Axis("b", ROWS), Axis("h", Param(1))),
        "inner": (Axis("i", Param(7)), Axis("j", Param(8))),
    }
    kernel = columns(body, (dtype, False), (float32, True), **axes, params=9)
    size = b * i * j * h
    arrays = [random(rng, dtype, size), np.ones(size, np.float32)]
    check(kernel, arrays, [b, h, 16, i * j * h, j * h, j, i * j, i, j], target=target)


def test_an_index_out_of_range_fails(rng):
    index = Load(int64, 1, at(i=1))
    x = Load(float32, 0, Access(0, (("j", 1),), (Term(index, COLUMNS, Param(3)),)))
    body = (InnerLoop((Reduce("r", "sum", x),)), Store(2, at(j=1), Ref(float32, "r")))
    kernel = columns(body, (float32, False), (int64, False), (float32, True), params=4)
    index = rng.integers(0, 5, 4)
    arrays = [random(rng, float32, 5 * 40), index, np.ones(40, np.float32)]
    check(kernel, arrays, [4, 40, 40, 5], rtol=1e-6)
    index[2] = -1
    assert run(kernel, arrays, [4, 40, 40, 5]) == 1


KINDS = pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        *[("sum", float32), ("sum", float64), ("prod", int64), ("max", float32)],
        *[("min", int8), ("all", bool_), ("any", bool_)],
    ],
    ids=str,
)


@pytest.mark.exhaustive
@ON_EACH
@KINDS
def test_partial_lines(kind, dtype, target, rng):
    body = (InnerLoop((Accumulate(1, at(j=1), kind, Load(dtype, 0, MATRIX), True),)),)
    for n, m, per_item in ((7, 75, 3), (1, 1, 1), (4, 33, 9)):
        kernel = rows(body, (dtype, False), (dtype, True))
        lines = -(-n // per_item)
        arrays = [random(rng, dtype, n * m), random(rng, dtype, lines * m)]
        check(kernel, arrays, [n, m, per_item], rtol=1e-5, target=target)


@pytest.mark.exhaustive
@ON_EACH
@KINDS
@pytest.mark.parametrize("make", [rows, columns])
def test_partial_elements(make, kind, dtype, target, rng):
    x = Load(dtype, 0, MATRIX)
    body = (InnerLoop((Accumulate(1, at(), kind, x, False),)),)
    for n, m, per_item in ((7, 75, 3), (1, 1, 1), (4, 33, 9)):
        work_items = -(-(n if make is rows else m) // per_item)
        arrays = [random(rng, dtype, n * m), random(rng, dtype, work_items)]
        check(make(body, (dtype, False), (dtype, True)), arrays, [n, m, per_item], rtol=1e-5)


@ON_EACH
@pytest.mark.parametrize("make", [rows, columns])
def test_partial_sums_of_results_of_rows(make, target, rng):
    loop = InnerLoop((Reduce("r", "max", Load(float32, 0, MATRIX)),))
    body = (loop, Accumulate(1, at(), "sum", Ref(float32, "r"), False))
    kernel = make(body, (float32, False), (float32, True))
    n, m, per_item = 21, 75, 13
    work_items = -(-(n if make is rows else m) // per_item)
    arrays = [random(rng, float32, n * m), np.ones(work_items, np.float32)]
    check(kernel, arrays, [n, m, per_item], rtol=1e-5, target=target)


@ON_EACH
def test_partial_lines_of_columns(target, rng):
    x = Load(float32, 0, MATRIX)
    body = (InnerLoop((Accumulate(1, at(i=1), "sum", x, True),)),)
    kernel = columns(body, (float32, False), (float32, True))
    n, m, per_item = 9, 301, 200
    arrays = [random(rng, float32, n * m), random(rng, float32, 2 * n)]
    check(kernel, arrays, [n, m, per_item], rtol=1e-5, target=target)
