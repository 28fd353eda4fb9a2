"""Reading ahead: while a row is computed, the next one is brought into the cache.

The first pass over a row waits for memory, and the others use what it has left in the cache; in
these, memory would be idle. So the second pass asks for the next row.
"""

from __future__ import annotations

import os
from graphfw.runtime.kernels.ir import Kernel, Load, Loop
from graphfw.runtime.numpy_executor.codegen.evaluate import Evaluator
from graphfw.runtime.numpy_executor.codegen.facts import postorder, roots

_WHICH=1
_TO=int(os.environ.get("GFPF","3"))

class Ahead:
    """What a kernel reads ahead.

    Attributes:
        loop: The pass that asks for the next row; None where there is no second one.
    """

    def __init__(self, kernel: Kernel) -> None:
        loops = [item for item in kernel.body if isinstance(item, Loop)]
        self.loop = loops[_WHICH] if len(loops) > 1 and kernel.outer and _TO else None
        self._outer = kernel.outer[-1].name if kernel.outer else ""
        vector_axis = kernel.inner[-1].name if kernel.inner else ""
        found = {}
        for expr in postorder([x for loop in loops[:1] for s in loop.body for x in roots(s)]):
            if isinstance(expr, Load) and not expr.access.terms:
                strides = dict(expr.access.strides)
                if strides.get(vector_axis) == 1 and strides.get(self._outer, 0) != 0:
                    found.setdefault(expr.buffer, expr)
        self._loads: tuple[Load, ...] = tuple(found.values())

    def ask(self, evaluator: Evaluator, is_last: str) -> None:
        """Write that the elements of the next row, at the positions at hand, are fetched.

        Args:
            evaluator: Of the kernel.
            is_last: Whether there is no other row in the cell (i1).
        """
        writer = evaluator.writer
        for load in self._loads:
            itemsize = str(evaluator.facts.kernel.buffers[load.buffer].dtype.itemsize)
            stride = evaluator.size(dict(load.access.strides)[self._outer])
            step = evaluator.int64("mul", stride, itemsize, 0)
            step = writer.pure(f"select i1 {is_last}, i64 0, i64 {step}", 1)
            for pointer in evaluator.address(load.buffer, load.access).pointers:
                following = writer.pure(
                    f"getelementptr i8, ptr {pointer}, i64 {step}", writer.depth
                )
                arguments = [("ptr", following), ("i32", "0"), ("i32", str(_TO)), ("i32", "1")]
                writer.call("void", "llvm.prefetch.p0", arguments, writer.depth)
