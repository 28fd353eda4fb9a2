"""Rows of a right operand, as vectors: read from memory, or computed in registers.

Products of few rows read each element of `b` once. So the result of a prologue, such as floats of
weights in 8 bits, need not be written anywhere: it is computed where it is multiplied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import NamedTuple, Protocol

from graphfw.ir.dtype import DType
from graphfw.runtime.kernels.ir import Call, Const, Expr, InnerLoop, Kernel, Load, Size, Store
from graphfw.runtime.kernels.primitives import PRIMITIVES
from graphfw.runtime.kernels.walk import postorder
from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody
from graphfw.runtime.numpy_executor.codegen.packed import has_whole_rows
from graphfw.runtime.numpy_executor.codegen.registers import (
    literal,
    memory,
    register,
    splat,
    vector,
)
from graphfw.runtime.numpy_executor.matmul.elements import Elements
from graphfw.runtime.numpy_executor.matmul.tile import TileShape

COMPUTED = "ptr %operands, ptr %params_of_b, i64 %row, i64 %column"
"""The arguments of what computes rows of the right operand, for which see `ComputedRows`."""

_AHEAD = 5120
"""The distance in bytes at which memory of short rows is prefetched: the processor's guesses end
with each of them."""

_MOST_CALLS = 32
"""With more the code fills the instruction cache: loops have it once for each row that is read."""


class RowSource(Protocol):
    """Some rows of the right operand, or of its transpose; vectors run along them."""

    def forms(self) -> Iterator[None]:
        """Go through the forms of loads: there is code for each form, and one of them runs."""
        ...

    def load(self, address: str, mask: str = "") -> list[str]:
        """Return a vector of each row, from a position on; only the lanes of the mask, if any."""
        ...


class InMemory:
    """Rows that are read and converted to the dtype of the computation."""

    def __init__(self, elements: Elements, rows: Sequence[str]) -> None:
        self._elements = elements
        self._rows = rows

    def forms(self) -> Iterator[None]:
        """See `RowSource.forms`: there is one."""
        yield

    def load(self, address: str, mask: str = "") -> list[str]:
        """See `RowSource.load`."""
        elements = self._elements
        offset = elements.body.mul(address, elements.dtype.itemsize)
        found = [elements.body.at(row, offset) for row in self._rows]
        return [elements.load_some(p, mask) if mask else elements.load(p) for p in found]


def is_computed_inline(kernel: Kernel) -> bool:
    """Return whether a prologue's elements can be computed in registers, each from its inputs."""
    exprs = list(postorder([_root(kernel)]))
    calls = [expr for expr in exprs if isinstance(expr, Call)]
    if len(calls) > _MOST_CALLS or any(map(_needs_library, calls)):
        return False
    leaves = [expr for expr in exprs if not isinstance(expr, Call)]
    return all(
        isinstance(expr, Const) or (isinstance(expr, Load) and not expr.access.terms)
        for expr in leaves
    )


def _needs_library(call: Call) -> bool:
    is_cast = call.function in ("cast", "bits")
    return not is_cast and PRIMITIVES[call.function].source != "instruction"


def _root(kernel: Kernel) -> Expr:
    """Return the value of the only store of a prologue."""
    (loop,) = kernel.body
    assert isinstance(loop, InnerLoop)
    (store,) = loop.body
    assert isinstance(store, Store)
    return store.value


class _Varies(NamedTuple):
    """The axes along which a value differs."""

    rows: bool
    columns: bool


class _Start(NamedTuple):
    """The begin of a row.

    Attributes:
        address: Of the first element, or of the byte in which that begins.
        bit: At which bit of the byte, an i32, where elements are packed.
    """

    address: str
    bit: str = ""


