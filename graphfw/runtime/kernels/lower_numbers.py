"""Kernels with many numbers read them from memory, so that those that differ in them are one."""

from __future__ import annotations

import numpy as np

from graphfw.ir.dtype import DType
from graphfw.ir.literal import Literal
from graphfw.runtime.kernels.ir import Const, Expr
from graphfw.runtime.kernels.lower_loops import Draft, Statement, Swap, draft_exprs, with_value
from graphfw.runtime.kernels.steps import Table
from graphfw.utils.records import record


@record(eq=False)
class StoredNumber(Expr):
    """A number that is in memory.

    Attributes:
        table: Where it is.
        index: Its index among the numbers there.
    """

    table: Table
    index: int


_ALIKE = 8
"""The most kernels of the same ops that have numbers of their own in their code."""


def with_tables(draft: Draft, most: int, alike: set[tuple[bytes, ...]]) -> Draft:
    """Return a draft whose numbers are read from memory, if it has more than `most` of a dtype.

    Floats only: of integers a generator of code may make use. Few numbers stay in the code, where
    they cost nothing to read. Of many there are kernels that only they tell apart, such as the
    pieces of a long sum of scaled terms; and so many don't fit into registers anyway. Where many
    kernels of the same ops differ in their numbers, those that follow read even few from memory,
    and so are one.

    Args:
        draft: The draft.
        most: Up to so many numbers stay in the code.
        alike: The numbers of the drafts before of the same ops; those of this one are added.
    """
    found: dict[DType, dict[bytes, int]] = {}
    values = [statement.value for statement in draft.statements()]
    consts = [
        expr for expr in draft_exprs(values) if isinstance(expr, Const) and expr.dtype.is_floating
    ]
    for const in consts:
        numbers = found.setdefault(const.dtype, {})
        numbers.setdefault(_bits(const), len(numbers))
    if found:
        alike.add(tuple([bits for numbers in found.values() for bits in numbers]))
    most = 0 if len(alike) > _ALIKE else most
    found = {dtype: numbers for dtype, numbers in found.items() if len(numbers) > most}
    if not found:
        return draft
    tables = {dtype: _table(dtype, numbers) for dtype, numbers in found.items()}

    def entry(expr: Expr) -> Expr | None:
        if not isinstance(expr, Const) or expr.dtype not in tables:
            return None
        return StoredNumber(expr.dtype, tables[expr.dtype], found[expr.dtype][_bits(expr)])

    swap = Swap(entry)

    def swapped(statements: list[Statement]) -> list[Statement]:
        return [with_value(one, swap(one.value)) for one in statements]

    return Draft(
        draft.form,
        draft.outer,
        draft.inner,
        swapped(draft.before),
        [swapped(loop) for loop in draft.loops],
        swapped(draft.after),
    )


def _bits(const: Const) -> bytes:
    """Return the bytes that tell numbers apart: 0.0 equals -0.0."""
    return np.asarray(const.value, const.dtype.dtype).tobytes()


def _table(dtype: DType, numbers: dict[bytes, int]) -> Table:
    array = np.frombuffer(b"".join(numbers), dtype.dtype)
    return Table(dtype, len(numbers), "numbers of a kernel", Literal(array))
