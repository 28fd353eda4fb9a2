"""Conversions against NumPy, and what is said about dtypes."""

import ml_dtypes
import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.dtype import STORAGE
from tests.ops.values import COMPLEX, FLOATS, INTEGERS, draw, gradients, same

REAL = ["bool", *INTEGERS, *FLOATS]


@pytest.mark.parametrize("source", [*REAL, *COMPLEX])
@pytest.mark.parametrize("shape", [(3, 5), (), (0, 2)])
def test_astype(rng, source, shape):
    x = draw(rng, source, shape)
    targets = [*REAL, *COMPLEX] if source not in COMPLEX else ["bool", *COMPLEX]
    for target in targets:
        if target in INTEGERS:  # what they can't hold has no defined result
            x = np.asarray(np.nan_to_num(np.abs(x), nan=1, posinf=2), dtype=source)
        with np.errstate(all="ignore"):
            expected = x.astype(target)
        same(gf.astype(gf.asarray(x), target), expected)
        same(gf.asarray(x).astype(target), expected)


@pytest.mark.parametrize("other", [*REAL, *COMPLEX])
def test_astype_from_and_to_bfloat16(rng, other):
    x = np.array([0, 1, 2.5, 100], dtype=ml_dtypes.bfloat16)
    if other not in COMPLEX:
        back = gf.astype(gf.asarray(x.astype(other)), gf.bfloat16)
        assert back.numpy().dtype == x.dtype
        np.testing.assert_array_equal(back.numpy(), x.astype(other).astype(x.dtype))
    same(gf.astype(gf.asarray(x), other), x.astype(np.float32).astype(other))


def test_astype_to_the_dtype_it_has_is_the_tensor_itself():
    x = gf.asarray([1.0])
    assert gf.astype(x, "float32") is x
    assert gf.astype(x, np.float32, copy=True) is x


def test_astype_drops_fractions():
    same(gf.astype(gf.asarray([1.9, -1.9]), gf.int8), np.int8([1, -1]))


def test_astype_keeps_symbolic_dims():
    with gf.Graph():
        x = gf.placeholder(("batch", 3), name="x")
        assert gf.astype(x, gf.int32).shape == x.shape


@pytest.mark.parametrize("target", ["float32", "int64"])
def test_complex_does_not_become_real(target):
    with pytest.raises(
        gf.DTypeError, match=f"astype: complex64 does not become {target}"
    ) as caught:
        gf.astype(gf.asarray([1j]), target)
    assert "gf.real(x)" in caught.value.fix


def test_astype_refuses_unknown_dtypes():
    with pytest.raises(gf.DTypeError, match="'None' is not a dtype"):  # for NumPy it is float64
        gf.astype(gf.asarray([1]), None)
    with pytest.raises(gf.DTypeError, match="'float31' is not a dtype"):
        gf.astype(gf.asarray([1.0]), "float31")


def test_gradients_are_converted_back():
    x = gf.asarray(np.float64([1, 2]))
    g = gf.grad(gf.sum(gf.astype(x, gf.float16) * 3), x)
    same(g, np.float64([3, 3]))
    assert gradients(lambda t: gf.astype(t, gf.complex128), [1.0, 2.0], ct=2 - 3j) == [[2.0, 2.0]]
    assert gradients(lambda t: gf.astype(t, "complex64"), 1j, ct=2 - 3j, dtype="complex128") == [
        2 - 3j
    ]


@pytest.mark.parametrize("target", ["int32", "bool"])
def test_no_gradient_flows_through_integers(target):
    x = gf.asarray([1.0, 2.0])
    with pytest.raises(gf.GradientError):
        gf.grad(gf.sum(gf.astype(gf.astype(x, target), gf.float32)), x)


def test_can_cast():
    assert gf.can_cast(gf.int8, gf.int16)
    assert not gf.can_cast(gf.int16, gf.int8)
    assert gf.can_cast(gf.asarray([1.0]), gf.complex64)
    assert not gf.can_cast(gf.float64, gf.complex64)
    assert gf.can_cast(gf.uint8, gf.int16)
    assert not gf.can_cast(gf.uint64, gf.int64)
    assert not gf.can_cast(gf.float16, gf.bfloat16)


