"""Sorting and searching: whole arrays, rows and columns of several dtypes."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from benchmarks.frameworks import Array, Arrays, Formula, by_path
from benchmarks.longtail.draw import Draw
from benchmarks.longtail.formulas import contest, each, normal
from benchmarks.workload import Contest

_SORTED = ("float32", "float32", "float64", "int32", "int64")
"""The dtypes that are drawn from; what is there twice is drawn twice as often."""


def _distinct(shape: tuple[int, ...], dtype: str) -> Arrays:
    """Return rows of numbers of which none is there twice, so that all find the same order."""
    rng = np.random.default_rng(0)
    rows = np.broadcast_to(np.arange(shape[-1]), shape)
    return [rng.permuted(rows, axis=-1).astype(dtype)]


def _torch_sort(x: Any, *, axis: int) -> Any:
    return x.sort(axis).values


def _sort(what: str, shape: tuple[int, ...], axis: int, dtype: str) -> Contest:
    formula = Formula(
        functools.partial(normal, shape, dtype=dtype),
        by_path("graphfw:sort", axis=axis),
        by_path("numpy:sort", axis=axis),
        functools.partial(_torch_sort, axis=axis),
        by_path("jax.numpy:sort", axis=axis),
    )
    return contest(f"{what}, {_text(shape)} {dtype}", formula, dtype=dtype)


def _text(shape: tuple[int, ...]) -> str:
    return " × ".join(f"{size:,}" for size in shape)


def sort_whole(draw: Draw) -> Contest:
    shape = (draw.size(100_000, 10_000_000),)
    return _sort("numbers in order", shape, -1, draw.choice(*_SORTED))


def sort_rows(draw: Draw) -> Contest:
    shape = (draw.size(256, 8192), draw.size(64, 2048))
    return _sort("each row in order", shape, -1, draw.choice(*_SORTED))


def sort_columns(draw: Draw) -> Contest:
    shape = (draw.size(64, 2048), draw.size(256, 4096))
    return _sort("each column in order", shape, 0, draw.choice(*_SORTED))


def _argsort(what: str, shape: tuple[int, ...], dtype: str) -> Contest:
    formula = Formula(
        functools.partial(_distinct, shape, dtype),
        by_path("graphfw:argsort"),
        by_path("numpy:argsort"),
        by_path("torch:argsort"),
        by_path("jax.numpy:argsort"),
    )
    return contest(f"{what}, {_text(shape)} {dtype}", formula, dtype=dtype)


def argsort_whole(draw: Draw) -> Contest:
    return _argsort("the order of numbers", (draw.size(100_000, 4_000_000),), draw.choice(*_SORTED))


def argsort_rows(draw: Draw) -> Contest:
    shape = (draw.size(256, 4096), draw.size(64, 2048))
    return _argsort("the order of each row", shape, draw.choice(*_SORTED))


# Rows of a table in the order of its first column.  x: [n, d]


def _table(shape: tuple[int, int]) -> Arrays:
    (table,) = normal(shape)
    table[:, 0] = np.random.default_rng(1).permutation(len(table))
    return [table]


def _by_column(xp: Any, x: Any) -> Any:
    return x[xp.argsort(x[:, 0])]


def order_by_column(draw: Draw) -> Contest:
    shape = (draw.size(20_000, 1_000_000), draw.size(3, 16))
    formula = Formula(functools.partial(_table, shape), **each(_by_column))
    return contest(f"rows in the order of a column, {_text(shape)}", formula)


# Distinct numbers


def _repeated(n: int, distinct: int, dtype: str) -> Arrays:
    """Return n numbers from 0 on, each of the distinct ones at least once."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, distinct, n)
    drawn[:distinct] = np.arange(distinct)
    return [rng.permutation(drawn).astype(dtype)]


def unique(draw: Draw) -> Contest:
    n = draw.size(100_000, 10_000_000)
    distinct, dtype = min(n, draw.size(100, 100_000)), draw.choice("int64", "int32", "float32")
    formula = Formula(
        functools.partial(_repeated, n, distinct, dtype),
        by_path("graphfw:unique_values"),
        by_path("numpy:unique"),
        by_path("torch:unique"),
        by_path("jax.numpy:unique", size=distinct),
    )
    return contest(f"the {distinct:,} distinct of {n:,} {dtype}", formula, dtype=dtype)


