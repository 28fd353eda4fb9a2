"""`KernelCode`: the machine code of a kernel, and its functions for other generators of code."""

from __future__ import annotations

from dataclasses import field
from functools import cached_property
from typing import NamedTuple

from graphfw.ir.dtype import DType
from graphfw.runtime.kernels.ir import Accumulate, Keep, Kernel
from graphfw.runtime.kernels.lower_work_items import LONG
from graphfw.runtime.kernels.printer import show
from graphfw.runtime.kernels.walk import statements
from graphfw.runtime.numpy_executor.codegen import mathlib
from graphfw.runtime.numpy_executor.codegen.across_rows import panel_bytes
from graphfw.runtime.numpy_executor.codegen.facts import KernelFacts
from graphfw.runtime.numpy_executor.codegen.nest import Nest, block_shape
from graphfw.runtime.numpy_executor.codegen.target import Processor, host
from graphfw.runtime.numpy_executor.codegen.writer import METADATA, WORK_ITEM, Writer
from graphfw.utils.records import record


class FunctionText(NamedTuple):
    """The text of a function and what a module needs besides it.

    Attributes:
        text: Its definition.
        declarations: By symbol, the declarations of functions that it calls.
        math: The functions of `mathlib` that it calls: name, dtype, lanes.
    """

    text: str
    declarations: dict[str, str]
    math: tuple[tuple[str, DType, int], ...]


class ScratchBytes(NamedTuple):
    """The scratch memory of a thread: `per_inner * inner positions of a row + constant`."""

    per_inner: int
    constant: int


@record
class KernelCode:
    """The native function of a kernel, as `steps.Code`.

    Attributes:
        kernel: The kernel.
        target: The processor.
    """

    kernel: Kernel
    target: Processor = field(default_factory=host)

    @cached_property
    def key(self) -> str:
        """The kernel's text, the processor, and what is large there."""
        return f"{show(self.kernel)}for {self.target.name} {self.target.large}\n"

    def llvm(self, symbol: str) -> str:
        kernel = self.kernel
        is_known = all(isinstance(axis.extent, int) for axis in kernel.inner)
        has_rows = kernel.form == "rows" and kernel.outer
        if not kernel.asks or is_known or not has_rows:
            return module([self._work_item(f"define i32 @{symbol}", asks=kernel.asks)])
        # Questions in the loops of many short rows would cost much of their time.
        ways = f"{symbol}_short", f"{symbol}_long"
        work_items = [self._work_item(f"define internal i32 @{w}", asks=w is ways[1]) for w in ways]
        return module([*work_items, self._choice(symbol, *ways)])

    def _work_item(self, head: str, *, asks: bool) -> FunctionText:
        writer = Writer()
        Nest(self.kernel, writer, self.target).work_item(asks=asks)
        return _function(writer, f"{head}({WORK_ITEM})")

    def _choice(self, symbol: str, short: str, long: str) -> FunctionText:
        """Return the function that calls one for few inner positions, or one for many."""
        writer = Writer()
        inner = Nest(self.kernel, writer, self.target).product(self.kernel.inner)
        is_long = writer.let(f"icmp sgt i64 {inner}, {LONG}", 0)
        way = writer.let(f"select i1 {is_long}, ptr @{long}, ptr @{short}", 0)
        answer = writer.let(f"tail call i32 {way}({WORK_ITEM})", 0)
        text = writer.function(f"define i32 @{symbol}({WORK_ITEM})", f"ret i32 {answer}")
        return FunctionText(text, {}, ())


def region(kernel: Kernel, symbol: str, target: Processor | None = None) -> FunctionText:
    """Return an internal function that computes a rectangle of a kernel.

    `i32 @symbol(ptr buffers, ptr params, i64 row0, i64 row1, i64 col0, i64 col1, ptr scratch)`: the
    rows from `row0` up to `row1`, counted over all outer axes, of each the inner positions from
    `col0` up to `col1`. It returns 0, or another number where a check failed.

    Args:
        kernel: Of the form "rows", with one inner axis; what is kept of a row, or reduced over
            rows, is none of it. Its reductions are those of the inner positions of the range.
        symbol: The function's name.
        target: The processor; this machine's by default.

    Raises:
        ValueError: The kernel is of another kind.
    """
    facts = KernelFacts(kernel)
    plain = kernel.form == "rows" and len(kernel.inner) == 1 and not facts.keeps
    if not plain or any([isinstance(s, Accumulate) for s in facts.statements()]):
        raise ValueError("a region is of a kernel of rows with one inner axis, none reduced")
    writer = Writer()
    Nest(kernel, writer, target or host()).rows(("%row0", "%row1"), ("%col0", "%col1"))
    integers = "i64 %row0, i64 %row1, i64 %col0, i64 %col1"
    head = f"define internal i32 @{symbol}(ptr %buffers, ptr %params, {integers}, ptr %scratch)"
    return _function(writer, head)


def module(functions: list[FunctionText]) -> str:
    """Return a module of functions, with what they need, each once."""
    declarations: dict[str, str] = {}
    math: dict[tuple[str, DType, int], None] = {}
    for function in functions:
        declarations |= function.declarations
        math |= dict.fromkeys(function.math)
    library = mathlib.library(math)
    declarations |= library.declarations
    texts = [*declarations.values(), *(f.text for f in functions), library.definitions]
    return "\n".join([*texts, METADATA, ""])


def scratch_bytes(kernel: Kernel, target: Processor | None = None) -> ScratchBytes:
    """Return the scratch memory of a kernel for its kept rows, and rows read across."""
    target = target or host()
    sizes = [s.value.dtype.itemsize for s in statements(kernel) if isinstance(s, Keep)]
    per_inner, constant = panel_bytes(kernel, target)
    if not sizes:
        return ScratchBytes(per_inner, constant)
    shape = block_shape(kernel, target)
    block = shape.lanes * shape.vectors if kernel.form == "columns" else 1
    return ScratchBytes(sum(sizes) * block + per_inner, 64 * len(sizes) + constant)


def _function(writer: Writer, head: str) -> FunctionText:
    return FunctionText(writer.function(head), writer.declarations, tuple(writer.math))
