"""Rows of few elements: vectors run across the rows, and each lane goes through a row by itself.

A vector along such a row would be empty in most lanes, and a sum along it or over the rows would
have to combine the lanes of each row.
"""

from __future__ import annotations

from graphfw.ir.shape import size_of
from graphfw.runtime.kernels.lower_loops import Draft, Stored
from graphfw.runtime.kernels.lower_steps import joined_axes
from graphfw.runtime.kernels.lower_values import Reduced

_MANY_ROWS = 256
"""Fewer rows are not worth the loads of elements that lie apart."""

_SEARCHED = 64
"""Where a position is looked for, rows are narrow up to so many elements: to compare what all lanes
have found takes longer than to add it up."""


def turn_if_narrow(draft: Draft, narrow: int) -> None:
    """Turn a kernel of rows that are many and narrow into one of columns.

    Args:
        draft: The kernel.
        narrow: Up to so many elements a row is narrow.
    """
    if draft.form != "rows" or not draft.inner or not draft.outer:
        return
    width = size_of([axis.extent for axis in draft.inner])
    if not isinstance(width, int) or width > _limit(draft, narrow):
        return
    outer, _ = joined_axes(draft)
    rows = outer[-1].extent
    if not isinstance(rows, int) or rows >= _MANY_ROWS:
        draft.form = "columns"


def _limit(draft: Draft, narrow: int) -> int:
    reductions = [one for one in draft.statements() if isinstance(one, Reduced)]
    if narrow and any([one.kind in ("argmax", "argmin") for one in reductions]):
        return _SEARCHED
    # A store along a row scatters the lanes.
    has_stores = any([isinstance(one, Stored) for loop in draft.loops for one in loop])
    return narrow // 2 if has_stores and len(reductions) < 2 else narrow
