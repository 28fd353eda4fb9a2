"""`vmap` against a Python loop over the examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import graphfw as gf

Array = np.ndarray[Any, np.dtype[Any]]


def floats(rng: np.random.Generator, *shape: int) -> gf.Tensor:
    return gf.asarray(rng.normal(size=shape).astype("float32"))


def looped(function: Callable[..., Any], *xs: gf.Tensor) -> list[Array]:
    """Apply a function of one result or several example by example, and stack."""
    rows = []
    for i in range(int(xs[0].shape[0])):
        result = function(*[x[i] for x in xs])
        rows.append(
            [t.numpy() for t in (result if isinstance(result, (tuple, list)) else [result])]
        )
    return [np.stack(column) for column in zip(*rows, strict=True)]


def check(function: Callable[..., Any], *xs: gf.Tensor) -> None:
    """See that `vmap` gives what a loop does, and its gradients: of the whole, and inside."""
    result = gf.vmap(function)(*xs)
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    for t, expected in zip(results, looped(function, *xs), strict=True):
        assert t.shape == expected.shape
        np.testing.assert_allclose(t.numpy(), expected, rtol=2e-5, atol=2e-5)

    def loss(*ys: gf.Tensor) -> gf.Tensor:
        made = function(*ys)
        results = made if isinstance(made, (tuple, list)) else (made,)
        return sum(gf.sum(gf.cos(t)) for t in results if t.dtype.is_floating)

    inputs = [x for x in xs if x.dtype.is_floating]
    if not inputs:
        return

    def slopes(*ys: gf.Tensor) -> list[gf.Tensor]:
        own = [y for y in ys if y.dtype.is_floating]
        return gf.grad(loss(*ys), own, missing="zeros")

    expected = looped(slopes, *xs)
    inside = gf.vmap(slopes)(*xs)
    outside = gf.grad(gf.sum(gf.vmap(loss)(*xs)), inputs, missing="zeros")
    for a, b, wanted in zip(inside, outside, expected, strict=True):
        np.testing.assert_allclose(a.numpy(), wanted, rtol=5e-5, atol=5e-5)
        np.testing.assert_allclose(b.numpy(), wanted, rtol=5e-5, atol=5e-5)
