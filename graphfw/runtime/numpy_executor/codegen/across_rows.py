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
from graphfw.runtime.numpy_executor.codegen.registers import memory, vector
from graphfw.runtime.numpy_executor.codegen.strided import is_near
from graphfw.runtime.numpy_executor.codegen.target import Processor
from graphfw.runtime.numpy_executor.codegen.transpose import transposed


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
        dtype, axis = self._kernel.buffers[load.buffer].dtype, self._kernel.outer[-1]
        element, item = memory(dtype), dtype.itemsize
        side = square(self._target, item)
        kind, index = vector(element, side), evaluator.index[axis.name]
        size = evaluator.size(self._kernel.inner[0].extent)

        def let(text: str) -> str:
            return writer.let(text, writer.depth)

        def least(a: str, b: str) -> str:
            return writer.call("i64", "llvm.smin.i64", [("i64", a), ("i64", b)], writer.depth)

        # The last rows of the axis overlap those before; fewer rows are copied one by one.
        rows = evaluator.size(axis.extent)
        final = evaluator.int64("sub", rows, str(side), 0)
        is_short = writer.pure(f"icmp slt i64 {final}, 0", 0)
        final = writer.pure(f"select i1 {is_short}, i64 0, i64 {final}", 0)
        before = writer.load("i64", slot, 1)
        is_over = let(f"icmp sge i64 {let(f'sub i64 {index}, {before}')}, {side}")
        is_due = let(f"or i1 {is_over}, {let(f'icmp eq i64 {index}, 0')}")
        is_due = let(f"or i1 {is_due}, {is_first}")
        first = let(f"select i1 {is_due}, i64 {least(index, final)}, i64 {before}")
        writer.store("i64", first, slot, 1)
        strides = dict(load.access.strides)
        stride = evaluator.size(strides.pop(evaluator.facts.vector_axis))
        address = let(
            f"getelementptr {element}, ptr {evaluator.pointer(load.buffer)}, "
            f"i64 {evaluator.size(load.access.offset)}"
        )
        for name, step in strides.items():
            at = first if name == axis.name else evaluator.index[name]
            offset = let(f"mul i64 {at}, {evaluator.size(step)}")
            address = let(f"getelementptr {element}, ptr {address}, i64 {offset}")

        def column(position: str) -> str:
            offset = let(f"mul i64 {position}, {stride}")
            return let(f"getelementptr {element}, ptr {address}, i64 {offset}")

        def target(row: str, position: str) -> str:
            at = let(f"add i64 {let(f'mul i64 {row}, {line}')}, {position}")
            return let(f"getelementptr {element}, ptr {panel}, i64 {at}")

        whole = let(f"select i1 {is_due}, i64 {size}, i64 0")
        some = let(f"select i1 {is_short}, i64 {whole}, i64 0")
        whole = let(f"select i1 {is_short}, i64 0, i64 {whole}")
        last = evaluator.int64("sub", size, "1", 0)
        with writer.loop("0", whole, str(side)) as position:
            taken = [least(let(f"add i64 {position}, {n}"), last) for n in range(side)]
            columns = [column(at) for at in taken]
            vectors = [let(f"load {kind}, ptr {at}, align {item}") for at in columns]
            for n, value in enumerate(transposed(let, kind, side, vectors)):
                to = target(str(n), position)
                writer.line(f"store {kind} {value}, ptr {to}, align {item}", writer.depth)
        with writer.loop("0", some, "1") as position:
            source = column(position)
            with writer.loop("0", rows, "1") as row:
                at = let(f"getelementptr {element}, ptr {source}, i64 {row}")
                value = let(f"load {element}, ptr {at}, align {item}")
                to = target(row, position)
                writer.line(f"store {element} {value}, ptr {to}, align {item}", writer.depth)
        distance = let(f"sub i64 {index}, {first}")
        return let(
            f"getelementptr {element}, ptr {panel}, i64 {let(f'mul i64 {distance}, {line}')}"
        )
