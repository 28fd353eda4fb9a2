"""Products of integers, and of floats beside them at sizes that fit no tile."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from benchmarks.frameworks import Arrays, Formula
from benchmarks.longtail.draw import Draw
from benchmarks.longtail.formulas import cast, contest, each, name_of, normal
from benchmarks.workload import Contest


def _whole(dtype: str, *shapes: tuple[int, ...]) -> Arrays:
    """Return small integers, whose sums of products 32 bits hold."""
    rng = np.random.default_rng(0)
    low = 0 if dtype.startswith("u") else -20
    return [rng.integers(low, 20, shape).astype(dtype) for shape in shapes]


def _product(xp: Any, x: Any, y: Any) -> Any:
    return x @ y


def _contest(draw: Draw, dtype: str, *shapes: tuple[int, ...]) -> Contest:
    formula = Formula(functools.partial(_whole, dtype, *shapes), **each(_product))
    text = " and ".join("×".join(map(str, shape)) for shape in shapes)
    return contest(f"a product of {text} {dtype}", formula, dtype=dtype)


def int32_product(draw: Draw) -> Contest:
    m, k, n = (draw.size(64, 640) for _ in range(3))
    return _contest(draw, "int32", (m, k), (k, n))


def int64_product(draw: Draw) -> Contest:
    m, k, n = (draw.size(64, 512) for _ in range(3))
    return _contest(draw, "int64", (m, k), (k, n))


def int32_batch(draw: Draw) -> Contest:
    count, n = draw.size(32, 512), draw.size(8, 64)
    return _contest(draw, "int32", (count, n, n), (count, n, n))


def int32_vector(draw: Draw) -> Contest:
    k, n = draw.size(512, 4096), draw.size(512, 4096)
    return _contest(draw, "int32", (k,), (k, n))


# Integers of 8 bits whose products are added up in 32.  x: [m, k], y: [k, n]


def _widened(xp: Any, x: Any, y: Any) -> Any:
    if name_of(xp) == "jax":
        import jax

        return jax.lax.dot(x, y, preferred_element_type=xp.int32)
    return cast(x, "int32") @ cast(y, "int32")


def int8_product(draw: Draw) -> Contest:
    m, k, n = (draw.size(64, 768) for _ in range(3))
    left, right = draw.choice(("int8", "int8"), ("uint8", "int8"))
    functions = each(_widened, ("graphfw", "numpy", "torch", *(("jax",) * (left == right))))
    formula = Formula(functools.partial(_mixed, (m, k), left, (k, n), right), **functions)
    return contest(f"a product of {m}×{k} {left} and {k}×{n} {right} in int32", formula)


def _mixed(left: tuple[int, int], one: str, right: tuple[int, int], other: str) -> Arrays:
    return [*_whole(one, left), *_whole(other, right)]


def odd_product(draw: Draw) -> Contest:
    m, k, n = (draw.size(65, 1200) | 1 for _ in range(3))
    dtype = draw.choice("float32", "float64")
    inputs = functools.partial(normal, (m, k), (k, n), dtype=dtype)
    formula = Formula(inputs, **each(_product))
    title = f"a product of {m}×{k} and {k}×{n} {dtype}"
    return contest(title, formula, dtype=dtype, rtol=1e-3, atol=1e-4)


FAMILIES = {
    int32_product: 1,
    int64_product: 1,
    int8_product: 1,
    int32_batch: 1,
    int32_vector: 1,
    odd_product: 1,
}
"""Each with how many workloads a run draws from it."""
