"""The tile IR: indices, buffers, tiles, expressions over tiles, and statements.

A kernel is a list of statements. Each statement computes all elements of a tile at once: an
expression is written once, for one element at the tile's axes, and a printer repeats it for each
register. An axis with more than one lane lies along vector registers, the others are unrolled.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Space: TypeAlias = Literal["argument", "scratch", "shared"]
Kind: TypeAlias = Literal["serial", "parallel", "thread"]
Engine: TypeAlias = Literal["fma", "muladd"]
IndexLike: TypeAlias = "Index | Var | Size | Quotient | Axis | int"
ExprLike: TypeAlias = "Expr | float"

_numbers = itertools.count()
SIZES = {"float32": 4, "int32": 4, "bfloat16": 2, "int8": 1, "int64": 8, "float64": 8}


class _Arithmetic:
    """The operators of whatever is an index."""

    def __add__(self, other: IndexLike) -> Index:
        return index(self) + other  # type: ignore[arg-type]

    def __radd__(self, other: IndexLike) -> Index:
        return index(self) + other  # type: ignore[arg-type]

    def __sub__(self, other: IndexLike) -> Index:
        return index(self) + index(other) * -1  # type: ignore[arg-type]

    def __rsub__(self, other: IndexLike) -> Index:
        return index(other) + index(self) * -1  # type: ignore[arg-type]

    def __mul__(self, other: IndexLike) -> Index:
        return index(self) * other  # type: ignore[arg-type]

    def __rmul__(self, other: IndexLike) -> Index:
        return index(self) * other  # type: ignore[arg-type]

    def __floordiv__(self, other: IndexLike) -> Index:
        return quotient("div", self, other)  # type: ignore[arg-type]

    def __mod__(self, other: IndexLike) -> Index:
        return quotient("rem", self, other)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Var(_Arithmetic):
    """A loop variable or an axis: an integer from `low` to `high`, where these are known."""

    name: str
    low: int | None = None
    high: int | None = None
    number: int = field(default_factory=lambda: next(_numbers))


@dataclass(frozen=True, eq=False)
class Size(_Arithmetic):
    """A run-time integer of a kernel, at a position of its parameters."""

    name: str
    position: int
    number: int = field(default_factory=lambda: next(_numbers))


@dataclass(frozen=True)
class Quotient(_Arithmetic):
    """A function of two indices that are not negative: "div", "rem", "min" or "max"."""

    name: str
    x: Index
    y: Index

    @property
    def number(self) -> int:
        """Its place in the order of atoms."""
        return -1 - abs(hash(self)) % (1 << 40)


Atom: TypeAlias = Var | Size | Quotient
Monomial: TypeAlias = tuple[Atom, ...]


@dataclass(frozen=True)
class Index(_Arithmetic):
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
                (atom, *others) = monomial
                known = isinstance(atom, Var) and not others
                ends = (atom.low, atom.high) if known else (None, None)  # type: ignore[union-attr]
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
    return Index((((value.var if isinstance(value, Axis) else value,), 1),))


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
    return tuple(sorted(atoms, key=lambda atom: atom.number))


def _polynomial(terms: Iterable[tuple[Monomial, int]]) -> Index:
    found: dict[Monomial, int] = {}
    for monomial, factor in terms:
        found[monomial] = found.get(monomial, 0) + factor
    return Index(tuple((m, c) for m, c in found.items() if c))


@dataclass(frozen=True)
class Axis(_Arithmetic):
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
        engine: The instructions: fused, or a multiplication and an addition, also of integers.
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


class Kernel:
    """Builds a kernel, statement by statement.

    Attributes:
        name: What it is called.
        buffers: Its arguments, in order.
        sizes: Its run-time integers, in order.
        body: Its statements.
        scratch: The buffers in scratch and in shared memory.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.buffers: list[Buffer] = []
        self.sizes: list[Size] = []
        self.scratch: list[Buffer] = []
        self.body: list[Statement] = []
        self._open = [self.body]

    def size(self, name: str) -> Size:
        """Return a new run-time integer."""
        self.sizes.append(Size(name, len(self.sizes)))
        return self.sizes[-1]

    def argument(
        self, name: str, dtype: str, strides: Sequence[IndexLike], readonly: bool = True
    ) -> Buffer:
        """Return a new argument."""
        self.buffers.append(Buffer(name, dtype, tuple(strides), readonly=readonly))
        return self.buffers[-1]

    def temporary(
        self, name: str, dtype: str, shape: Sequence[int], space: Space = "scratch"
    ) -> Buffer:
        """Return new memory of the thread or of the block, contiguous."""
        strides, size = [], 1
        for length in reversed(shape):
            strides.append(size)
            size *= length
        self.scratch.append(Buffer(name, dtype, tuple(reversed(strides)), space, size))
        return self.scratch[-1]

    def add(self, *statements: Statement) -> None:
        """Add statements where the innermost loop is open."""
        self._open[-1].extend(statements)

    @contextmanager
    def loop(
        self, name: str, end: IndexLike, step: int = 1, begin: IndexLike = 0, kind: Kind = "serial"
    ) -> Iterator[Var]:
        """Repeat what is added inside."""
        begin, end = index(begin), index(end)
        first, last = begin.number, end.bounds()[1]
        high = None
        if first is not None and last is not None:
            high = first + max(last - first - 1, 0) // step * step
        var = Var(name, first, high)
        body: list[Statement] = []
        count = end.number
        some = first is not None and count is not None and count > first
        self.add(ForTile(var, begin, end, step, kind, body, some))
        self._open.append(body)
        yield var
        self._open.pop()

    @contextmanager
    def when(self, x: IndexLike, y: IndexLike) -> Iterator[None]:
        """Do what is added inside only where x is below y."""
        body: list[Statement] = []
        self.add(When(index(x), index(y), body, []))
        self._open.append(body)
        yield
        self._open.pop()

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """Do what is added inside where the last condition does not hold."""
        last = self._open[-1][-1]
        assert isinstance(last, When)
        self._open.append(last.otherwise)
        yield
        self._open.pop()

    def pieces(
        self, name: str, extent: IndexLike, sizes: Sequence[int]
    ) -> Iterator[tuple[int, Var]]:
        """Cut an extent into pieces, as many of the first size as there are, then of the next."""
        begin = index(0)
        extent = index(extent)
        for size in sizes:
            end = (extent - begin) // size * size + begin
            if end.number is not None and end.number == begin.number:
                continue
            with self.loop(name, end, size, begin) as var:
                yield size, var
            begin = end

    def parts(self, name: str, extent: IndexLike, size: int) -> Iterator[tuple[bool, Var]]:
        """Cut an extent into whole pieces and a rest: conditions need only be asked in the rest."""
        extent = index(extent)
        whole = extent // size * size
        for is_rest, begin, end in ((False, index(0), whole), (True, whole, extent)):
            if end.number is None or end.number != begin.number:
                with self.loop(name, end, size, begin) as var:
                    yield is_rest, var

    def set(self, tile: Tile, value: ExprLike) -> None:
        """Add a `Set`."""
        self.add(Set(tile, expr(value)))

    def store(
        self, to: Load, value: ExprLike, axes: Sequence[Axis] = (), *, streaming: bool = False
    ) -> None:
        """Add a `Store`."""
        self.add(Store(to, expr(value), tuple(axes), streaming))

    def pack(
        self,
        to: Load,
        source: Load,
        loops: Sequence[tuple[Var, IndexLike, int]],
        tile: Sequence[Axis],
        written: Axis,
        *,
        streaming: bool = False,
        ahead: Load | None = None,
    ) -> None:
        """Add a `Pack`."""
        through = tuple((var, index(extent), step) for var, extent, step in loops)
        self.add(Pack(to, source, through, tuple(tile), written.var, streaming, ahead))

    def contract(
        self,
        tile: Tile,
        a: Expr,
        b: Expr,
        *over: tuple[Var, IndexLike],
        unroll: int = 1,
        engine: Engine = "fma",
        flat: bool = False,
    ) -> None:
        """Add a `Contract`."""
        axes = tuple((var, index(extent)) for var, extent in over)
        self.add(Contract(tile, a, b, axes, unroll, engine, flat))
