"""The tile IR: indices, buffers, tiles, expressions over tiles, and statements.

A kernel is a list of statements. Each statement computes all elements of a tile at once: an
expression is written once, for one element at the tile's axes, and a printer repeats it for each
register. An axis with more than one lane lies along vector registers, the others are unrolled.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from spikes.tile_ir.indices import Axis, Index, IndexLike, Var, index

Space: TypeAlias = Literal["argument", "scratch", "shared"]
Kind: TypeAlias = Literal["serial", "parallel", "thread"]
Engine: TypeAlias = Literal["fma", "muladd", "dot4"]
ExprLike: TypeAlias = "Expr | float"

SIZES = {"float32": 4, "int32": 4, "bfloat16": 2, "int8": 1, "int64": 8, "float64": 8}


@dataclass(frozen=True, eq=False)
class Buffer:
    """An array in memory.

    Attributes:
        name: What it is called.
        dtype: Of its elements.
        strides: The distance of neighbours along each dim, in elements.
        space: An argument of the kernel, the thread's scratch memory, or a block's shared memory.
        size: How many elements scratch or shared memory holds.
        readonly: Whether nothing writes to it.
    """

    name: str
    dtype: str
    strides: tuple[IndexLike, ...]
    space: Space = "argument"
    size: int = 0
    readonly: bool = False

    def __getitem__(self, at: IndexLike | tuple[IndexLike, ...]) -> Load:
        """Return an affine gather: the element at an index of each dim."""
        at = at if isinstance(at, tuple) else (at,)
        total = index(0)
        for i, stride in zip(at, self.strides, strict=True):
            total = total + index(i) * stride
        return Load(self, total)


class Expr:
    """The value of an element of a tile."""

    def __add__(self, other: ExprLike) -> Expr:
        return Apply("add", (self, expr(other)))

    def __sub__(self, other: ExprLike) -> Expr:
        return Apply("sub", (self, expr(other)))

    def __mul__(self, other: ExprLike) -> Expr:
        return Apply("mul", (self, expr(other)))

    def __truediv__(self, other: ExprLike) -> Expr:
        return Apply("div", (self, expr(other)))

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return Apply("div", (expr(other), self))


@dataclass(frozen=True, eq=False)
class Load(Expr):
    """An element of a buffer, where each of some indices is at least 0 and below its size.

    Attributes:
        buffer: What is read.
        at: Where, in elements.
        inside: The indices and their sizes.
        outside: The value elsewhere.
    """

    buffer: Buffer
    at: Index
    inside: tuple[tuple[Index, Index], ...] = ()
    outside: float = 0

    def where(self, *inside: tuple[IndexLike, IndexLike], outside: float = 0) -> Load:
        """Return it with conditions; those that always hold are left out."""
        kept = []
        for i, size in inside:
            i, size = index(i), index(size)
            low, high = i.bounds()[0], (size - i).bounds()[0]
            if low is None or low < 0 or high is None or high < 1:
                kept.append((i, size))
        return Load(self.buffer, self.at, (*self.inside, *kept), outside)


@dataclass(frozen=True, eq=False)
class Const(Expr):
    """A number."""

    value: float


@dataclass(frozen=True, eq=False)
class Apply(Expr):
    """A function of elements; "f32" and such are conversions."""

    name: str
    args: tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class Tile(Expr):
    """A tile of registers; as an expression, its element at the statement's axes.

    A statement may have another axis along its lanes than the tile: that is a transpose.
    """

    name: str
    axes: tuple[Axis, ...]
    dtype: str = "float32"


@dataclass(frozen=True, eq=False)
class Fold(Expr):
    """All elements of a tile along its axis of lanes, put together: "add", "max"."""

    name: str
    tile: Tile


def expr(value: ExprLike) -> Expr:
    """Return an expression."""
    return value if isinstance(value, Expr) else Const(value)


def apply(name: str, *args: ExprLike) -> Expr:
    """Return a function of expressions."""
    return Apply(name, tuple(map(expr, args)))


@dataclass(frozen=True, eq=False)
class Set:
    """Give all elements of a tile a value."""

    tile: Tile
    value: Expr


@dataclass(frozen=True, eq=False)
class Store:
    """Write a value to a buffer for all elements of some axes, where they are inside."""

    to: Load
    value: Expr
    axes: tuple[Axis, ...]
    streaming: bool = False


@dataclass(frozen=True, eq=False)
class ForTile:
    """Repeat statements; values of tiles are carried from one iteration to the next."""

    var: Var
    begin: Index
    end: Index
    step: int
    kind: Kind
    body: list[Statement]
    nonempty: bool = False


@dataclass(frozen=True, eq=False)
class When:
    """Do statements where an index is below another, or else others."""

    x: Index
    y: Index
    then: list[Statement]
    otherwise: list[Statement]


@dataclass(frozen=True, eq=False)
class Contract:
    """Add to a tile the products of two operands, summed over some axes: loops, outermost first.

    Attributes:
        tile: What is added to.
        a: The left operand.
        b: The right operand.
        over: The axes of the sum: variable and extent.
        unroll: How many iterations of the innermost loop are written out.
        engine: The instructions: fused, or a multiplication and an addition, also of integers, or
            a dot product of four bytes, which are an int32 of each operand: without and with signs.
        flat: Whether all iterations of all loops are written out.
    """

    tile: Tile
    a: Expr
    b: Expr
    over: tuple[tuple[Var, Index], ...]
    unroll: int
    engine: Engine
    flat: bool = False

    def lowered(self) -> Statement:
        """Return the loops."""
        body: list[Statement] = []
        if self.flat:
            names = [var for var, _ in self.over]
            counts = [range(extent.number or 0) for _, extent in self.over]
            every = itertools.product(*counts)
            return Block([self._once(dict(zip(names, one, strict=True))) for one in every])
        (var, extent), size = self.over[-1], self.unroll
        count = extent.number
        if count is not None and count <= size:
            body = [self._once({var: i}) for i in range(count)]
        else:
            if size > 1 and (count is None or count % size):
                raise ValueError("the innermost axis is no multiple of what is unrolled")
            lines: list[Statement] = [self._once({}, var, i) for i in range(size)]
            body = [ForTile(var, index(0), extent, size, "serial", lines, bool(count))]
        for outer, length in reversed(self.over[:-1]):
            known = length.number is not None
            body = [ForTile(outer, index(0), length, 1, "serial", body, known)]
        return body[0] if len(body) == 1 else Block(body)

    def _once(self, values: Mapping[Var, int], var: Var | None = None, more: int = 0) -> Set:
        a, b = (replaced(x, values, var, more) for x in (self.a, self.b))
        return Set(self.tile, apply(self.engine, a, b, self.tile))


@dataclass(frozen=True, eq=False)
class Pack:
    """Copy a gather to another order of its axes, with zeros for what is outside.

    Attributes:
        to: Where each element goes.
        source: Each element.
        loops: Axes that are looped over, outermost first: variable, extent, step.
        tile: The axes of a tile as it is read; the last lies along the lanes.
        written: The axis that lies along the lanes as the tile is written.
    """

    to: Load
    source: Load
    loops: tuple[tuple[Var, Index, int], ...]
    tile: tuple[Axis, ...]
    written: Var
    streaming: bool = False
    ahead: Load | None = None

    def lowered(self) -> Statement:
        """Return the loops."""
        held = Tile("t", self.tile, self.source.buffer.dtype)
        lanes = self.tile[-1].lanes
        out = [a.along(lanes if a.var is self.written else 1) for a in self.tile]
        out.sort(key=lambda a: a.var is self.written)
        body: list[Statement] = [Prefetch(self.ahead)] if self.ahead else []
        body += [Set(held, self.source), Store(self.to, held, tuple(out), self.streaming)]
        for var, extent, step in reversed(self.loops):
            body = [ForTile(var, index(0), extent, step, "serial", body, extent.number is not None)]
        return Block(body)


@dataclass(frozen=True, eq=False)
class Block:
    """Statements one after the other."""

    body: list[Statement]


@dataclass(frozen=True, eq=False)
class Prefetch:
    """Ask for the memory that an element is in."""

    at: Load
    level: int = 3


@dataclass(frozen=True, eq=False)
class Fence:
    """Wait for all threads of a block."""


Statement: TypeAlias = Set | Store | ForTile | When | Contract | Pack | Block | Prefetch | Fence


def replaced(x: Expr, values: Mapping[Var, int], var: Var | None = None, more: int = 0) -> Expr:
    """Return an expression with numbers for some variables, and another one counted from later."""
    if var is not None and more == 0 and not values:
        return x
    if isinstance(x, Load):
        return Load(
            x.buffer,
            _shifted(x.at, values, var, more),
            tuple((_shifted(i, values, var, more), n) for i, n in x.inside),
            x.outside,
        )
    if isinstance(x, Apply):
        return Apply(x.name, tuple(replaced(one, values, var, more) for one in x.args))
    return x


def _shifted(at: Index, values: Mapping[Var, int], var: Var | None, more: int) -> Index:
    if var is not None:
        total = at
        for monomial, factor in at.terms:
            if var in monomial:
                rest = list(monomial)
                rest.remove(var)
                total = total + Index(((tuple(rest), factor * more),))
        return total
    return at.at(values)
