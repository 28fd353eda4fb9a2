"""Arithmetic against NumPy: values, dtypes, refusals; gradients at the edges by hand."""

import doctest
import math
from functools import partial

import ml_dtypes
import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.functions import FUNCTIONS
from graphfw.ops import numerics
from graphfw.ops.elementwise import table
from tests.ops.values import COMPLEX, FLOATS, INTEGERS, draw, gradients, same

UNARY = {
    "abs": (np.abs, FLOATS + COMPLEX + INTEGERS),
    "ceil": (np.ceil, FLOATS),
    "conj": (np.conj, FLOATS + COMPLEX + INTEGERS),
    "floor": (np.floor, FLOATS),
    "imag": (np.imag, FLOATS + COMPLEX + INTEGERS),
    "negative": (np.negative, FLOATS + COMPLEX + INTEGERS),
    "positive": (np.positive, FLOATS + COMPLEX + INTEGERS),
    "real": (np.real, FLOATS + COMPLEX + INTEGERS),
    "reciprocal": (np.reciprocal, FLOATS + COMPLEX),
    "round": (np.round, FLOATS + COMPLEX + INTEGERS),
    "sign": (np.sign, FLOATS + COMPLEX + INTEGERS),
    "square": (np.square, FLOATS + COMPLEX + INTEGERS),
    "trunc": (np.trunc, FLOATS),
}
BINARY = {
    "add": (np.add, FLOATS + COMPLEX + INTEGERS),
    "copysign": (np.copysign, FLOATS),
    "divide": (np.divide, FLOATS + COMPLEX),
    "floor_divide": (partial(numerics.floor_divide, np), FLOATS + INTEGERS),
    "maximum": (np.maximum, FLOATS + INTEGERS),
    "minimum": (np.minimum, FLOATS + INTEGERS),
    "multiply": (np.multiply, FLOATS + COMPLEX + INTEGERS),
    "nextafter": (np.nextafter, FLOATS),
    "pow": (np.power, FLOATS + COMPLEX),
    "remainder": (np.remainder, FLOATS + INTEGERS),
    "subtract": (np.subtract, FLOATS + COMPLEX + INTEGERS),
}


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("shape", [(7, 9), (), (0, 3)])
def test_unary_values(rng, name, shape):
    reference, dtypes = UNARY[name]
    for dtype in dtypes:
        x = draw(rng, dtype, shape)
        tolerance = {"rtol": 1e-6} if dtype in COMPLEX else {}
        with np.errstate(all="ignore"):
            expected = reference(x)
        same(getattr(gf, name)(gf.asarray(x)), expected, **tolerance)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("shapes", [((7, 9), (7, 9)), ((7, 1), (9,)), ((), (5,)), ((0, 3), (3,))])
def test_binary_values(rng, name, shapes):
    reference, dtypes = BINARY[name]
    for dtype in dtypes:
        a, b = (draw(rng, dtype, shape) for shape in shapes)
        with np.errstate(all="ignore"):
            expected = reference(a, b)
        same(getattr(gf, name)(gf.asarray(a), gf.asarray(b)), expected)


@pytest.mark.parametrize("name", [n for n in BINARY if n != "nextafter"])
def test_bfloat16_is_computed_in_float32_and_rounded_once(rng, name):
    a, b = (draw(rng, "float32", (50,)).astype(ml_dtypes.bfloat16) for _ in range(2))
    with np.errstate(all="ignore"):
        wide = BINARY[name][0](a.astype(np.float32), b.astype(np.float32))
        expected = wide.astype(ml_dtypes.bfloat16)
    actual = getattr(gf, name)(gf.asarray(a), gf.asarray(b)).numpy()
    assert actual.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(actual.astype(np.float32), expected.astype(np.float32))


def test_nextafter_steps_in_the_tensors_own_precision():
    for dtype in (gf.float16, gf.bfloat16, gf.float32, gf.float64):
        one = gf.ones((2,), dtype=dtype)
        step = gf.nextafter(one, one * 2) - one
        assert step.numpy().astype(np.float64).tolist() == [gf.finfo(dtype).eps] * 2


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round", "positive", "conj", "real"])
def test_integers_come_back_as_the_same_tensor(name):
    x = gf.asarray(np.arange(5, dtype=np.int16))
    assert getattr(gf, name)(x) is x


@pytest.mark.parametrize("name", ["conj", "real", "positive"])
def test_real_tensors_are_their_own_components(name):
    x = gf.asarray([1.0, np.nan])
    assert getattr(gf, name)(x) is x


def test_halves_round_to_even():
    same(gf.round(gf.asarray([0.5, 1.5, 2.5, -0.5, -1.5])), np.float32([0, 2, 2, -0.0, -2]))


