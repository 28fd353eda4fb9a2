"""Primitive functions that are instructions, and casts: against their meaning in `PRIMITIVES`."""

import warnings

import ml_dtypes
import numpy as np
import pytest

from graphfw.ir.dtype import ALL, bfloat16, bool_, float16, float32, float64, uint64
from graphfw.runtime.kernels.ir import Axis, Buffer, InnerLoop, Kernel, Load, Param, Store
from graphfw.runtime.kernels.primitives import PRIMITIVES
from graphfw.runtime.kernels.scalars import Scalars
from graphfw.runtime.numpy_executor.codegen import BASE, halves, host
from graphfw.runtime.numpy_executor.machine import Machine
from tests.support.cuda_kernels import CUDA
from tests.support.kernels import at, check, random, run

k = Scalars()
REAL = [dtype for dtype in ALL if not dtype.is_complex]
WIDE = [dtype for dtype in REAL if not dtype.is_low_precision]
FLAT = at(j=1)


def flat(body, *dtypes):
    """A kernel over one axis; the first three buffers are read."""
    buffers = tuple([Buffer(dtype, n >= 3) for n, dtype in enumerate(dtypes)])
    return Kernel(
        "rows", (), (Axis("j", Param(0)),), 1, None, buffers, 1, (InnerLoop(tuple(body)),)
    )


def numbers(rng, dtype):
    """Numbers of all sizes, and special ones, in all pairs."""
    if dtype.is_bool:
        special = np.array([False, True])
    elif dtype.is_integer:
        info = np.iinfo(dtype.dtype)
        special = np.array([0, 1, 2, 7, 8, 31, 63, info.max, info.min], dtype.dtype)
        if dtype.kind == "int":
            special = np.concatenate([special, np.array([-1, -2, -9], dtype.dtype)])
    else:
        tiny = float(ml_dtypes.finfo(dtype.dtype).smallest_subnormal)
        values = [0.0, -0.0, 0.5, -1.5, 2.5, 6e4, -3.7, np.inf, -np.inf, np.nan, tiny]
        special = np.array(values, dtype.dtype)
    values = np.concatenate([special, random(rng, dtype, 7)])
    return np.repeat(values, len(values)), np.tile(values, len(values))


def accepts(name, dtype):
    return {
        "any": True,
        "real": not dtype.is_bool,
        "float": dtype.is_floating,
        "integer": dtype.is_integer,
        "integer or bool": dtype.is_integer or dtype.is_bool,
    }[PRIMITIVES[name].accepts]


@pytest.mark.exhaustive(every=2)
@pytest.mark.parametrize("target", [host(), BASE, CUDA], ids=lambda target: target.name)
@pytest.mark.parametrize("dtype", WIDE, ids=str)
def test_instructions(dtype, target, rng):
    names = [
        name
        for name, primitive in PRIMITIVES.items()
        if primitive.source == "instruction" and primitive.result != "cast"
        if accepts(name, dtype)
    ]
    x, y, condition = Load(dtype, 0, FLAT), Load(dtype, 1, FLAT), Load(bool_, 2, FLAT)
    results = []
    for name in names:
        args = (condition, x, y) if name == "select" else (x, y)[: PRIMITIVES[name].arity]
        results.append(getattr(k, name)(*args))
    stores = [Store(3 + n, FLAT, result) for n, result in enumerate(results)]
    kernel = flat(stores, dtype, dtype, bool_, *[result.dtype for result in results])
    a, b = numbers(rng, dtype)
    outputs = [np.ones(len(a), result.dtype.dtype) for result in results]
    out = check(kernel, [a, b, random(rng, bool_, len(a)), *outputs], [len(a)], target=target)
    if dtype.is_floating:
        zeros = a == 0
        for name in ("neg", "abs", "copysign", "max"):
            right = PRIMITIVES[name].reference(*(a, b)[: PRIMITIVES[name].arity])
            got = out[3 + names.index(name)]
            np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(right[zeros]))


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", [host(), BASE, CUDA], ids=lambda target: target.name)
@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_casts(dtype, target, rng):
    x = Load(dtype, 0, FLAT)
    stores = [Store(3 + n, FLAT, k.cast(x, to)) for n, to in enumerate(REAL)]
    kernel = flat(stores, dtype, bool_, bool_, *REAL)
    values = np.concatenate([numbers(rng, dtype)[1], random(rng, dtype, 70)])
    if dtype.is_floating:
        with np.errstate(over="ignore"):
            more = np.array([3e38, 65519.9, 65520, 1e-7, -100.7, 1e-40]).astype(dtype.dtype)
        values = np.concatenate([values, more])
    unused = np.zeros(0, bool)
    outputs = [np.ones(len(values), to.dtype) for to in REAL]
    arrays = [values, unused, unused, *outputs]
    assert run(kernel, arrays, [len(values)], target) == 0
    for to, got in zip(REAL, outputs, strict=True):
        here = slice(None)
        if dtype.is_floating and to.is_integer:
            # What is out of range becomes what the machine makes of it.
            info = np.iinfo(to.dtype)
            wide = values.astype(np.float64)
            here = (wide > float(info.min) - 1) & (wide < float(info.max))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            right = values[here].astype(to.dtype)
        got = got[here]
        if to.is_low_precision:  # of which NumPy finds NaNs unequal
            got, right = got.astype(np.float32), right.astype(np.float32)
        np.testing.assert_array_equal(got, right, err_msg=str(to))


