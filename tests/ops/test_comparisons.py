"""Comparisons, logic and bits against NumPy."""

import ml_dtypes
import numpy as np
import pytest

import graphfw as gf
from tests.ops.values import COMPLEX, FLOATS, INTEGERS, SPECIAL, draw, same

ORDER = ["less", "less_equal", "greater", "greater_equal"]
SHAPES = [((7, 9), (7, 9)), ((7, 1), (9,)), ((), (5,)), ((0, 3), (3,))]


@pytest.mark.parametrize("name", ["equal", "not_equal", *ORDER])
@pytest.mark.parametrize("shapes", SHAPES)
def test_comparisons(rng, name, shapes):
    for dtype in FLOATS + INTEGERS + ["bool"] + (COMPLEX if name in ("equal", "not_equal") else []):
        a, b = (draw(rng, dtype, shape) for shape in shapes)
        same(getattr(gf, name)(gf.asarray(a), gf.asarray(b)), getattr(np, name)(a, b))


def test_operators_compare():
    x = gf.asarray([1, 2, 3])
    assert (x < 2).numpy().tolist() == [True, False, False]
    assert (2 < x).numpy().tolist() == [False, False, True]
    assert (x == [1, 0, 3]).numpy().tolist() == [True, False, True]
    assert (x != 2).numpy().tolist() == [True, False, True]


@pytest.mark.parametrize("name", ORDER)
def test_complex_numbers_have_no_order(name):
    with pytest.raises(gf.DTypeError, match=f"{name}: wants real or bool tensors, not complex64"):
        getattr(gf, name)(gf.asarray([1j]), 0)


def test_comparisons_have_no_gradient():
    x = gf.asarray([1.0, 2.0])
    with pytest.raises(gf.GradientError):
        gf.grad(gf.sum(gf.astype(x > 1, gf.float32)), x)


@pytest.mark.parametrize("name", ["isnan", "isinf", "isfinite"])
@pytest.mark.parametrize("shape", [(7, 9), (), (0,)])
def test_questions_about_values(rng, name, shape):
    for dtype in [*FLOATS, *COMPLEX, *INTEGERS, "bool"]:
        x = draw(rng, dtype, shape)
        same(getattr(gf, name)(gf.asarray(x)), getattr(np, name)(x))
    z = np.complex64([complex(np.nan, 0), complex(0, np.inf), 1j])
    same(getattr(gf, name)(gf.asarray(z)), getattr(np, name)(z))


@pytest.mark.parametrize("name", ["isnan", "isinf", "isfinite", "signbit"])
def test_questions_about_bfloat16(name):
    x = np.array(SPECIAL, dtype=ml_dtypes.bfloat16)
    same(getattr(gf, name)(gf.asarray(x)), getattr(np, name)(x.astype(np.float32)))


def test_signbit_sees_the_sign_of_zero_and_is_of_floats_alone():
    x = np.array(SPECIAL)
    same(gf.signbit(gf.asarray(x)), np.signbit(x))
    with pytest.raises(gf.DTypeError, match="signbit: wants floating-point tensors, not complex64"):
        gf.signbit(gf.asarray([1j]))


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
@pytest.mark.parametrize("shapes", SHAPES)
def test_bits(rng, name, shapes):
    for dtype in [*INTEGERS, "bool"]:
        a, b = (draw(rng, dtype, shape) for shape in shapes)
        same(getattr(gf, name)(gf.asarray(a), gf.asarray(b)), getattr(np, name)(a, b))


@pytest.mark.parametrize("dtype", [*INTEGERS, "bool"])
def test_bitwise_invert(rng, dtype):
    x = draw(rng, dtype, (3, 5))
    same(gf.bitwise_invert(gf.asarray(x)), np.invert(x))
    same(~gf.asarray(x), np.invert(x))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_shifts(dtype):
    bits = gf.iinfo(dtype).bits
    limits = np.iinfo(dtype)
    x = np.array([1, 5, limits.max, limits.min], dtype=dtype)[:, None]
    by = np.array([0, 1, 3, bits - 1, bits, bits + 9], dtype=dtype)
    left, right = gf.asarray(x) << gf.asarray(by), gf.asarray(x) >> gf.asarray(by)
    assert left.dtype is right.dtype is gf.asarray(x).dtype
    for i, value in enumerate(x[:, 0].tolist()):
        wrapped = np.array([(value << n) & (2**bits - 1) for n in by.tolist()], dtype=object)
        expected = wrapped.astype(f"uint{bits}").astype(dtype)
        assert left.numpy()[i].tolist() == expected.tolist()
        assert right.numpy()[i].tolist() == [value >> n for n in by.tolist()]


@pytest.mark.parametrize("name", ["bitwise_left_shift", "bitwise_and"])
def test_floats_have_no_bits(name):
    with pytest.raises(
        gf.DTypeError, match=f"{name}: wants integer.* tensors, not float32"
    ) as caught:
        getattr(gf, name)(gf.asarray([1.0]), gf.asarray([2]))
    assert "gf.astype(x, gf.int32)" in caught.value.fix


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor"])
@pytest.mark.parametrize("shapes", SHAPES)
def test_logic(rng, name, shapes):
    a, b = (draw(rng, "bool", shape) for shape in shapes)
    same(getattr(gf, name)(gf.asarray(a), gf.asarray(b)), getattr(np, name)(a, b))
    same(getattr(gf, name)(gf.asarray(a), True), getattr(np, name)(a, True))


def test_logical_not(rng):
    x = draw(rng, "bool", (3, 5))
    same(gf.logical_not(gf.asarray(x)), ~x)


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor", "logical_not"])
def test_logic_wants_masks(name):
    arguments = [gf.asarray([0.5])] * (1 if name == "logical_not" else 2)
    with pytest.raises(gf.DTypeError, match=f"{name}: wants bool tensors, not float32") as caught:
        getattr(gf, name)(*arguments)
    assert caught.value.fix == "write x != 0"
