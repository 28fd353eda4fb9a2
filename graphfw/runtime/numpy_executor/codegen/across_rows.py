"""Operands that kernels of whole rows read across: transposed some rows at a time.

Along a row their elements lie far apart; along the rows they are dense. Before some rows begin,
vectors are loaded along the rows, transposed in registers, and left in a panel of scratch memory,
where these rows read them densely.
"""

from __future__ import annotations

from graphfw.runtime.kernels.ir import Kernel, Load
from graphfw.runtime.numpy_executor.codegen.across import Operands, square, together
from graphfw.runtime.numpy_executor.codegen.evaluate import Evaluator
from graphfw.runtime.numpy_executor.codegen.facts import KernelFacts
from graphfw.runtime.numpy_executor.codegen.registers import memory
from graphfw.runtime.numpy_executor.codegen.squares import Squares
from graphfw.runtime.numpy_executor.codegen.strided import is_near
from graphfw.runtime.numpy_executor.codegen.target import Processor


def loads_across_rows(kernel: Kernel, facts: KernelFacts) -> Operands:
    """Return the loads of a kernel of whole rows that are dense along the last outer axis only."""
    is_cut = kernel.split is not None or kernel.per_item == 1
    if kernel.form != "rows" or is_cut or not kernel.outer or len(kernel.inner) != 1:
        return []
    found = []
    for expr in facts.exprs:
        if isinstance(expr, Load) and not expr.access.terms and not kernel.is_packed(expr):
            strides = dict(expr.access.strides)
            along = strides.get(facts.vector_axis, 0)
            is_apart = along not in (0, 1) and not is_near(str(along))
            if is_apart and strides.get(kernel.outer[-1].name) == 1:
                found.append(expr)
    return together(found)


def panel_bytes(kernel: Kernel, target: Processor) -> tuple[int, int]:
    """Return the memory of a kernel's panels for an inner position, and for all."""
    loads = loads_across_rows(kernel, KernelFacts(kernel))
    items = [kernel.buffers[load.buffer].dtype.itemsize for load, *_ in loads]
    sizes = [square(target, item) * item for item in items]
    # Lines are rounded up to squares, and panels begin at cache lines.
    most = [square(target, item) * size + 64 for item, size in zip(items, sizes, strict=True)]
    return sum(sizes), sum(most)


class RowPanels:
    """Writes how the operands of some rows are transposed.

    Args:
        evaluator: Of the kernel.
        target: The processor.
        memory: Where the panels lie.
    """

    def __init__(self, evaluator: Evaluator, target: Processor, memory: str) -> None:
        self._evaluator, self._target = evaluator, target
        self._kernel = kernel = evaluator.facts.kernel
        self._panels: list[tuple[tuple[Load, ...], str, str, str]] = []
        size = evaluator.size(kernel.inner[0].extent)
        for loads in loads_across_rows(kernel, evaluator.facts):
            item = kernel.buffers[loads[0].buffer].dtype.itemsize
            side = square(target, item)
            padded = evaluator.int64("add", size, str(side - 1), 0)
            line = evaluator.int64("and", padded, str(-side), 0)
            first = evaluator.writer.slot("i64")
            self._panels.append((loads, memory, line, first))
            nbytes = evaluator.int64("mul", line, str(side * item), 0)
            nbytes = evaluator.int64("add", nbytes, "63", 0)
            nbytes = evaluator.int64("and", nbytes, "-64", 0)
            memory = evaluator.writer.pure(f"getelementptr i8, ptr {memory}, i64 {nbytes}", 0)

    def row(self, is_first: str) -> None:
        """Write that a row finds its operands, which are transposed where a panel begins.

        Args:
            is_first: Whether the row is the work item's first one (i1).
        """
        for loads, panel, line, first in self._panels:
            start = self._transposed(loads[0], panel, line, first, is_first)
            self._evaluator.transposed.update(dict.fromkeys(loads, start))

    def _transposed(self, load: Load, panel: str, line: str, slot: str, is_first: str) -> str:
        """Write the transposing of the next rows where it is due; return where the row begins."""
        evaluator, writer = self._evaluator, self._evaluator.writer
        axis, item = self._kernel.outer[-1], self._kernel.buffers[load.buffer].dtype.itemsize
        side, index = square(self._target, item), evaluator.index[axis.name]
        size = evaluator.size(self._kernel.inner[0].extent)

        def let(text: str) -> str:
            return writer.let(text, writer.depth)

        squares = Squares(evaluator, load, axis, side)
        before = writer.load("i64", slot, 1)
        is_over = let(f"icmp sge i64 {let(f'sub i64 {index}, {before}')}, {side}")
        is_due = let(f"or i1 {is_over}, {let(f'icmp eq i64 {index}, 0')}")
        is_due = let(f"or i1 {is_due}, {is_first}")
        first = let(f"select i1 {is_due}, i64 {squares.first(index)}, i64 {before}")
        writer.store("i64", first, slot, 1)
        squares.write(panel, line, first, is_due, ("0", size), size)
        distance = let(f"sub i64 {index}, {first}")
        element = memory(self._kernel.buffers[load.buffer].dtype)
        return let(
            f"getelementptr {element}, ptr {panel}, i64 {let(f'mul i64 {distance}, {line}')}"
        )
