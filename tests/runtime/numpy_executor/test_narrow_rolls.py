"""Rolls along a narrow last axis, computed where they are read and written beside one another."""

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
        turned = gf.roll(x * 2, 1, axis=-1)
        return [
            gf.sum(turned * x, axis=-1),
            gf.sum(turned, axis=0),
            turned @ w,
            gf.roll(gf.roll(x + turned, 1, axis=-1), 1, axis=0),
            gf.roll(gf.cumulative_sum(x, axis=0), -1, axis=1) - x,
            gf.where(turned > 0, turned, x[::-1]),
            gf.concat([turned, x], axis=1),
            gf.roll(x.T[:, :4], 1, axis=-1),
        ]

    checked(function, x, w)


def test_gradients(rng):
    x, y, z = rng.integers(-9, 9, (3, 40, 3)).astype(np.float64)

    def function(x: Any, y: Any, z: Any) -> list[Any]:
        return [*gf.grad(gf.sum(gf.linalg.cross(x, y) * z), [x, y])]

    checked(function, x, y, z)
