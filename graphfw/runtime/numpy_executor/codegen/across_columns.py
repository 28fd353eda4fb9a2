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
from graphfw.runtime.numpy_executor.codegen.registers import memory, vector
from graphfw.runtime.numpy_executor.codegen.strided import is_near
from graphfw.runtime.numpy_executor.codegen.target import Processor
from graphfw.runtime.numpy_executor.codegen.transpose import transposed


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
        tile, item = self._tiles[load], self._item(load)
        lanes, vectors = evaluator.shape
        side, width, level = self._square(load, evaluator.shape), lanes * vectors, writer.depth
        element = memory(self._kernel.buffers[load.buffer].dtype)
        kind, axis = vector(element, side), self._kernel.inner[-1]
        position, column = evaluator.index[axis.name], evaluator.index[evaluator.facts.vector_axis]
        size = evaluator.size(axis.extent)

        def let(text: str) -> str:
            return writer.let(text, writer.depth)

        def least(a: str, b: str) -> str:
            return writer.call("i64", "llvm.smin.i64", [("i64", a), ("i64", b)], writer.depth)

        # The last positions overlap the ones before; fewer positions are copied one by one.
        final = evaluator.int64("sub", size, str(side), 0)
        is_short = writer.pure(f"icmp slt i64 {final}, 0", 0)
        start_of_block = let(f"and i64 {position}, {-side}")
        begin = least(start_of_block, writer.pure(f"select i1 {is_short}, i64 0, i64 {final}", 0))
        is_due = let(f"icmp eq i64 {position}, {start_of_block}")
        strides = dict(load.access.strides)
        stride = evaluator.size(strides.pop(evaluator.facts.vector_axis))
        last = evaluator.int64("sub", evaluator.size(self._kernel.outer[-1].extent), "1", 0)
        address = let(
            f"getelementptr {element}, ptr {evaluator.pointer(load.buffer)}, "
            f"i64 {evaluator.size(load.access.offset)}"
        )
        for name, step in strides.items():
            index = begin if name == axis.name else evaluator.index[name]
            offset = let(f"mul i64 {index}, {evaluator.size(step)}")
            address = let(f"getelementptr {element}, ptr {address}, i64 {offset}")

        def start(number: str) -> str:
            """Write where the positions of a column begin; beyond the last, of that one."""
            at = let(f"add i64 {column}, {number}")
            # Only under masks there are columns beyond the last.
            at = least(at, last) if evaluator.masks else at
            return let(
                f"getelementptr {element}, ptr {address}, i64 {let(f'mul i64 {at}, {stride}')}"
            )

        def address_at(line: str, number: str) -> str:
            at = let(f"add i64 {let(f'mul i64 {line}, {width}')}, {number}")
            return let(f"getelementptr {element}, ptr {tile}, i64 {at}")

        whole = let(f"select i1 {is_due}, i64 {width}, i64 0")
        some = let(f"select i1 {is_short}, i64 {whole}, i64 0")
        whole = let(f"select i1 {is_short}, i64 0, i64 {whole}")
        with writer.loop("0", whole, str(side)) as number:
            rows = []
            for n in range(side):
                row = start(let(f"add i64 {number}, {n}"))
                rows.append(let(f"load {kind}, ptr {row}, align {item}"))
            for n, value in enumerate(transposed(let, kind, side, rows)):
                to = address_at(str(n), number)
                writer.line(f"store {kind} {value}, ptr {to}, align {item}", writer.depth)
        with writer.loop("0", some, "1") as number:
            row = start(number)
            with writer.loop("0", size, "1") as line:
                at = let(f"getelementptr {element}, ptr {row}, i64 {line}")
                value = let(f"load {element}, ptr {at}, align {item}")
                to = address_at(line, number)
                writer.line(f"store {element} {value}, ptr {to}, align {item}", writer.depth)
        line = writer.let(f"sub i64 {position}, {begin}", level)
        line = writer.let(f"mul i64 {line}, {width}", level)
        line = writer.let(f"sub i64 {line}, {column}", level)
        return writer.let(f"getelementptr {element}, ptr {tile}, i64 {line}", level)
