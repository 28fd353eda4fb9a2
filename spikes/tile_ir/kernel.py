"""`Kernel`: builds a kernel, statement by statement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from spikes.tile_ir.indices import Axis, IndexLike, Size, Var, index
from spikes.tile_ir.ir import (
    Buffer,
    Contract,
    Engine,
    Expr,
    ExprLike,
    ForTile,
    Kind,
    Load,
    Pack,
    Set,
    Space,
    Statement,
    Store,
    Tile,
    When,
    expr,
)


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
