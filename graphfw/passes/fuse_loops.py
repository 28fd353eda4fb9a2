"""The loops of a fused group: its rows, and whether they serve all its reductions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from graphfw.ir.dim import DimLike
from graphfw.ir.shape import size_of

Axes: TypeAlias = frozenset[int]

_ONE_ROW = 4096
"""A group that is one row runs on one thread: no more elements than these."""

_COLUMNS = 256
"""From so many sums over the rows on they are made column by column, else in chunks of all rows."""

_HOIST = 8
"""Shorter rows are not worth a loop of their own for what is computed once a row."""


class GroupReduction(NamedTuple):
    """A reduction inside a group, from some of the group's axes to fewer."""

    source: Axes
    result: Axes
    is_index: bool  # argmax, argmin: can't be joined from partial results


class Loops(NamedTuple):
    """The loops of a group.

    Attributes:
        rows: The axes that tell rows apart; None where there are no rows, only elements.
        form: "columns" where what runs along a vector is the last axis of the rows.
    """

    rows: Axes | None
    form: Literal["rows", "columns"]


def loops_of(
    order: Sequence[int],
    sizes: Sequence[DimLike],
    rows: Axes | None,
    reductions: Sequence[GroupReduction],
) -> Loops | str:
    """Choose the loops, or say why there are none that fit.

    Args:
        order: The axes, the slowest in memory first.
        sizes: Of all axes, by their numbers.
        rows: What the axes of a row value are, where the group has some.
        reductions: What is reduced.
    """
    whole = frozenset(order)
    if rows is None:
        if not reductions:
            return Loops(None, "rows")
        rows = _chosen(order, whole, sizes, reductions)
    if rows is None:
        return Loops(None, "rows")
    last = order[-1]
    form: Literal["rows", "columns"] = "columns" if last in rows else "rows"
    inside = [r for r in reductions if r.source == whole and r.result == rows]
    if form == "columns" and not inside:
        return "it is broadcast along other rows"
    if not inside and rows != frozenset(order[: len(rows)]):
        return "it is broadcast along other rows"
    if not inside and not reductions:
        inner = size_of([sizes[a] for a in order if a not in rows])
        if isinstance(inner, int) and inner < _HOIST:
            return "its rows are short"
    for one in reductions:
        if one.source == whole and one.result == rows:
            continue
        is_across = one.result == whole - rows and one.source == whole
        if one.is_index or form == "columns" or not (is_across or not one.result):
            return "it is a reduction over other axes"
    if not rows:
        size = size_of([sizes[a] for a in order])
        # Positions can't be joined from partial results: argmax over everything is one row.
        forced = all(r.is_index for r in inside) and inside
        if not forced and not (isinstance(size, int) and size <= _ONE_ROW):
            return "it needs all rows"
    return Loops(rows, form)


def _chosen(
    order: Sequence[int],
    whole: Axes,
    sizes: Sequence[DimLike],
    reductions: Sequence[GroupReduction],
) -> Axes | None:
    """Choose the rows where the results of all reductions leave the group."""
    last = order[-1]
    for one in reductions:
        if one.is_index:
            return one.result
    for one in reductions:
        if one.result and last not in one.result:
            return one.result
    kept = [one.result for one in reductions if one.result]
    if not kept:
        return None
    columns = kept[0]
    gone = whole - columns
    is_front = gone == frozenset(order[: len(gone)])
    are_results = all(one.result for one in reductions)
    return columns if (is_wide(columns, sizes) and are_results) or not is_front else gone


def is_wide(columns: Axes, sizes: Sequence[DimLike]) -> bool:
    """Return whether there are surely enough columns for all threads."""
    width = size_of([sizes[axis] for axis in columns])
    return isinstance(width, int) and width >= _COLUMNS
