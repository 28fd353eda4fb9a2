"""Symbolic sizes from text, and symbolic sizes to numbers."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from graphfw.ir.dim import (
    DimLike,
    dim_max,
    dim_min,
    dim_sum,
    substitute,
    symbol,
    symbols_of,
)


def parse_dim(text: str, *, symbols: Collection[str] | None = None) -> DimLike:
    """The size written in `text`; `parse_dim(str(d)) == d`.

    Allowed: ints, names, `+ - * // %`, unary minus, parentheses, `max` and `min` of two or more.
    With `symbols`, no other names. ValueError for anything else and for a division by 0.
    """
    try:
        return dim_of(ast.parse(text.strip(), mode="eval").body, symbols)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError) as error:
        raise ValueError(f"cannot read the size {text!r}: {error}") from error


_BINARY: dict[type[ast.operator], Callable[[Any, Any], DimLike]] = {
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def dim_of(node: ast.expr, symbols: Collection[str] | None = None) -> DimLike:
    """The size that an expression of Python stands for; errors are those of `parse_dim`."""
    match node:
        case ast.Constant(value=value) if type(value) is int:
            return value
        case ast.Name(id=name):
            if symbols is not None and name not in symbols:
                raise ValueError(f"`{name}` is not one of the symbols {sorted(symbols)}")
            return symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -dim_of(operand, symbols)
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            return dim_sum(_summands(node, symbols))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](dim_of(left, symbols), dim_of(right, symbols))
        case ast.Call(func=ast.Name(id="max" | "min" as name), args=[_, _, *_], keywords=[]):
            extreme = dim_max if name == "max" else dim_min
            return extreme(*[dim_of(arg, symbols) for arg in node.args])
    raise ValueError(
        f"`{ast.unparse(node)}` is not allowed; a size is made of ints, names, + - * // %, "
        "and max or min of two or more operands"
    )


def _summands(node: ast.expr, symbols: Collection[str] | None) -> list[DimLike]:
    """The terms of a sum. Without recursion along it: a size may have hundreds of terms."""
    found: list[DimLike] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        right = dim_of(node.right, symbols)
        found.append(right if isinstance(node.op, ast.Add) else -right)
        node = node.left
    return [*found, dim_of(node, symbols)]


def evaluate(d: DimLike, env: Mapping[str, int]) -> int:
    """The value of `d` where `env` gives every symbol's value, with Python's floor semantics.

    Raises:
        KeyError: a symbol of `d` is missing in `env`.
        ZeroDivisionError: a divisor in the normal form of `d` is 0.
    """
    values = {name: operator.index(env[name]) for name in symbols_of(d)}
    try:
        return _value(d, values)
    except ZeroDivisionError:
        raise ZeroDivisionError(f"the size `{d}` divides by 0 where {values}") from None


def _value(d: DimLike, values: Mapping[str, int]) -> int:
    if isinstance(d, int):
        return d
    total = 0
    for mono, product in d._terms.items():
        for atom in mono:
            if atom.op == "symbol":
                product *= values[atom.text]
                continue
            args = [_value(arg, values) for arg in atom.args]
            product *= _COMPUTED[atom.op](*args)
        total += product
    return total


_COMPUTED: dict[str, Callable[..., int]] = {"//": operator.floordiv, "max": max, "min": min}


class Sizes(NamedTuple):
    """Several sizes as text.

    Attributes:
        parameters: The symbols, as the texts name them.
        texts: The sizes that differ.
        places: For each size that is wanted, which text it is.
    """

    parameters: tuple[str, ...]
    texts: tuple[str, ...]
    places: tuple[int, ...]

    def check(self) -> None:
        """Refuse texts that say anything else than sizes, before they are evaluated.

        Raises:
            ValueError: One does.
        """
        known = {*self.parameters, "max", "min"}
        if len(known) != len(self.parameters) + 2 or not all(map(str.isidentifier, known)):
            raise ValueError(f"{self.parameters} are no symbols")
        for text in self.texts:
            if not _TOKENS.fullmatch(text) or not known.issuperset(_NAMES.findall(text)):
                raise ValueError(f"{text!r} is no size")


_TOKENS = re.compile(r"(?:[^\W\d]\w*|\d+|[-+*/%(), ])+")
_NAMES = re.compile(r"[^\W\d]\w*")


def written(dims: Sequence[DimLike], names: Sequence[str]) -> Sizes:
    """Return sizes as texts of the symbols `names`."""
    parameters = tuple(names)
    if not {"max", "min"}.isdisjoint(names):
        own = {name: symbol(f"s{number}") for number, name in enumerate(names)}
        dims = [d if isinstance(d, int) else substitute(d, own) for d in dims]
        parameters = tuple([str(name) for name in own.values()])
    places: dict[DimLike, int] = {}
    wanted = tuple([places.setdefault(d, len(places)) for d in dims])
    return Sizes(parameters, tuple(map(str, places)), wanted)


def evaluator(sizes: Sizes) -> Callable[..., tuple[int, ...]]:
    """Make one function of several sizes: it takes the symbols' values, in their order.

    Much quicker than `evaluate` for each, where many are wanted again and again.

    >>> from graphfw.ir.dim import symbol
    >>> evaluator(written([symbol("n") * 2, 3], ["n"]))(5)
    (10, 3)
    """
    source = f"lambda {', '.join(sizes.parameters)}: ({''.join([f'{d}, ' for d in sizes.texts])})"
    different: Callable[..., tuple[int, ...]] = eval(source, {"max": max, "min": min})
    places = sizes.places

    def evaluated(*values: int) -> tuple[int, ...]:
        found = different(*values)
        return tuple([found[place] for place in places])

    return evaluated
