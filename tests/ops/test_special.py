"""The special functions: accuracy against mpmath, special values, shapes and dtypes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import pytest

import graphfw as gf
from graphfw.ops.numerics import gamma, special
from graphfw.ops.numerics.wide import rounded

ERROR_FUNCTIONS = {name: getattr(special, name) for name in special.__all__}
LGAMMA, DIGAMMA = rounded(gamma.lgamma), rounded(gamma.digamma)
FUNCTIONS = ERROR_FUNCTIONS | {"lgamma": LGAMMA, "digamma": DIGAMMA}
INF, NAN = np.inf, np.nan
DTYPES = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]

Exact = Callable[[Any], Any]


@pytest.fixture(autouse=True)
def _environment() -> Iterator[None]:
    """40 digits in mpmath, and no floating-point exception passes unseen but underflow."""
    with mpmath.workdps(40), np.errstate(all="raise", under="ignore"):
        yield


def around(*points: float) -> np.ndarray:
    """The points and their neighbours, to look at where pieces of a formula meet."""
    p = np.array(points)
    return np.concatenate([p, np.nextafter(p, -INF), np.nextafter(p, INF), p - 1e-9, p + 1e-9])


def exact_erfinv(x: Any) -> Any:
    """Newton's method on the double result; on erfc near +-1, where erf has no digits left."""
    y = mpmath.mpf(float(special.erfinv(np, np.float64(float(x)))))
    for _ in range(3):
        if abs(x) < 0.9:
            error = mpmath.erf(y) - x
        else:
            error = ((1 - abs(x)) - mpmath.erfc(abs(y))) * mpmath.sign(x)
        y -= error * mpmath.sqrt(mpmath.pi) / 2 * mpmath.exp(y * y)
    return y


def exact_lgamma(x: Any) -> Any:
    return mpmath.log(abs(mpmath.gamma(x))) if x < 1e6 else mpmath.loggamma(x).real


def error_in_ulp(got: Any, exact: Any, unit_of: Any) -> float:
    """|got - exact| in units of the last place of `unit_of`, in got's dtype."""
    unit = np.spacing(got.dtype.type(float(abs(unit_of))))
    return float(abs(mpmath.mpf(float(got)) - exact) / mpmath.mpf(float(unit)))


def assert_within(name: str, exact: Exact, x: np.ndarray, limit: float, of: Any = None) -> None:
    results = (of or FUNCTIONS[name])(np, x)
    assert results.dtype == x.dtype
    for argument, got in zip(x, results, strict=True):
        want = exact(mpmath.mpf(float(argument)))
        if abs(want) > float(np.finfo(x.dtype).max):
            assert got == np.copysign(INF, float(want)), argument
            continue
        error = error_in_ulp(got, want, want)
        assert error <= limit, f"{name}({float(argument)!r}) = {got!r}, {error} ULP off {want}"


def arguments(name: str, dtype: Any) -> np.ndarray:
    """Random arguments in every piece of the formula, its seams, tiny ones and subnormals."""
    u = np.random.default_rng(7).uniform
    wide = dtype is np.float64
    tiny = 10.0 ** u(-307 if wide else -37, -3, 60)
    subnormal = u(0, 1, 20) * float(np.finfo(dtype).tiny)
    near_zero = np.concatenate([tiny, subnormal])
    match name:
        case "erf":
            x = np.concatenate([
                u(-6.5, 6.5, 300), u(0.8, 1.3, 100), near_zero, -near_zero,
                around(0.84375, 1.25, 1 / 0.35, 6.0), -around(0.84375, 1.25, 1 / 0.35, 6.0),
            ])  # fmt: skip
        case "erfc":
            x = np.concatenate([
                u(-6.5, 27.2 if wide else 10.0, 400), u(-0.9, 1.3, 200), near_zero, -near_zero,
                around(0.25, 0.84375, 1.25, 1 / 0.35), -around(0.84375, 1.25, 1 / 0.35),
            ])  # fmt: skip
        case "erfinv":
            close_to_one = 1 - 2.0 ** -u(1, 53 if wide else 24, 150)
            seams = around(0.85, 1 - 2 * np.exp(-25.0))
            x = np.concatenate([u(-1, 1, 150), close_to_one, -close_to_one, near_zero, seams])
        case "lgamma" | "digamma":
            x = np.concatenate([
                u(0, 3, 300), u(2, 12, 300), 10.0 ** u(0, 300 if wide else 36, 60), near_zero,
                1 + u(-1, 1, 60) * 1e-5, 2 + u(-1, 1, 60) * 1e-5, 1.4616321 + u(-1, 1, 60) * 1e-5,
                around(0.23164, 0.7316, 0.9, 1.23164, 1.7316, *range(1, 13)),
            ])  # fmt: skip
    x = x.astype(dtype)
    return x[np.abs(x) < 1] if name == "erfinv" else x


