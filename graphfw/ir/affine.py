"""Affine indices: where an element of a tensor lies, as a function of loop positions.

Ops that only rename elements say with these which element of the input an element of the output is
(`Op.source_index`).

>>> i = LoopVariable("i", 5)
>>> 4 - index_of(i)
4 - i
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from graphfw.ir.dim import Dim, DimLike, always_ge, exact_div


class LoopVariable:
    """A variable of an index: an integer from 0 up to, and not including, its extent."""

    __slots__ = ("extent", "name")

    def __init__(self, name: str, extent: DimLike) -> None:
        self.name = name
        self.extent = extent

    def __repr__(self) -> str:
        return self.name


class Affine:
    """`offset + sum(variable * coefficient)`, immutable; equal if all of these are."""

    __slots__ = ("_hash", "offset", "terms")

    def __init__(self, offset: DimLike, terms: Mapping[LoopVariable, DimLike]) -> None:
        self.offset = offset
        self.terms = terms  # without coefficients 0
        self._hash: int | None = None

    @property
    def lone_variable(self) -> LoopVariable | None:
        """The variable that this is, if it is one."""
        if self.offset != 0 or [*self.terms.values()] != [1]:
            return None
        return next(iter(self.terms))

    def __add__(self, other: Affine | DimLike) -> Affine:
        if not isinstance(other, Affine):
            return Affine(self.offset + other, self.terms)
        terms = dict(self.terms)
        for variable, coefficient in other.terms.items():
            total = terms.get(variable, 0) + coefficient
            if total == 0:
                del terms[variable]
            else:
                terms[variable] = total
        return Affine(self.offset + other.offset, terms)

    __radd__ = __add__

    def __mul__(self, factor: DimLike) -> Affine:
        if factor == 1:
            return self
        if factor == 0:
            return ZERO
        return Affine(self.offset * factor, {v: c * factor for v, c in self.terms.items()})

    __rmul__ = __mul__

    def __sub__(self, other: Affine | DimLike) -> Affine:
        return self + other * -1

    def __rsub__(self, other: DimLike) -> Affine:
        return self * -1 + other

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Affine):
            return NotImplemented
        return self.offset == other.offset and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self.offset, frozenset(self.terms.items())))
        return self._hash

    def __repr__(self) -> str:
        terms = [] if self.offset == 0 and self.terms else [str(self.offset)]
        for variable, coefficient in self.terms.items():
            sign = "-" if coefficient == -1 else "" if coefficient == 1 else f"({coefficient})*"
            terms.append(f"{sign}{variable}")
        return " + ".join(terms).replace("+ -", "- ")


Index: TypeAlias = tuple[Affine, ...]
"""One index for each dim of a tensor."""

ZERO = Affine(0, {})


def index_of(variable: LoopVariable) -> Affine:
    """Return the variable itself as an index."""
    return Affine(0, {variable: 1})


def broadcast_index(index: Index, shape: Sequence[DimLike]) -> Index:
    """Return which element of a tensor that broadcasts is seen at an index of the result."""
    last = index[len(index) - len(shape) :]
    return tuple([ZERO if d == 1 else i for i, d in zip(last, shape, strict=True)])


def reshape_index(
    index: Index, shape: Sequence[DimLike], source: Sequence[DimLike]
) -> Index | None:
    """Return which element of `source` lies at an index of its reshape to `shape`.

    None where that is no affine function: where dims are joined across what the index tells apart.
    """
    found: list[Affine] = [ZERO] * len(source)
    for wanted, given in regrouped(source, shape):
        if len(wanted) == len(given) == 1:
            found[wanted[0]] = index[given[0]]
            continue
        joined = ZERO
        for axis in given:
            joined = joined * shape[axis] + index[axis]
        strides: list[DimLike] = [1]
        for axis in reversed(wanted[1:]):
            strides.append(strides[-1] * source[axis])
        for axis, stride in zip(wanted, reversed(strides), strict=True):
            if stride == 1:
                found[axis] = joined
                break
            divided = _divided(joined, stride)
            if divided is None:
                return None
            found[axis], joined = divided
    return tuple(found)


def _divided(index: Affine, divisor: DimLike) -> tuple[Affine, Affine] | None:
    """Return `index // divisor` and `index % divisor` where both are seen to be affine."""
    quotient, rest = {}, {}
    highest = offset = index.offset
    for variable, coefficient in index.terms.items():
        ratio = exact_div(coefficient, divisor)
        if ratio is not None:
            quotient[variable] = ratio
        elif not always_ge(coefficient, 0):
            return None
        else:
            rest[variable] = coefficient
            highest = highest + coefficient * (variable.extent - 1)
    if not always_ge(offset, 0) or not always_ge(divisor - 1, highest):
        return None
    return Affine(0, quotient), Affine(offset, rest)


def regrouped(
    source: Sequence[DimLike], shape: Sequence[DimLike]
) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the smallest groups of adjacent dims of both shapes that have equally many elements.

    Dims of size 1 are left out. The shapes have equally many elements.
    """
    xs = [i for i, d in enumerate(source) if d != 1]
    ys = [i for i, d in enumerate(shape) if d != 1]
    x = y = 0
    while x < len(xs) and y < len(ys):
        group = ([xs[x]], [ys[y]])
        left, right = source[xs[x]], shape[ys[y]]
        x, y = x + 1, y + 1
        while left != right and (x < len(xs) or y < len(ys)):
            more_left = y == len(ys) or (x < len(xs) and _is_smaller(left, right))
            if more_left:
                group[0].append(xs[x])
                left, x = left * source[xs[x]], x + 1
            else:
                group[1].append(ys[y])
                right, y = right * shape[ys[y]], y + 1
        if x == len(xs) or y == len(ys):  # what is left has one element for certain
            group[0].extend(xs[x:])
            group[1].extend(ys[y:])
            x, y = len(xs), len(ys)
        yield group


def _is_smaller(left: DimLike, right: DimLike) -> bool:
    """Return whether the left group is the one to grow: it is seen to be smaller."""
    if not isinstance(left, Dim) and not isinstance(right, Dim):
        return left < right
    return exact_div(right, left) is not None
