"""Reading ahead: while a row is computed, the next one is brought into the cache.

The first pass over a row waits for memory; the others use what it has left in the cache, and memory
would be idle. So the second pass asks for the next row.
"""

from __future__ import annotations

from graphfw.runtime.kernels.ir import Kernel, Load, Loop
from graphfw.runtime.numpy_executor.codegen.evaluate import Evaluator
from graphfw.runtime.numpy_executor.codegen.facts import postorder, roots


class Ahead:
    """What a kernel of the form "rows" reads ahead.

    Attributes:
        loop: The pass that asks for the next row; None where there is no second one.
    """

    def __init__(self, kernel: Kernel) -> None:
        loops = [item for item in kernel.body if isinstance(item, Loop)]
        self.loop = loops[1] if len(loops) > 1 and kernel.outer else None
        self._loads: tuple[Load, ...] = ()
        if self.loop is not None:
            self._outer = kernel.outer[-1].name
            wanted = [root for s in loops[0].body for root in roots(s)]
            loads = [expr for expr in postorder(wanted) if isinstance(expr, Load)]
            vector_axis = kernel.inner[-1].name
            self._loads = tuple([x for x in loads if self._is_of_row(x, vector_axis)])

    def _is_of_row(self, load: Load, vector_axis: str) -> bool:
        strides = dict(load.access.strides)
        is_dense = strides.get(vector_axis) == 1 and not load.access.terms
        return is_dense and strides.get(self._outer, 0) != 0

    def ask(self, evaluator: Evaluator, is_last: str) -> None:
        """Write that the elements of the next row, at the positions at hand, are fetched.

        Args:
            evaluator: Of the kernel.
            is_last: Whether the cell has no other row (i1): then nothing is.
        """
        writer, depth = evaluator.writer, evaluator.writer.depth
        for load in self._loads:
            itemsize = evaluator.facts.kernel.buffers[load.buffer].dtype.itemsize
            stride = evaluator.size(dict(load.access.strides)[self._outer])
            step = evaluator.int64("mul", stride, str(itemsize), 0)
            step = writer.pure(f"select i1 {is_last}, i64 0, i64 {step}", 1)
            for pointer in evaluator.address(load.buffer, load.access).pointers:
                there = writer.pure(f"getelementptr i8, ptr {pointer}, i64 {step}", depth)
                # For reading, into all caches, data.
                how = [("i32", "0"), ("i32", "3"), ("i32", "1")]
                writer.call("void", "llvm.prefetch.p0", [("ptr", there), *how], depth)