def compiled(name: str) -> Callable[..., Any]:
    """Return a function that runs compiled code, called as the functions of `FUNCTIONS` are."""

    def run(_: Any, x: np.ndarray) -> Any:
        with gf.Graph() as g:
            given = gf.placeholder(("n",), x.dtype.name)
            y = getattr(gf, name)(given)
        with gf.Session(g) as session, np.errstate(all="ignore"):
            return session.run(y, {given: x})

    return run


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize(
    ("name", "exact", "dtype", "limit"),
    [
        ("erf", mpmath.erf, np.float64, 2),
        ("erf", mpmath.erf, np.float32, 2),
        ("erfc", mpmath.erfc, np.float64, 4),
        ("erfc", mpmath.erfc, np.float32, 1),
        ("erfinv", exact_erfinv, np.float64, 6),
        ("erfinv", exact_erfinv, np.float32, 1),
        ("lgamma", exact_lgamma, np.float64, 4),
        ("lgamma", exact_lgamma, np.float32, 1),
        ("digamma", mpmath.digamma, np.float64, 4),
        ("digamma", mpmath.digamma, np.float32, 1),
    ],
)
def test_ulp_bound(name: str, exact: Exact, dtype: Any, limit: float) -> None:
    assert_within(name, exact, arguments(name, dtype), limit)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("name", "exact"), [("lgamma", exact_lgamma), ("digamma", mpmath.digamma)])
def test_compiled_code_keeps_the_bound(name: str, exact: Exact, dtype: Any) -> None:
    limit = 1 if dtype is np.float32 else 4
    assert_within(name, exact, arguments(name, dtype), limit, compiled(name))


def negative_arguments() -> np.ndarray:
    u = np.random.default_rng(7).uniform
    x = -np.concatenate([u(0, 3, 200), u(0, 30, 200), 10.0 ** u(-300, 8, 100)])
    return x[x != np.rint(x)]


@pytest.mark.parametrize("function", [LGAMMA, compiled("lgamma")])
def test_lgamma_on_the_negative_axis(function: Any) -> None:
    x = negative_arguments()
    for argument, got in zip(x, function(np, x), strict=True):
        want = exact_lgamma(mpmath.mpf(float(argument)))
        scale = max(1, abs(want), exact_lgamma(-mpmath.mpf(float(argument))))
        assert error_in_ulp(got, want, scale) <= 4, argument


@pytest.mark.parametrize("function", [DIGAMMA, compiled("digamma")])
def test_digamma_on_the_negative_axis(function: Any) -> None:
    x = negative_arguments()
    for argument, got in zip(x, function(np, x), strict=True):
        m = mpmath.mpf(float(argument))
        want = mpmath.digamma(m)
        cotangent = mpmath.pi / mpmath.tan(mpmath.pi * m)
        scale = max(1, abs(mpmath.digamma(1 - m)), abs(cotangent))
        assert error_in_ulp(got, want, scale) <= 6, argument