def test_large_floats_to_uint64():
    x = Load(float64, 0, FLAT)
    kernel = flat([Store(3, FLAT, k.cast(x, uint64))], float64, bool_, bool_, uint64)
    values = np.array([2.0**63, 2.0**63 - 1024, 2.0**64 - 2048, 1.5, 0.0])
    out = np.zeros(5, np.uint64)
    unused = np.zeros(0, bool)
    assert run(kernel, [values, unused, unused, out], [5]) == 0
    assert out.tolist() == [2**63, 2**63 - 1024, 2**64 - 2048, 1, 0]


@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=str)
def test_any_nan_stays_nan_in_16_bits(dtype):
    bits = [0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0xFF800001, 0x7FC00000, 0x7F800000, 0xFF7FFFFF]
    x = np.array(bits, np.uint32).view(np.float32)
    value = k.cast(Load(float32, 0, FLAT), dtype)
    kernel = flat([Store(3, FLAT, value)], float32, bool_, bool_, dtype)
    out, unused = np.zeros(len(x), dtype.dtype), np.zeros(0, bool)
    assert run(kernel, [x, unused, unused, out], [len(x)]) == 0
    np.testing.assert_array_equal(out.astype(np.float32), [np.nan] * 5 + [np.inf, -np.inf])


def neighbours(dtype):
    """All numbers of 16 bits, what lies half way between two, and the float32s beside these."""
    numbers = np.arange(2**16).astype(np.uint16).view(dtype.dtype).astype(np.float32)
    bits = np.sort(numbers[np.isfinite(numbers)]).view(np.int32).astype(np.int64)
    sizes = np.unique(bits & 0x7FFFFFFF)
    between = (sizes[1:] + sizes[:-1]) // 2
    near = np.concatenate([sizes, *[between + d for d in (-1, 0, 1)], sizes[-1:] * 2 - between[-1]])
    return np.concatenate([near, near | 2**31]).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("by", ["instruction", "integers"])
@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=str)
def test_all_numbers_of_16_bits(dtype, by, monkeypatch):
    if by == "integers":
        old = Machine("x86_64-unknown-linux-gnu", "x86-64-v2", "", "")
        monkeypatch.setattr(halves, "machine", lambda: old)
    every = np.arange(2**16).astype(np.uint16).view(dtype.dtype)
    wide, unused = np.zeros(len(every), np.float32), np.zeros(0, bool)
    loaded = k.cast(Load(dtype, 0, FLAT), float32)
    kernel = flat([Store(3, FLAT, loaded)], dtype, bool_, bool_, float32)
    assert run(kernel, [every, unused, unused, wide], [len(every)]) == 0
    np.testing.assert_array_equal(wide, every.astype(np.float32))
    np.testing.assert_array_equal(np.signbit(wide), np.signbit(every))

    x = neighbours(dtype)
    out = np.zeros(len(x), dtype.dtype)
    value = k.cast(Load(float32, 0, FLAT), dtype)
    kernel = flat([Store(3, FLAT, value)], float32, bool_, bool_, dtype)
    assert run(kernel, [x, unused, unused, out], [len(x)]) == 0
    with np.errstate(over="ignore"):
        right = x.astype(dtype.dtype)
    np.testing.assert_array_equal(out.view(np.uint16), right.view(np.uint16))


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", [host(), BASE, CUDA], ids=lambda target: target.name)
@pytest.mark.parametrize(
    ("dtype", "there"), [(float16, np.float16), (bfloat16, ml_dtypes.bfloat16)]
)
def test_each_operation_is_rounded_to_16_bits(dtype, there, target):
    def rounded(value):
        return k.cast(k.cast(value, dtype), float32)

    x, y = (k.cast(Load(dtype, n, FLAT), float32) for n in range(2))
    total = rounded(k.add(rounded(k.mul(x, y)), x))
    stores = [Store(3, FLAT, k.cast(total, dtype)), Store(4, FLAT, k.cast(k.div(x, y), dtype))]
    kernel = flat(stores, dtype, dtype, bool_, dtype, dtype)
    # All numbers of 16 bits, each with another one.
    a = np.arange(2**16, dtype=np.uint16).view(there)
    b = np.random.default_rng(3).permutation(a)
    results = [np.ones(2**16, there) for _ in range(2)]
    assert run(kernel, [a, b, np.zeros(0, bool), *results], [2**16], target) == 0
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        wanted = (a * b + a, a / b)
    for got, right in zip(results, wanted, strict=True):
        nan = np.isnan(right.astype(np.float32))
        np.testing.assert_array_equal(np.isnan(got.astype(np.float32)), nan)
        np.testing.assert_array_equal(got.view(np.uint16)[~nan], right.view(np.uint16)[~nan])
