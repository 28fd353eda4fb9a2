"""Stores past the caches and reading ahead: where they are used, and that results are the same."""

import numpy as np
import pytest

from graphfw.ir.dim import symbol
from graphfw.ir.dtype import bfloat16, bool_, float32, float64
from graphfw.runtime.kernels.ir import InnerLoop, Load, Param, Reduce, Ref, Store
from graphfw.runtime.kernels.scalars import Scalars
from graphfw.runtime.numpy_executor.codegen import BASE, KernelCode, host, with_stores
from graphfw.runtime.numpy_executor.target import CpuTarget
from graphfw.runtime.planning.draws import Draws
from tests.support.kernels import (
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


STREAMING = [target for target in TARGETS if target.large]
targets = pytest.mark.parametrize("target", STREAMING, ids=lambda target: target.name)


def kernel(*body, dtypes=(float32, float32), split=None, params=3):
    buffers = [(dtype, n == len(dtypes) - 1) for n, dtype in enumerate(dtypes)]
    return matrix_kernel(body, *buffers, split=split, params=params)


def doubled(dtype=float32):
    x = Load(dtype, 0, MATRIX)
    if dtype is bool_:
        y = k.not_(x)
    else:
        wide = k.cast(x, float32) if dtype.is_low_precision else x
        y = k.cast(k.add(wide, wide), dtype)
    return kernel(InnerLoop((Store(1, MATRIX, y),)), dtypes=(dtype, dtype))


def softmax():
    x = Load(float32, 0, MATRIX)
    e = k.exp(k.sub(x, Ref(float32, "m")))
    return kernel(
        InnerLoop((Reduce("m", "max", x),)),
        InnerLoop((Reduce("s", "sum", e),)),
        InnerLoop((Store(1, MATRIX, k.div(e, Ref(float32, "s"))),)),
    )


def aligned(array, ahead=0):
    """A copy that lies `ahead` elements behind a multiple of 64 bytes."""
    room = np.empty(array.size + 64 + ahead, array.dtype)
    start = -room.ctypes.data % 64 // array.itemsize + ahead
    room[start : start + array.size] = array
    return room[start : start + array.size]


def instructions(code, target):
    return KernelCode(code, target).llvm("f")


@targets
def test_what_is_dense_may_go_past_the_caches(target):
    assert "!nontemporal" in instructions(doubled(), target)
    assert "sfence" in instructions(doubled(), target)
    across = kernel(InnerLoop((Store(1, at(j=ROWS, i=1), Load(float32, 0, MATRIX)),)))
    text = instructions(across, target)
    assert "align 4, !nontemporal" not in text
    assert "sfence" not in text
    total = kernel(InnerLoop((Reduce("s", "sum", Load(float32, 0, MATRIX)),)),
                   Store(1, at(i=1), Ref(float32, "s")))  # fmt: skip
    assert "sfence" not in instructions(total, target)


def test_processors_without_such_stores():
    assert "store <4 x float>" in instructions(doubled(), BASE)
    text = instructions(doubled(), BASE)
    assert ", !nontemporal" not in text
    assert "sfence" not in text


@pytest.mark.exhaustive
@targets
def test_loops_of_results_that_are_known_to_be_small_are_written_once(target):
    for sizes in ([1000], [1000, 5], []):
        small = with_stores(target, *sizes)
        assert "!nontemporal" not in instructions(doubled(), small)
        assert KernelCode(doubled(), small).key != KernelCode(doubled(), target).key
    for sizes in ([target.large], [symbol("n")], [1000, symbol("n")]):
        assert with_stores(target, *sizes) == target


def test_sessions_know_the_sizes_of_results():
    made = [CpuTarget(Draws(())).kernel(doubled(), [size]) for size in (8, symbol("n"))]
    assert [code.target for code in made] == [with_stores(host(), 8), host()]


@targets
@pytest.mark.parametrize("large", [1, 1 << 40], ids=["large", "small"])
@pytest.mark.parametrize("dtype", [float32, float64, bfloat16, bool_], ids=str)
@pytest.mark.parametrize(("n", "m"), [(5, 64), (3, 224), (4, 131), (2, 0), (3, 7)])
def test_results_are_the_same(target, dtype, large, n, m, rng):
    code = doubled(dtype)
    target = target._replace(large=large)
    x, out = random(rng, dtype, n * m), np.ones(n * m, dtype.dtype)
    wanted = check(code, [x, out], [n, m, 2], target=target)[1]  # not aligned: plain stores
    for offset in (0, 1, 16):
        got = aligned(out, offset)
        assert run(code, [x, got], [n, m, 2], target) == 0
        np.testing.assert_array_equal(got, wanted)


@targets
def test_pieces_of_rows(target, rng):
    y = k.neg(Load(float32, 0, MATRIX))
    code = kernel(InnerLoop((Store(1, MATRIX, y),)), split=Param(3), params=4)
    x = random(rng, float32, 3 * 256)
    for split in (64, 24):
        out = aligned(np.ones_like(x))
        assert run(code, [x, out], [3, 256, 1, split], target._replace(large=1)) == 0
        np.testing.assert_array_equal(out, -x)


@targets
def test_over_an_operand(target, rng):
    x = aligned(random(rng, float32, 4 * 128))
    wanted = x + x
    assert run(doubled(), [x, x], [4, 128, 4], target._replace(large=1)) == 0
    np.testing.assert_array_equal(x, wanted)


@pytest.mark.exhaustive
@targets
@pytest.mark.parametrize(("n", "m"), [(7, 96), (4, 131), (3, 5), (1, 64), (5, 0)])
def test_several_passes(target, n, m, rng):
    x = rng.standard_normal((n, m)).astype(np.float32)
    out = aligned(np.ones(n * m, np.float32))
    assert run(softmax(), [x, out], [n, m, 3], target._replace(large=1)) == 0
    if m:
        e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
        wanted = e / e.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(out.reshape(n, m), wanted, rtol=1e-6)


def asked(code):
    return [
        line for line in instructions(code, host()).splitlines() if "call void @llvm.pref" in line
    ]


def total_and_more(value, *dtypes):
    x = Load(float32, 0, MATRIX)
    again = InnerLoop((Store(len(dtypes), MATRIX, k.add(x, Ref(float32, "s"))),))
    return kernel(InnerLoop((Reduce("s", "sum", value),)), again, dtypes=(*dtypes, float32))


def test_what_is_read_ahead():
    x, same = Load(float32, 0, MATRIX), Load(float32, 1, at(j=1))
    # Of one pass: each vector of a whole step, in the loop of plain stores and in the other one.
    assert len(asked(doubled())) == 2 * instructions(doubled(), host()).count("fadd") // 3
    assert "i64 2048" in instructions(doubled(), host())
    # Of several: the next row, which is not known before.
    assert "i64 2048" not in instructions(softmax(), host())
    assert asked(softmax())
    # A row that is the same for all rows is in the cache.
    alone = total_and_more(x, float32)
    assert len(asked(total_and_more(k.mul(x, same), float32, float32))) == len(asked(alone)) > 0
    # What is read across is not.
    across = kernel(InnerLoop((Store(1, MATRIX, Load(float32, 0, at(j=ROWS, i=1))),)))
    assert not asked(across)
