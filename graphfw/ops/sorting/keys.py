"""Stable orders of NumPy's arrays by sorting integers, each with its index in its low bits.

NumPy sorts integers of 32 and 64 bits in vector registers, but not stably; its stable sorts compare
one by one, and take several times as long. So numbers become unsigned integers in the same order,
and these are sorted together with their indices: no two are equal, so stability has no meaning.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from graphfw.ir.literal import Array
from graphfw.utils.side_by_side import both, threads_here

_FEW = 1024
"""The most elements that are sorted as quickly by comparing them."""

COUNTED = 16
"""Keys of so many bits NumPy sorts stably by counting, in a few nanoseconds an element."""

LONG = 512
"""Rows of up to so many elements are sorted faster than counted."""

_BLOCK = 1 << 14
"""Elements whose keys are made at once: new memory takes longer than the work in a cache."""

_RANGE = 1 << 17
"""Elements that a thread sorts at least: some ms."""

_ROUNDS = 8


class Keys(NamedTuple):
    """A mapping of elements to unsigned integers that have the same order.

    Attributes:
        bits: Of a key.
        edge: Of integers: the element whose key is 0; None for floats.
        descending: Whether the largest elements have the least keys.
    """

    bits: int
    edge: int | None
    descending: bool

    def __call__(self, x: Array) -> Array:
        """Return the keys of an array, of its item size: equal ones of equal elements."""
        if self.edge is None:
            keys = keys_of_floats(x)
            return np.invert(keys, out=keys) if self.descending else keys
        kind = np.dtype(f"u{x.dtype.itemsize}")
        edge = kind.type(self.edge % (1 << 8 * kind.itemsize))
        whole = np.ascontiguousarray(x).view(kind)
        found: Array = edge - whole if self.descending else whole - edge
        return found


def argsort(x: Array, axis: int, *, descending: bool = False) -> Array:
    """Return the indices of elements in order along an axis, int64; equal ones stay in order.

    NaN is larger than any number, and -0.0 equal to 0.0.
    """
    rows = np.moveaxis(x, axis, -1)
    if rows.size < _FEW:
        indices = _compared(rows, descending=descending)
    else:
        lines = lines_of(rows)
        keys = keys_for(lines, descending=descending)
        indices = _sorted_indices(lines, keys).reshape(rows.shape)
    return np.moveaxis(indices.astype(np.int64, copy=False), -1, axis)


def lines_of(rows: Array) -> Array:
    """Return rows as one matrix, which may be a view.  [*B, N] -> [M, N]"""
    return np.ascontiguousarray(rows).reshape(math.prod(rows.shape[:-1]), rows.shape[-1])


def keys_for(x: Array, *, descending: bool = False) -> Keys:
    """Return the keys of the elements of an array, of as few bits as tell integers apart."""
    if x.dtype.kind not in "iu":
        return Keys(8 * x.dtype.itemsize, None, descending)
    low, high = int(x.min()), int(x.max())
    return Keys((high - low).bit_length(), high if descending else low, descending)


def keys_of_floats(x: Array) -> Array:
    """Return unsigned integers that have the order of floats.

    Those of -0.0 and 0.0 are equal, and so are those of all NaN, which are the largest.
    """
    kind = np.dtype(f"u{x.dtype.itemsize}")
    last = 8 * kind.itemsize - 1
    sign = kind.type(1 << last)
    nan: Array | None
    if is_half(x):  # NumPy computes with integers in vector registers, but not with these
        bits = np.array(x, order="C").view(kind)
        size = bits & np.invert(sign)
        nan = size > np.array(np.inf).astype(x.dtype).view(kind)
        bits *= size != 0  # -0.0
    else:
        numbers = np.add(x, x.dtype.type(0), order="C")  # of -0.0 it makes 0.0
        bits = numbers.view(kind)
        nan = np.isnan(x) if numbers.size and np.isnan(numbers.max()) else None
    # Of negative numbers all bits are flipped, of others the sign.
    flipped = (bits.view(f"i{kind.itemsize}") >> last).view(kind)
    flipped |= sign
    bits ^= flipped
    if nan is not None:
        np.putmask(bits, nan, np.iinfo(kind).max)
    return bits


def floats_of_keys(keys: Array, dtype: np.dtype[Any]) -> Array:
    """Return the floats that have some keys: see `keys_of_floats`; writes to these."""
    kind = keys.dtype
    last = 8 * kind.itemsize - 1
    flipped = np.invert(keys.view(f"i{kind.itemsize}") >> last).view(kind)
    flipped |= kind.type(1 << last)
    keys ^= flipped
    return keys.view(dtype)


def _sorted_indices(lines: Array, keys: Keys) -> Array:
    """Return the indices of elements in order, row by row.  lines: [M, N] -> [M, N]"""
    size = lines.shape[1]
    if keys.bits <= COUNTED and size > LONG:
        counted = np.empty(lines.shape, np.uint16)
        for block in _blocks(lines):
            counted[block] = keys(lines[block])
        return np.argsort(counted, axis=-1, kind="stable")
    own = (size - 1).bit_length()
    lost = max(keys.bits + own - 64, 0)
    packed = _packed(lines, keys, own, lost)
    sort_rows(packed)
    # The lowest bits seldom matter: where they do, those above are equal in neighbours.
    is_right = not lost or not _has_equal(packed, own)
    indices = _indices(packed, own)
    if is_right or _put_right(lines, indices, descending=keys.descending):
        return indices
    whole = keys(lines)
    numbers = np.arange(size, dtype=np.uint64)
    low = (whole & np.uint64((1 << lost) - 1)) << np.uint64(own) | numbers
    sort_rows(low)
    first = _indices(low, own)
    high = _taken(whole, first) >> np.uint64(lost) << np.uint64(own) | numbers
    sort_rows(high)
    return _taken(first, _indices(high, own))


def _packed(lines: Array, keys: Keys, own: int, lost: int) -> Array:
    """Return the keys without their `lost` lowest bits, above indices of `own` bits."""
    size = lines.shape[1]
    kind = np.dtype(np.uint32 if keys.bits + own <= 32 else np.uint64)
    packed = np.empty(lines.shape, kind)
    numbers = np.arange(min(size, _BLOCK), dtype=kind)
    for block in _blocks(lines):
        packed_keys, into = keys(lines[block]), packed[block]
        begin = block[1].start
        indices = numbers[: into.shape[1]] + kind.type(begin) if begin else numbers
        if lost and lost == own:
            packed_keys &= kind.type(-1 << own & 2**64 - 1)
            np.bitwise_or(packed_keys, indices, out=into)
            continue
        into[...] = packed_keys
        if lost:
            into >>= kind.type(lost)
        into <<= kind.type(own)
        into |= indices
    return packed


def _has_equal(packed: Array, own: int) -> bool:
    """Return whether neighbours of sorted rows differ in their indices alone."""
    for rows, columns in _blocks(packed):
        window = packed[rows, columns.start : columns.stop + 1]
        differences = window[:, 1:] ^ window[:, :-1]
        if differences.size and int(differences.min()) >> own == 0:
            return True
    return False


def _blocks(lines: Array) -> Iterator[tuple[slice, slice]]:
    """Yield windows of few elements that together are all of [M, N]."""
    rows, size = lines.shape
    high = max(_BLOCK // size, 1)
    for row in range(0, rows, high):
        for column in range(0, size, _BLOCK):
            yield slice(row, row + high), slice(column, column + _BLOCK)


def _indices(packed: Array, own: int) -> Array:
    """Return the indices below keys; writes to them."""
    packed &= packed.dtype.type((1 << own) - 1)
    indices: Array = packed.view(np.int64) if packed.itemsize == 8 else packed.astype(np.int64)
    return indices


def _put_right(lines: Array, indices: Array, *, descending: bool) -> bool:
    """Exchange neighbours that are in the wrong order; return whether all are right then."""
    for _ in range(_ROUNDS):
        rows, columns = _wrong(lines, indices, descending=descending)
        if not len(rows):
            return True
        # Of those in a row every second one waits.
        follows = np.zeros(len(rows), bool)
        follows[1:] = (rows[1:] == rows[:-1]) & (columns[1:] == columns[:-1] + 1)
        rows, columns = rows[~follows], columns[~follows]
        first, second = indices[rows, columns], indices[rows, columns + 1]
        indices[rows, columns], indices[rows, columns + 1] = second, first
    return False


def _wrong(lines: Array, indices: Array, *, descending: bool) -> tuple[Array, Array]:
    """Return where an element stands in the wrong order with the next: rows and columns."""
    found = []
    for rows, columns in _blocks(lines):
        window = indices[rows, columns.start : columns.stop + 1]
        values = _taken(lines[rows], window)
        before, after = values[:, :-1], values[:, 1:]
        at = np.nonzero(before < after if descending else before > after)
        found.append((at[0] + rows.start, at[1] + columns.start))
    return np.concatenate([x for x, _ in found]), np.concatenate([x for _, x in found])


def _taken(lines: Array, indices: Array) -> Array:
    """Return the elements at indices of each row: `take_along_axis`, in half its time."""
    if len(lines) > 1:
        indices = indices + np.arange(0, lines.size, lines.shape[1])[:, None]
    return lines.reshape(-1).take(indices)


def _compared(rows: Array, *, descending: bool) -> Array:
    """Return the indices of elements in order, row by row, by comparing them.

    Descending is not ascending read backwards, which would turn equal elements around: it is the
    backwards input sorted, read backwards.
    """
    values: Any = rows.astype(np.float32) if is_half(rows) else rows
    if not descending:
        return np.argsort(values, axis=-1, kind="stable")
    backwards = np.argsort(np.flip(values, -1), axis=-1, kind="stable")
    indices: Array = rows.shape[-1] - 1 - np.flip(backwards, -1)
    return indices


def is_half(x: Array) -> bool:
    """Return whether elements are 16-bit floats: NumPy's order of bfloat16 does not know NaN."""
    return x.dtype.itemsize == 2 and x.dtype.kind not in "iu"


def sort_rows(lines: Array) -> None:
    """Sort rows in place: a long one in ranges that are sorted side by side."""
    if lines.size == lines.shape[-1]:
        _sort_line(lines.reshape(-1))
    else:
        lines.sort(axis=-1)


def _sort_line(line: Array) -> None:
    """Sort the elements of one row in place, on as many threads as there are."""
    if threads_here() == 1 or len(line) < 2 * _RANGE:
        line.sort()
        return
    middle = len(line) // 2
    line.partition(middle)
    both(lambda: _sort_line(line[:middle]), lambda: _sort_line(line[middle:]))
