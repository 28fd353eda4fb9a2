"""Indices: polynomials of loop variables, axes and run-time sizes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

IndexLike: TypeAlias = "Operand | int"

_numbers = itertools.count()


class Operand:
    """The base of all that is an index: its operators."""

    def __add__(self, other: IndexLike) -> Index:
        return index(self) + other

    def __radd__(self, other: IndexLike) -> Index:
        return index(self) + other

    def __sub__(self, other: IndexLike) -> Index:
        return index(self) + index(other) * -1

    def __rsub__(self, other: IndexLike) -> Index:
        return index(other) + index(self) * -1

    def __mul__(self, other: IndexLike) -> Index:
        return index(self) * other

    def __rmul__(self, other: IndexLike) -> Index:
        return index(self) * other

    def __floordiv__(self, other: IndexLike) -> Index:
        return quotient("div", self, other)

    def __mod__(self, other: IndexLike) -> Index:
        return quotient("rem", self, other)


@dataclass(frozen=True, eq=False)
class Var(Operand):
    """A loop variable or an axis: an integer from `low` to `high`, where these are known."""

    name: str
    low: int | None = None
    high: int | None = None
    number: int = field(default_factory=lambda: next(_numbers))

    @property
    def order(self) -> tuple[object, ...]:
        """Its place among atoms."""
        return 0, self.number


@dataclass(frozen=True, eq=False)
class Size(Operand):
    """A run-time integer of a kernel, at a position of its parameters."""

    name: str
    position: int
    number: int = field(default_factory=lambda: next(_numbers))

    @property
    def order(self) -> tuple[object, ...]:
        """Its place among atoms."""
        return 0, self.number


@dataclass(frozen=True)
class Quotient(Operand):
    """A function of two indices that are not negative: "div", "rem", "min" or "max"."""

    name: str
    x: Index
    y: Index

    @property
    def order(self) -> tuple[object, ...]:
        """Its place among atoms, the same in each process."""
        parts = [(tuple(a.order for a in m), n) for m, n in (*self.x.terms, *self.y.terms)]
        return 1, self.name, *parts


Atom: TypeAlias = Var | Size | Quotient
Monomial: TypeAlias = tuple[Atom, ...]


@dataclass(frozen=True)
class Index(Operand):
    """A polynomial of integers: products of atoms, each with a factor."""

    terms: tuple[tuple[Monomial, int], ...]

    def __add__(self, other: IndexLike) -> Index:
        return _polynomial(itertools.chain(self.terms, index(other).terms))

    __radd__ = __add__

    def __mul__(self, other: IndexLike) -> Index:
        if isinstance(other, int):
            return Index(tuple((m, c * other) for m, c in self.terms) if other else ())
        pairs = itertools.product(self.terms, index(other).terms)
        return _polynomial((_sorted((*a, *b)), c * d) for (a, c), (b, d) in pairs)

    __rmul__ = __mul__

    def at(self, values: Mapping[Var, int]) -> Index:
        """Return it with numbers in the place of variables."""
        if not values:
            return self
        found: dict[Monomial, int] = {}
        for monomial, factor in self.terms:
            rest: list[Atom] = []
            for atom in monomial:
                if isinstance(atom, Var) and atom in values:
                    factor *= values[atom]
                elif isinstance(atom, Quotient):
                    new = quotient(atom.name, atom.x.at(values), atom.y.at(values))
                    if len(new.terms) == 1 and new.terms[0][1] == 1:
                        rest += new.terms[0][0]
                    elif len(new.terms) <= 1 and not (new.terms and new.terms[0][0]):
                        factor *= new.terms[0][1] if new.terms else 0
                    else:
                        raise ValueError("a quotient that became a sum")
                else:
                    rest.append(atom)
            key = _sorted(rest) if len(rest) != len(monomial) else tuple(rest)
            found[key] = found.get(key, 0) + factor
        return Index(tuple((m, c) for m, c in found.items() if c))

    def factor(self, var: Var) -> int:
        """Return by how much it grows with a variable: a number known now."""
        total = 0
        for monomial, factor in self.terms:
            if var in monomial:
                if monomial != (var,):
                    raise ValueError(f"{var.name} has no constant stride")
                total = factor
        return total

    @property
    def number(self) -> int | None:
        """The number that it is, if it is one."""
        if not self.terms:
            return 0
        (monomial, factor), *others = self.terms
        return None if others or monomial else factor

    def bounds(self) -> tuple[int | None, int | None]:
        """Return the least and the greatest value, where these are known."""
        low: int | None = 0
        high: int | None = 0
        for monomial, factor in self.terms:
            ends: tuple[int | None, int | None] = (1, 1)
            if monomial:
                ends = (None, None)
                if len(monomial) == 1 and isinstance(monomial[0], Var):
                    ends = monomial[0].low, monomial[0].high
            if factor < 0:
                ends = ends[::-1]
            low = None if low is None or ends[0] is None else low + factor * ends[0]
            high = None if high is None or ends[1] is None else high + factor * ends[1]
        return low, high


def index(value: IndexLike) -> Index:
    """Return an index as a polynomial."""
    if isinstance(value, Index):
        return value
    if isinstance(value, int):
        return Index((((), value),) if value else ())
    atom = value.var if isinstance(value, Axis) else value
    assert isinstance(atom, Var | Size | Quotient)
    return Index((((atom,), 1),))


def quotient(name: str, x: IndexLike, y: IndexLike) -> Index:
    """Return a function of two indices, computed now where both are numbers."""
    x, y = index(x), index(y)
    a, b = x.number, y.number
    if a is not None and b is not None:
        return index({"div": a // b, "rem": a % b, "min": min(a, b), "max": max(a, b)}[name])
    if b == 1 and name in ("div", "rem"):
        return x if name == "div" else index(0)
    return index(Quotient(name, x, y))


def least(x: IndexLike, y: IndexLike) -> Index:
    """Return the smaller index."""
    return quotient("min", x, y)


def ceil(x: IndexLike, y: int) -> Index:
    """Return how many pieces of y there are in x."""
    return (index(x) + (y - 1)) // y


def _sorted(atoms: Iterable[Atom]) -> Monomial:
    return tuple(sorted(atoms, key=lambda atom: atom.order))


def _polynomial(terms: Iterable[tuple[Monomial, int]]) -> Index:
    found: dict[Monomial, int] = {}
    for monomial, factor in terms:
        found[monomial] = found.get(monomial, 0) + factor
    return Index(tuple((m, c) for m, c in found.items() if c))


@dataclass(frozen=True)
class Axis(Operand):
    """One axis of tiles: a variable, how many elements, and how many of them a register holds.

    As an index it is its variable.
    """

    var: Var
    size: int
    lanes: int = 1

    def along(self, lanes: int) -> Axis:
        """Return the same axis with other lanes."""
        return Axis(self.var, self.size, lanes)


def axis(name: str, size: int, lanes: int = 1) -> Axis:
    """Return a new axis."""
    return Axis(Var(name, 0, size - 1), size, lanes)


def variables(value: Index) -> set[Var]:
    """Return the variables of an index."""
    found: set[Var] = set()
    for monomial, _ in value.terms:
        for atom in monomial:
            if isinstance(atom, Var):
                found.add(atom)
            elif isinstance(atom, Quotient):
                found |= variables(atom.x) | variables(atom.y)
    return found
