"""Dtypes: what they are, what they equal, how they combine."""

import copy
import itertools
import pickle

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, DTypeError
from graphfw.ir import ambient
from graphfw.ir.dtype import (
    ALL,
    BY_NAME,
    STORAGE,
    DType,
    as_dtype,
    bool_,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int32,
    int64,
    promote,
    promote_all,
    promote_scalar,
    uint8,
    uint64,
)

every = pytest.mark.parametrize("dtype", ALL, ids=str)
STANDARD = [d for d in ALL if d.name not in ("float16", "bfloat16")]
"""The dtypes of the Array API standard."""


@every
def test_is_its_numpy_equivalent(dtype: DType):
    assert dtype == dtype.dtype
    assert dtype == dtype.dtype.type
    assert dtype == dtype.name or dtype.name == "bfloat16"
    assert hash(dtype) == hash(dtype.dtype)
    array = np.zeros(2, dtype=dtype)
    assert array.dtype == dtype.dtype
    assert array.itemsize == dtype.itemsize
    assert as_dtype(array.dtype) is as_dtype(array.dtype.type) is as_dtype(dtype.name) is dtype
    assert as_dtype(dtype) is dtype


@every
def test_kinds(dtype: DType):
    kind = dtype.dtype.kind if dtype.name != "bfloat16" else "f"
    assert dtype.is_bool == (kind == "b")
    assert dtype.is_integer == (kind in "iu")
    assert dtype.is_floating == (kind == "f")
    assert dtype.is_complex == (kind == "c")
    assert dtype.is_inexact == (kind in "fc")
    assert dtype.is_low_precision == (dtype.name in ("float16", "bfloat16"))
    assert dtype.real.dtype == np.zeros(1, dtype.dtype).real.dtype


@every
def test_copies_are_the_dtype_itself(dtype: DType):
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert copy.deepcopy(dtype) is dtype


def test_texts():
    assert repr(float32) == "graphfw.float32"
    assert str(bool_) == f"{bool_}" == "bool"
    assert getattr(gf, "float32") is float32  # noqa: B009 - what the repr says
    assert sorted(BY_NAME) == sorted(map(str, (*ALL, *STORAGE)))


def test_dtypes_differ():
    for a, b in itertools.combinations(ALL, 2):
        assert a != b
        assert a != b.dtype
    for other in (None, 3, object(), "nonsense", [], {}, "float3", "a, text:\n b"):
        assert float64 != other
        assert float32 != other


@pytest.mark.parametrize(
    ("like", "expected"),
    [
        (bool, bool_),
        (int, int64),
        (float, float32),
        (complex, complex64),
        (np.float64, float64),
        (np.dtype("<i4"), int32),
        (np.dtype(">f4").newbyteorder("="), float32),
    ],
)
def test_what_dtypes_are_read_from(like: object, expected: DType):
    assert as_dtype(like) is expected  # type: ignore[arg-type]  # also of no dtype


@pytest.mark.parametrize(
    ("like", "shown", "fix"),
    [
        ("flaot32", "flaot32", 'did you mean "float32"?'),
        ("double", "double", 'did you mean "float64"?'),
        ("half", "half", 'did you mean "float16"?'),
        ("int", "int", 'did you mean "int64"?'),
        ("bf16", "bf16", 'did you mean "bfloat16"?'),
        ("zzz", "zzz", "use one of bool, int8, int16"),
        (np.dtype("U3"), "str96", ""),
        (object, "object", ""),
        ("<i4", "<i4", ""),
        (3.5, "3.5", ""),
    ],
)
def test_unknown_dtypes(like: object, shown: str, fix: str):
    with pytest.raises(DTypeError) as caught:
        as_dtype(like)  # type: ignore[arg-type]  # the mistake
    assert caught.value.summary == f"'{shown}' is not a dtype that graphfw has"
    assert caught.value.fix.startswith(fix)
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("first", STANDARD, ids=str)
@pytest.mark.parametrize("second", STANDARD, ids=str)
def test_promotion_is_the_standards(first: DType, second: DType):
    if {first.kind, second.kind} == {"int", "uint"} and uint64 in (first, second):
        with pytest.raises(DTypeError, match="no integer dtype holds both int") as caught:
            promote(first, second)
        assert "fix  convert one of them first" in str(caught.value)
    elif first.kind == second.kind or (first.is_integer and second.is_integer):
        assert promote(first, second) == np.promote_types(first.dtype, second.dtype)
    elif first.is_inexact and second.is_inexact:
        assert promote(first, second) == np.promote_types(first.dtype, second.dtype)
    else:  # the standard leaves it open: the "larger" kind, of its own size
        order = ["bool", "uint", "int", "float", "complex"]
        assert promote(first, second) is max(first, second, key=lambda d: order.index(d.kind))


