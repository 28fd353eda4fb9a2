"""Mathematical functions against NumPy and mpmath; gradients against mpmath and at the edges."""

import ml_dtypes
import mpmath
import numpy as np
import pytest

import graphfw as gf
from graphfw.ops import numerics
from graphfw.ops.numerics import gamma
from graphfw.ops.numerics.polygamma import polygamma
from graphfw.ops.numerics.wide import rounded
from tests.ops.values import COMPLEX, FLOATS, draw, gradients, same

INF, NAN = np.inf, np.nan

# NumPy's function, mpmath's, and where the gradient is tried.
UNARY = {
    "acos": (np.arccos, mpmath.acos, 0.4),
    "acosh": (np.arccosh, mpmath.acosh, 1.7),
    "asin": (np.arcsin, mpmath.asin, -0.6),
    "asinh": (np.arcsinh, mpmath.asinh, -1.3),
    "atan": (np.arctan, mpmath.atan, 2.1),
    "atanh": (np.arctanh, mpmath.atanh, 0.3),
    "cos": (np.cos, mpmath.cos, 0.8),
    "cosh": (np.cosh, mpmath.cosh, -1.1),
    "exp": (np.exp, mpmath.exp, 0.9),
    "expm1": (np.expm1, mpmath.expm1, -30.0),
    "log": (np.log, mpmath.log, 0.7),
    "log10": (np.log10, mpmath.log10, 3.0),
    "log1p": (np.log1p, mpmath.log1p, -0.4),
    "log2": (np.log2, lambda x: mpmath.log(x, 2), 1.9),
    "rsqrt": (lambda x: 1 / np.sqrt(x), lambda x: 1 / mpmath.sqrt(x), 2.5),
    "sin": (np.sin, mpmath.sin, 2.0),
    "sinh": (np.sinh, mpmath.sinh, 1.4),
    "sqrt": (np.sqrt, mpmath.sqrt, 0.2),
    "tan": (np.tan, mpmath.tan, 1.2),
    "tanh": (np.tanh, mpmath.tanh, 0.5),
}
REAL_UNARY = {
    "digamma": (mpmath.digamma, [0.3, 4.0, -1.7]),
    "erf": (mpmath.erf, [0.0, -0.7, 2.0]),
    "erfc": (mpmath.erfc, [0.0, -0.7, 3.0]),
    "erfinv": (mpmath.erfinv, [0.0, -0.7, 0.95]),
    "lgamma": (lambda x: mpmath.log(abs(mpmath.gamma(x))), [0.3, 4.0, -1.7]),
    "sigmoid": (lambda x: 1 / (1 + mpmath.exp(-x)), [0.0, -9.0, 3.0]),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("shape", [(9, 9), (), (3, 0)])
def test_values(rng, name, shape):
    for dtype in FLOATS + COMPLEX:
        x = draw(rng, dtype, shape)
        with np.errstate(all="ignore"):
            expected = UNARY[name][0](x)
        # The loops for one number and for many may differ in the last bit.
        same(getattr(gf, name)(gf.asarray(x)), expected, rtol=2 * float(np.finfo(dtype).eps))


@pytest.mark.parametrize("name", ["hypot", "atan2", "logaddexp"])
@pytest.mark.parametrize("shapes", [((9, 9), (9, 9)), ((9, 1), (11,)), ((), (0, 2))])
def test_values_of_two(rng, name, shapes):
    reference = {"atan2": np.arctan2}.get(name) or getattr(np, name)
    for dtype in FLOATS:
        a, b = (draw(rng, dtype, shape) for shape in shapes)
        with np.errstate(all="ignore"):
            expected = reference(a, b)
        same(getattr(gf, name)(gf.asarray(a), gf.asarray(b)), expected)


@pytest.mark.parametrize("name", [*UNARY, "sigmoid"])
def test_bfloat16_is_computed_in_float32_and_rounded_once(rng, name):
    x = draw(rng, "float32", (60,)).astype(ml_dtypes.bfloat16)
    actual = getattr(gf, name)(gf.asarray(x)).numpy()
    wide = getattr(gf, name)(gf.asarray(x.astype(np.float32))).numpy()
    assert actual.dtype == ml_dtypes.bfloat16
    expected = wide.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(actual.astype(np.float32), expected)


@pytest.mark.parametrize("name", [n for n in REAL_UNARY if n != "sigmoid"])
@pytest.mark.parametrize("dtype", [*FLOATS, ml_dtypes.bfloat16])
def test_special_functions_are_those_of_numerics(rng, name, dtype):
    x = rng.uniform(0.1, 0.9, (3, 5)).astype(dtype)
    function = getattr(numerics, name, None) or rounded(getattr(gamma, name))
    same(getattr(gf, name)(gf.asarray(x)), function(np, x))


def test_sigmoid_is_exact_far_out():
    x = np.array([0, 1, -1, 800, -700, INF, -INF, NAN])
    expected = [
        0.5,
        1 / (1 + np.exp(-1)),
        np.exp(-1) / (1 + np.exp(-1)),
        1,
        np.exp(-700),
        1,
        0,
        NAN,
    ]
    same(gf.sigmoid(gf.asarray(x)), np.array(expected), rtol=1e-15)


@pytest.mark.parametrize("name", [*UNARY, *REAL_UNARY])
def test_integers_become_the_default_dtype_and_bools_are_refused(name):
    function = getattr(gf, name)
    assert function(gf.asarray([1, 2])).dtype is gf.float32
    with gf.default_dtype(gf.float64):
        assert function(3).dtype is gf.float64
    with pytest.raises(gf.DTypeError, match=f"{name}: wants floating-point.* tensors, not bool"):
        function(gf.asarray([True]))


@pytest.mark.parametrize("name", [*REAL_UNARY, "hypot", "atan2", "logaddexp"])
def test_complex_numbers_are_refused_where_there_is_no_rule_for_them(name):
    z = gf.asarray([1j])
    with pytest.raises(gf.DTypeError, match=f"{name}: wants floating-point tensors, not complex64"):
        getattr(gf, name)(z) if name in REAL_UNARY else getattr(gf, name)(z, z)


# Gradients.


@pytest.mark.parametrize("name", UNARY)
def test_gradient(name):
    _, exact, point = UNARY[name]
    with mpmath.workdps(30):
        slope = float(mpmath.diff(exact, point))
    np.testing.assert_allclose(gradients(getattr(gf, name), point, ct=3.0), [3 * slope], rtol=1e-12)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("z", [0.4 + 0.3j, -1.2 + 0.7j, -0.5 - 1.6j, 1.5 - 0.2j])
def test_gradient_of_complex_numbers_is_the_conjugate_of_the_derivative(name, z):
    with mpmath.workdps(30):
        slope = complex(mpmath.diff(UNARY[name][1], z))
    actual = gradients(getattr(gf, name), z, ct=1 - 2j, dtype="complex128")
    np.testing.assert_allclose(actual, [(1 - 2j) * slope.conjugate()], rtol=1e-12)


@pytest.mark.parametrize("name", REAL_UNARY)
def test_gradient_of_special_functions(name):
    exact, points = REAL_UNARY[name]
    with mpmath.workdps(30):
        slopes = [float(mpmath.diff(exact, p)) for p in points]
    np.testing.assert_allclose(gradients(getattr(gf, name), points), [slopes], rtol=1e-11)


# Where the slope is infinite or there is none: 0 times it is 0.
EDGES = {
    "acos": [1, -1, 2],
    "acosh": [1, 0],
    "asin": [1, -1, 2],
    "atanh": [1, -1],
    "cosh": [800],
    "digamma": [0, -3],
    "erfinv": [1, -1],
    "exp": [800],
    "expm1": [800],
    "lgamma": [0, -2],
    "log": [0, -1],
    "log10": [0, -1],
    "log1p": [-1, -2],
    "log2": [0, -1],
    "reciprocal": [0],
    "rsqrt": [0, -1],
    "sinh": [800],
    "sqrt": [0, -1],
}


@pytest.mark.parametrize("name", EDGES)
def test_a_zero_cotangent_stays_zero_at_the_edges(name):
    points = EDGES[name]
    assert gradients(getattr(gf, name), points, ct=0.0) == [[0.0] * len(points)]


@pytest.mark.parametrize("name", EDGES)
def test_a_branch_not_taken_gives_zero_in_the_second_derivative_too(name):
    x = gf.asarray(np.array(EDGES[name], dtype=np.float64))
    y = gf.where(gf.zeros(x.shape, dtype=gf.bool), getattr(gf, name)(x), x * x)
    first = gf.grad(gf.sum(y), x)
    assert gf.grad(gf.sum(first), x).numpy().tolist() == [2.0] * len(EDGES[name])


def test_infinite_slopes_stay_infinite():
    assert gradients(gf.sqrt, 0.0) == [INF]
    assert gradients(gf.log, 0.0) == [INF]
    assert gradients(gf.rsqrt, 0.0) == [-INF]


@pytest.mark.parametrize("name", ["hypot", "atan2"])
def test_gradient_at_the_origin_is_zero(name):
    function = getattr(gf, name)
    assert gradients(function, 0.0, 0.0) == [0.0, 0.0]
    assert gradients(function, 0.0, 0.0, ct=0.0) == [0.0, 0.0]


def test_gradients_of_hypot_and_atan2():
    np.testing.assert_allclose(gradients(gf.hypot, 3.0, -4.0), [0.6, -0.8], rtol=1e-15)
    np.testing.assert_allclose(gradients(gf.atan2, 3.0, -4.0), [-0.16, -0.12], rtol=1e-15)
    # Where the squares would overflow or vanish.
    np.testing.assert_allclose(gradients(gf.atan2, 3e200, 4e200), [1.6e-201, -1.2e-201], rtol=1e-15)
    np.testing.assert_allclose(gradients(gf.atan2, 3e-200, 4e-200), [1.6e199, -1.2e199], rtol=1e-15)


def test_gradient_of_logaddexp():
    np.testing.assert_allclose(gradients(gf.logaddexp, 0.0, np.log(3)), [0.25, 0.75], rtol=1e-15)
    assert gradients(gf.logaddexp, 5.0, -INF) == [1.0, 0.0]
    assert gradients(gf.logaddexp, -INF, -INF) == [0.5, 0.5]
    assert gradients(gf.logaddexp, 1000.0, -1000.0) == [1.0, 0.0]


def test_second_derivative_of_logaddexp_of_equals():
    x = gf.asarray(np.array(2.0))
    first = gf.grad(gf.logaddexp(x, gf.asarray(np.array(2.0))), x)
    assert gf.grad(first, x).numpy() == 0.25


# The polygamma functions.


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_polygamma(n):
    x = np.array([1e-3, 0.4, 1, 1.5, 7, 30, 1e4, -0.3, -2.6, -41.2])
    with mpmath.workdps(40):
        expected = [float(mpmath.psi(n, float(v))) for v in x]
    np.testing.assert_allclose(polygamma(np, n, x), expected, rtol=2e-13)
    with gf.Graph() as g:
        given = gf.placeholder(("n",), gf.float64)
        y = gf.polygamma(n, given)
    with gf.Session(g) as session:
        np.testing.assert_allclose(session.run(y, {given: x}), expected, rtol=2e-13)


def test_polygamma_at_the_poles():
    poles = gf.asarray([0.0, -1.0, -7.0])
    assert gf.polygamma(1, poles).numpy().tolist() == [INF] * 3
    assert np.isnan(gf.polygamma(2, poles).numpy()).all()


def test_polygamma_of_order_zero_is_digamma_and_none_is_below():
    assert gf.polygamma(0, 2.5).numpy() == gf.digamma(2.5).numpy()
    with pytest.raises(gf.errors.ArgumentError, match="polygamma: n=-1 is negative"):
        gf.polygamma(-1, 2.5)


def test_third_derivative_of_lgamma():
    x = gf.asarray(np.array([0.7, 3.2]))
    y = gf.lgamma(x)
    for _ in range(3):
        y = gf.grad(gf.sum(y), x)
    with mpmath.workdps(30):
        np.testing.assert_allclose(
            y.numpy(), [float(mpmath.psi(2, v)) for v in (0.7, 3.2)], rtol=1e-12
        )


NAN = float("nan")


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize(
    ("name", "z", "expected"),
    [
        ("expm1", complex(INF, 0.0), complex(INF, 0.0)),
        ("expm1", complex(-INF, INF), complex(-1.0, 0.0)),
        ("expm1", complex(INF, NAN), complex(INF, NAN)),
        ("expm1", complex(NAN, 0.0), complex(NAN, 0.0)),
        ("expm1", complex(-0.0, 0.0), complex(0.0, 0.0)),
        ("expm1", complex(0.0, -0.0), complex(0.0, -0.0)),
        ("tanh", complex(INF, 2.0), complex(1.0, 0.0)),
        ("tanh", complex(INF, -2.0), complex(1.0, -0.0)),
        ("tanh", complex(-INF, 2.0), complex(-1.0, 0.0)),
        ("tanh", complex(INF, NAN), complex(1.0, 0.0)),
    ],
)
def test_complex_numbers_where_the_standard_says_more_than_numpy(dtype, name, z, expected):
    for shape in ((), (3,)):
        value = getattr(gf, name)(gf.full(shape, z, dtype=dtype)).numpy()
        assert value.dtype == dtype
        for component in ("real", "imag"):
            actual, wanted = getattr(value, component), getattr(expected, component)
            np.testing.assert_array_equal(actual, np.full(shape, wanted))
            if not np.isnan(wanted):
                assert np.array_equal(np.signbit(actual), np.full(shape, np.signbit(wanted)))