def test_integers_divided_by_zero_give_zero():
    x = gf.asarray(np.array([5, -5, 0], dtype=np.int32))
    assert (x // 0).numpy().tolist() == [0, 0, 0]
    assert (x % 0).numpy().tolist() == [0, 0, 0]


def test_float_quotients_follow_the_divisors_sign():
    a, b = np.float32([7, -7, 7, -7, -0.0, 1]), np.float32([2, 2, -2, -2, 3, np.inf])
    x, y = gf.asarray(a), gf.asarray(b)
    same(x // y, np.floor_divide(a, b))
    same(x % y, np.remainder(a, b))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_whole_quotients_of_infinity_are_the_standards(dtype):
    inf, nan = math.inf, math.nan
    x = gf.astype(gf.asarray([inf, inf, -inf, -inf, inf, -inf, inf, -inf, inf, 2.0, 2.0]), dtype)
    y = gf.astype(gf.asarray([3.0, -3.0, 3.0, -3.0, 0.0, 0.0, inf, inf, nan, inf, -inf]), dtype)
    expected = [inf, -inf, -inf, inf, inf, -inf, nan, nan, nan, 0, -1]
    same(gf.astype(x // y, "float32"), np.float32(expected))
    assert np.isnan(gf.astype((x % y)[:9], "float32").numpy()).all()


@pytest.mark.parametrize("name", ["divide", "reciprocal"])
def test_integers_become_the_default_dtype(name):
    arguments = [gf.asarray([1, 2, 4])] * (2 if name == "divide" else 1)
    assert getattr(gf, name)(*arguments).dtype is gf.float32
    with gf.default_dtype(gf.float64):
        assert getattr(gf, name)(*arguments).dtype is gf.float64


def test_python_scalars_are_weak():
    x = gf.asarray(np.array([1, 2], dtype=np.int8))
    assert (x + 3).dtype is gf.int8
    assert (x * 0.5).dtype is gf.float32
    assert (gf.asarray(np.float16([1])) * 0.5).dtype is gf.float16
    assert (gf.asarray(np.float64([1])) * 1j).dtype is gf.complex128


@pytest.mark.parametrize("name", ["add", "multiply", "subtract", "divide", "maximum", "pow"])
def test_bools_are_refused(name):
    mask = gf.asarray([True, False])
    with pytest.raises(gf.DTypeError, match=f"{name}: wants .* tensors, not bool") as caught:
        getattr(gf, name)(mask, mask)
    assert "gf.astype(x, gf.int32)" in caught.value.fix


@pytest.mark.parametrize("name", ["negative", "positive", "abs", "sign", "conj", "floor", "square"])
def test_bools_are_refused_by_functions_of_one_tensor(name):
    with pytest.raises(gf.DTypeError, match="not bool"):
        getattr(gf, name)(gf.asarray([True]))


@pytest.mark.parametrize("name", ["maximum", "minimum", "floor_divide", "remainder", "copysign"])
def test_complex_numbers_have_no_order(name):
    z = gf.asarray([1j])
    with pytest.raises(gf.DTypeError, match="not complex64") as caught:
        getattr(gf, name)(z, z)
    assert "gf.abs(x)" in caught.value.fix


def test_sign_of_complex_zero_is_zero():
    same(gf.sign(gf.asarray(np.complex64([0, 3 + 4j, -2j]))), np.complex64([0, 0.6 + 0.8j, -1j]))


class TestPow:
    def test_of_integers(self, rng):
        for dtype in INTEGERS:
            a, b = draw(rng, dtype, (5, 7)), rng.integers(0, 9, (5, 7)).astype(dtype)
            same(gf.asarray(a) ** gf.asarray(b), a**b)

    def test_negative_powers_of_integers_round_towards_zero(self):
        a = gf.asarray([1, -1, -1, 2, -3, 0])
        b = gf.asarray([-3, -3, -2, -1, -1, -1])
        assert (a**b).numpy().tolist() == [1, -1, 1, 0, 0, 0]

    def test_an_integer_tensor_to_a_negative_number_is_refused(self):
        with pytest.raises(gf.ArgumentError, match=r"pow: an integer to the power -1") as caught:
            gf.asarray([2, 4]) ** -1
        assert "-1.0" in caught.value.fix
        same(gf.asarray([2, 4]) ** -1.0, np.float32([0.5, 0.25]))

    @pytest.mark.parametrize("power", [0, 1, 2, 3])
    def test_gradient_of_whole_powers_at_zero_and_below(self, power):
        x = [0.0, -3.0, 2.0]
        expected = [power * v ** (power - 1) if power else 0.0 for v in x]
        assert gradients(lambda t: t**power, x) == [expected]

    @pytest.mark.parametrize("power", [1, 2, 3])
    def test_second_derivative_of_whole_powers_at_zero(self, power):
        x = gf.asarray(np.array([0.0, -1.5]))
        first = gf.grad(gf.sum(x**power), x)
        second = gf.grad(gf.sum(first * x), x) - first  # d(x g) = g + x g'
        expected = [0.0, -1.5 * power * (power - 1) * (-1.5) ** (power - 2) if power > 1 else 0.0]
        assert second.numpy().tolist() == expected

    def test_gradient_at_the_edges(self):
        assert gradients(gf.pow, 0.0, 0.0) == [0.0, 0.0]
        assert gradients(gf.pow, 0.0, 2.0) == [0.0, 0.0]
        assert gradients(gf.pow, 0.0, 0.5)[0] == np.inf
        assert gradients(gf.pow, 0.0, 0.5, ct=0.0) == [0.0, 0.0]
        assert gradients(gf.pow, -1.0, 0.5, ct=0.0) == [0.0, 0.0]


@pytest.mark.parametrize(("name", "winner"), [("maximum", 1), ("minimum", 0)])
def test_extremes_share_the_gradient_of_a_tie(name, winner):
    g = gradients(getattr(gf, name), [1.0, 2.0, 2.0, 0.0], [2.0, 1.0, 2.0, -0.0])
    assert g[winner] == [1.0, 0.0, 0.5, 0.5]
    assert g[1 - winner] == [0.0, 1.0, 0.5, 0.5]


def test_gradient_of_abs_at_zero_is_zero():
    assert gradients(gf.abs, [0.0, -0.0, -2.0, 3.0]) == [[0.0, 0.0, -1.0, 1.0]]
    (g,) = gradients(gf.abs, [0j, 3 + 4j], dtype="complex128")
    assert g[0] == 0
    np.testing.assert_allclose(g[1], 0.6 + 0.8j, rtol=1e-15)


def test_gradient_of_copysign():
    g = gradients(
        lambda a: gf.copysign(a, gf.asarray([1.0, -1.0, 1.0, -0.0])), [2.0, 2.0, -2.0, 0.0]
    )
    assert g == [[1.0, -1.0, -1.0, 0.0]]


def test_gradient_of_remainder():
    assert gradients(gf.remainder, [7.0, -7.0], [2.0, 2.0]) == [[1.0, 1.0], [-3.0, 4.0]]
    assert gradients(gf.remainder, 1.0, 0.0, ct=0.0) == [0.0, 0.0]


def test_gradients_of_complex_components():
    z = [1 + 2j, 3 - 1j]
    assert gradients(gf.real, z, dtype="complex128") == [[1, 1]]
    assert gradients(gf.imag, z, dtype="complex128") == [[1j, 1j]]
    assert gradients(gf.conj, z, ct=1 + 2j, dtype="complex128") == [[1 - 2j] * 2]


def test_a_branch_not_taken_gives_zero_not_nan():
    x = gf.asarray([0.0, 2.0])
    g = gf.grad(gf.sum(gf.where(x > 0, 1 / x, x)), x)
    assert g.numpy().tolist() == [1.0, -0.25]


def test_a_zero_cotangent_does_not_hide_the_second_derivative():
    # d/dx log(x)^2 is 0 at 1, through a cotangent of 0; its own derivative there is 2.
    x = gf.asarray([1.0])
    first = gf.grad(gf.sum(gf.log(x) ** 2), x)
    assert first.numpy().tolist() == [0.0]
    assert gf.grad(gf.sum(first), x).numpy().tolist() == [2.0]
    quotient = gf.grad(gf.sum((gf.log(x) / x) ** 2), x)
    assert gf.grad(gf.sum(quotient), x).numpy().tolist() == [2.0]


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round", "sign"])
def test_steps_have_no_gradient(name):
    x = gf.asarray([0.4, -1.2])
    with pytest.raises(gf.GradientError):
        gf.grad(gf.sum(getattr(gf, name)(x)), x)
    assert gf.grad(gf.sum(x - getattr(gf, name)(x)), x).numpy().tolist() == [1.0, 1.0]


def row_functions():
    """The functions that rows make: doctest overlooks them, for their code is the table's."""
    return {name: f for name, f in FUNCTIONS.items() if f.__globals__ is vars(table)}


@pytest.mark.parametrize("name", row_functions())
def test_the_examples_in_the_docstrings_of_rows(name):
    doc = row_functions()[name].__doc__
    example = doctest.DocTestParser().get_doctest(doc, {}, name, None, None)
    assert doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example).failed == 0
