"""Symbolic sizes: integer polynomials in normal form.

A static size is a plain `int`. A size that is known only when the graph runs is a `Dim`: a
polynomial with integer coefficients over atoms. An atom is a symbol, which stands for an
integer >= 0, or a `//`, `max` or `min` whose operands are themselves in normal form.
`a % b` is kept as `a - b*(a//b)`. Two sizes are equal when their normal forms are.

Cancelling holds wherever the division is defined at all: `(8*batch)//batch` is `8`, also for
`batch == 0`, where plain Python would raise. A divisor that stays in the normal form and turns
out to be 0 raises `ZeroDivisionError` when the size is evaluated.
"""

from __future__ import annotations

import functools
import keyword
import math
import operator
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, SupportsIndex, TypeAlias, cast, final

from graphfw.ir.dim_writer import composed, shown
from graphfw.ir.polynomial import (
    Atom,
    Mono,
    composites,
    degree_order,
    divided,
    lone_atom,
    multiplied,
    summed,
    terms_of,
    without,
)
from graphfw.ir.unknown import uncounted, undecided

_KNOWN = 8192
"""The number of remembered results of expensive functions: compilation asks for the same ones
again."""


Operand: TypeAlias = "SupportsIndex | Dim"
_Operator: TypeAlias = "Callable[[Dim, Operand], DimLike]"


def _operators(compute: Callable[[Any, Any], DimLike]) -> tuple[_Operator, _Operator]:
    """A binary operator of Dim and its reflection."""

    def forward(self: Dim, other: Operand) -> DimLike:
        rhs = _operand(other)
        return NotImplemented if rhs is None else compute(self, rhs)

    def reflected(self: Dim, other: Operand) -> DimLike:
        lhs = _operand(other)
        return NotImplemented if lhs is None else compute(lhs, self)

    return forward, reflected


def _refused_order(sign: str) -> Callable[[Dim, Operand], bool]:
    def compare(self: Dim, other: Operand) -> bool:
        size = _operand(other)
        if size is not None:
            names = symbols_of(self) | symbols_of(size)
            raise undecided(f"decide `{self} {sign} {size}`", names)
        return cast(bool, NotImplemented)

    return compare


@final
class Dim:
    """A size that is not known until the graph runs. Made by `symbol` and arithmetic.

    Supports `+ - * // %` with ints and dims; a constant result is a plain `int`. `==` compares
    normal forms and is always False against an int. Ordering, `bool` and `int` raise
    ConcreteValueError.

    >>> n = symbol("n")
    >>> (n + 2 * 3 - 7) // 2 + 1 == (n - 1) // 2 + 1
    True
    >>> (8 * n) // n
    8
    """

    __slots__ = ("_hash", "_symbols", "_terms", "_text")

    def __init__(self, terms: dict[Mono, int]) -> None:
        # Internal: `terms` has no zero coefficient, is not a lone constant, and is never written.
        self._terms = terms
        self._hash: int | None = None
        self._symbols: frozenset[str] | None = None
        self._text: str | None = None  # that of `dim_writer.canonical`

    # The functions are defined further down, hence the lambdas.
    __add__, __radd__ = _operators(lambda a, b: _added(a, b))
    __sub__, __rsub__ = _operators(lambda a, b: _added(a, -b))
    __mul__, __rmul__ = _operators(lambda a, b: _multiplied(a, b))
    __floordiv__, __rfloordiv__ = _operators(lambda a, b: _floordiv(a, b))
    __mod__, __rmod__ = _operators(lambda a, b: a - b * _floordiv(a, b))
    __lt__ = _refused_order("<")
    __le__ = _refused_order("<=")
    __gt__ = _refused_order(">")
    __ge__ = _refused_order(">=")

    def __neg__(self) -> Dim:
        return Dim({mono: -coef for mono, coef in self._terms.items()})

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, Dim):
            return self._terms == other._terms
        return False if _operand(other) is not None else NotImplemented

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._terms.items()))
        return self._hash

    def __bool__(self) -> bool:
        raise undecided(f"use the size `{self}` as a truth value", symbols_of(self))

    def __int__(self) -> int:
        raise uncounted(f"turn the size `{self}` into an int", symbols_of(self))

    def __index__(self) -> int:
        raise uncounted(f"use the size `{self}` as an int", symbols_of(self))

    def __str__(self) -> str:
        return shown(self)

    __repr__ = __str__

    def __reduce__(self) -> tuple[type[Dim], tuple[dict[Mono, int]]]:
        # Without the hash, which would be wrong in another process.
        return Dim, (self._terms,)


