"""The functions of `gf.special`: accuracy against mpmath, special values, gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mpmath
import numpy as np
import pytest

import graphfw as gf
from tests.ops.values import gradients

INF, NAN = np.inf, np.nan
Array = np.ndarray[Any, np.dtype[Any]]


@pytest.fixture(autouse=True)
def _digits() -> Iterator[None]:
    """Compute in 60 digits, and let no floating-point exception pass unseen but underflow."""
    with mpmath.workdps(60), np.errstate(all="raise", under="ignore"):
        yield


def _erfcx(x: Any) -> Any:
    if x > 1e5:
        return (1 - 1 / (2 * x * x)) / (x * mpmath.sqrt(mpmath.pi))
    return mpmath.exp(x * x) * mpmath.erfc(x)


def _ndtr(x: Any) -> Any:
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def _log_ndtr(x: Any) -> Any:
    return mpmath.log(_ndtr(x)) if x < 0 else mpmath.log1p(-_ndtr(-x))


def _ndtri(p: Any) -> Any:
    """Newton's method on the double result."""
    y = mpmath.mpf(float(gf.special.ndtri(np.array(float(p)))))
    for _ in range(3):
        slope = mpmath.exp(-y * y / 2) / mpmath.sqrt(2 * mpmath.pi)
        rest = _ndtr(y) - p if y < 0 else (1 - p) - _ndtr(-y)
        y -= rest / slope
    return y


def _uniform(low: float, high: float) -> Callable[[np.random.Generator], Array]:
    return lambda rng: rng.uniform(low, high, 20)


def _powers(low: float, high: float) -> Callable[[np.random.Generator], Array]:
    return lambda rng: 10.0 ** rng.uniform(low, high, 20)


BESSEL = (_powers(-30, 0), _uniform(0, 8), _uniform(8, 30), _powers(1, 2.5))
BOTH = (_uniform(-8, 8), _uniform(-30, -8), _uniform(8, 30), _powers(-30, 0))
CASES: dict[str, tuple[Callable[[Any], Any], float, tuple[Any, ...]]] = {
    "entr": (lambda x: -x * mpmath.log(x), 3, (_powers(-300, 2),)),
    "erfcx": (
        _erfcx,
        6,
        (_uniform(-26, 1), _uniform(0, 40), _powers(2, 300)),
    ),
    "gamma": (
        mpmath.gamma,
        16,
        (_powers(-300, 1), _uniform(0, 9), _uniform(8, 175), _uniform(-9, 0), _uniform(-169, 0)),
    ),
    "i0": (lambda x: mpmath.besseli(0, x), 8, BESSEL),
    "i0e": (lambda x: mpmath.besseli(0, x) * mpmath.exp(-abs(x)), 5, BESSEL),
    "i1": (lambda x: mpmath.besseli(1, x), 8, BESSEL),
    "i1e": (lambda x: mpmath.besseli(1, x) * mpmath.exp(-abs(x)), 5, BESSEL),
    "j0": (lambda x: mpmath.besselj(0, x), 12, BESSEL),
    "j1": (lambda x: mpmath.besselj(1, x), 12, BESSEL),
    "log_ndtr": (_log_ndtr, 8, BOTH),
    "logit": (
        lambda x: mpmath.log(x) - mpmath.log1p(-x),
        5,
        (_powers(-300, -1), _uniform(0, 1), lambda rng: 0.5 + 10.0 ** rng.uniform(-15, -1, 20)),
    ),
    "ndtr": (_ndtr, 7, BOTH),
    "ndtri": (
        _ndtri,
        8,
        (_powers(-300, -1), _uniform(0, 1), lambda rng: 1 - 2.0 ** -rng.uniform(1, 20, 20)),
    ),
    "y0": (lambda x: mpmath.bessely(0, x), 12, BESSEL),
    "y1": (lambda x: mpmath.bessely(1, x), 12, BESSEL),
}
"""The exact function; its error in float64 in ULP, as docs/special.md has it; arguments.

The errors of J and Y are in units of their amplitude.
"""


def arguments(name: str, dtype: Any) -> Array:
    rng = np.random.default_rng(7)
    x = np.concatenate([draw(rng) for draw in CASES[name][2]])
    limits = np.finfo(dtype)
    return x[(np.abs(x) > limits.tiny) & (np.abs(x) < limits.max)].astype(dtype)


def assert_within(name: str, x: Array, values: Array, limit: float) -> None:
    assert values.dtype == x.dtype
    exact = CASES[name][0]
    for argument, got in zip(x, values, strict=True):
        if not np.isfinite(got) and name == "ndtri":
            assert argument == 1  # as float32 has it
            continue
        m = mpmath.mpf(float(argument))
        want = exact(m)
        unit = abs(want)
        if name[0] in "jy" and argument > 0.5:
            unit = max(unit, mpmath.sqrt(2 / (mpmath.pi * m)))
        if unit > float(np.finfo(x.dtype).max):
            assert got == np.copysign(INF, float(want)), argument
            continue
        unit = float(np.spacing(x.dtype.type(float(unit))))
        error = float(abs(mpmath.mpf(float(got)) - want) / unit)
        assert error <= limit, f"{name}({float(argument)!r}) = {got!r}, {error} ULP off {want}"


@pytest.mark.exhaustive(every=2)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bound_in_units_in_the_last_place(name: str, dtype: Any) -> None:
    x = arguments(name, dtype)
    limit = 1 if dtype is np.float32 else CASES[name][1]
    assert_within(name, x, getattr(gf.special, name)(x).numpy(), limit)


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("name", CASES)
def test_compiled_code_keeps_the_bound(name: str) -> None:
    x = arguments(name, np.float64)
    with gf.Graph() as g:
        given = gf.placeholder(("n",), gf.float64, name="x")
        y = getattr(gf.special, name)(given)
    with gf.Session(g) as session:
        assert_within(name, x, session.run(y, {given: x}), CASES[name][1])


