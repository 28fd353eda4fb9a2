"""Selection from NumPy's arrays: the elements that come first, without sorting all of them."""

from __future__ import annotations

import numpy as np

from graphfw.ir.literal import Array
from graphfw.ops.sorting.keys import argsort, is_half, lines_of, sort_rows

_GROUPS = 64
"""A row has so many groups at least."""

_CROWD = 4
"""The least ratio of elements to wanted ones: with fewer elements all are sorted."""

_SHALLOW = 4
"""Groups of fewer elements save less time than finding the best of each takes."""

_SPARSE = 16
"""Elements that are compared in the time that it takes to find one by its index."""

MANY = 1 << 15
"""Rows of fewer elements are sorted in less time than NumPy chooses from them."""

_SAMPLE = 1 << 12
"""Elements of the sample that says near which value an element of an index is."""

_MARGIN = 64
"""The distance in a sample, about, between an element and its index."""


def first(x: Array, k: int, axis: int, *, largest: bool) -> Array:
    """Return the indices of the k largest or smallest elements along an axis, in order, int64.

    Of equal ones those at the lowest indices are taken, in that order; NaN is the largest.
    """
    rows = np.moveaxis(x, axis, -1)
    lines = lines_of(rows)
    if is_half(lines):
        lines = lines.astype(np.float32)
    indices = _of_groups(lines, k, largest=largest) if k and lines.size else None
    if indices is None:
        indices = argsort(lines, 1, descending=largest)[:, :k]
    return np.moveaxis(indices.reshape(*rows.shape[:-1], k), -1, axis)


def _of_groups(lines: Array, k: int, *, largest: bool) -> Array | None:
    """Return the first k indices of each row, or None where all elements are to be sorted.

    Every row is cut into groups, and the best of each is found in one pass. The k-th best of these
    is a limit: k elements at least reach it, and none of the first k falls short.
    """
    size = lines.shape[1]
    depth = size // max(_GROUPS, 4 * k, int((size * k) ** 0.5))
    depth = depth if depth >= _SHALLOW else 1
    best = lines if depth == 1 else _best_of_groups(lines, depth, largest=largest)
    if best.shape[1] < _CROWD * k or (best.dtype.kind == "f" and np.isnan(best.max())):
        return None
    last = best.shape[1] - k if largest else k - 1
    limit = np.partition(best, last, axis=1)[:, last : last + 1]
    if k * depth * _SPARSE > size:
        found = np.flatnonzero(_reaches(lines, limit, largest=largest))
    else:
        found = _reaching(lines, best, limit, depth, largest=largest)
    if len(found) * _CROWD > lines.size:
        return None
    # Side by side, with the limit after those of each row, where it is not among the first k.
    begins = np.arange(0, lines.size, size)
    starts = np.searchsorted(found, begins)
    counts = np.diff(starts, append=len(found))
    values = np.repeat(limit, counts.max(), axis=1)
    values[np.arange(values.shape[1]) < counts[:, None]] = lines.reshape(-1).take(found)
    order = argsort(values, 1, descending=largest)[:, :k]
    indices: Array = found.take(order + starts[:, None]) - begins[:, None]
    return indices


def _best_of_groups(lines: Array, depth: int, *, largest: bool) -> Array:
    """Return the best of each group of `depth` elements, and the elements that are in no group.

    The elements of a group are as far apart as there are groups.
    """
    rows, size = lines.shape
    groups = size // depth
    whole = lines[:, : groups * depth].reshape(rows, depth, groups)
    best = (np.max if largest else np.min)(whole, axis=1)
    return np.concatenate([best, lines[:, groups * depth :]], axis=1)


def _reaching(lines: Array, best: Array, limit: Array, depth: int, *, largest: bool) -> Array:
    """Return the flat indices of elements that reach the limit of their row.

    Only groups are looked at again whose best one does, where there are few.
    """
    size = lines.shape[1]
    groups = size // depth
    row, group = np.divmod(np.flatnonzero(_reaches(best, limit, largest=largest)), best.shape[1])
    if len(row) * depth * _CROWD > lines.size:
        return np.flatnonzero(_reaches(lines, limit, largest=largest))
    is_whole = group < groups
    indices = group[:, None] + np.arange(0, groups * depth, groups)
    indices[~is_whole] = (group[~is_whole] + groups * (depth - 1))[:, None]
    indices += row[:, None] * size
    is_found = _reaches(lines.reshape(-1).take(indices), limit[row], largest=largest)
    is_found[~is_whole, 1:] = False
    found = indices[is_found]
    found.sort()
    return found


def _reaches(x: Array, limit: Array, *, largest: bool) -> Array:
    return x >= limit if largest else x <= limit


def partly_sorted(x: Array, indices: Array) -> Array:
    """Return rows whose elements at some indices are those that sorted rows have there.

    What stands at other indices is not said. x: [*B, N], indices: from 0 to N - 1 -> [*B, N]
    """
    lines = np.array(x, order="C")
    size = lines.shape[-1]
    wanted = np.unique(indices)
    wanted = wanted[(wanted >= 0) & (wanted < size)]
    if lines.size == 0 or not len(wanted):
        return lines
    if is_half(lines):
        return partly_sorted(lines.astype(np.float32), indices).astype(x.dtype)
    if size < MANY or len(wanted) * 16 > size:
        sort_rows(lines)
        return lines
    last = lines.max(axis=-1)  # NaN, where there is one
    if lines.dtype.kind == "f" and np.isnan(last).any():
        sort_rows(lines)
        return lines
    for line, found in zip(lines_of(x), lines_of(lines), strict=True):
        for index in wanted[wanted < size - 1].tolist():
            found[index] = _selected(line, index)
    lines[..., -1] = last
    return lines


def _selected(line: Array, index: int) -> Array:
    """Return the element that stands at an index when a line without NaN is sorted.

    A sample says between which values it lies. Where less than half of the elements do, these are
    all that is sorted, and otherwise NumPy chooses among all.
    """
    step = max(len(line) // _SAMPLE, 1)
    sample = np.sort(line[::step])
    near = index // step
    low = sample[max(near - _MARGIN, 0)] if near >= _MARGIN else None
    high = sample[near + _MARGIN] if near + _MARGIN < len(sample) else None
    below = 0
    inside = np.ones(len(line), bool)
    if low is not None:
        inside = line >= low
        below = len(line) - int(np.count_nonzero(inside))
    if high is not None:
        inside &= line <= high
    count = int(np.count_nonzero(inside))
    if below <= index < below + count and 2 * count < len(line):
        line, index = line[inside], index - below
    chosen: Array = np.partition(line, index)[index]
    return chosen
