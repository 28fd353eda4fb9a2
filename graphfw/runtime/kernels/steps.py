"""`Step`: one native call of a plan, and what it reads and writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, runtime_checkable

from graphfw.ir.dim import DimLike
from graphfw.ir.dtype import DType
from graphfw.ir.literal import Literal
from graphfw.ir.tensor import Node, Tensor
from graphfw.utils.records import record

if TYPE_CHECKING:
    from graphfw.runtime.kernels.ir import Kernel


class Code(Protocol):
    """The source of a function: `LlvmCode` for CPUs, `CudaCode` for GPUs."""

    @property
    def key(self) -> str:
        """The content: equal texts make equal machine code on one machine."""
        ...


@runtime_checkable
class LlvmCode(Code, Protocol):
    """The source of a native function of a CPU.

    The function's signature is `i32 (ptr buffers, ptr params, i64 work_item, ptr scratch)`: an
    array of pointers in the order of the step's operands, an array of i64, which work item to
    compute, and memory of the thread's own, aligned to 64 bytes. It returns 0, or another number
    where a check failed; the run then stops and is repeated by the reference path, which has the
    error message.

    A code that calls functions which others call too, and which are compiled once for all of them,
    has these as its attribute `callees`: a tuple of codes. What is worth telling about the
    instructions that it is made of is its attribute `note`. Where its text leaves LLVM nothing to
    simplify its attribute `tidy` is True: it is compiled in less time.
    """

    def llvm(self, symbol: str) -> str:
        """Return an LLVM module that defines the function under the name `symbol`.

        All other definitions in it are `internal`; it may declare what the C library has.
        """
        ...


def with_callees(codes: Iterable[Code]) -> Iterator[Code]:
    """Yield codes, each after those that it calls: see `Code`."""
    for code in codes:
        yield from with_callees(getattr(code, "callees", ()))
        yield code


@record(eq=False)
class Temp:
    """Memory that belongs to no tensor: partial results and packed operands.

    Attributes:
        dtype: Of its elements.
        size: How many elements.
        why: What reports call it.
    """

    dtype: DType
    size: DimLike
    why: str


@record(eq=False)
class Table(Temp):
    """Numbers that kernels read, the same in all runs.

    Attributes:
        literal: The numbers, in a row.
    """

    literal: Literal


Storage: TypeAlias = "Tensor | Temp"
"""An array in memory, contiguous, the last dim fastest."""


class Choice(NamedTuple):
    """The reason that a node is computed as it is, where there are several ways.

    Attributes:
        name: Of the strategy that was chosen.
        how: What has decided.
        estimates: How many seconds a core should take, by strategy.
        times: How many seconds a run took, by strategy; empty where nothing was measured.
    """

    name: str
    how: str
    estimates: Mapping[str, float]
    times: Mapping[str, float]

    def __str__(self) -> str:
        if len(self.estimates) == 1:
            return f"{self.name}, the only one that fits"
        seconds, unit = (self.times, "µs") if self.times else (self.estimates, "µs of a core")
        shown = [f"{name} {seconds[name] * 1e6:,.0f}" for name in seconds]
        return f"{self.name}, {self.how}: {', '.join(shown)} {unit}"


@record(eq=False)
class Step:
    """One native call.

    Attributes:
        nodes: What it computes, for reports and errors.
        code: What the native function is made from.
        operands: The arrays whose addresses it is given, in order.
        written: For each operand whether it is written rather than read: all of it, a range that
            no other step with work items writes, or elements of what `after` names.
        params: The run-time integers it is given.
        work_items: How many work items there are: independent pieces that threads claim, 10 to 100
            µs each.
        scratch: How many bytes of scratch memory each thread needs.
        in_place: Pairs (written operand, read operand) that may be one array: element i is read
            before it is written, and by nobody else.
        leaves_rest: Whether it changes only some elements of what these pairs write over: in
            less time than where it copies the rest, too.
        when_in_place: The step that does the same in fewer work items where it is in place by these
            pairs, if there is one.
        can_fail: Whether it may return a number other than 0.
        nonzero: Sizes that must not be 0: of nothing, none is the largest.
        after: What must have been made before, though it is not read: nothing is kept for that.
        choice: Why it is this step, and those before it for the same nodes; for reports.
        prepacks: Whether it lays out an operand that stays the same from run to run.
    """

    nodes: tuple[Node, ...]
    code: Code
    operands: tuple[Storage, ...]
    written: tuple[bool, ...]
    params: tuple[DimLike, ...]
    work_items: DimLike
    scratch: DimLike = 0
    in_place: tuple[tuple[int, int], ...] = field(default=())
    leaves_rest: bool = False
    when_in_place: Step | None = None
    can_fail: bool = False
    nonzero: tuple[DimLike, ...] = ()
    after: tuple[Storage, ...] = ()
    choice: Choice | None = None
    prepacks: bool = False


class View(NamedTuple):
    """The offset and strides of a tensor in a storage, which may be transposed, sliced, broadcast.

    Attributes:
        storage: Where.
        offset: Of its first element, in elements.
        shape: The tensor's.
        strides: In elements, one a dim; 0 where it is broadcast.
    """

    storage: Storage
    offset: DimLike
    shape: tuple[DimLike, ...]
    strides: tuple[DimLike, ...]


class Epilogue(NamedTuple):
    """The function of each element of a matrix product while it is in cache.

    Attributes:
        kernel: A kernel of the form "rows" with one inner axis: its rows are those of the product
            with all batch dims joined, its inner axis the columns. It is run piece by piece.
        operands: For each of its buffers the storage; None for the product itself, which it reads
            with strides (columns, 1) as the buffer `product`.
        params: The run-time integers of the kernel.
        product: Which buffer is the product.
        row_stride: Which of `params` is the distance between rows of the product, and nothing else:
            a piece of the product is in a block of its own, whose rows are as far apart as it is
            wide. What stands at this index in `params` is not used.
        in_place: Pairs of buffers, (written, read), that may be one array: see `Step`.
        sections: Into how many equal sections the columns of the product are divided: the kernel's
            columns are those of a section, and it reads elements of each.
        begins: Pairs of a section's number, not 0, and which of `params` is how far it lies after
            the first, and nothing else: what stands at that index is not used.
        member: Where the rows are not one axis of the kernel but two: which of `params` is the
            distance between rows of the first of these, and how many rows the other has.
        is_whole: Whether a piece must have all columns of its rows: they are reduced.
    """

    kernel: Kernel
    operands: tuple[Storage | None, ...]
    params: tuple[DimLike, ...]
    product: int
    row_stride: int
    in_place: tuple[tuple[int, int], ...] = ()
    sections: int = 1
    begins: tuple[tuple[int, int], ...] = ()
    member: tuple[int, DimLike] | None = None
    is_whole: bool = False

    def params_with(self, row: DimLike, section: DimLike = 0) -> tuple[DimLike, ...]:
        """Return `params` for a block with these distances between rows and between sections."""
        params = list(self.params)
        params[self.row_stride] = row
        for number, index in self.begins:
            params[index] = number * section
        if self.member is not None:
            index, rows = self.member
            params[index] = rows * row
        return tuple(params)


class Prologue(NamedTuple):
    """The computation of an operand of a matrix product, some rows or columns of it at a time.

    Attributes:
        nodes: What is computed: one tensor, of which the operand may be a transposed view.
        kernel: A kernel of the form "rows" with one outer and one inner axis: the rows and columns
            of the tensor. It has nothing that can fail.
        operands: For each of its buffers the storage; None for the tensor, which it writes.
        params: The run-time integers of the kernel. The last is the distance between rows of the
            tensor, and nothing else: a piece of it is in a block of its own.
        rows: How many rows the tensor has, its batch dims joined with them.
        columns: How many columns.
        is_right: Whether it is the right operand.
    """

    nodes: tuple[Node, ...]
    kernel: Kernel
    operands: tuple[Storage | None, ...]
    params: tuple[DimLike, ...]
    rows: DimLike
    columns: DimLike
    is_right: bool


class Product(NamedTuple):
    """A matrix product or a convolution, and what is done to its elements.

    Attributes:
        node: What multiplies, or what pools it.
        nodes: What steps for it compute.
        left: What is multiplied.
        right: By what: a matrix, or kernels.
        result: Where the product goes; None where only the epilogue has outputs.
        epilogue: What is done to its elements.
        is_fixed: Whether the storage of `right` has the same contents in all runs.
        prologue: What computes one of the operands, whose storage is not in memory then.
    """

    node: Node
    nodes: tuple[Node, ...]
    left: View
    right: View
    result: Storage | None
    epilogue: Epilogue | None
    is_fixed: bool
    prologue: Prologue | None = None


@record(eq=False)
class ReferenceStep:
    """One node that its op's `eval` computes, outside of native code.

    Attributes:
        node: The node.
        after: As of a `Step`.
    """

    node: Node
    after: tuple[Storage, ...] = ()


Item: TypeAlias = "Step | ReferenceStep"
"""An item of a run's work."""