SPECIAL_VALUES = {
    "entr": [(0.0, 0.0), (-1.0, -INF), (INF, -INF), (-INF, -INF), (1.0, 0.0)],
    "erfcx": [(0.0, 1.0), (INF, 0.0), (-INF, INF), (-27.0, INF), (1e300, 5.6418958354775635e-301)],
    "gamma": [
        (0.0, INF), (-0.0, -INF), (INF, INF), (-INF, NAN), (-3.0, NAN), (180.0, INF), (4, 6),
    ],
    "i0": [(0.0, 1.0), (INF, INF), (-INF, INF), (720.0, INF)],
    "i0e": [(0.0, 1.0), (INF, 0.0), (-INF, 0.0)],
    "i1": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF)],
    "i1e": [(0.0, 0.0), (-0.0, -0.0), (INF, 0.0), (-INF, -0.0)],
    "j0": [(0.0, 1.0), (INF, 0.0), (-INF, 0.0)],
    "j1": [(0.0, 0.0), (-0.0, -0.0), (INF, 0.0)],
    "log_ndtr": [(INF, 0.0), (-INF, -INF), (-1e10, -5e19), (40.0, -3.655893540915029e-350)],
    "logit": [(0.0, -INF), (1.0, INF), (0.5, 0.0), (-1.0, NAN), (2.0, NAN), (INF, NAN)],
    "ndtr": [(INF, 1.0), (-INF, 0.0), (0.0, 0.5), (1e300, 1.0), (-1e300, 0.0)],
    "ndtri": [(0.0, -INF), (1.0, INF), (0.5, 0.0), (-1.0, NAN), (2.0, NAN), (-INF, NAN)],
    "y0": [(0.0, -INF), (-0.0, -INF), (INF, 0.0), (-1.0, NAN), (-INF, NAN)],
    "y1": [
        (0.0, -INF), (-0.0, -INF), (INF, 0.0), (-1.0, NAN), (5e-324, -INF),
        (1e-300, -6.366197723675814e299),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", SPECIAL_VALUES)
def test_special_values(name: str) -> None:
    assert SPECIAL_VALUES.keys() == CASES.keys()
    x, expected = np.array([*SPECIAL_VALUES[name], (NAN, NAN)]).T
    function = getattr(gf.special, name)
    np.testing.assert_allclose(function(x).numpy(), expected, rtol=1e-15)
    for dtype in (np.float32, np.float16):
        assert function(np.zeros((2, 0), dtype)).dtype.dtype == dtype
        with np.errstate(over="ignore"):
            near = x.astype(dtype)
        assert np.isnan(function(near).numpy()[-1])


def test_terms_without_weight_vanish() -> None:
    x, y = np.array([0.0, 0.0, 0.0, 0.0, 2.0, NAN]), np.array([0.0, INF, -3.0, NAN, 0.5, 1.0])
    expected = [0, 0, 0, NAN, 2 * np.log(0.5), NAN]
    np.testing.assert_allclose(gf.special.xlogy(x, y).numpy(), expected, rtol=1e-15)
    expected = [0, 0, 0, NAN, 2 * np.log1p(0.5), NAN]
    np.testing.assert_allclose(gf.special.xlog1py(x, y).numpy(), expected, rtol=1e-15)
    with np.errstate(divide="ignore"):
        assert float(gf.special.xlogy(1.0, 0.0)) == -INF
    assert gradients(gf.special.xlogy, [0.0, 2.0], [0.0, 4.0])[1] == [0.0, 0.5]
    assert gradients(gf.special.xlog1py, [0.0, 2.0], [-1.0, 3.0])[1] == [0.0, 0.5]


GRADIENTS = {
    "entr": [0.2, 3.0],
    "erfcx": [-2.0, 0.0, 5.0],
    "gamma": [-2.5, 0.3, 5.0],
    "i0": [-3.0, 0.0, 9.0],
    "i0e": [-3.0, 9.0],
    "i1": [-3.0, 0.0, 9.0],
    "i1e": [-3.0, 9.0],
    "j0": [-3.0, 0.0, 11.0],
    "j1": [-3.0, 0.0, 11.0],
    "log_ndtr": [-20.0, 0.0, 3.0],
    "logit": [0.1, 0.7],
    "ndtr": [-9.0, 0.0, 2.0],
    "ndtri": [1e-8, 0.4, 0.9],
    "y0": [0.3, 11.0],
    "y1": [0.3, 11.0],
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str) -> None:
    exact = CASES[name][0] if name != "ndtri" else None
    (found,) = gradients(getattr(gf.special, name), GRADIENTS[name])
    for x, slope in zip(GRADIENTS[name], found, strict=True):
        if exact is None:
            y = _ndtri(mpmath.mpf(x))
            wanted = mpmath.sqrt(2 * mpmath.pi) * mpmath.exp(y * y / 2)
        else:
            wanted = mpmath.diff(exact, mpmath.mpf(x))
        assert abs(slope - wanted) <= 1e-13 * max(1, abs(wanted)), x


def test_a_branch_not_taken_has_gradient_0() -> None:
    for name, edge in (("ndtri", 1.0), ("logit", 0.0), ("y0", 0.0), ("i0", 1e4)):
        f = getattr(gf.special, name)

        def guarded(x: gf.Tensor, f: Any = f, edge: float = edge) -> gf.Tensor:
            return gf.where(x == edge, 0.0, f(x))

        with np.errstate(all="ignore"):
            assert gradients(guarded, edge) == [0.0], name
