"""Symbolic sizes from text, and symbolic sizes to numbers."""

from __future__ import annotations

import ast
import itertools
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from graphfw.ir.dim import (
    Dim,
    DimLike,
    dim_max,
    dim_min,
    dim_sum,
    is_symbol,
    symbol,
    symbols_of,
)
from graphfw.ir.dim_writer import GROUP
from graphfw.ir.polynomial import Atom, composites, lone_atom, terms_of


def parse_dim(text: str) -> DimLike:
    """The size written in `text`; `parse_dim(str(d)) == d`.

    Allowed: ints, names, `+ - * // %`, unary minus, parentheses, `max` and `min` of two or more,
    and `(t0 := max(n, 1), t0*t0)[-1]`, where a name stands for a `//`, `max` or `min`.
    ValueError for anything else and for a division by 0.
    """
    try:
        return dim_of(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError) as error:
        raise ValueError(f"cannot read the size {text!r}: {error}") from error


_BINARY: dict[type[ast.operator], Callable[[Any, Any], DimLike]] = {
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def dim_of(node: ast.expr, definitions: Mapping[str, DimLike] = MappingProxyType({})) -> DimLike:
    """The size that an expression of Python stands for; errors are those of `parse_dim`.

    `definitions` are the names that the expression around this one has defined.
    """
    match node:
        case ast.Constant(value=value) if type(value) is int:
            return value
        case ast.Name(id=name):
            if name in definitions:
                return definitions[name]
            return symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -dim_of(operand, definitions)
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            return dim_sum(_summands(node, definitions))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](dim_of(left, definitions), dim_of(right, definitions))
        case ast.Call(func=ast.Name(id="max" | "min" as name), args=[_, _, *_], keywords=[]):
            extreme = dim_max if name == "max" else dim_min
            return extreme(*[dim_of(arg, definitions) for arg in node.args])
        case ast.Subscript(ast.Tuple([*defined, size]), ast.UnaryOp(ast.USub(), ast.Constant(1))):
            for one in defined:
                name, definition = _defined(one, definitions)
                definitions = {**definitions, name: definition}
            return dim_of(size, definitions)
    raise ValueError(
        f"`{ast.unparse(node)}` is not allowed; a size is made of ints, names, + - * // %, "
        "and max or min of two or more operands"
    )


def _defined(node: ast.expr, definitions: Mapping[str, DimLike]) -> tuple[str, DimLike]:
    """The name and the size of `t0 := max(n, 1)`."""
    if isinstance(node, ast.NamedExpr):
        size = dim_of(node.value, definitions)
        if _composite(size) is not None:  # others could be squared again and again
            return node.target.id, size
    raise ValueError(f"`{ast.unparse(node)}` is not allowed: only `name := ` a //, max or min")


def _summands(node: ast.expr, definitions: Mapping[str, DimLike]) -> list[DimLike]:
    """The terms of a sum. Without recursion along it: a size may have hundreds of terms."""
    found: list[DimLike] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        right = dim_of(node.right, definitions)
        found.append(right if isinstance(node.op, ast.Add) else -right)
        node = node.left
    return [*found, dim_of(node, definitions)]


def evaluate(d: DimLike, env: Mapping[str, int]) -> int:
    """The value of `d` where `env` gives every symbol's value, with Python's floor semantics.

    Raises:
        KeyError: a symbol of `d` is missing in `env`.
        ZeroDivisionError: a divisor in the normal form of `d` is 0.
    """
    values = {name: operator.index(env[name]) for name in symbols_of(d)}
    try:
        for atom in composites(d):
            args = [_value(arg, values) for arg in atom.args]
            values[atom.text] = _COMPUTED[atom.op](*args)
    except ZeroDivisionError:
        sizes = {name: env[name] for name in symbols_of(d)}
        raise ZeroDivisionError(f"the size `{d}` divides by 0 where {sizes}") from None
    return _value(d, values)


def _value(d: DimLike, values: Mapping[str, int]) -> int:
    """Return the value of a size, given those of its atoms by their texts."""
    total = 0
    for mono, product in terms_of(d).items():
        for atom in mono:
            product *= values[atom.text]
        total += product
    return total


_COMPUTED: dict[str, Callable[..., int]] = {"//": operator.floordiv, "max": max, "min": min}


class SizeTexts(NamedTuple):
    """Several sizes as text.

    Attributes:
        parameters: The symbols, as the texts name them.
        texts: The sizes that differ, and their subexpressions. `t3` stands for the text of number
            3, an earlier one: so a subexpression of many sizes is written once.
        indices: For each size that is wanted, which text it is.
    """

    parameters: tuple[str, ...]
    texts: tuple[str, ...]
    indices: tuple[int, ...]

    def check(self) -> None:
        """Refuse texts that say anything else than sizes, before they are evaluated.

        Raises:
            ValueError: One does.
        """
        known = {*self.parameters, "max", "min"}
        is_own = len(known) == len(self.parameters) + 2 and not any(map(_is_taken, self.parameters))
        if not is_own or not all(map(str.isidentifier, known)):
            raise ValueError(f"{self.parameters} are no symbols")
        for number, text in enumerate(self.texts):
            if not _TOKENS.fullmatch(text) or not known.issuperset(_NAMES.findall(text)):
                raise ValueError(f"{text!r} is no size")
            known.add(f"t{number}")


_TOKENS = re.compile(r"(?:[^\W\d]\w*|\d+|[-+*/%(), ])+")
_NAMES = re.compile(r"[^\W\d]\w*")
_REFERENCE = re.compile(r"\bt(\d+)\b")


