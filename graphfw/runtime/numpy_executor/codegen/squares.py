"""Squares of an operand's elements: loaded, transposed in registers, and stored."""

from __future__ import annotations

from graphfw.runtime.kernels.ir import Axis, Load
from graphfw.runtime.numpy_executor.codegen.evaluate import Evaluator
from graphfw.runtime.numpy_executor.codegen.registers import memory, vector
from graphfw.runtime.numpy_executor.codegen.transpose import transposed


class Squares:
    """Writes how an operand that is dense along an axis is transposed, some of its lines at a time.

    Lines lie along the axis, in memory; the vector axis counts them. In the end, each of some
    positions on the axis has its elements of all lines side by side.

    Args:
        evaluator: Of the kernel.
        load: The load of the operand.
        axis: The axis along which it is dense.
        side: How many positions are transposed together, and of how many lines at once.
    """

    def __init__(self, evaluator: Evaluator, load: Load, axis: Axis, side: int) -> None:
        self._evaluator, self._load, self._axis, self._side = evaluator, load, axis, side
        dtype = evaluator.facts.kernel.buffers[load.buffer].dtype
        self._element, self._item = memory(dtype), dtype.itemsize
        # The last positions overlap the ones before; fewer positions are copied one by one.
        final = evaluator.int64("sub", evaluator.size(axis.extent), str(side), 0)
        writer = evaluator.writer
        self._is_short = writer.pure(f"icmp slt i64 {final}, 0", 0)
        self._final = writer.pure(f"select i1 {self._is_short}, i64 0, i64 {final}", 0)

    def first(self, position: str) -> str:
        """Return the first of the positions that are transposed together from a position on."""
        return self._least(position, self._final)

    def write(
        self, to: str, width: str, first: str, is_due: str, lines: tuple[str, str], extent: str
    ) -> None:
        """Write that positions are transposed.

        Args:
            to: Where the elements of the first position go.
            width: How many elements lie between positions there.
            first: The first position.
            is_due: Whether anything is transposed (i1).
            lines: The first line, and how many there are.
            extent: How many lines the operand has, which squares may go beyond; "": they do not.
        """
        let, evaluator, side = self._let, self._evaluator, self._side
        writer, element, item = evaluator.writer, self._element, self._item
        kind, (begin, count) = vector(element, side), lines
        strides = dict(self._load.access.strides)
        stride = evaluator.size(strides.pop(evaluator.facts.vector_axis))
        start = self._offset(
            evaluator.pointer(self._load.buffer), evaluator.size(self._load.access.offset)
        )
        for name, step in strides.items():
            at = first if name == self._axis.name else evaluator.index[name]
            start = self._offset(start, let(f"mul i64 {at}, {evaluator.size(step)}"))
        last = evaluator.int64("sub", extent, "1", 0) if extent else ""

        def source(number: str, *, is_limited: bool) -> str:
            at = number if begin == "0" else let(f"add i64 {begin}, {number}")
            at = self._least(at, last) if is_limited else at
            return self._offset(start, let(f"mul i64 {at}, {stride}"))

        def target(position: str, number: str) -> str:
            at = let(f"mul i64 {position}, {width}")
            return self._offset(to, let(f"add i64 {at}, {number}"))

        whole = let(f"select i1 {is_due}, i64 {count}, i64 0")
        some = let(f"select i1 {self._is_short}, i64 {whole}, i64 0")
        whole = let(f"select i1 {self._is_short}, i64 0, i64 {whole}")
        with writer.loop("0", whole, str(side)) as number:
            sources = [
                source(let(f"add i64 {number}, {n}"), is_limited=bool(extent)) for n in range(side)
            ]
            vectors = [let(f"load {kind}, ptr {address}, align {item}") for address in sources]
            for n, value in enumerate(transposed(let, kind, side, vectors)):
                address = target(str(n), number)
                writer.line(f"store {kind} {value}, ptr {address}, align {item}", writer.depth)
        with writer.loop("0", some, "1") as number:
            line = source(number, is_limited=extent not in ("", count))
            with writer.loop("0", evaluator.size(self._axis.extent), "1") as position:
                value = let(f"load {element}, ptr {self._offset(line, position)}, align {item}")
                address = target(position, number)
                writer.line(f"store {element} {value}, ptr {address}, align {item}", writer.depth)

    def _let(self, text: str) -> str:
        return self._evaluator.writer.let(text, self._evaluator.writer.depth)

    def _least(self, a: str, b: str) -> str:
        writer = self._evaluator.writer
        return writer.call("i64", "llvm.smin.i64", [("i64", a), ("i64", b)], writer.depth)

    def _offset(self, address: str, elements: str) -> str:
        return self._let(f"getelementptr {self._element}, ptr {address}, i64 {elements}")
