"""Convolutions by matrix tiles: they are emulated where there are none.

`test_amx_traps` runs these tests there once more, with the instructions of AMX.
"""

from functools import partial

import numpy as np
import pytest

import graphfw as gf
from graphfw.runtime.numpy_executor import backend, cache_key, lowerings, target
from graphfw.runtime.numpy_executor.codegen import AVX2, AVX512, host
from tests.runtime.numpy_executor.convolution_runs import (
    any_window,
    close,
    convolved_by,
    drawn,
    error,
    op_for,
    strategies_of,
)
from tests.support.amx_traps import FORM

DTYPES = ["float32", "float16", "bfloat16"]

sessions = pytest.mark.skipif(AVX512 is not host(), reason="other kernels are run as well")


def by(name):
    """Return a function that chooses the strategy of a name."""
    return lambda strategies: next(s for s in strategies if s.name == name).make()


def convolved(op, x, w, way="amx", **how):
    # Tiles are as wide as two vectors of AVX-512, which LLVM can emulate, too.
    return convolved_by(by(way), op, x, w, target=AVX512, tiles=FORM, **how)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_any_window(rng, rank):
    for _ in range(8):
        op, x, w = any_window(rng, rank, (2, 40), (1, 50))
        fixed, order = bool(rng.integers(2)), int(rng.choice([1, -1]))
        got = convolved(op, x, w, fixed=fixed, order=order)
        close(got, op, x, w, f"{op} of {x.shape} and {w.shape}")


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("groups", [1, 2, 5])
def test_any_dtype(rng, dtype, groups):
    x, w = drawn(rng, (2, 10, 9, 35), dtype), drawn(rng, (70, 10 // groups, 3, 3), dtype)
    for stride in ((2, 1), (1, 2)):
        op = op_for(x.shape, w.shape, stride, 1, 1, groups)
        close(convolved(op, x, w), op, x, w)


@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (1, 2), (3, 1), (7, 3)])
def test_long_sums_in_pieces(rng, kernel, stride):
    """Several pieces of k and of the rows of places; blocks of outputs of which one is short."""
    x, w = drawn(rng, (1, 90, 23, 31)), drawn(rng, (70, 90, kernel, kernel))
    op = op_for(x.shape, w.shape, stride, kernel // 2)
    got = convolved(op, x, w)
    close(got, op, x, w)
    assert (got != convolved(op, x, w, "direct")).any()


@pytest.mark.parametrize(
    ("x", "w"),
    [
        ((2, 3, 7, 7), (0, 3, 3, 3)),
        ((2, 3, 1, 1), (5, 3, 3, 3)),
        ((0, 3, 7, 7), (5, 3, 3, 3)),
        ((2, 0, 7, 7), (5, 0, 3, 3)),
    ],
)
def test_nothing(x, w, rng):
    x, w = drawn(rng, x), drawn(rng, w)
    op = op_for(x.shape, w.shape)
    np.testing.assert_array_equal(convolved(op, x, w), op.eval(np, x, w))


def test_views(rng):
    x, w = drawn(rng, (7, 40, 19, 2)).transpose(3, 1, 0, 2), drawn(rng, (33, 3, 80, 3))
    w = w.transpose(0, 2, 3, 1)[:, ::2, ::-1]
    op = op_for(x.shape, w.shape, 1, 1)
    close(convolved(op, x, w), op, x, w)


def test_errors_are_those_of_float32_or_as_large_as_allowed(rng):
    x, w = drawn(rng, (1, 100, 14, 14)), drawn(rng, (64, 100, 3, 3))
    op = op_for(x.shape, w.shape, 1, 1)
    six, three = (error(convolved(op, x, w, precision=p), op, x, w) for p in ("highest", "high"))
    assert six.max() <= 3 * error(convolved(op, x, w, "direct"), op, x, w).max()
    assert six.max() < three.max() <= 2.0**-14


@pytest.mark.exhaustive
@pytest.mark.parametrize("precision", ["highest", "high"])
@pytest.mark.parametrize("value", [1e-40, 1e-30, 1e30, 3.4028e38, np.inf, -np.inf, np.nan])
def test_what_cannot_be_split_is_computed_by_vectors(value, precision, rng):
    """Of the image: a group of it. Of the kernels: a block of 32 outputs."""
    x, w = drawn(rng, (2, 56, 5, 13)), drawn(rng, (140, 28, 3, 3))
    op = op_for(x.shape, w.shape, 1, 1, groups=2)
    usual = convolved(op, x, w, precision=precision)
    # Kernels of the outputs from 32 to 63 of the second group.
    for factor, index, affected in (
        (x, (1, 7, 3, 5), np.s_[1, :70]),
        (w, (110, 7, 1, 1), np.s_[:, 102:134]),
    ):
        kept = factor[index]
        factor[index] = value
        got, vectors = convolved(op, x, w, precision=precision), convolved(op, x, w, "direct")
        np.testing.assert_allclose(got[affected], vectors[affected], rtol=1e-5, atol=1e-5)
        assert (got[affected] != usual[affected]).mean() > 0.2
        got[affected] = usual[affected]
        np.testing.assert_array_equal(got, usual)
        factor[index] = kept


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        (np.nextafter(np.float32(2.0**24), np.float32(0)), 2.0**24),
        (2.0**-70, np.nextafter(np.float32(2.0**-70), np.float32(0))),
    ],
)
def test_the_range_of_what_is_split(inside, outside, sign, rng):
    x, w = drawn(rng, (1, 40, 5, 9)), drawn(rng, (20, 40, 3, 3))
    op = op_for(x.shape, w.shape)
    for factor in (x, w):
        kept = factor[0, 7, 1, 2]
        for value in (inside, outside):
            factor[0, 7, 1, 2] = sign * value
            six, three = (convolved(op, x, w, precision=p)[0, 0] for p in ("highest", "high"))
            # Vectors have one precision.
            assert (six != three).any() == (value == inside)
        factor[0, 7, 1, 2] = kept


