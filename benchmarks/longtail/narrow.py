"""Narrow inner dims: millions of rows of three, four or five numbers."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from benchmarks.frameworks import Arrays, Formula
from benchmarks.longtail.draw import Draw
from benchmarks.longtail.formulas import contest, each, largest, name_of, normal, softmax
from benchmarks.workload import Contest


def _shape(draw: Draw, low: int = 2, high: int = 12) -> tuple[int, int]:
    """Return many rows of few numbers."""
    width = draw.size(low, high, least=low)
    return max(1, draw.size(300_000, 8_000_000) // width), width


def _contest(what: str, shape: tuple[int, int], function: Any, **fixed: Any) -> Contest:
    formula = Formula(functools.partial(normal, shape), **each(function, **fixed))
    title = f"{what}, {shape[0]:,}×{shape[1]}"
    return contest(title, formula, compiled=True, rtol=1e-3, atol=1e-4)


def _sum(xp: Any, x: Any, *, axis: int) -> Any:
    return xp.sum(x, axis=axis)


def column_sums(draw: Draw) -> Contest:
    return _contest("sums of columns", _shape(draw), _sum, axis=0)


def row_sums(draw: Draw) -> Contest:
    return _contest("sums of rows", _shape(draw), _sum, axis=1)


def _variances(xp: Any, x: Any) -> Any:
    if name_of(xp) in ("graphfw", "torch"):
        return xp.var(x, axis=1, correction=0)
    return xp.var(x, axis=1)


def row_variances(draw: Draw) -> Contest:
    return _contest("variances of rows", _shape(draw, 3), _variances)


def _extent(xp: Any, x: Any) -> Any:
    return [largest(xp, x, 0), -largest(xp, -x, 0)]


def extent(draw: Draw) -> Contest:
    return _contest("the largest and least of columns", _shape(draw), _extent)


def softmax_rows(draw: Draw) -> Contest:
    return _contest("softmax of rows", _shape(draw), softmax)


def _chosen(xp: Any, x: Any) -> Any:
    return xp.argmax(x, axis=1)


def argmax_rows(draw: Draw) -> Contest:
    return _contest("the place of each row's largest", _shape(draw), _chosen)


def _unit(xp: Any, x: Any) -> Any:
    return x / xp.sqrt(xp.sum(x * x, axis=1)[:, None] + 1e-12)


def unit_rows(draw: Draw) -> Contest:
    return _contest("rows of length 1", _shape(draw), _unit)


# Points turned and moved.  x: [n, 3], turn: [3, 3], move: [3]


def _points(n: int) -> Arrays:
    (x, turn, move) = normal((n, 3), (3, 3), (3,))
    return [x, np.linalg.qr(turn)[0], move]


def _moved(xp: Any, x: Any, turn: Any, move: Any) -> Any:
    return x @ turn + move


def move_points(draw: Draw) -> Contest:
    n = draw.size(100_000, 3_000_000)
    formula = Formula(functools.partial(_points, n), **each(_moved))
    title = f"{n:,} points in 3 dims turned and moved"
    return contest(title, formula, compiled=True, rtol=1e-3, atol=1e-4)


def _crossed(xp: Any, x: Any, y: Any) -> Any:
    if name_of(xp) in ("graphfw", "torch"):
        return xp.linalg.cross(x, y)
    return xp.cross(x, y)


def cross_products(draw: Draw) -> Contest:
    n = draw.size(100_000, 2_000_000)
    formula = Formula(functools.partial(normal, (n, 3), (n, 3)), **each(_crossed))
    return contest(f"cross products of {n:,} pairs", formula, compiled=True)


FAMILIES = {
    column_sums: 2,
    row_sums: 1,
    row_variances: 1,
    extent: 1,
    softmax_rows: 1,
    argmax_rows: 1,
    unit_rows: 1,
    move_points: 1,
    cross_products: 1,
}
"""Each with how many workloads a run draws from it."""
