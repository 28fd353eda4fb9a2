"""Polynomials with integer coefficients, as dicts: the arithmetic that symbolic sizes are made of.

A polynomial maps products of atoms to coefficients other than 0. Each function takes time in
proportion to the terms that it reads and makes, but for what it takes to sort them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from graphfw.ir.dim import DimLike


class Atom(NamedTuple):
    """An indivisible factor."""

    text: str  # canonical and unique: it alone decides equality and order; see `dim_writer`
    op: str  # "symbol", "//", "max" or "min"
    args: tuple[DimLike, ...]
    low: int | None  # None: unbounded
    high: int | None

    # Operands may be nested more deeply than Python compares tuples.

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Atom) and self.text == other.text)

    def __hash__(self) -> int:
        return hash(self.text)

    def __lt__(self, other: Atom) -> bool:  # type: ignore[override]  # its own kind only
        return self.text < other.text


Mono: TypeAlias = tuple[Atom, ...]  # sorted, a power is a repetition, () is the constant 1
Terms: TypeAlias = Mapping[Mono, int]


def terms_of(d: DimLike) -> Terms:
    """Return the terms of the normal form of a size."""
    if isinstance(d, int):
        return {(): d} if d else {}
    return d._terms


def lone_atom(d: DimLike, ops: tuple[str, ...]) -> tuple[Atom, int] | None:
    """Return (atom, offset) where a size is `atom + offset` with an atom of one of these kinds."""
    terms = terms_of(d)
    monos = [mono for mono in terms if mono]
    if len(monos) != 1 or len(monos[0]) != 1 or terms[monos[0]] != 1:
        return None
    atom = monos[0][0]
    return (atom, terms.get((), 0)) if atom.op in ops else None


def composites(d: DimLike) -> list[Atom]:
    """Return the atoms of a size that have operands, and those of their operands, inner first.

    Each is there once, however often the size, written out, would repeat it.
    """
    found: dict[str, Atom] = {}
    todo = _composites(d)
    while todo:
        atom = todo.pop()
        if atom.text in found:
            continue
        inner = [one for arg in atom.args for one in _composites(arg) if one.text not in found]
        if inner:
            todo += [atom, *inner]
        else:
            found[atom.text] = atom
    return [*found.values()]


def _composites(d: DimLike) -> list[Atom]:
    return [atom for mono in terms_of(d) for atom in mono if atom.args]


def summed(polynomials: Iterable[Terms]) -> dict[Mono, int]:
    """Return the sum of polynomials, which may have coefficients 0."""
    total: dict[Mono, int] = {}
    for terms in polynomials:
        for mono, coef in terms.items():
            total[mono] = total.get(mono, 0) + coef
    return total


def multiplied(a: Terms, b: Terms) -> dict[Mono, int]:
    """Return the product of two polynomials, which may have coefficients 0."""
    product: dict[Mono, int] = {}
    for left, left_coef in a.items():
        for right, right_coef in b.items():
            mono = tuple(sorted(left + right))
            product[mono] = product.get(mono, 0) + left_coef * right_coef
    return product


def divided(dividend: Terms, divisor: Terms) -> dict[Mono, int] | None:
    """Return the quotient where a division leaves no rest, else None; the divisor is not 0.

    Long division. What is left lies in a heap, so that its leading term is found at once.
    """
    lead = max(divisor, key=degree_order)
    rest = dict(dividend)
    quotient: dict[Mono, int] = {}
    left = [_Leading(degree_order(mono)) for mono in rest]
    heapq.heapify(left)
    while left:
        _, top = heapq.heappop(left).order
        coef = rest.pop(top, 0)
        if not coef:
            continue
        factor = without(top, lead)
        if factor is None or coef % divisor[lead]:
            return None
        times = quotient[factor] = coef // divisor[lead]
        for mono, its in divisor.items():
            if mono == lead:
                continue
            both = tuple(sorted(factor + mono))
            if both not in rest:
                heapq.heappush(left, _Leading(degree_order(both)))
            rest[both] = rest.get(both, 0) - times * its
    return quotient


def degree_order(mono: Mono) -> tuple[int, Mono]:
    """Return a sorting key of products that multiplying keeps in order, as long division needs."""
    return len(mono), mono


class _Leading(NamedTuple):
    """A term; that of the highest order is the least of them, as heaps want."""

    order: tuple[int, Mono]

    def __lt__(self, other: _Leading) -> bool:  # type: ignore[override]  # its own kind only
        return other.order < self.order


def without(mono: Mono, divisor: Mono) -> Mono | None:
    """Return `mono / divisor`, or None if `divisor` does not divide it."""
    rest = list(mono)
    for atom in divisor:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)
