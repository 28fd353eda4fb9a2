"""The text of kernels."""

import dataclasses

from graphfw.ir.dtype import DType, bool_, float16, float32, float64, int64, uint32, uint64
from graphfw.runtime.kernels.ir import (
    Access,
    Accumulate,
    BoundsCheck,
    Const,
    Draw,
    InnerLoop,
    Keep,
    Kernel,
    Load,
    Param,
    Position,
    Reduce,
    Ref,
    SizeValue,
    Store,
    Term,
)
from graphfw.runtime.kernels.printer import show
from graphfw.runtime.kernels.scalars import Scalars
from tests.support.kernels import MATRIX, at, matrix_kernel

k = Scalars()
P = Param


def kernel(*body, dtype=float32, **fields):
    plain = matrix_kernel(body, (dtype, False), (dtype, True))
    return dataclasses.replace(plain, **fields)


def softmax(dtype: DType = float32, eps: float = 1.0) -> Kernel:
    x = Load(dtype, 0, MATRIX)
    small = k.sub(x, Ref(dtype, "m"))
    e = k.exp(k.mul(small, eps))
    return kernel(
        InnerLoop((Reduce("m", "max", x),)),
        InnerLoop((Reduce("s", "sum", e), Keep("e", e))),
        InnerLoop((Store(1, MATRIX, k.div(Ref(dtype, "e"), Ref(dtype, "s"))),)),
        dtype=dtype,
    )


def test_loops_and_named_values():
    assert show(softmax()) == (
        "kernel rows [i: p0] x [j: p1], p2 a work item, 3 params\n"
        "  in  b0: float32\n"
        "  out b1: float32\n"
        "  for each i:\n"
        "    for j:\n"
        "      v0 = b0[p1*i + j]\n"
        "      m = max(v0)\n"
        "    for j:\n"
        "      v1 = exp((v0 - m) * 1.0)\n"
        "      s = sum(v1)\n"
        "      keep e = v1\n"
        "    for j:\n"
        "      b1[p1*i + j] = e / s\n"
    )


def test_all_other_statements_and_expressions():
    index = k.cast(Load(float64, 0, at(P(2))), int64)
    loaded = Load(float32, 0, Access(0, (("i", 1),), (Term(index, P(1), 7), Term(index, 1, P(0)))))
    count = k.add(k.cast(SizeValue(int64, P(0)), float32), k.cast(Position(int64, "j"), float32))
    body = (
        BoundsCheck(Position(int64, "i"), P(1)),
        InnerLoop(
            (Accumulate(1, at(j=1), "sum", k.select(k.lt(loaded, 0.5), loaded, count), True),)
        ),
        Accumulate(1, at(), "max", Const(float32, 2), False),
    )
    text = show(kernel(*body, split=P(2), outer=(), form="columns"))
    assert text.splitlines()[3:] == [
        "  check i below p1",
        "  for j:",
        "    v0 = int64(b0[p2])",
        "    v1 = b0[i + p1*v0 below 7 + v0 below p0]",
        "    line b1[j] sum= select(v1 < 0.5, v1, float32(size(p0)) + float32(j))",
        "  b1[0] max= 2.0",
    ]
    assert text.startswith("kernel columns [] x [j: p1], p2 a work item, split p2, 3 params\n")


def test_random_bits():
    words = [Draw(dtype, 0, P(1), at(P(0), j=1)) for dtype in (uint32, uint64)]
    body = [
        InnerLoop((Store(1, at(j=1), word), BoundsCheck(k.cast(word, int64), P(0))))
        for word in words
    ]
    assert [line for line in show(kernel(*body)).splitlines() if "v" in line] == [
        "      v0 = bits32(b0[p1])[p0 + j]",
        "      b1[j] = v0",
        "      check int64(v0) below p0",
        "      v1 = bits64(b0[p1])[p0 + j]",
        "      b1[j] = v1",
        "      check int64(v1) below p0",
    ]


def test_kernels_that_differ_have_texts_that_differ():
    x = Load(float32, 0, MATRIX)
    other = Load(float32, 0, at(i=1, j=P(1)))
    kernels = [
        softmax(),
        softmax(float64),
        softmax(eps=2.0),
        kernel(InnerLoop((Store(1, MATRIX, x),))),
        kernel(InnerLoop((Store(1, MATRIX, other),))),
        kernel(InnerLoop((Store(1, MATRIX, x),)), split=P(2)),
        kernel(InnerLoop((Store(1, MATRIX, k.cast(k.cast(x, float16), float32)),))),
        kernel(InnerLoop((Store(1, MATRIX, k.cast(k.cast(x, bool_), float32)),))),
        kernel(InnerLoop((Store(1, MATRIX, k.sub(k.sub(x, other), x)),))),
        kernel(InnerLoop((Store(1, MATRIX, k.sub(x, k.sub(other, x))),))),
        kernel(InnerLoop((Store(1, MATRIX, k.cast(k.add(Const(int64, 1), 1), float32)),))),
        kernel(InnerLoop((Store(1, MATRIX, k.cast(k.add(Const(float64, 1), 1), float32)),))),
        kernel(InnerLoop((Store(1, MATRIX, Const(float32, -0.0)),))),
        kernel(InnerLoop((Store(1, MATRIX, Const(float32, 0.0)),))),
    ]
    assert len({show(kernel) for kernel in kernels}) == len(kernels)


def test_deep_expressions():
    x = Load(float32, 0, MATRIX)
    for _ in range(3000):
        x = k.neg(x)
    assert show(kernel(InnerLoop((Store(1, MATRIX, x),)))).count("neg") == 3000