# Medians and quantiles


def _torch_medians(x: Any) -> Any:
    return x.median(dim=1).values


def median_whole(draw: Draw) -> Contest:
    n = draw.size(100_000, 10_000_000) | 1  # of an even number PyTorch takes the lower one
    formula = Formula(
        functools.partial(normal, (n,)),
        by_path("graphfw:median"),
        by_path("numpy:median"),
        by_path("torch:median"),
        by_path("jax.numpy:median"),
    )
    return contest(f"the median of {n:,}", formula)


def median_rows(draw: Draw) -> Contest:
    shape = (draw.size(256, 8192), draw.size(64, 2048) | 1)
    formula = Formula(
        functools.partial(normal, shape),
        by_path("graphfw:median", axis=1),
        by_path("numpy:median", axis=1),
        _torch_medians,
        by_path("jax.numpy:median", axis=1),
    )
    return contest(f"the median of each row, {_text(shape)}", formula)


def _quantiles(xp: Any, x: Any, *, q: float) -> Any:
    return xp.quantile(x, q, axis=1)


def quantile_rows(draw: Draw) -> Contest:
    shape, q = (draw.size(16, 2048), draw.size(256, 4096)), draw.choice(0.01, 0.25, 0.9, 0.99)
    formula = Formula(functools.partial(normal, shape), **each(_quantiles, q=q))
    return contest(f"the quantile {q} of each row, {_text(shape)}", formula)


# Searching


def _searched(known: int, wanted: int, dtype: str) -> Arrays:
    (table,), (values,) = normal((known,), dtype=dtype), normal((wanted,), dtype=dtype, seed=1)
    return [np.sort(table), values]


def searchsorted(draw: Draw) -> Contest:
    known, wanted = draw.size(1000, 2_000_000), draw.size(100_000, 2_000_000)
    dtype = draw.choice("float32", "float64", "int32")
    formula = Formula(
        functools.partial(_searched, known, wanted, dtype),
        by_path("graphfw:searchsorted"),
        by_path("numpy:searchsorted"),
        by_path("torch:searchsorted"),
        by_path("jax.numpy:searchsorted"),
    )
    return contest(f"where {wanted:,} {dtype} belong among {known:,}", formula, dtype=dtype)


# The largest


def _topk_numpy(x: Array, *, k: int) -> Any:
    indices = np.argpartition(x, -k, axis=-1)[..., -k:]
    values = np.take_along_axis(x, indices, axis=-1)
    order = np.argsort(-values, axis=-1)
    return np.take_along_axis(values, order, axis=-1), np.take_along_axis(indices, order, axis=-1)


def _topk(what: str, shape: tuple[int, ...], k: int, dtype: str) -> Contest:
    formula = Formula(
        functools.partial(_distinct, shape, dtype),
        by_path("graphfw:topk", k),
        functools.partial(_topk_numpy, k=k),
        by_path("torch:topk", k),
        by_path("jax.lax:top_k", k),
    )
    return contest(f"the {k} largest {what}, {_text(shape)} {dtype}", formula, dtype=dtype)


def topk_whole(draw: Draw) -> Contest:
    n = draw.size(100_000, 10_000_000)
    return _topk("numbers", (n,), min(n, draw.size(5, 1000)), draw.choice("float32", "int32"))


def topk_rows(draw: Draw) -> Contest:
    shape = (draw.size(64, 4096), draw.size(256, 8192))
    return _topk("of each row", shape, min(shape[1], draw.size(1, 64)), "float32")


FAMILIES = {
    sort_whole: 2,
    sort_rows: 1,
    sort_columns: 1,
    argsort_whole: 1,
    argsort_rows: 1,
    order_by_column: 1,
    unique: 1,
    median_whole: 1,
    median_rows: 1,
    quantile_rows: 1,
    searchsorted: 1,
    topk_whole: 1,
    topk_rows: 1,
}
"""Each with how many workloads a run draws from it."""
