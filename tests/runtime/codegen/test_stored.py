"""Dtypes that numbers are only kept in, read and written by kernels: against ml_dtypes."""

import numpy as np
import pytest

from graphfw.ir.dtype import (
    STORAGE,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int64,
    uint8,
    uint32,
)
from graphfw.runtime.kernels.ir import Axis, Buffer, InnerLoop, Kernel, Load, Param, Store
from graphfw.runtime.kernels.scalars import Scalars
from tests.support.cuda_kernels import CUDA
from tests.support.kernels import TARGETS, at, run

k = Scalars()
FLAT = at(j=1)
OTHERS = (bool_, int8, uint32, int64, float16, bfloat16, float32, float64)
everywhere = pytest.mark.parametrize("target", [*TARGETS, CUDA], ids=lambda target: target.name)


def converted(values, source, wanted, target):
    """Return values in other dtypes, by a kernel."""
    buffers = [Buffer(source, False), *[Buffer(dtype, True) for dtype in wanted]]
    x = Load(source, 0, FLAT)
    stores = [Store(n, FLAT, k.cast(x, dtype)) for n, dtype in enumerate(wanted, 1)]
    axes = (Axis("j", Param(0)),)
    kernel = Kernel("rows", (), axes, 1, None, tuple(buffers), 1, (InnerLoop(tuple(stores)),))
    found = [np.ones(len(values), dtype.dtype) for dtype in wanted]
    assert run(kernel, [values, *found], [len(values)], target) == 0
    return found


def codes(dtype):
    """Every number that there is."""
    bits = np.arange(256, dtype=np.uint8)
    return bits[: 2**dtype.bits].view(dtype.dtype)


def floats(rng):
    """Every float16, others of all sizes, and those about which the least powers of two are."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    any_bits = rng.integers(0, 1 << 32, 20_000, dtype=np.uint64).astype(np.uint32)
    least = np.array([0x20_0000, 0x40_0000, 0x60_0000, 0x80_0000, 0x7F40_0000], np.uint32)
    about = np.concatenate([least - 1, least, least + 1])
    return np.concatenate([halves, any_bits.view(np.float32), about.view(np.float32)])


@pytest.mark.exhaustive
@everywhere
@pytest.mark.parametrize("dtype", STORAGE, ids=str)
def test_every_number_is_read(dtype, target):
    kept = codes(dtype)
    wide = kept.astype(np.float32)
    for to, got in zip(OTHERS, converted(kept, dtype, OTHERS, target), strict=True):
        # What integers can't hold is left to the machine.
        here = slice(None) if to.is_inexact or to.is_bool else (wide >= 0) & (wide <= 127)
        right = kept[here].astype(to.dtype)
        np.testing.assert_array_equal(got[here].astype(float), right.astype(float), str(to))
        if to.is_floating:
            signs = [np.signbit(a.astype(float)[wide == 0]) for a in (got, right)]
            np.testing.assert_array_equal(*signs)


@pytest.mark.exhaustive
@everywhere
@pytest.mark.parametrize("dtype", OTHERS, ids=str)
def test_all_are_written(dtype, target, rng):
    if dtype.is_bool:
        values = np.array([False, True])
    elif dtype.is_integer:
        info = np.iinfo(dtype.dtype)
        near = np.arange(max(info.min, -70), 120)
        values = np.concatenate([near, rng.integers(info.min, info.max, 999)]).astype(dtype.dtype)
    else:
        with np.errstate(all="ignore"):
            values = floats(rng).astype(dtype.dtype)
    for to, got in zip(STORAGE, converted(values, dtype, STORAGE, target), strict=True):
        with np.errstate(all="ignore"):
            fits = np.abs(values.astype(float)) < 2**31
            here = fits if dtype.is_floating and "int" in to.name else slice(None)
            right = values[here].astype(to.dtype)
        np.testing.assert_array_equal(got[here].view(np.uint8), right.view(np.uint8), str(to))


@everywhere
def test_numbers_between_two_are_rounded_once(target):
    for dtype in STORAGE[:6]:
        kept = np.sort(codes(dtype).astype(np.float32))
        kept = kept[np.isfinite(kept)]
        halves = (kept[1:] + kept[:-1]) / 2
        values = [halves, np.nextafter(halves, 0), np.nextafter(halves, np.float32(np.inf))]
        values = np.concatenate(values)
        (got,) = converted(values, float32, [dtype], target)
        right = values.astype(dtype.dtype)
        np.testing.assert_array_equal(got.view(np.uint8), right.view(np.uint8), str(dtype))


@pytest.mark.exhaustive
@everywhere
@pytest.mark.parametrize(("source", "to"), [(uint32, float32), (int64, float64), (uint8, int8)])
def test_bits_stay(source, to, target, rng):
    values = rng.integers(0, 256, (77, source.itemsize), dtype=np.uint8).view(source.dtype)[:, 0]
    buffers = (Buffer(source, False), Buffer(to, True), Buffer(source, True))
    there = k.bits(Load(source, 0, FLAT), to)
    stores = (Store(1, FLAT, there), Store(2, FLAT, k.bits(there, source)))
    axes = (Axis("j", Param(0)),)
    kernel = Kernel("rows", (), axes, 1, None, buffers, 1, (InnerLoop(stores),))
    found = [np.ones(77, dtype.dtype) for dtype in (to, source)]
    assert run(kernel, [values, *found], [77], target) == 0
    for array in found:
        np.testing.assert_array_equal(array.view(np.uint8), values.view(np.uint8))