def test_promotion_of_low_precision():
    bfloat16 = BY_NAME["bfloat16"]
    assert promote(float16, bfloat16) is float32
    for low in (float16, bfloat16):
        assert promote(low, low) is low
        assert promote(low, float32) is promote(float32, low) is float32
        assert promote(low, float64) is float64
        assert promote(low, complex64) is complex64
        assert promote(int64, low) is low


@pytest.mark.parametrize("first", ALL, ids=str)
def test_promotion_is_a_join(first: DType):
    assert promote(first, first) is first
    for second in ALL:
        try:
            both = promote(first, second)
        except DTypeError:
            continue
        assert promote(second, first) is both
        assert promote(both, first) is promote(both, second) is both


def test_promote_all():
    assert promote_all((uint8, int32, float16)) is float16
    assert promote_all(iter([bool_])) is bool_
    assert promote_all((bool_, uint8, gf.int8)) is gf.int16


@pytest.mark.parametrize(
    ("dtype", "scalar", "expected"),
    [
        (bool_, True, bool_),
        (bool_, 2, int64),
        (bool_, 2.0, float32),
        (bool_, 2j, complex64),
        (uint8, True, uint8),
        (uint8, 300, uint8),  # whether it fits is asked by the caller
        (int32, 2.0, float32),
        (int32, 2j, complex64),
        (float16, 2, float16),
        (float16, 2.0, float16),
        (float64, 2.0, float64),
        (float32, 2j, complex64),
        (float64, 2j, complex128),
        (complex64, 2.0, complex64),
        (complex128, 2j, complex128),
    ],
)
def test_scalars_are_weak(dtype: DType, scalar: complex, expected: DType):
    assert promote_scalar(dtype, scalar, float32) is expected


def test_scalars_with_another_default():
    assert promote_scalar(int32, 2.0, float64) is float64
    assert promote_scalar(int32, 2j, float64) is complex128
    assert promote_scalar(bool_, 1, float64) is int64


# The default dtype.


def test_default_dtype_is_restored():
    assert gf.get_default_dtype() is float32
    with gf.default_dtype(float64):
        assert gf.zeros(2).dtype is gf.asarray(1.5).dtype is float64
        assert gf.asarray(1j).dtype is complex128
        assert (gf.asarray([1, 2]) / 2).dtype is float64
        with gf.default_dtype("float16"):
            assert gf.get_default_dtype() is float16
        assert gf.get_default_dtype() is float64
    assert gf.get_default_dtype() is float32
    with pytest.raises(ZeroDivisionError), gf.default_dtype(float64):
        raise ZeroDivisionError
    assert gf.get_default_dtype() is float32


def test_default_dtype_of_a_graph_is_read_when_it_is_built():
    with gf.Graph(), gf.default_dtype(float64):
        x = gf.placeholder((2,))
        w = gf.Variable(0.5)
    assert x.dtype is w.dtype is float64


@pytest.mark.parametrize("dtype", ["int32", bool, gf.complex64])
def test_default_dtype_must_be_a_float(dtype: object):
    with pytest.raises(ArgumentError, match="is not a floating-point dtype"):
        gf.set_default_dtype(dtype)  # type: ignore[arg-type]  # the mistake
    with (
        pytest.raises(ArgumentError, match=f"default_dtype: {as_dtype(dtype).name} is not"),
        gf.default_dtype(dtype),  # type: ignore[arg-type]  # the mistake
    ):
        pass
    assert ambient.get_default_dtype() is float32