DimLike: TypeAlias = int | Dim


def symbol(name: str) -> Dim:
    """The size called `name`, an int >= 0. ValueError unless `name` is a Python identifier."""
    # The parser turns an identifier into its NFKC form, which would be another symbol.
    normal = unicodedata.normalize("NFKC", name) == name
    if not normal or not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(f"a symbolic size needs a Python identifier as its name, not {name!r}")
    return Dim({(Atom(name, "symbol", (), 0, None),): 1})


def static(size: DimLike) -> int:
    """Return a size that is known before a run."""
    assert isinstance(size, int)
    return size


def dim_max(first: DimLike, *others: DimLike) -> DimLike:
    """The largest of the sizes. Operands that can never be the largest are dropped."""
    return _extreme("max", (first, *others))


def dim_min(first: DimLike, *others: DimLike) -> DimLike:
    """The smallest of the sizes. Operands that can never be the smallest are dropped."""
    return _extreme("min", (first, *others))


def dim_sum(dims: Iterable[DimLike]) -> DimLike:
    """The sum of the sizes, in one walk over their terms: each `+` copies what it adds to."""
    return _collapse(summed([terms_of(_as_dim(d)) for d in dims]))


def exact_div(a: DimLike, b: DimLike) -> DimLike | None:
    """`a / b` where the quotient is provably exact, else None; None for the constant `b == 0`.

    Long division of polynomials, so `(a*b + a) / (b + 1)` is `a`. Like every cancelling here
    it does not ask whether `b` may be 0 at run time.
    """
    dividend, divisor = terms_of(_as_dim(a)), terms_of(_as_dim(b))
    quotient = divided(dividend, divisor) if divisor else None
    return None if quotient is None else _collapse(quotient)


def divisible(a: DimLike, b: DimLike) -> bool | None:
    """Return whether `b` divides `a`, or None where that is not provable. Nothing divides by 0."""
    a, b = _as_dim(a), _as_dim(b)
    if b == 0:
        return False
    if exact_div(a, b) is not None:
        return True
    remainder = a - b * _floordiv(a, b)
    if remainder == 0:
        return True
    return False if always_ge(remainder, 1) or always_le(remainder, -1) else None


def lower_bound(d: DimLike) -> int | None:
    """A number that `d` never goes below, by interval reasoning; None if none is found."""
    return _low(_as_dim(d))


def upper_bound(d: DimLike) -> int | None:
    """A number that `d` never goes above, by interval reasoning; None if none is found."""
    low = _low(-_as_dim(d))
    return None if low is None else -low


def always_ge(a: DimLike, b: DimLike) -> bool:
    """True if `a >= b` is proved for all sizes; False means only that no proof was found."""
    low = lower_bound(_as_dim(a) - _as_dim(b))
    return low is not None and low >= 0


def always_le(a: DimLike, b: DimLike) -> bool:
    """True if `a <= b` is proved for all sizes; False means only that no proof was found."""
    high = upper_bound(_as_dim(a) - _as_dim(b))
    return high is not None and high <= 0


def is_symbol(d: DimLike) -> str | None:
    """The name of `d` when it is one lone symbol, else None."""
    lone = lone_atom(d, ("symbol",))
    return lone[0].text if lone and lone[1] == 0 else None


def symbols_of(d: DimLike) -> frozenset[str]:
    """The names of all symbols in the normal form of `d`."""
    d = _as_dim(d)
    if isinstance(d, int):
        return frozenset()
    if d._symbols is None:
        atoms = {atom for mono in d._terms for atom in mono}
        names = {atom.text for atom in atoms if atom.op == "symbol"}
        d._symbols = frozenset(names).union(*(symbols_of(a) for atom in atoms for a in atom.args))
    return d._symbols


