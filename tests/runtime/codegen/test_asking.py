"""Kernels that ask in their loops if the run should end: they compute what others do, or leave."""

import dataclasses

import numpy as np
import pytest

from graphfw.ir.dtype import float32, int64
from graphfw.runtime.kernels.ir import (
    Axis,
    InnerLoop,
    Keep,
    Load,
    Param,
    Reduce,
    Ref,
    Store,
)
from graphfw.runtime.kernels.scalars import Scalars
from graphfw.runtime.numpy_executor.codegen import kernel_code, writer
from tests.support import kernels
from tests.support.kernels import COLUMNS, MATRIX, ROWS, TARGETS, at, matrix_kernel, run
from tests.support.work_items import in_an_ended_run

k = Scalars()
DEPTH = Param(3)
X = Load(float32, 0, MATRIX)
LONG = 24


def kernel_of(body, out=float32, **fields):
    return matrix_kernel(body, (float32, False), (out, True), params=4, **fields)


TOTAL = InnerLoop((Reduce("s", "sum", k.exp(X)),))
SUM = kernel_of((TOTAL, Store(1, at(i=1), Ref(float32, "s"))))
LAST = kernel_of(
    (InnerLoop((Reduce("p", "argmax", X),)), Store(1, at(i=1), Ref(int64, "p"))),
    int64,
)
SHARES = kernel_of(
    (
        InnerLoop((Keep("e", k.exp(X)), Reduce("s", "sum", k.exp(X)))),
        InnerLoop((Store(1, MATRIX, k.div(Ref(float32, "e"), Ref(float32, "s"))),)),
    )
)
DEEP_AT = at(i=COLUMNS, j=1, d=0)
DEEP = kernel_of(
    (
        InnerLoop((Reduce("s", "sum", Load(float32, 0, DEEP_AT)),)),
        Store(1, at(i=1), Ref(float32, "s")),
    ),
    inner=(Axis("d", DEPTH), Axis("j", COLUMNS)),
)
ALONG = kernel_of(
    (
        InnerLoop((Reduce("s", "sum", Load(float32, 0, at(i=1, j=ROWS))),)),
        Store(1, at(i=1), Ref(float32, "s")),
    ),
    form="columns",
    outer=(Axis("i", ROWS),),
    inner=(Axis("j", COLUMNS),),
)
ALL = dataclasses.replace(
    kernel_of(
        (
            InnerLoop((Reduce("s", "sum", Load(float32, 0, at(j=1))),)),
            Store(1, at(), Ref(float32, "s")),
        )
    ),
    outer=(),
    asks=True,
)
KERNELS = {"sum": SUM, "argmax": LAST, "shares": SHARES, "deep": DEEP, "along": ALONG}


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch):
    """Ask after few iterations, in what is a long row for these tests."""
    monkeypatch.setattr(writer, "PIECE", 2)
    monkeypatch.setattr(kernel_code, "LONG", LONG)


def made(rng, kernel, n, m, target):
    out = np.zeros(n * m, kernel.buffers[1].dtype.dtype)
    x = rng.standard_normal(n * m).astype(np.float32)
    return run(kernel, [x, out], [n, m, 2, 3], target), out


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", KERNELS)
def test_the_same_bits_whether_they_ask_or_not(name, target):
    kernel = KERNELS[name]
    asking = dataclasses.replace(kernel, asks=True)
    for m in (1, LONG, LONG + 1, 331):
        plain = made(np.random.default_rng(m), kernel, 5, m, target)
        again = made(np.random.default_rng(m), asking, 5, m, target)
        assert plain[0] == again[0] == 0
        assert plain[1].tobytes() == again[1].tobytes()


@pytest.mark.parametrize("name", KERNELS)
def test_only_long_rows_are_left_where_the_run_has_ended(name, rng, monkeypatch):
    monkeypatch.setattr(kernels, "in_a_run", in_an_ended_run)
    asking = dataclasses.replace(KERNELS[name], asks=True)
    assert made(rng, asking, 3, 1, None)[0] == 0
    assert made(rng, asking, 3, 1000, None)[0] > 0


def test_there_are_two_ways_for_many_rows_of_unknown_length():
    asking = dataclasses.replace(SUM, asks=True)
    assert "@f_short" in kernel_code.KernelCode(asking).llvm("f")
    known = dataclasses.replace(asking, inner=(Axis("j", 1000),))
    for other in (known, dataclasses.replace(ALONG, asks=True), ALL):
        assert "@f_short" not in kernel_code.KernelCode(other).llvm("f")
    assert kernel_code.KernelCode(asking).key != kernel_code.KernelCode(SUM).key
