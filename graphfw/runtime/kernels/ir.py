"""The kernel IR: a small loop nest that computes one fused group of nodes.

    kernel softmax rows [i: p0] x [j: p1], p2 rows a work item
      in  b0: float32
      out b1: float32
      for each i:
        for j:
          m = max(b0[p1*i + j])
        for j:
          s = sum(exp(b0[p1*i + j] - m))
        for j:
          b1[p1*i + j] = exp(b0[p1*i + j] - m) / s

A kernel holds no sizes: extents and strides that are not 0 or 1 are run-time integers, `Param`s, so
that one piece of machine code serves all sizes, and all nodes that differ only in sizes. What the
parameters stand for, and which tensors the buffers are, is said by the step that uses the kernel.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from graphfw.ir.dtype import DType, uint8
from graphfw.utils.records import record


class Param(NamedTuple):
    """A run-time integer: the `number`-th of those that the kernel is called with."""

    number: int


Size: TypeAlias = "int | Param"


class Axis(NamedTuple):
    """One axis of a kernel's loops."""

    name: str
    extent: Size


@record(eq=False)
class Expr:
    """A scalar value. Expressions are shared: the same object is computed once in a loop body."""

    dtype: DType


@record(eq=False)
class Const(Expr):
    """A literal."""

    value: bool | int | float


@record(eq=False)
class Position(Expr):
    """The position of a loop: the index along an axis, int64."""

    axis: str


@record(eq=False)
class SizeValue(Expr):
    """A run-time integer as a value, int64."""

    size: Size


@record(eq=False)
class Load(Expr):
    """An element of a buffer: of its dtype, or one of several in a byte: see `ops.packed_bits`.

    Of a buffer that the kernel writes, it is the element that earlier positions of the loop left.
    """

    buffer: int
    access: Access


@record(eq=False)
class Draw(Expr):
    """Random bits, uint32 or uint64: an element of a stream, as `ops.numerics.philox` numbers them.

    Attributes:
        buffer: What a run draws from, int64: its step, then the streams' keys.
        key: Which element of the buffer is the key of the stream.
        access: Which element of the stream.
    """

    buffer: int
    key: Size
    access: Access


@record(eq=False)
class Call(Expr):
    """A primitive function of values: see `scalars.PRIMITIVES`."""

    function: str
    args: tuple[Expr, ...]


@record(eq=False)
class Ref(Expr):
    """The value of a reduction, a carry or a kept row, by its name, made earlier in the row."""

    name: str


@record(eq=False)
class Carried(Expr):
    """Inside of a loop with a `Carry` of this name: what the position before has made of it."""

    name: str


class Term(NamedTuple):
    """A computed term of an access: `value * stride`; the run fails unless 0 <= value < bound."""

    value: Expr
    stride: Size
    bound: Size


class Access(NamedTuple):
    """The index of an element of a buffer: `offset + sum(position(axis) * stride) + sum(terms)`.

    Attributes:
        offset: In elements.
        strides: Axis by name to stride in elements; axes that are not named have stride 0.
        terms: The computed terms.
    """

    offset: Size
    strides: tuple[tuple[str, Size], ...]
    terms: tuple[Term, ...] = ()


ReduceKind: TypeAlias = Literal["sum", "prod", "max", "min", "all", "any", "argmax", "argmin"]


@record(eq=False)
class Reduce:
    """A reduction of a value over the inner axes; afterwards `Ref(name)` is its value in this row.

    `max` and `min` give NaN where there is one; `argmax` and `argmin` (int64: the position along
    the only inner axis) take the first of equals, and the first NaN before all.
    """

    name: str
    kind: ReduceKind
    value: Expr


@record(eq=False)
class Carry:
    """Hand a value from each position of a loop to the next, in registers. Only with "columns".

    In the loop `Carried(name)` is what the position before has made, at the first one `begin`;
    afterwards `Ref(name)` is what the last one has made. The inner axis is the only one.
    """

    name: str
    begin: Expr
    value: Expr


@record(eq=False)
class While:
    """End the loop before the position, unless the value, the same in all rows, holds.

    Only with "columns".
    """

    value: Expr


@record(eq=False)
class Keep:
    """Keep an inner value for later loops of the same row, in the thread's scratch memory."""

    name: str
    value: Expr


@record(eq=False)
class Store:
    """Write a value to a buffer."""

    buffer: int
    access: Access
    value: Expr


@record(eq=False)
class Accumulate:
    """Reduce a value over the rows of a work item, into a buffer with one line a work item.

    Where `inner` is true the line has an element for each inner position, reduced over the rows;
    otherwise it is one element, reduced over rows and inner positions (over the rows alone where it
    stands outside of a loop). A second kernel combines these: so the result does not depend on
    the number of threads.

    Attributes:
        buffer: Which buffer.
        access: Where in the line of a work item; a line has as many elements as there are inner
            positions, or one.
        kind: How.
        value: Of what.
        inner: See above.
    """

    buffer: int
    access: Access
    kind: ReduceKind
    value: Expr
    inner: bool


@record(eq=False)
class BoundsCheck:
    """Make the run fail unless 0 <= value < bound; the value is an int64."""

    value: Expr
    bound: Size


@record(eq=False)
class InnerLoop:
    """One pass over the inner axes of a row.

    At each position all values are computed first, but for those of a `While`, which come before;
    then `body` happens, in order.
    """

    body: tuple[Reduce | Carry | Keep | Store | Accumulate | BoundsCheck | While, ...]


@record(eq=False)
class Buffer:
    """An array that a kernel reads or writes."""

    dtype: DType
    written: bool


@record(eq=False)
class Kernel:
    """A loop nest.

    Attributes:
        form: What runs along a vector: "rows" the last inner axis, "columns" the last outer axis.
        outer: The axes of the rows, the slowest first. Work items, which threads claim, are ranges
            of rows; with "columns", of blocks of the last outer axis.
        inner: The axes of a row, the slowest first. Empty only with "columns".
        per_item: How many rows a work item has; with "columns", how many elements of the last outer
            axis.
        split: With "rows" and one inner axis: the number of inner positions in a work item, where
            rows are cut into several work items, else None. Only for kernels without Reduce and
            Keep.
        buffers: What is read and written.
        params: How many run-time integers it is called with.
        body: What is done for each row.
        asks: Whether a work item may take so long that it asks, in its loops over the inner axes,
            if the run should end.
        multiple: With "rows": a number of which the extent of the last inner axis and `split` are
            known to be multiples.
    """

    form: Literal["rows", "columns"]
    outer: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    per_item: Size
    split: Size | None
    buffers: tuple[Buffer, ...]
    params: int
    body: tuple[InnerLoop | Store | Accumulate | BoundsCheck, ...]
    asks: bool = False
    multiple: int = 1

    def is_packed(self, load: Load) -> bool:
        """Return whether a byte of the buffer holds several elements."""
        return load.dtype.bits < 8 and self.buffers[load.buffer].dtype is uint8

    def is_of_result(self, load: Load) -> bool:
        """Whether a load reads a buffer that the kernel writes, so that the order matters."""
        return self.buffers[load.buffer].written