def substitute(d: DimLike, env: Mapping[str, DimLike]) -> DimLike:
    """`d` with the symbols named in `env` replaced, all at once. Others stay."""
    values: dict[str, DimLike] = {}

    def value(atom: Atom) -> DimLike:
        if atom.op == "symbol":
            return _as_dim(env[atom.text]) if atom.text in env else Dim({(atom,): 1})
        return values[atom.text]

    def substituted(size: DimLike) -> DimLike:
        terms = terms_of(size).items()
        return dim_sum([functools.reduce(operator.mul, map(value, m), coef) for m, coef in terms])

    d = _as_dim(d)
    for atom in composites(d):
        args = tuple(map(substituted, atom.args))
        values[atom.text] = _floordiv(*args) if atom.op == "//" else _extreme(atom.op, args)
    return substituted(d)


def _operand(value: object) -> DimLike | None:
    """`value` as a size, or None, so that an operator can leave it to the other operand."""
    if type(value) is int or isinstance(value, Dim):
        return value
    try:
        return operator.index(cast(SupportsIndex, value))
    except TypeError:
        return None


def _as_dim(value: DimLike) -> DimLike:
    d = _operand(value)
    if d is None:
        raise TypeError(f"a size is an int or a Dim, not {type(value).__name__}")
    return d


def _added(a: DimLike, b: DimLike) -> DimLike:
    """The sum of two sizes, one of which is no int."""
    if isinstance(a, int):
        a, b = b, a
    if not isinstance(b, int):
        return dim_sum((a, b))
    if not b:
        return a
    terms = dict(terms_of(a))
    terms[()] = terms.get((), 0) + b
    return _collapse(terms)


def _multiplied(a: DimLike, b: DimLike) -> DimLike:
    """The product of two sizes, one of which is no int."""
    if isinstance(a, int):
        a, b = b, a
    if not isinstance(b, int):
        return _collapse(multiplied(terms_of(a), terms_of(b)))
    if b == 1:
        return a
    return Dim({mono: coef * b for mono, coef in terms_of(a).items()}) if b else 0


def _collapse(terms: dict[Mono, int]) -> DimLike:
    if 0 in terms.values():
        terms = {mono: coef for mono, coef in terms.items() if coef}
    if not terms:
        return 0
    return terms[()] if len(terms) == 1 and () in terms else Dim(terms)


def _floordiv(a: DimLike, b: DimLike) -> DimLike:
    if b == 0:
        raise ZeroDivisionError(f"cannot divide the size `{a}` by 0")
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    return _quotient(a, b)


