"""Operands that all rows read across: laid out anew, once, so that vectors of them are dense."""

from __future__ import annotations

from graphfw.ir.affine import LoopVariable
from graphfw.ir.dim import DimLike
from graphfw.ir.shape import size_of
from graphfw.passes.fuse_views import contiguous
from graphfw.runtime.kernels.elements import (
    ComputedIndex,
    Element,
    ElementAddress,
)
from graphfw.runtime.kernels.ir import Expr
from graphfw.runtime.kernels.lower_loops import (
    Draft,
    Stored,
    Swap,
    draft_exprs,
    roots_of,
    variables_of,
    with_value,
)
from graphfw.runtime.kernels.steps import Temp

_OFTEN = 16
"""An operand that fewer rows read is not worth another step."""


def packed(draft: Draft) -> list[Draft]:
    """Change a draft to read what lies across from copies; return what makes the copies."""
    if draft.form != "rows":
        return []
    axes = [*draft.outer, *(draft.inner or ())]
    copies: dict[tuple[LoopVariable, ...], Draft] = {}
    addresses: dict[ElementAddress, ElementAddress] = {}
    found: dict[Expr, Expr] = {}
    roots = [root for statement in draft.statements() for root in roots_of(statement)]
    for leaf in draft_exprs(roots, _is_picked):
        if not isinstance(leaf, Element) or _is_picked(leaf):
            continue
        mine = tuple([axis for axis in axes if axis in variables_of(leaf)])
        if not _is_across(leaf.address, axes) or not _is_often(axes, mine):
            continue
        sizes = [axis.extent for axis in mine]
        address = addresses.get(leaf.address)
        if address is None:
            temp = Temp(leaf.dtype, size_of(sizes), "a packed operand")
            address = ElementAddress(temp, 0, tuple(zip(mine, contiguous(sizes), strict=True)))
            addresses[leaf.address] = address
            copy = copies.setdefault(mine, Draft("rows", mine, None, loops=[[]]))
            copy.loops[0].append(Stored(address, leaf))
        found[leaf] = Element(leaf.dtype, address)
    if found:
        swap = Swap(found.get)
        for block in (draft.before, *draft.loops, draft.after):
            block[:] = [with_value(statement, swap(statement.value)) for statement in block]
    return list(copies.values())


def _is_picked(expr: Expr) -> bool:
    """Return whether it is an element that integers name."""
    return isinstance(expr, Element) and any(
        isinstance(v, ComputedIndex) for v in variables_of(expr)
    )


def _is_across(address: ElementAddress, axes: list[LoopVariable]) -> bool:
    """Return whether the elements along the last axis, which vectors run along, are not dense."""
    stride: DimLike = dict(address.strides).get(axes[-1], 0) if axes else 0
    return stride not in (0, 1)


def _is_often(axes: list[LoopVariable], mine: tuple[LoopVariable, ...]) -> bool:
    """Return whether many rows read an operand that these axes tell apart."""
    rows = size_of([axis.extent for axis in axes if axis not in mine])
    return rows >= _OFTEN if isinstance(rows, int) else True
