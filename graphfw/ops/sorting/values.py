"""The elements of NumPy's arrays in order, as quickly as they can be.

Of elements alone the order of equal ones does not show, but for that of zeros of two signs. So the
sort need not be stable: zeros are written where zeros stand, in the order that they had.
"""

from __future__ import annotations

import numpy as np

from graphfw.ir.literal import Array
from graphfw.ops.sorting.keys import (
    COUNTED,
    LONG,
    floats_of_keys,
    is_half,
    keys_for,
    keys_of_floats,
    sort_rows,
)


def sort(x: Array, axis: int, *, descending: bool = False, stable: bool = True) -> Array:
    """Return the elements in order along an axis; NaN is the largest.

    Args:
        x: What to sort.
        axis: Along which dim.
        descending: Whether to begin with the largest.
        stable: Whether zeros of two signs keep their order.
    """
    result = np.array(x, order="C")
    has_two_zeros = stable and has_negative_zeros(result)
    if result.dtype.kind == "f" and result.dtype.itemsize > 2 and not has_two_zeros:
        if result.size == result.shape[axis]:
            _sort_whole(result.reshape(-1))
        else:
            result.sort(axis=axis)
        return np.flip(result, axis) if descending else result
    lines = np.ascontiguousarray(np.moveaxis(result, axis, -1))
    zeros = _zeros(lines) if has_two_zeros else None
    found = _ordered(lines)
    if descending:
        found = np.flip(found, -1)
    if zeros is not None:
        bits = found.view(zeros.dtype)
        bits[_is_zero(bits)] = zeros
    return np.moveaxis(found, -1, axis)


def _sort_whole(line: Array) -> None:
    """Sort floats in place."""
    sort_rows(line)
    if len(line) and np.isnan(line[-1]):
        # On several threads another NaN may come first.
        np.putmask(line, np.isnan(line), np.nan)


def has_negative_zeros(x: Array) -> bool:
    """Return whether there is a -0.0: as an integer it is the least of all numbers' bits."""
    if x.dtype.kind in "iub" or x.size == 0:
        return False
    kind = np.dtype(f"i{x.dtype.itemsize}")
    return bool(x.view(kind).min() == np.iinfo(kind).min)


def _zeros(x: Array) -> Array:
    bits = x.view(f"u{x.dtype.itemsize}")
    zeros: Array = bits[_is_zero(bits)]
    return zeros


def _is_zero(bits: Array) -> Array:
    """Return where floats are 0.0 or -0.0, given their bits."""
    size: Array = bits & bits.dtype.type(np.iinfo(bits.dtype).max >> 1)
    return np.equal(size, 0)


def _ordered(lines: Array) -> Array:
    """Return sorted rows, in any order of equal elements; may write to them.  [*B, N] -> [*B, N]"""
    if lines.dtype.itemsize <= 2:
        return _counted(lines)
    if lines.dtype.kind in "iu" and lines.shape[-1] > LONG:
        bits, low, _ = keys_for(lines)
        narrow = np.dtype(np.uint16 if bits <= COUNTED else np.uint32)
        if bits <= 8 * narrow.itemsize < 8 * lines.dtype.itemsize:
            lines -= lines.dtype.type(low)
            narrowed = lines.astype(narrow)
            if bits <= COUNTED:
                narrowed.sort(axis=-1, kind="stable")
            else:
                sort_rows(narrowed)
            np.add(narrowed, lines.dtype.type(low), out=lines, casting="unsafe", dtype=lines.dtype)
            return lines
    if lines.size == lines.shape[-1] and lines.dtype.kind == "f":
        _sort_whole(lines.reshape(-1))
    else:
        sort_rows(lines)
    return lines


def _counted(lines: Array) -> Array:
    """Sort numbers of up to 16 bits: long rows by counting, which NumPy does where it is stable."""
    if is_half(lines):
        return floats_of_keys(_counted(keys_of_floats(lines)), lines.dtype)
    if lines.shape[-1] > LONG:
        lines.sort(axis=-1, kind="stable")
        return lines
    wide = lines.astype(np.int32)
    sort_rows(wide)
    return wide.astype(lines.dtype)