SPECIAL_VALUES = {
    "erf": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (1e4, 1.0), (-1e4, -1.0)],
    "erfc": [(0.0, 1.0), (-0.0, 1.0), (INF, 0.0), (-INF, 2.0), (1e4, 0.0), (-1e4, 2.0)],
    "erfinv": [
        (0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (1.5, NAN), (-1.5, NAN), (INF, NAN),
        (-INF, NAN),
    ],
    "lgamma": [
        (0.0, INF), (-0.0, INF), (1.0, 0.0), (2.0, 0.0), (-1.0, INF), (-34.0, INF), (INF, INF),
        (-INF, INF),
    ],
    "digamma": [
        (0.0, -INF), (-0.0, INF), (-1.0, NAN), (-34.0, NAN), (INF, INF), (-INF, NAN),
    ],
}  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SPECIAL_VALUES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_special_values(name: str, dtype: Any) -> None:
    x, want = np.array([*SPECIAL_VALUES[name], (NAN, NAN)]).T
    x = x.astype(dtype)
    got = FUNCTIONS[name](np, x).astype(np.float64)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(compiled(name)(np, x).astype(np.float64), want)
    signed = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got)[signed], np.signbit(want)[signed])


def test_largest_float64_arguments() -> None:
    huge = np.finfo(np.float64).max
    edge = 2.559983327851637e305
    x = np.array([huge, -huge, edge, edge * (1 + 1e-15)])
    got = LGAMMA(np, x)
    assert got[[0, 1, 3]].tolist() == [INF, INF, INF]
    assert error_in_ulp(got[2], exact_lgamma(mpmath.mpf(edge)), got[2]) <= 4
    assert DIGAMMA(np, np.array([huge])) == np.log(huge)


def test_results_too_large_for_a_narrow_dtype_are_infinite() -> None:
    x = np.array([4e36, 4.2e36], np.float32)
    assert np.isinf(LGAMMA(np, x)).tolist() == [False, True]
    assert LGAMMA(np, np.array([6e4], np.float16)).tolist() == [INF]
    assert DIGAMMA(np, np.array([1e-39, -1e-39], np.float32)).tolist() == [-INF, INF]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_every_number_of_16_bits(name: str, dtype: Any) -> None:
    """The narrow result is the float64 result rounded, give or take a unit from float32."""
    x = np.arange(2**16, dtype=np.uint16).view(dtype)
    x = x[~np.isnan(x.astype(np.float32))]  # a conversion of a signalling NaN is invalid
    got = FUNCTIONS[name](np, x)
    assert got.dtype == dtype
    with np.errstate(over="ignore"):
        want = FUNCTIONS[name](np, x.astype(np.float64)).astype(dtype)
    bits = np.abs(got.view(np.int16).astype(np.int64) - want.view(np.int16))
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    np.testing.assert_array_less(np.where(same, 0, bits), 2)


def test_identities() -> None:
    x = np.random.default_rng().normal(size=501) * 3
    np.testing.assert_array_equal(special.erf(np, -x), -special.erf(np, x))
    np.testing.assert_allclose(special.erf(np, x) + special.erfc(np, x), 1, rtol=1e-15)
    inner = x[np.abs(x) < 2]
    np.testing.assert_allclose(special.erfinv(np, special.erf(np, inner)), inner, rtol=1e-13)
    p = np.abs(x) + 1e-3
    np.testing.assert_allclose(LGAMMA(np, p + 1), LGAMMA(np, p) + np.log(p), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(DIGAMMA(np, p + 1), DIGAMMA(np, p) + 1 / p, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_shapes_and_dtype_are_kept(name: str, dtype: Any) -> None:
    full = np.random.default_rng(7).uniform(0.1, 0.9, size=(3, 7, 5)).astype(dtype)
    function = FUNCTIONS[name]
    want = function(np, full)
    for x, y in [
        (full, want),
        (full[:, ::-2], want[:, ::-2]),
        (full.T, want.T),
        (full[:0], want[:0]),
        (full[:1, :1, :1], want[:1, :1, :1]),
        (full[1, 2, 3], want[1, 2, 3]),
        (np.array(full[1, 2, 3]), want[1, 2, 3]),
    ]:
        before = x.copy()
        got = function(np, x)
        assert got.shape == x.shape
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, y)
        np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("name", ERROR_FUNCTIONS)
@pytest.mark.parametrize("dtype", [np.int64, np.bool_, np.complex128])
def test_other_dtypes_are_refused(name: str, dtype: Any) -> None:
    with pytest.raises(TypeError, match=f"real floating dtype, got {np.dtype(dtype).name}"):
        FUNCTIONS[name](np, np.ones(3, dtype))
