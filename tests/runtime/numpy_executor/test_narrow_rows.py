"""Rows of 2 to 4 elements: rolled where they are read, written beside one another, and stacked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.dtype import as_dtype
from tests.runtime.numpy_executor.special_runs import DTYPES, assert_native, drawn, same


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHFW_JIT", "1")


def checked(function: Callable[..., Any], *arrays: Any, symbolic: bool = False) -> Any:
    """Compare a function with what its ops' `eval` computes, to the last bit; return the plan."""
    with gf.Graph() as g:
        feeds = []
        for array in arrays:
            dims = [f"d{n}" if symbolic and n > 4 else n for n in array.shape]
            feeds.append(gf.placeholder(tuple(dims), as_dtype(array.dtype)))
        made = function(*feeds)
    plan = gf.Session(g).compile(made, feeds)
    wanted = gf.Session(g, debug=True).run(made, dict(zip(feeds, arrays, strict=True)))
    got = plan(*arrays)
    for one, right in zip(got, wanted, strict=True) if isinstance(made, list) else [(got, wanted)]:
        same(one, right)
    return plan


@pytest.mark.exhaustive(every=2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [2, 3, 4])
@pytest.mark.parametrize("rows", [1, 7, 15, 16, 17, 67, 300])
def test_one_roll(rng, rows, width, dtype):
    x = drawn(rng, (rows, width), dtype)
    plan = checked(lambda x: [gf.roll(x, shift, axis=-1) for shift in (1, -1, 5)], x)
    assert_native(plan)
    checked(lambda x: gf.roll(x, 2, axis=1), x, symbolic=True)


@pytest.mark.parametrize("shape", [(67, 3), (5, 40, 3), (2, 3, 3), (0, 3), (3,)])
def test_cross_products(rng, shape):
    x, y = (rng.integers(-9, 9, shape).astype(np.float32) for _ in range(2))
    plan = checked(gf.linalg.cross, x, y)
    assert_native(plan)
    if len(shape) > 1 and 0 not in shape:
        assert len(plan._run.build.steps) == 1  # nothing is copied
    checked(gf.linalg.cross, x, y, symbolic=True)
    checked(lambda x, y: gf.linalg.cross(x, y[:1] if len(shape) > 1 else y), x, y)


def test_rolls_among_other_work(rng):
    x, w = (rng.integers(-9, 9, shape).astype(np.float64) for shape in ((50, 3), (3, 3)))

    def function(x: Any, w: Any) -> list[Any]:
        rolled = gf.roll(x * 2, 1, axis=-1)
        return [
            gf.sum(rolled * x, axis=-1),
            gf.sum(rolled, axis=0),
            rolled @ w,
            gf.roll(gf.roll(x + rolled, 1, axis=-1), 1, axis=0),
            gf.roll(gf.cumulative_sum(x, axis=0), -1, axis=1) - x,
            gf.where(rolled > 0, rolled, x[::-1]),
            gf.concat([rolled, x], axis=1),
            gf.max(gf.roll(x, 1, axis=1) - x),
            gf.roll(x.T[:, :4], 1, axis=-1),
        ]

    checked(function, x, w)


def test_gradients(rng):
    x, y, z = rng.integers(-9, 9, (3, 40, 3)).astype(np.float64)

    def function(x: Any, y: Any, z: Any) -> list[Any]:
        return [*gf.grad(gf.sum(gf.linalg.cross(x, y) * z), [x, y])]

    checked(function, x, y, z)


@pytest.mark.exhaustive(every=2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [2, 3, 4])
@pytest.mark.parametrize("rows", [1, 15, 67, 300])
def test_stacked_columns(rng, rows, width, dtype):
    columns = [drawn(rng, (rows,), dtype) for _ in range(width)]

    def function(*columns: Any) -> Any:
        changed = [gf.where(x == gf.flip(x), gf.flip(x), x) for x in columns]
        return gf.stack(changed, axis=-1)

    plan = checked(function, *columns)
    assert_native(plan)
    assert len(plan._run.build.steps) == 1
    checked(function, *columns, symbolic=True)


@pytest.mark.parametrize("shape", [(40,), (6, 11), (2, 3, 17), (0,), (1,)])
def test_stacks_of_what_is_computed_apart(rng, shape):
    x, y, z = (rng.integers(-9, 9, shape).astype(np.float32) for _ in range(3))

    def function(x: Any, y: Any, z: Any) -> list[Any]:
        a, b, c = x * 2, y + 1, gf.maximum(z, 0)
        stacked = gf.stack([a, b, c], axis=-1)
        return [
            stacked,
            gf.stack([a, a, b, b], axis=-1),
            gf.stack([gf.cumulative_sum(a, axis=-1), c], axis=-1),
            gf.stack(
                [a + gf.sum(c), b], axis=-1
            ),  # one waits for a sum of what the other is beside
            gf.sum(gf.stack([c - a, b], axis=-1), axis=0),
            gf.concat([a[..., None], b[..., None]], axis=-1) * 3,
            b,
        ]

    if shape != (1,):
        checked(function, x, y, z)
    checked(lambda x, y, z: gf.stack([x + y, y + z, x + z], axis=-1), x, y, z)


def test_a_stack_of_what_is_made_of_one_another(rng):
    """Two columns are no group where one is computed from a sum of the other."""
    (x,) = (rng.integers(-9, 9, (50,)).astype(np.float32),)

    def function(x: Any) -> Any:
        a = x * 2
        b = x + gf.max(a)
        return gf.stack([a, b, a * b, b - gf.min(b)], axis=-1)

    checked(function, x)


@pytest.mark.exhaustive(every=4)
@pytest.mark.parametrize("dtype", [name for name in DTYPES if name != "bool"])
@pytest.mark.parametrize("shape", [(256, 2), (271, 3), (5, 300, 4), (300, 7, 3)])
def test_what_differs_along_short_rows(rng, shape, dtype):
    """Channels' means and points' scales: the same in all lanes, or along the other axes only."""
    x, mean = drawn(rng, shape, dtype), drawn(rng, shape[-1:], dtype)
    along = drawn(rng, (*shape[:-1], 1), dtype)

    def function(x: Any, mean: Any, along: Any) -> list[Any]:
        shown = x * mean + along
        return [
            shown,
            gf.permute_dims(gf.where(x > mean, x, along), (x.ndim - 1, *range(x.ndim - 1))),
            gf.flip(x, axis=-1) * along,
            x[::2] - mean,
            gf.sum(shown * x, axis=-1),
            gf.max(shown - mean),
        ]

    checked(function, x, mean, along)
    checked(function, x, mean, along, symbolic=True)
    lying = np.moveaxis(np.moveaxis(x, -1, 0).copy(), 0, -1)
    checked(lambda x, m: x * m, lying, mean)


def test_random_numbers_of_short_rows_are_those_of_others():
    with gf.Graph() as g:
        scale = gf.placeholder((3,))
        drawn_ones = gf.random.uniform((400, 3))
        made = [drawn_ones, drawn_ones * scale]
    plain, scaled = gf.Session(g, seed=1).compile(made, [scale])(np.full(3, 2, np.float32))
    same(scaled, plain * np.float32(2))