class ComputedRows:
    """Rows that a prologue computes.

    Its buffers' addresses lie at `%operands`, its run-time integers at `%params_of_b`.

    Args:
        body: The function's body.
        shape: The shape of tiles, for its vectors.
        kernel: The prologue's.
        count: The number of rows.
        ahead: Whether memory is prefetched.
        long: Whether so many vectors are loaded that `forms` pay.
    """

    def __init__(
        self,
        body: FunctionBody,
        shape: TileShape,
        kernel: Kernel,
        count: int,
        *,
        ahead: bool = False,
        long: bool = True,
    ) -> None:
        self._body = body
        self._shape = shape
        self._kernel = kernel
        self._root = _root(kernel)
        self._exprs = list(postorder([self._root]))
        self._sizes: dict[Size, str] = {}
        self._varies: dict[Expr, _Varies] = {}
        for expr in self._exprs:
            self._varies[expr] = self._varying(expr)
        used = dict.fromkeys([expr.buffer for expr in self._exprs if isinstance(expr, Load)])
        self._buffers = {number: body.array("%operands", number, "ptr") for number in used}
        # Values that are the same in a whole row, or everywhere, are computed before the loops.
        fixed: dict[Expr, str] = {}
        self._write(fixed, _Varies(rows=False, columns=False), {}, "", "")
        self._rows: list[tuple[dict[Load, _Start], dict[Expr, str]]] = []
        self._ahead = ahead
        self._is_long = long
        self._is_whole = False
        for number in range(count):
            starts = self._starts(body.add("%row", number))
            values = dict(fixed)
            self._write(values, _Varies(rows=True, columns=False), starts, "", "")
            self._rows.append((starts, values))

    def forms(self) -> Iterator[None]:
        """See `RowSource.forms`: all rows of packed elements begin with a byte in one."""
        body = self._body
        begun = [start for starts, _ in self._rows for start in starts.items()]
        bits = [start.bit for load, start in begun if start.bit and self._varies[load].columns]
        if not bits or not self._is_long or not has_whole_rows():
            yield
            return
        some = reduce(lambda x, y: body.let(f"or i32 {x}, {y}"), bits)
        whole = body.let(f"icmp eq i32 {some}, 0")
        for self._is_whole in (True, False):
            with body.where(whole if self._is_whole else body.opposite(whole)):
                yield

    def load(self, address: str, mask: str = "") -> list[str]:
        """See `RowSource.load`."""
        shared: dict[Expr, str] = {}
        found = []
        for starts, known in self._rows:
            values = {**known, **shared}
            self._write(values, _Varies(rows=False, columns=True), starts, address, mask)
            shared = {e: v for e, v in values.items() if not self._varies[e].rows}
            self._write(values, _Varies(rows=True, columns=True), starts, address, mask)
            found.append(values[self._root])
        return found

    def _size(self, size: Size) -> str:
        if isinstance(size, int):
            return str(size)
        if size not in self._sizes:
            self._sizes[size] = self._body.array("%params_of_b", size.number)
        return self._sizes[size]

    def _varying(self, expr: Expr) -> _Varies:
        if isinstance(expr, Load):
            along = dict(expr.access.strides)
            rows, columns = (
                along.get(axes[0].name, 0) for axes in (self._kernel.outer, self._kernel.inner)
            )
            return _Varies(rows != 0, columns != 0)
        args = [self._varies[arg] for arg in expr.args] if isinstance(expr, Call) else []
        return _Varies(any(a.rows for a in args), any(a.columns for a in args))

    def _starts(self, row: str) -> dict[Load, _Start]:
        """Write the address of the row of each access."""
        body, found = self._body, {}
        for expr in self._exprs:
            if not isinstance(expr, Load):
                continue
            number = self._size(expr.access.offset)
            stride = dict(expr.access.strides).get(self._kernel.outer[0].name, 0)
            if stride != 0:
                number = body.add(body.mul(row, self._size(stride)), number)
            if self._varies[expr].columns:
                number = body.add("%column", number)
            buffer = self._buffers[expr.buffer]
            if self._kernel.is_packed(expr):
                found[expr] = _Start(*body.packed(expr.dtype).address_of(buffer, number))
            else:
                found[expr] = _Start(body.at(buffer, body.mul(number, expr.dtype.itemsize)))
        return found

    def _write(
        self,
        values: dict[Expr, str],
        which: _Varies,
        starts: dict[Load, _Start],
        position: str,
        mask: str,
    ) -> None:
        """Write the values that vary along some axes, after their operands."""
        p = self._body.primitives(self._shape.lanes)
        for expr in self._exprs:
            if expr in values or self._varies[expr] != which:
                continue
            if isinstance(expr, Const):
                number = literal(expr.value, expr.dtype)
                values[expr] = splat(register(expr.dtype), number, self._shape.lanes)
            elif isinstance(expr, Load):
                starts = starts or self._starts("0")
                values[expr] = self._load(expr, starts[expr], position, mask)
            elif isinstance(expr, Call):
                args = tuple([values[arg] for arg in expr.args])
                dtype = expr.args[-1].dtype
                if expr.function == "cast":
                    values[expr] = p.cast(dtype, expr.dtype, args[0])
                elif expr.function == "bits":
                    values[expr] = p.bits(dtype, expr.dtype, args[0])
                else:
                    values[expr] = p.call(expr.function, dtype, args)

    def _load(self, expr: Load, start: _Start, position: str, mask: str) -> str:
        if not self._varies[expr].columns:
            return self._of_all(expr, start)
        is_packed = self._kernel.is_packed(expr)
        load = self._of_packed if is_packed else self._of_memory
        return load(expr.dtype, start, position, mask)

    def _of_all(self, expr: Load, start: _Start) -> str:
        """Write the values that are the same in all columns."""
        body, lanes, dtype = self._body, self._shape.lanes, expr.dtype
        if self._kernel.is_packed(expr):
            one = body.packed(dtype).one_at(*start)
        else:
            one = body.let(f"load {memory(dtype)}, ptr {start.address}, align {dtype.itemsize}")
            one = body.primitives(1).from_memory(dtype, one)
        kind, scalar = vector(register(dtype), lanes), register(dtype)
        first = body.let(f"insertelement {kind} poison, {scalar} {one}, i32 0")
        order = f"<{lanes} x i32> zeroinitializer"
        return body.let(f"shufflevector {kind} {first}, {kind} poison, {order}")

    def _of_memory(self, dtype: DType, start: _Start, position: str, mask: str) -> str:
        body, lanes = self._body, self._shape.lanes
        element, itemsize = memory(dtype), dtype.itemsize
        kind = vector(element, lanes)
        address = body.at(start.address, body.mul(position, itemsize))
        if mask:
            suffix = {"float": "f32", "double": "f64"}.get(element, element)
            bits = f"<{lanes} x i1>"
            operands = [("ptr", address), ("i32", str(itemsize)), (bits, mask)]
            operands.append((kind, "zeroinitializer"))
            value = body.call(kind, f"llvm.masked.load.v{lanes}{suffix}.p0", operands)
        else:
            value = body.let(f"load {kind}, ptr {address}, align {itemsize}")
            self._ask(address)
        return body.primitives(lanes).from_memory(dtype, value)

    def _of_packed(self, dtype: DType, start: _Start, position: str, mask: str) -> str:
        """Write a vector that begins a whole number of vectors after the start."""
        body, lanes = self._body, self._shape.lanes
        packed, bit, away = body.packed(dtype), start.bit, body.mul(position, dtype.bits)
        address = body.at(start.address, body.let(f"lshr i64 {away}, 3"))
        if lanes * dtype.bits % 8:
            within = body.let(f"trunc i64 {away} to i32")
            bit = body.let(f"add i32 {bit}, {body.let(f'and i32 {within}, 7')}")
        if not mask:
            self._ask(address)
        if self._is_whole:
            return packed.whole_row(address, lanes)
        return packed.row_at(address, bit, lanes)

    def _ask(self, address: str) -> None:
        """Write prefetches of memory that is read later, if wanted."""
        if self._ahead:
            there = self._body.at(address, _AHEAD)
            self._body.line(f"call void @llvm.prefetch.p0(ptr {there}, i32 0, i32 3, i32 1)")
