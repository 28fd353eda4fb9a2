"""Several parallel axes as one, where what is read does not allow to join them.

A kernel of columns has vectors along its last axis only. Where that is short, and something that
is the same along the axes before keeps it from being joined with these, most of each vector would
be empty. So all instances are numbered in a row, and what is not read in a row is looked up by the
positions along the axes, which are computed from the number.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.ir.affine import Affine, LoopVariable, index_of
from graphfw.ir.dim import DimLike
from graphfw.ir.dtype import int64
from graphfw.ir.shape import size_of
from graphfw.passes.fuse_views import contiguous
from graphfw.runtime.kernels.elements import (
    ComputedIndex,
    Element,
    ElementAddress,
    IndexValue,
)
from graphfw.runtime.kernels.ir import Expr
from graphfw.runtime.kernels.lower_loops import (
    Draft,
    Going,
    LoopCarry,
    Statement,
    Stored,
    Swap,
    draft_exprs,
    roots_of,
)
from graphfw.runtime.kernels.lower_values import (
    K,
)

_LONG = 256
"""The number of instances along the last axis from which on vectors are full anyway, and dense
memory is faster."""


def in_a_row(draft: Draft) -> Draft:
    """Return a kernel of columns with one parallel axis, or the kernel itself if that is no gain.

    Args:
        draft: A kernel of `LoopCarry`, `Going` and `Stored` only, whose outer axes are the parallel
            ones.
    """
    last = draft.outer[-1].extent
    is_long = isinstance(last, int) and last >= _LONG
    row = _InARow(draft.outer)
    if len(draft.outer) == 1 or is_long or row.joins_all(draft):
        return draft
    return row.draft(draft)


class _InARow:
    """Numbers instances along several axes in a row.

    Args:
        parallels: The axes.
    """

    def __init__(self, parallels: Sequence[LoopVariable]) -> None:
        sizes = [parallel.extent for parallel in parallels]
        self._first, self._last = parallels[0], parallels[-1]
        self._row = LoopVariable("instance", size_of(sizes))
        self._steps = dict(zip(parallels, contiguous(sizes), strict=True))
        self._computed = {parallel: self._position_along(parallel) for parallel in parallels}
        self._swap = Swap(self._replaced)

    def draft(self, draft: Draft) -> Draft:
        """Return the same kernel of instances in a row."""
        loops = [[self._statement(s) for s in loop] for loop in draft.loops]
        after = [self._statement(s) for s in draft.after]
        return Draft(draft.form, [self._row], draft.inner, loops=loops, after=after)

    def joins_all(self, draft: Draft) -> bool:
        """Return whether all that a kernel reads and writes allows to join the axes."""
        roots = [root for statement in draft.statements() for root in roots_of(statement)]
        leaves = list(draft_exprs(roots))
        addresses = [x.address for x in leaves if isinstance(x, Element)]
        addresses += [s.address for s in draft.statements() if isinstance(s, Stored)]
        # An axis that is looked at as a number is not joined.
        numbers = [v for x in leaves if isinstance(x, IndexValue) for v in x.index.terms]
        return self._steps.keys().isdisjoint(numbers) and all(map(self.joins, addresses))

    def joins(self, address: ElementAddress) -> bool:
        """Return whether instances in a row are contiguous."""
        strides = dict(address.strides)
        last = strides.get(self._last, 0)
        return all(
            strides.get(parallel, 0) == last * step for parallel, step in self._steps.items()
        )

    def _position_along(self, parallel: LoopVariable) -> ComputedIndex:
        """Return where along an axis the instance of a number is."""
        value: Expr = IndexValue(int64, index_of(self._row))
        step = self._steps[parallel]
        if step != 1:
            value = K.floor_divide(value, _size(step))
        if parallel is not self._first:
            value = K.remainder(value, _size(parallel.extent))
        return ComputedIndex(value, parallel.extent)

    def _statement(self, s: Statement) -> Statement:
        if isinstance(s, LoopCarry):
            return s._replace(begin=self._swap(s.begin), value=self._swap(s.value))
        if isinstance(s, Going):
            return Going(self._swap(s.value))
        assert isinstance(s, Stored)
        return Stored(self._moved(s.address), self._swap(s.value))

    def _replaced(self, expr: Expr) -> Expr | None:
        if isinstance(expr, Element):
            return type(expr)(expr.dtype, self._moved(expr.address))
        if isinstance(expr, IndexValue):
            index = expr.index
            terms = {self._variable(v): factor for v, factor in index.terms.items()}
            return IndexValue(expr.dtype, Affine(index.offset, terms))
        return None

    def _moved(self, address: ElementAddress) -> ElementAddress:
        if not self.joins(address):
            strides = [(self._variable(v), stride) for v, stride in address.strides]
            return address._replace(strides=tuple(strides))
        rest = [(self._variable(v), s) for v, s in address.strides if v not in self._steps]
        last = dict(address.strides).get(self._last, 0)
        return address._replace(strides=(*rest, *([(self._row, last)] if last != 0 else [])))

    def _variable(self, variable: LoopVariable) -> LoopVariable:
        """Return the replacement of a variable: a parallel axis, or one that depends on these."""
        if isinstance(variable, ComputedIndex):
            return ComputedIndex(self._swap(variable.value), variable.extent)
        return self._computed.get(variable, variable)


def _size(size: DimLike) -> Expr:
    return IndexValue(int64, Affine(size, {}))