KINDS = {
    "bool": ["bool"],
    "signed integer": ["int8", "int64"],
    "unsigned integer": ["uint8", "uint64"],
    "real floating": ["float16", "bfloat16", "float64"],
    "complex floating": ["complex64"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_isdtype_of_a_kind(kind):
    for other, names in KINDS.items():
        for name in names:
            assert gf.isdtype(name, kind) is (kind == other)
            assert gf.isdtype(name, "integral") is ("integer" in other)
            assert gf.isdtype(name, "numeric") is (other != "bool")


def test_isdtype_of_dtypes_and_tuples():
    assert gf.isdtype(gf.float32, gf.float32)
    assert gf.isdtype(gf.float32, (gf.int8, "real floating"))
    assert not gf.isdtype(gf.float32, (gf.float64, "integral"))
    with pytest.raises(gf.ArgumentError, match='isdtype: there is no kind "floating"'):
        gf.isdtype(gf.float32, "floating")


def test_result_type():
    x = gf.asarray(np.int8([1]))
    assert gf.result_type(x, gf.int16) is gf.int16
    assert gf.result_type(x, 1) is gf.int8
    assert gf.result_type(x, 0.5) is gf.float32
    assert gf.result_type(gf.float16, 0.5, 2) is gf.float16
    assert gf.result_type(gf.float64, 1j) is gf.complex128
    assert gf.result_type(gf.float16, gf.bfloat16) is gf.float32
    assert gf.result_type(np.zeros(2), gf.float32) is gf.float64
    assert gf.result_type(True, 2) is gf.int64
    assert gf.result_type(2, 0.5) is gf.float32


def test_result_type_agrees_with_arithmetic():
    operands = [
        gf.ones((2,), dtype=d) for d in ("int8", "uint16", "float16", "bfloat16", "complex64")
    ]
    for a in [*operands, 2, 0.5, 1j]:
        for b in operands:
            assert gf.result_type(a, b) is (a * b).dtype


def test_result_type_refuses():
    with pytest.raises(
        gf.DTypeError, match="result_type: no integer dtype holds both int8 and uint64"
    ):
        gf.result_type(gf.int8, gf.uint64)
    with pytest.raises(gf.ArgumentError, match="result_type: wants one operand or more"):
        gf.result_type()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
def test_finfo(dtype):
    info, expected = gf.finfo(dtype), np.finfo(dtype)
    assert info.dtype == expected.dtype
    assert info.bits == expected.bits
    for name in ("eps", "max", "min", "smallest_normal"):
        assert getattr(info, name) == float(getattr(expected, name))
        assert type(getattr(info, name)) is float


def test_finfo_of_bfloat16_and_of_tensors():
    info = gf.finfo(gf.bfloat16)
    limits = (info.bits, info.eps, info.max, info.min, info.smallest_normal)
    assert limits == (16, 2.0**-7, (2 - 2.0**-7) * 2.0**127, -(2 - 2.0**-7) * 2.0**127, 2.0**-126)
    assert info.dtype is gf.bfloat16
    assert gf.finfo(gf.asarray([1.0])) == gf.finfo(gf.float32)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_iinfo(dtype):
    info, expected = gf.iinfo(dtype), np.iinfo(dtype)
    assert (info.bits, info.max, info.min) == (expected.bits, expected.max, expected.min)
    assert info.dtype == expected.dtype
    assert type(info.max) is type(info.min) is int


@pytest.mark.parametrize("dtype", STORAGE, ids=str)
def test_limits_of_dtypes_for_storage(dtype):
    numbers = np.arange(256, dtype=np.uint8).view(dtype.dtype).astype(np.float32)
    numbers = numbers[np.isfinite(numbers)]
    info = gf.finfo(dtype) if dtype.holds_floats else gf.iinfo(dtype)
    assert (info.max, info.min) == (numbers.max(), numbers.min())
    if dtype.holds_floats:
        assert info.eps == numbers[numbers > 1].min() - 1
    with pytest.raises(gf.DTypeError, match="wants"):
        (gf.iinfo if dtype.holds_floats else gf.finfo)(dtype)


def test_limits_of_the_wrong_kind_are_refused():
    with pytest.raises(
        gf.DTypeError, match="finfo: wants a floating-point or complex dtype"
    ) as caught:
        gf.finfo(gf.int32)
    assert caught.value.fix == 'use gf.iinfo("int32")'
    with pytest.raises(gf.DTypeError, match="iinfo: wants an integer dtype, not float32") as caught:
        gf.iinfo(gf.asarray([1.0]))
    assert caught.value.fix == 'use gf.finfo("float32")'
