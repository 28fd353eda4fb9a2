"""Prefetching: what is computed next is brought into the cache early.

A kernel of one pass asks for what comes 2 KB later in the same array: processors foresee that by
themselves, but not far enough, and not of many arrays at once. Of several passes over a row the
first waits for memory; the others use what it has left in the cache, and memory would be idle. So
the second pass asks for the next row.
"""

from __future__ import annotations

from graphfw.runtime.kernels.ir import InnerLoop, Kernel, Load
from graphfw.runtime.kernels.walk import postorder, roots
from graphfw.runtime.numpy_executor.codegen.evaluate import Evaluator

_DISTANCE = 2048
"""In bytes. Adam takes 4.6 ms without, 3.5 ms with 2 KB, 3.9 ms with 4 KB, 4.8 ms with 8 KB."""


class Prefetch:
    """The memory that a kernel of the form "rows" prefetches.

    Attributes:
        loop: The pass that asks; None where there is none.
    """

    def __init__(self, kernel: Kernel) -> None:
        loops = [item for item in kernel.body if isinstance(item, InnerLoop)]
        self._of_next_row = len(loops) > 1 and bool(kernel.outer)
        self.loop = loops[self._of_next_row] if loops else None
        self._outer = kernel.outer[-1].name if kernel.outer else ""
        self._loads: tuple[Load, ...] = ()
        if self.loop is not None:
            wanted = [root for s in loops[0].body for root in roots(s)]
            loads = [expr for expr in postorder(wanted) if isinstance(expr, Load)]
            vector_axis = kernel.inner[-1].name
            plain = [load for load in loads if not kernel.is_packed(load)]
            self._loads = tuple([x for x in plain if self._is_of_row(x, vector_axis)])

    def _is_of_row(self, load: Load, vector_axis: str) -> bool:
        strides = dict(load.access.strides)
        is_dense = strides.get(vector_axis) == 1 and not load.access.terms
        return is_dense and (not self._outer or strides.get(self._outer, 0) != 0)

    def ask(self, evaluator: Evaluator, is_last: str) -> None:
        """Write that memory ahead of the positions at hand is read into the cache.

        Args:
            evaluator: Of the kernel.
            is_last: Whether the work item has no other row (i1): then no next row is read.
        """
        writer, depth = evaluator.writer, evaluator.writer.depth
        for load in self._loads:
            step = str(_DISTANCE)
            if self._of_next_row:
                itemsize = evaluator.facts.kernel.buffers[load.buffer].dtype.itemsize
                stride = evaluator.size(dict(load.access.strides)[self._outer])
                step = evaluator.int64("mul", stride, str(itemsize), 0)
                step = writer.pure(f"select i1 {is_last}, i64 0, i64 {step}", 1)
            for pointer in evaluator.address(load.buffer, load.access).pointers:
                there = writer.pure(f"getelementptr i8, ptr {pointer}, i64 {step}", depth)
                # For reading, into all caches, data.
                how = [("i32", "0"), ("i32", "3"), ("i32", "1")]
                writer.call("void", "llvm.prefetch.p0", [("ptr", there), *how], depth)