def _is_taken(name: str) -> bool:
    """Return whether texts mean something else by a name than a symbol."""
    return name in ("max", "min") or _REFERENCE.fullmatch(name) is not None


def written(dims: Sequence[DimLike], names: Sequence[str]) -> SizeTexts:
    """Return sizes as texts of the symbols `names`."""
    parameters = tuple(names)
    if any(map(_is_taken, names)):
        parameters = tuple([f"s{number}" for number in range(len(names))])
    texts = _Texts(dict(zip(names, parameters, strict=True)))
    indices = tuple([texts.number(d) for d in dims])
    return SizeTexts(parameters, tuple(texts.texts), indices)


class _Texts:
    """Writes sizes as texts of which each refers to its subexpressions by number."""

    def __init__(self, symbols: Mapping[str, str]) -> None:
        self.texts: list[str] = []
        self._symbols = symbols
        self._numbers: dict[DimLike, int] = {}
        self._sums: dict[tuple[Any, ...], DimLike] = {}
        """The last of the sums of many terms that begin alike: the next may be longer by a few
        terms."""

    def number(self, d: DimLike) -> int:
        """Return the number of a size's text, which is written if there is none."""
        known = self._numbers
        todo = [] if d in known else [d]
        while todo:
            top = todo[-1]
            missing = [term for term in _terms(top) if term not in known]
            if missing:
                todo.extend(missing)
            elif todo.pop() not in known:
                text = self._text(top)
                known[top] = len(self.texts)
                self.texts.append(text)
        return known[d]

    def _text(self, d: DimLike) -> str:
        atom = _composite(d)
        if atom is not None:
            args = [self._operand(arg) for arg in atom.args]
            return "//".join(args) if atom.op == "//" else f"{atom.op}({', '.join(args)})"
        factor = _factor(d)
        if factor > 1:
            return f"{factor}*{self._operand(_divided(d, factor))}"
        terms = terms_of(d)
        if len(terms) > _MANY:
            begin = tuple(itertools.islice(terms.items(), 2))
            before, self._sums[begin] = self._sums.get(begin, 0), d
            rest = d - before
            if 2 * len(terms_of(rest)) < len(terms):
                return f"{self._operand(before)} + {self._summed(rest)}"
        return self._summed(d)

    def _summed(self, d: DimLike) -> str:
        terms = []
        for mono, coef in terms_of(d).items():
            factors = [self._named(atom) for atom in mono]
            terms.append("*".join(factors if factors and coef == 1 else [str(coef), *factors]))
        while len(terms) > GROUP:
            groups = [terms[i : i + GROUP] for i in range(0, len(terms), GROUP)]
            terms = [f"({' + '.join(group)})" for group in groups]
        return " + ".join(terms) or "0"

    def _named(self, atom: Atom) -> str:
        return self._symbols[atom.text] if atom.op == "symbol" else self._operand(_single(atom))

    def _operand(self, d: DimLike) -> str:
        if isinstance(d, int):
            return f"({d})" if d < 0 else str(d)
        name = is_symbol(d)
        return f"t{self._numbers[d]}" if name is None else self._symbols[name]


_MANY = 16
"""A sum of more terms is written as another one and the rest, where that is shorter."""


def _terms(d: DimLike) -> list[DimLike]:
    """Return the sizes whose names the text of a size is made of."""
    atom = _composite(d)
    if atom is not None:
        return [arg for arg in atom.args if not isinstance(arg, int) and is_symbol(arg) is None]
    factor = _factor(d)
    if factor > 1:
        return [_divided(d, factor)]
    return [_single(atom) for mono in terms_of(d) for atom in mono if atom.op != "symbol"]


def _composite(d: DimLike) -> Atom | None:
    """Return the atom that a size is where it is a `//`, `max` or `min` only."""
    found = lone_atom(d, ("//", "max", "min"))
    return found[0] if found and found[1] == 0 else None


def _single(atom: Atom) -> Dim:
    """Return the size that is an atom only."""
    return Dim({(atom,): 1})


def _factor(d: DimLike) -> int:
    """Return the greatest factor of all terms of a sum of many; 1 for others."""
    terms = terms_of(d)
    return math.gcd(*terms.values()) if len(terms) > _MANY else 1


def _divided(d: DimLike, factor: int) -> Dim:
    """Return a sum divided by a factor of all its terms."""
    return Dim({mono: coef // factor for mono, coef in terms_of(d).items()})


def evaluator(sizes: SizeTexts) -> Callable[..., tuple[int, ...]]:
    """Make one function of several sizes: it takes the symbols' values, in their order.

    Much quicker than `evaluate` for each, where many are wanted again and again.

    >>> from graphfw.ir.dim import symbol
    >>> evaluator(written([symbol("n") * 2, 3], ["n"]))(5)
    (10, 3)
    """
    shared = sorted({int(number) for text in sizes.texts for number in _REFERENCE.findall(text)})
    results = list(sizes.texts)
    lines = [f"def different({', '.join(sizes.parameters)}):"]
    for number in shared:
        lines.append(f" t{number} = {results[number]}")
        results[number] = f"t{number}"
    lines.append(f" return ({''.join([f'{result}, ' for result in results])})")
    made: dict[str, Any] = {"max": max, "min": min}
    exec("\n".join(lines), made)
    different: Callable[..., tuple[int, ...]] = made["different"]
    indices = sizes.indices

    def evaluated(*values: int) -> tuple[int, ...]:
        found = different(*values)
        return tuple([found[index] for index in indices])

    return evaluated