@functools.lru_cache(_KNOWN)
def _quotient(a: DimLike, b: DimLike) -> DimLike:
    exact = exact_div(a, b)
    if exact is not None:
        return exact
    dividend, divisor = terms_of(a), terms_of(b)
    lead = max(divisor, key=degree_order)
    if divisor[lead] < 0:
        return _floordiv(-a, -b)

    if len(divisor) == 1:  # (q*b + r)//b == q + r//b, term by term
        terms = {without(mono, lead): coef // divisor[lead] for mono, coef in dividend.items()}
        whole = _collapse({mono: coef for mono, coef in terms.items() if mono is not None})
        if whole != 0:
            return whole + _floordiv(a - whole * b, b)

    shared = functools.reduce(operator.and_, map(Counter, [*dividend, *divisor]))
    if shared:
        factor = Dim({tuple(sorted(shared.elements())): 1})
        return _floordiv(cast(DimLike, exact_div(a, factor)), cast(DimLike, exact_div(b, factor)))

    # The two steps below round twice, which only a positive divisor allows.
    if always_ge(b, 0):
        content = math.gcd(*divisor.values(), *(c for mono, c in dividend.items() if mono))
        if content > 1:
            return _floordiv(
                _collapse({mono: coef // content for mono, coef in dividend.items()}),
                _collapse({mono: coef // content for mono, coef in divisor.items()}),
            )
        nested = lone_atom(a, ("//",))
        if nested:  # (x//y + k)//b == (x + k*y)//(y*b)
            x, y = nested[0].args
            return _floordiv(x + nested[1] * y, y * b)

    low, high = _quotient_bounds(a, b)
    if low is not None and low == high:
        return low
    return Dim({(Atom(composed("//", (a, b)), "//", (a, b), low, high),): 1})


def _quotient_bounds(a: DimLike, b: DimLike) -> tuple[int | None, int | None]:
    a_low, a_high, b_low, b_high = _low(a), upper_bound(a), _low(b), upper_bound(b)
    if b_low is None or b_low < 0:
        return None, None
    least, most = max(b_low, 1), b_high and max(b_high, 1)  # 0 raises, so it bounds nothing
    low = high = None
    if a_low is not None:
        low = a_low // least if a_low < 0 else a_low // most if most else 0
    if a_high is not None:
        high = a_high // least if a_high >= 0 else a_high // most if most else -1
    return low, high


@functools.lru_cache(_KNOWN)
def _extreme(op: str, dims: tuple[DimLike, ...]) -> DimLike:
    sign = 1 if op == "max" else -1
    flat: set[DimLike] = set()
    for d in map(_as_dim, dims):
        nested = lone_atom(d, (op,))
        flat.update([arg + nested[1] for arg in nested[0].args] if nested else [d])
    operands = sorted(flat, key=_operand_order)
    for d in tuple(operands):
        if any(other != d and always_ge(sign * other, sign * d) for other in operands):
            operands.remove(d)
    if len(operands) == 1:
        return operands[0]
    # max(n - 1, 0) is kept as max(n, 1) - 1, so that equal sizes have one form.
    offset = terms_of(operands[0]).get((), 0)
    args = tuple(d - offset for d in operands)
    lows, highs = [_low(d) for d in args], [upper_bound(d) for d in args]
    if op == "max":
        low, high = _pick(max, lows), _pick(max, highs, all_known=True)
    else:
        low, high = _pick(min, lows, all_known=True), _pick(min, highs)
    return Dim({(Atom(composed(op, args), op, args, low, high),): 1}) + offset


def _pick(
    choose: Callable[[list[int]], int], bounds: Sequence[int | None], *, all_known: bool = False
) -> int | None:
    known = [bound for bound in bounds if bound is not None]
    return choose(known) if known and (not all_known or len(known) == len(bounds)) else None


def _operand_order(d: DimLike) -> tuple[bool, list[tuple[int, Mono, int]]]:
    # Blind to the constant term, so that shifting all operands keeps their order.
    return isinstance(d, int), sorted((-len(m), m, c) for m, c in terms_of(d).items() if m)


@functools.lru_cache(_KNOWN)
def _low(d: DimLike, fuel: int = 64) -> int | None:
    """The best of plain interval arithmetic and of first taking one composite atom apart.

    `fuel` bounds the number of calls. Every atom gets the same share, so that the bound, and
    through it a normal form, does not depend on how `d` was built.
    """
    if isinstance(d, int):
        return d
    lows = [_interval_low(d)]
    composite = {(mono, atom) for mono in d._terms for atom in mono if atom.args}
    share = (fuel - 1) // max(len(composite), 1)
    if share > 0:
        lows += [_relaxed_low(d, mono, atom, share) for mono, atom in composite]
    return _pick(max, lows)


def _relaxed_low(d: Dim, mono: Mono, atom: Atom, fuel: int) -> int | None:
    """A lower bound of `d` after replacing `atom` in the term of `mono` by its operands."""
    coef = d._terms[mono]
    others = cast(Mono, without(mono, (atom,)))
    if not _nonnegative(others):
        return None
    rest = d - Dim({mono: coef})
    if atom.op != "//":
        factor = _collapse({others: coef})
        fuel //= len(atom.args)
        lows = [_low(rest + factor * arg, fuel) for arg in atom.args]
        if (atom.op == "max") == (coef > 0):  # d is the largest of the cases
            return _pick(max, lows)
        return _pick(min, lows, all_known=True)

    # b*(a//b) == a - a%b with 0 <= a%b <= b - 1, where b is scale*(a factor of the term).
    a, b = atom.args
    divisor = terms_of(b)
    base, scale = next(iter(divisor.items()))
    factors = without(others, base)
    if len(divisor) > 1 or factors is None or not _nonnegative(base):
        return None
    quotient = a - (b - 1) if coef > 0 else a
    low = _low(rest * scale + _collapse({factors: coef}) * quotient, fuel)
    return None if low is None else -(-low // scale)


def _nonnegative(mono: Mono) -> bool:
    return all(atom.low is not None and atom.low >= 0 for atom in mono)


def _interval_low(d: Dim) -> int | None:
    total = 0
    for mono, coef in d._terms.items():
        ends = [atom.low if coef > 0 else atom.high for atom in mono]
        known = [end for end in ends if end is not None]
        if len(known) < len(ends) or (len(mono) > 1 and not _nonnegative(mono)):
            return None
        total += coef * math.prod(known)
    return total
