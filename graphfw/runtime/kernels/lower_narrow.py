"""Rows of few elements: vectors run across the rows, and each lane goes through a row by itself.

A vector along such a row would be empty in most lanes, and a sum along it or over the rows would
have to combine the lanes of each row.
"""

from __future__ import annotations

from graphfw.ir.dim import DimLike
from graphfw.ir.shape import size_of
from graphfw.runtime.kernels.elements import (
    Element,
)
from graphfw.runtime.kernels.lower_loops import Draft, Stored, draft_exprs, roots_of
from graphfw.runtime.kernels.lower_steps import joined_axes
from graphfw.runtime.kernels.lower_values import (
    RowReduction,
)

_MANY_ROWS = 256
"""Fewer rows are not worth the loads of elements that lie apart."""

_SEARCHED = 64
"""The most elements of narrow rows in which a position is looked for: to compare what all lanes
have found takes longer than to add it up."""


def turn_if_narrow(draft: Draft, narrow: int) -> None:
    """Give a kernel of many narrow rows the form columns, so that vectors run across its rows.

    Args:
        draft: The kernel.
        narrow: The most elements of a narrow row; 0 where no row is narrow.
    """
    if draft.inner is None and _is_read_across(draft, narrow):
        draft.outer, draft.inner = draft.outer[:-1], draft.outer[-1:]
        draft.form = "columns"
        return
    if draft.form != "rows" or not draft.inner or not draft.outer:
        return
    width = size_of([axis.extent for axis in draft.inner])
    if not isinstance(width, int) or not 0 < width <= _limit(draft, narrow):
        return
    outer, _ = joined_axes(draft)
    if are_many(outer[-1].extent):
        draft.form = "columns"


def _is_read_across(draft: Draft, narrow: int) -> bool:
    """Return whether elements are dense across the narrow rows of an elementwise kernel."""
    if len(draft.outer) < 2:
        return False
    position = draft.outer[-1]
    if not isinstance(position.extent, int) or not 1 < position.extent <= narrow:
        return False
    outer, (inner,) = joined_axes(draft)
    if not outer or inner.extent != position.extent or not are_many(outer[-1].extent):
        return False
    row = outer[-1].last
    roots = [root for statement in draft.statements() for root in roots_of(statement)]
    addresses = [e.address for e in draft_exprs(roots) if isinstance(e, Element)]
    addresses += [one.address for one in draft.statements() if isinstance(one, Stored)]
    strides = [dict(address.strides) for address in addresses]
    return any([s.get(row, 0) == 1 and s.get(position, 0) not in (0, 1) for s in strides])


def are_many(rows: DimLike) -> bool:
    """Return whether rows may be so many that vectors across them pay."""
    return not isinstance(rows, int) or rows >= _MANY_ROWS


def _limit(draft: Draft, narrow: int) -> int:
    reductions = [one for one in draft.statements() if isinstance(one, RowReduction)]
    if narrow and any([one.kind in ("argmax", "argmin") for one in reductions]):
        return _SEARCHED
    # A store along a row scatters the lanes.
    has_stores = any([isinstance(one, Stored) for loop in draft.loops for one in loop])
    return narrow // 2 if has_stores and len(reductions) < 2 else narrow
