"""Scopes, integers and addresses of the LLVM printer."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from spikes.tile_ir.indices import Index, IndexLike, Monomial, Quotient, Size, Var, index
from spikes.tile_ir.ir import SIZES, Buffer

_BITS = {"float": "f32", "double": "f64", "i32": "i32", "i64": "i64", "i16": "i16", "i8": "i8"}


class Value(NamedTuple):
    """A name of LLVM, its element type, and how many lanes it has; 0 is a scalar."""

    name: str
    element: str
    lanes: int

    @property
    def type(self) -> str:
        """LLVM's type."""
        return f"<{self.lanes} x {self.element}>" if self.lanes else self.element

    @property
    def suffix(self) -> str:
        """How LLVM's functions of the type end."""
        return f"v{self.lanes}{_BITS[self.element]}" if self.lanes else _BITS[self.element]

    def __str__(self) -> str:
        return f"{self.type} {self.name}"


@dataclass
class Scope:
    """The body of a loop or a branch that is being written."""

    label: str
    lines: list[str] = field(default_factory=list)
    known: dict[object, Value] = field(default_factory=dict)
    certain: bool = False
    """Whether it is computed whenever the scope around it is."""


class Scopes:
    """Writes instructions into nested scopes: the bodies of loops and branches."""

    def __init__(self) -> None:
        self._names = itertools.count()
        self._scopes = [Scope("entry")]
        self._depths: dict[Var, int] = {}
        self._bases: dict[Buffer, str] = {}
        self._functions: dict[str, str] = {}
        self._made: dict[str, int] = {}
        """How many scopes are around each value."""

    @contextmanager
    def _branch(self, bit: str) -> Iterator[None]:
        n, outer = next(self._names), self._scopes[-1]
        scope = Scope(f"then{n}")
        self._scopes.append(scope)
        yield
        self._scopes.pop()
        outer.lines += [f"br i1 {bit}, label %then{n}, label %end{n}", f"then{n}:", *scope.lines]
        outer.lines += [f"br label %end{n}", f"end{n}:"]
        outer.label = f"end{n}"

    def _line(self, text: str) -> None:
        self._scopes[-1].lines.append(text)

    def _let(self, text: str, depth: int = -1) -> str:
        name = f"%v{next(self._names)}"
        self._made[name] = depth % len(self._scopes)
        self._scopes[depth].lines.append(f"{name} = {text}")
        return name

    def _known(self, key: object, depth: int, text: str, element: str = "i64") -> str:
        """Return an instruction's result, made once in a scope."""
        scope = self._scopes[depth]
        if key not in scope.known:
            scope.known[key] = Value(self._let(text, depth), element, 0)
        return scope.known[key].name

    def _depth(self, monomial: Monomial) -> int:
        depth = 0
        for atom in monomial:
            if isinstance(atom, Var):
                depth = max(depth, self._depths[atom])
            elif isinstance(atom, Quotient):
                both = (*atom.x.terms, *atom.y.terms)
                depth = max([depth, *(self._depth(one) for one, _ in both)])
        return depth

    def _atom(self, atom: object) -> str:
        if isinstance(atom, Var):
            return self._scopes[self._depths[atom]].known[atom].name
        if isinstance(atom, Size):
            at = self._known(
                ("at", atom), 0, f"getelementptr i64, ptr %params, i64 {atom.position}"
            )
            return self._known(atom, 0, f"load i64, ptr {at}")
        assert isinstance(atom, Quotient)
        x, y = self._integer(atom.x), self._integer(atom.y)
        text = {"div": f"udiv i64 {x}, {y}", "rem": f"urem i64 {x}, {y}"}.get(atom.name)
        if text is None:
            symbol = f"llvm.s{atom.name}.i64"
            self._declare(symbol, "i64", ["i64", "i64"])
            text = f"call i64 @{symbol}(i64 {x}, i64 {y})"
        return self._known(atom, self._depth((atom,)), text)

    def _term(self, monomial: Monomial, factor: int) -> str:
        """A product, the slowest atoms first."""
        if not monomial:
            return str(factor)
        key: tuple[object, ...] = (factor,)
        product, depth = "", 0
        for atom in sorted(monomial, key=lambda one: self._depth((one,))):
            key = (*key, atom)
            depth = max(depth, self._depth((atom,)))
            name = self._atom(atom)
            other = product or str(factor)
            if other == "1":
                product = name
            else:
                product = self._known(key, depth, f"mul nsw i64 {name}, {other}")
        return product

    def _integer(self, value: IndexLike) -> str:
        """An index as a number: the slowest terms are added first."""
        terms = sorted(index(value).terms, key=lambda t: (not t[0], self._depth(t[0])))
        total, depth, done = "", 0, []
        for monomial, factor in terms:
            depth = max(depth, self._depth(monomial))
            term = self._term(monomial, factor)
            done.append((monomial, factor))
            if not total:
                total = term
            else:
                key = ("sum", tuple(done))
                total = self._known(key, depth, f"add nsw i64 {total}, {term}")
        return total or "0"

    def _pointer(self, buffer: Buffer, at: Index) -> str:
        """An address: what loops add, from the outermost; then products of sizes; then a number."""
        size = SIZES[buffer.dtype]
        groups: dict[int, list[tuple[Monomial, int]]] = {}
        sizes: list[tuple[Monomial, int]] = []
        number = 0
        for monomial, factor in at.terms:
            if not monomial:
                number = factor * size
            elif all(isinstance(atom, Size) for atom in monomial):
                sizes.append((monomial, factor * size))
            else:
                groups.setdefault(self._depth(monomial), []).append((monomial, factor * size))
        key: tuple[object, ...] = (buffer,)
        pointer = self._bases[buffer]
        for depth in sorted(groups):
            part = Index(tuple(groups[depth]))
            key = (*key, part)
            offset = self._integer(part)
            pointer = self._known(
                key, depth, f"getelementptr i8, ptr {pointer}, i64 {offset}", "ptr"
            )
        for monomial, factor in sizes:
            pointer, key = self._rows(pointer, key, monomial, factor, size)
        if number:
            pointer = self._let(f"getelementptr i8, ptr {pointer}, i64 {number}")
        return pointer

    def _rows(
        self, pointer: str, key: tuple[object, ...], monomial: Monomial, factor: int, size: int
    ) -> tuple[str, tuple[object, ...]]:
        """Add some times a size: three rows share a pointer, as addresses can be so far behind."""
        gap, (many, rest) = (monomial, size), divmod(factor // size, 3)
        for _ in range(many):
            key = (*key, (*gap, 3))
            offset = self._term(monomial, 3 * size)
            pointer = self._known(key, -1, f"getelementptr i8, ptr {pointer}, i64 {offset}", "ptr")
        if rest:
            key = (*key, (*gap, rest))
            offset = self._term(monomial, rest * size)
            pointer = self._known(key, -1, f"getelementptr i8, ptr {pointer}, i64 {offset}", "ptr")
        return pointer, key

    def _declare(self, name: str, result: str, args: Sequence[str]) -> None:
        self._functions[name] = f"declare {result} @{name}({', '.join(args)})"
