"""Tangents against central differences, and against the pullback, in float64 and complex128."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import graphfw as gf
from graphfw.ir import concrete
from graphfw.ir.build import constant
from graphfw.ir.tensor import Tensor

STEP = 1e-5


def check_tangents(
    fn: Callable[..., Sequence[Tensor]], xs: Sequence[Tensor], rng: np.random.Generator
) -> None:
    """Check how the results of a function move along a random direction.

    Args:
        fn: Takes the xs; returns float64 or complex128 tensors that depend on constants alone.
        xs: Constants, float64 or complex128.
        rng: Where directions and cotangents come from.
    """
    directions = [normal(rng, x) for x in xs]
    ys, moved = gf.jvp(lambda *args: tuple(fn(*args)), tuple(xs), tuple(map(constant, directions)))
    assert [t.type for t in moved] == [y.type for y in ys]
    values = concrete.evaluate(moved)
    points = [x.numpy() for x in xs]
    after, before = (
        concrete.evaluate(
            fn(*[constant(np.asarray(p + h * v)) for p, v in zip(points, directions, strict=True)])
        )
        for h in (STEP, -STEP)
    )
    for value, high, low in zip(values, after, before, strict=True):
        slope = (high - low) / (2 * STEP)
        scale = max(1.0, np.abs(slope).max(initial=0))
        np.testing.assert_allclose(value, slope, rtol=1e-6, atol=1e-6 * scale)
    # The pullback is the transpose.
    results, pull = gf.vjp(lambda *args: tuple(fn(*args)), *xs)
    cts = [normal(rng, y) for y in results]
    back = concrete.evaluate(pull(tuple(map(constant, cts))))
    one, two = sum(map(_inner, cts, values)), sum(map(_inner, back, directions))
    assert abs(one - two) <= 1e-8 * max(1.0, abs(one)), f"{one:.12g} forward, {two:.12g} back"


def normal(rng: np.random.Generator, like: Tensor) -> np.ndarray[Any, Any]:
    """Draw an array of a tensor's type."""
    values = rng.normal(size=like.shape)
    if like.dtype.is_complex:
        values = values + 1j * rng.normal(size=like.shape)
    return np.array(values, like.dtype.dtype)


def _inner(a: Any, b: Any) -> float:
    return float(np.real(np.vdot(a, b)))
