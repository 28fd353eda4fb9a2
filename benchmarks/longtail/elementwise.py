"""Elementwise work of odd forms: masks, running sums, powers, lookups, halves."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from benchmarks.frameworks import Array, Arrays, Formula
from benchmarks.longtail.draw import Draw
from benchmarks.longtail.formulas import cast, contest, each, name_of, normal
from benchmarks.workload import Contest


def _vectors(n: int, count: int) -> Arrays:
    return normal(*[(n,)] * count)


def _contest(draw: Draw, what: str, function: Any, count: int = 1, **fixed: Any) -> Contest:
    n = draw.size(100_000, 10_000_000)
    formula = Formula(functools.partial(_vectors, n, count), **each(function, **fixed))
    return contest(f"{what}, {n:,}", formula, compiled=True, rtol=1e-3, atol=1e-4)


def _cases(xp: Any, x: Any, y: Any) -> Any:
    middle = xp.where(xp.abs(x) < 0.5, x * y, x - y)
    return xp.where(x > 1.5, 2.0 * x - 1.5, xp.where(y < -1.0, -y, middle))


def where_chain(draw: Draw) -> Contest:
    return _contest(draw, "cases by three conditions", _cases, 2)


def _kept(xp: Any, x: Any, y: Any) -> Any:
    return xp.sum(xp.where((x > 0) & (y > 0), x * y, xp.zeros_like(x)))


def masked_sum(draw: Draw) -> Contest:
    return _contest(draw, "the sum of products where both are above 0", _kept, 2)


# JAX's compiled functions cannot have results of sizes that depend on numbers.


def _selected(xp: Any, x: Any, y: Any) -> Any:
    return x[y > 0.3]


def select(draw: Draw) -> Contest:
    n = draw.size(100_000, 10_000_000)
    functions = each(_selected, ("graphfw", "numpy", "torch"))
    formula = Formula(functools.partial(_vectors, n, 2), **functions)
    return contest(f"numbers where others are above 0.3, of {n:,}", formula)


def _powers(xp: Any, x: Any, y: Any, *, exponent: float) -> Any:
    return xp.abs(x) ** exponent + xp.exp(-xp.abs(y)) ** x


def powers(draw: Draw) -> Contest:
    exponent = draw.choice(2.5, -0.5, 3.0, 0.75)
    return _contest(draw, f"abs(x)^{exponent} + exp(-abs(y))^x", _powers, 2, exponent=exponent)


def _differences(xp: Any, x: Any) -> Any:
    return (x - xp.roll(x, 1)) * 0.5 + (xp.roll(x, -1) - x)


def shifted_differences(draw: Draw) -> Contest:
    return _contest(draw, "differences of neighbours", _differences)


def _found(xp: Any, x: Any) -> Any:
    return [xp.any(x > 5.5), xp.all(x < 7.0), xp.sum(cast(x > 0, "int32"))]


def any_all(draw: Draw) -> Contest:
    return _contest(draw, "any, all and how many", _found)


# Running sums


def _running(xp: Any, x: Any, *, axis: int) -> Any:
    if name_of(xp) == "graphfw":
        return xp.cumulative_sum(x, axis=axis)
    return xp.cumsum(x, axis)


def running_sums(draw: Draw) -> Contest:
    axis, wide = draw.choice(0, 1), draw.choice(True, False)
    shape = (draw.size(64, 4096), draw.size(64, 4096)) if wide else (draw.size(50_000, 4_000_000),)
    axis = axis if wide else 0
    formula = Formula(functools.partial(normal, shape), **each(_running, axis=axis))
    title = f"running sums of {'×'.join(map(str, shape))} along axis {axis}"
    return contest(title, formula, rtol=1e-3, atol=1e-4)


# One-hot rows, with smoothed labels.  labels: [n]


def _labels(n: int, classes: int) -> Arrays:
    return [np.random.default_rng(0).integers(0, classes, n)]


def _hot(xp: Any, labels: Any, *, classes: int) -> Any:
    name = name_of(xp)
    if name == "numpy":
        rows = np.eye(classes, dtype=np.float32)[labels]
    elif name == "torch":
        rows = xp.nn.functional.one_hot(labels, classes).float()
    elif name == "jax":
        import jax

        rows = jax.nn.one_hot(labels, classes)
    else:
        rows = xp.one_hot(labels, classes, dtype=xp.float32)
    return rows * 0.9 + 0.1 / classes


def one_hot(draw: Draw) -> Contest:
    n, classes = draw.size(1000, 50_000), draw.size(10, 1000)
    classes = max(2, min(classes, 20_000_000 // n))
    formula = Formula(functools.partial(_labels, n, classes), **each(_hot, classes=classes))
    return contest(f"{n:,} labels of {classes} as smoothed one-hot rows", formula, compiled=True)


# A chain of lookups.  table: [m], places: [n], x: [n]


def _lookups(n: int, m: int) -> Arrays:
    rng = np.random.default_rng(0)
    table, x = normal((m,), (n,))
    return [table, rng.integers(0, m, n).astype(np.int32), x]


def _gathered(xp: Any, table: Any, indices: Any, x: Any) -> Any:
    y = table[indices] * x
    again = cast(xp.abs(y) * 10, "int32") % table.shape[0]
    return table[again] + y


def gather_chain(draw: Draw) -> Contest:
    n, m = draw.size(100_000, 4_000_000), draw.size(100, 1_000_000)
    formula = Formula(functools.partial(_lookups, n, m), **each(_gathered))
    return contest(f"two lookups of {n:,} among {m:,} in a chain", formula, compiled=True)


# Sums of what is never stored.  x: [n], y: [m]


def _outer_sums(xp: Any, x: Any, y: Any) -> Any:
    return xp.sum(xp.tanh(x[:, None] + y[None, :]), axis=0)


def outer_sums(draw: Draw) -> Contest:
    n, m = draw.size(200, 4000), draw.size(200, 4000)
    formula = Formula(functools.partial(normal, (n,), (m,)), **each(_outer_sums))
    title = f"column sums of tanh(x + y), {n}×{m}"
    return contest(title, formula, compiled=True, rtol=1e-3, atol=1e-4)


def _log_sums(xp: Any, x: Any, *, axis: int) -> Any:
    name = name_of(xp)
    if name == "jax":
        import jax

        return jax.nn.logsumexp(x, axis=axis)
    if name == "numpy":
        highest = x.max(axis=axis, keepdims=True)
        return np.log(np.exp(x - highest).sum(axis=axis)) + highest.squeeze(axis)
    return xp.logsumexp(x, axis=axis)


def log_sum_exp(draw: Draw) -> Contest:
    shape, axis = (draw.size(64, 4096), draw.size(64, 4096)), draw.choice(0, 1)
    formula = Formula(functools.partial(normal, shape), **each(_log_sums, axis=axis))
    title = f"logsumexp of {shape[0]}×{shape[1]} along axis {axis}"
    return contest(title, formula, compiled=True, rtol=1e-3, atol=1e-4)


# Many small arrays joined, and cut again.  Each: [rows, some columns]


def _joined_inputs(rows: int, widths: tuple[int, ...]) -> Arrays:
    return normal(*[(rows, width) for width in widths])


def _joined(xp: Any, *arrays: Any) -> Any:
    if name_of(xp) == "numpy":
        return np.concatenate(arrays, axis=1) * 2.0
    return xp.concat(arrays, axis=1) * 2.0


def concatenate(draw: Draw) -> Contest:
    rows = draw.size(100, 20_000)
    widths = tuple(draw.size(3, 100) for _ in range(draw.choice(3, 7, 12)))
    formula = Formula(functools.partial(_joined_inputs, rows, widths), **each(_joined))
    title = f"{len(widths)} arrays of {rows:,} rows joined, {sum(widths)} columns"
    return contest(title, formula, compiled=True)


# Missing numbers.  x: [r, c], a tenth of it NaN


def _with_gaps(shape: tuple[int, int]) -> Arrays:
    (x,) = normal(shape)
    x[np.random.default_rng(1).random(shape) < 0.1] = np.nan
    return [x]


def _without_gaps(xp: Any, x: Any) -> Any:
    return xp.nanmean(x, axis=1)


def nan_mean(draw: Draw) -> Contest:
    shape = (draw.size(64, 4096), draw.size(64, 4096))
    formula = Formula(functools.partial(_with_gaps, shape), **each(_without_gaps))
    title = f"means of rows without NaN, {shape[0]}×{shape[1]}"
    return contest(title, formula, compiled=True, rtol=1e-3, atol=1e-4)


# 16 bits


def _half_chain(xp: Any, x: Any, y: Any) -> Any:
    return x * xp.tanh(y) + xp.exp(-x * x)


def _halves(n: int) -> list[Array]:
    return normal((n,), (n,), dtype="float16")


def half_chain(draw: Draw) -> Contest:
    n = draw.size(100_000, 10_000_000)
    formula = Formula(functools.partial(_halves, n), **each(_half_chain))
    title = f"x tanh(y) + exp(-x²) of {n:,} float16"
    return contest(title, formula, compiled=True, rtol=1e-2, atol=1e-2)


FAMILIES = {
    where_chain: 1,
    masked_sum: 1,
    select: 1,
    powers: 1,
    shifted_differences: 1,
    any_all: 1,
    running_sums: 1,
    one_hot: 1,
    gather_chain: 1,
    outer_sums: 1,
    log_sum_exp: 1,
    concatenate: 1,
    nan_mean: 1,
    half_chain: 1,
}
"""Each with how many workloads a run draws from it."""
