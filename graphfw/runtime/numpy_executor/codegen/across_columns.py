"""Operands that kernels of the form "columns" read across: transposed some positions at a time.

Lanes lie far apart in memory, and the positions that each lane goes through are dense. So before
some positions begin, vectors are loaded along them, transposed in registers, and left on the stack,
where each position reads its lanes densely.
"""

from __future__ import annotations

from graphfw.runtime.kernels.ir import InnerLoop, Kernel, Load
from graphfw.runtime.kernels.walk import postorder, roots
from graphfw.runtime.numpy_executor.codegen.across import Operands, square, together
from graphfw.runtime.numpy_executor.codegen.evaluate import Evaluator
from graphfw.runtime.numpy_executor.codegen.facts import KernelFacts, VectorShape
from graphfw.runtime.numpy_executor.codegen.registers import memory
from graphfw.runtime.numpy_executor.codegen.squares import Squares
from graphfw.runtime.numpy_executor.codegen.strided import is_near
from graphfw.runtime.numpy_executor.codegen.target import Processor


def loads_across_columns(kernel: Kernel, facts: KernelFacts) -> Operands:
    """Return the loads of a kernel of columns that are dense along its positions only."""
    if kernel.form != "columns" or not kernel.inner:
        return []
    found = []
    for expr in facts.exprs:
        if not isinstance(expr, Load) or kernel.is_packed(expr) or kernel.is_of_result(expr):
            continue
        if not expr.access.terms:
            strides = dict(expr.access.strides)
            lanes = strides.get(facts.vector_axis, 0)
            is_apart = lanes not in (0, 1) and not is_near(str(lanes))
            if is_apart and strides.get(kernel.inner[-1].name) == 1:
                found.append(expr)
    return together(found)


class ColumnTransposing:
    """Writes how the operands of some columns are transposed.

    Args:
        evaluator: Of the kernel.
        target: The processor.
        most: How many columns are computed side by side at most.
    """

    def __init__(self, evaluator: Evaluator, target: Processor, most: VectorShape) -> None:
        self._evaluator, self._target = evaluator, target
        self._kernel = evaluator.facts.kernel
        self._loads = loads_across_columns(self._kernel, evaluator.facts)
        width = most.lanes * most.vectors
        self._tiles = {
            load[0]: evaluator.writer.slot(
                f"[{self._square(load[0], most) * width * self._item(load[0])} x i8], align 64"
            )
            for load in self._loads
        }

    def position(self, loop: InnerLoop) -> None:
        """Write that a position of the last inner axis finds its operands.

        Args:
            loop: What is computed at each position.
        """
        evaluator = self._evaluator
        used = {*postorder([root for one in loop.body for root in roots(one)])}
        for loads in self._loads:
            for load in loads:
                evaluator.transposed.pop(load, None)
            # Single columns read their elements one by one.
            if evaluator.shape.lanes > 1 and not used.isdisjoint(loads):
                start = self._transposed(loads[0])
                evaluator.transposed.update(dict.fromkeys(loads, start))

    def _item(self, load: Load) -> int:
        return self._kernel.buffers[load.buffer].dtype.itemsize

    def _square(self, load: Load, shape: VectorShape) -> int:
        return min(square(self._target, self._item(load)), shape.lanes)

    def _transposed(self, load: Load) -> str:
        """Write the transposing of the next positions where it is due.

        Returns:
            Where the elements of the position lie, counted by the vector axis.
        """
        evaluator, writer = self._evaluator, self._evaluator.writer
        lanes, vectors = evaluator.shape
        side, width = self._square(load, evaluator.shape), lanes * vectors
        tile, axis = self._tiles[load], self._kernel.inner[-1]
        position, column = evaluator.index[axis.name], evaluator.index[evaluator.facts.vector_axis]

        def let(text: str) -> str:
            return writer.let(text, writer.depth)

        squares = Squares(evaluator, load, axis, side)
        start_of_block = let(f"and i64 {position}, {-side}")
        begin = squares.first(start_of_block)
        is_due = let(f"icmp eq i64 {position}, {start_of_block}")
        # Only under masks there are columns beyond the last.
        extent = evaluator.size(self._kernel.outer[-1].extent) if evaluator.masks else ""
        squares.write(tile, str(width), begin, is_due, (column, str(width)), extent)
        line = let(f"sub i64 {position}, {begin}")
        line = let(f"mul i64 {line}, {width}")
        line = let(f"sub i64 {line}, {column}")
        element = memory(self._kernel.buffers[load.buffer].dtype)
        return let(f"getelementptr {element}, ptr {tile}, i64 {line}")