def test_the_ends_of_the_range_neither_overflow_nor_vanish():
    """The emulation takes subnormal numbers for 0, as the processors do: none come up."""
    for value, size in ((2.0**24 * (1 - 2.0**-24), 20), (2.0**-70 * (1 + 2.0**-20), 3)):
        x, w = (np.full((1, 300, n, n), value, np.float32) for n in (size + 1, size))
        op = op_for(x.shape, w.shape)
        exact = op.eval(np, x.astype(np.float64), w.astype(np.float64))
        np.testing.assert_allclose(convolved(op, x, w, precision="high"), exact, rtol=1e-4)


def test_where_the_strategy_is_offered(rng):
    x, w = drawn(rng, (1, 64, 14, 14)), drawn(rng, (64, 64, 3, 3))
    op = op_for(x.shape, w.shape, 1, 1)
    known = partial(strategies_of, op, x, w)
    six, three = (known(tiles=FORM, precision=p, target=AVX512)["amx"] for p in ("highest", "high"))
    direct = known(tiles=FORM, target=AVX512)["direct"]
    assert three < six < direct
    assert "amx" not in known(target=AVX512)
    assert "amx" not in known(tiles=FORM, target=AVX2)
    for dtype, stride, kernel in (("float64", 1, 3), ("float16", 3, 3), ("float32", 1, 40)):
        x, w = drawn(rng, (1, 99, 40, 40), dtype), drawn(rng, (5, 99, kernel, kernel), dtype)
        op = op_for(x.shape, w.shape, stride)
        found = strategies_of(op, x, w, tiles=FORM, target=AVX512)
        assert "direct" in found
        assert "amx" not in found


@pytest.fixture
def with_tiles(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    monkeypatch.setattr(cache_key, "enabled", False)
    for module in (target, lowerings):
        monkeypatch.setattr(module, "matrix_unit_here", lambda: FORM)

    def choose(strategies):
        found = [s for s in strategies if s.name == "amx"]
        return (found or strategies)[0].make()

    monkeypatch.setattr(backend, "by_estimate", choose)


@sessions
@pytest.mark.parametrize("size", [5, 20])
def test_layers_and_what_follows(rng, with_tiles, monkeypatch, size):
    """The number of images is not known; the bits are the same for any number of threads."""
    w, b, v = drawn(rng, (40, 30, 3, 3)), drawn(rng, (40,)), drawn(rng, (50, 40, 1, 1))
    with gf.Graph() as g:
        x = gf.placeholder(("n", 30, size, size))
        y = gf.relu(gf.conv(x, w, b, padding=1))
        z = gf.conv(y, v, stride=2) + 1
    plans = [gf.Session(g, threads=n).compile([y, z], feeds=[x]) for n in (1, 3)]
    assert plans[0].source().count("work_item: AmxConvCode") == 2
    for images in (1, 0, 5):
        array = drawn(rng, (images, 30, size, size))
        one, three = (plan(array) for plan in plans)
        with monkeypatch.context() as patched:
            patched.setenv("GRAPHFW_JIT", "0")
            exact = gf.Session(g).run([y, z], {x: array})
        for got, same, expected in zip(one, three, exact, strict=True):
            np.testing.assert_array_equal(got, same)
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


@sessions
def test_training(rng, with_tiles, monkeypatch):
    """Kernels that change are split in each run; gradients of images are convolutions, too."""
    with gf.Graph() as g:
        x = gf.placeholder((2, 20, 12, 12))
        w = gf.Variable(drawn(rng, (40, 20, 3, 3)), name="w")
        v = gf.Variable(drawn(rng, (33, 40, 3, 3)), name="v")
        y = gf.conv(gf.tanh(gf.conv(x, w, padding=1)), v, stride=2)
        fetches = [y, *gf.grad(gf.sum(y * y), [x, w, v])]
    array = drawn(rng, (2, 20, 12, 12))
    got = gf.Session(g).run(fetches, {x: array})
    monkeypatch.setenv("GRAPHFW_JIT", "0")
    for one, other in zip(got, gf.Session(g).run(fetches, {x: array}), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * np.abs(other).max())
