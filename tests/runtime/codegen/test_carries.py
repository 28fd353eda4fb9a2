"""Kernels that hand values from position to position of a loop."""

import numpy as np
import pytest

from graphfw.ir.dtype import bool_, float32, float64, int32, int64
from graphfw.runtime.kernels.ir import (
    Axis,
    Buffer,
    Carried,
    Carry,
    Const,
    InnerLoop,
    Kernel,
    Load,
    Param,
    Position,
    Ref,
    Store,
)
from graphfw.runtime.kernels.printer import show
from graphfw.runtime.kernels.scalars import Scalars
from tests.support.cuda_kernels import CUDA
from tests.support.kernels import TARGETS, at, check, random

k = Scalars()
ITERATIONS, LANES, PER_ITEM = Param(0), Param(1), Param(2)
ON_EACH = pytest.mark.parametrize("target", [*TARGETS, CUDA], ids=lambda target: target.name)


def loop(body, *buffers, lanes=LANES):
    """A kernel of iterations `t` of lanes `j`."""
    own = tuple([Buffer(dtype, written) for dtype, written in buffers])
    outer, inner = (Axis("j", lanes),), (Axis("t", ITERATIONS),)
    return Kernel("columns", outer, inner, PER_ITEM, None, own, 3, body)


@pytest.mark.exhaustive
@ON_EACH
@pytest.mark.parametrize("dtype", [float32, float64, int32], ids=str)
def test_lanes_go_through_all_trips(dtype, target, rng):
    row, every = at(j=1), at(t=LANES, j=1)
    c, x = Carried(dtype, "c"), Load(dtype, 1, every)
    body = (
        InnerLoop((Carry("c", Load(dtype, 0, row), k.sub(x, c)), Store(2, every, k.add(c, x)))),
        Store(3, row, Ref(dtype, "c")),
    )
    kernel = loop(body, (dtype, False), (dtype, False), (dtype, True), (dtype, True))
    for iterations, lanes, per_item in ((0, 5, 2), (1, 1, 64), (7, 130, 64), (3, 67, 128)):
        arrays = [
            random(rng, dtype, n) for n in (lanes, iterations * lanes, iterations * lanes, lanes)
        ]
        check(kernel, arrays, [iterations, lanes, per_item], target=target)


@ON_EACH
def test_carries_take_each_others_places_and_are_of_any_dtype(target):
    a, b, odd = Carried(float32, "a"), Carried(float32, "b"), Carried(bool_, "odd")
    count = Carried(int64, "count")
    lane = k.cast(Position(int64, "j"), float32)
    body = (
        InnerLoop(
            (
                Carry("a", lane, b),
                Carry("b", Const(float32, -1.0), a),
                Carry("odd", Const(bool_, False), k.not_(odd)),
                Carry("count", Const(int64, 3), k.add(count, Position(int64, "t"))),
            )
        ),
        Store(0, at(j=1), k.select(Ref(bool_, "odd"), Ref(float32, "a"), Ref(float32, "b"))),
        Store(1, at(j=1), Ref(int64, "count")),
    )
    kernel = loop(body, (float32, True), (int64, True))
    for iterations in (0, 1, 4, 5):
        arrays = [np.zeros(19, np.float32), np.zeros(19, np.int64)]
        check(kernel, arrays, [iterations, 19, 8], target=target)


@ON_EACH
def test_one_lane(target):
    c = Carried(float64, "c")
    body = (
        InnerLoop((Carry("c", Load(float64, 0, at()), k.sqrt(c)),)),
        Store(1, at(), Ref(float64, "c")),
    )
    kernel = loop(body, (float64, False), (float64, True), lanes=1)
    (_, result) = check(kernel, [np.array([256.0]), np.zeros(1)], [3, 1, 1], target=target)
    assert result[0] == 2


def test_text():
    c = Carried(float32, "c")
    body = (
        InnerLoop((Carry("c", Load(float32, 0, at(j=1)), k.sin(c)), Store(1, at(t=LANES, j=1), c))),
        Store(2, at(j=1), Ref(float32, "c")),
    )
    kernel = loop(body, (float32, False), (float32, True), (float32, True))
    assert show(kernel).splitlines()[4:] == [
        "  for each j:",
        "    c = b0[j]",
        "    for t:",
        "      next c = sin(c)",
        "      b1[p1*t + j] = c",
        "    b2[j] = c",
    ]
