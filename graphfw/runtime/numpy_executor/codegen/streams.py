"""Stores that go past the caches, for large results.

A plain store to memory that is not in a cache first reads it: of what a copy moves that is a third.
What is large, and what is aligned, is known at run time: so loops are written twice, with these
stores and without. For what is written over an operand, plain stores are the faster ones: it is in
the cache already.
"""

from __future__ import annotations

from functools import reduce as fold

from graphfw.runtime.kernels.ir import InnerLoop, Store
from graphfw.runtime.numpy_executor.codegen.evaluate import Evaluator

_LINE = 64
"""Bytes of a cache line: less than a line is stored slowly this way."""


class Streams:
    """Finds the stores of a kernel that may go past the caches.

    Args:
        evaluator: Of the kernel.
        lanes: Of its vectors.
        begin: The first inner position of the work item.
        large: What is no smaller, in bytes, is large.
    """

    def __init__(self, evaluator: Evaluator, lanes: int, begin: str, large: int) -> None:
        self._evaluator = evaluator
        self._kernel = evaluator.facts.kernel
        self._lanes = lanes
        self._begin = begin
        self._large = large
        self._is_used = False

    def stores(self, loop: InnerLoop) -> tuple[Store, ...]:
        """Return the stores of a loop that may, where `condition` holds."""
        return tuple([s for s in loop.body if isinstance(s, Store) and self._is_dense(s)])

    def condition(self, stores: tuple[Store, ...]) -> str:
        """Write whether stores go past the caches (i1).

        What they write is large then, lies on whole cache lines, and is not written over something
        that is read.
        """
        self._is_used = True
        conditions = [text for store in stores for text in self._conditions(store)]
        return fold(lambda a, b: self._pure(f"and i1 {a}, {b}"), conditions)

    def finish(self) -> None:
        """Write that what was stored so far is there before all that follows."""
        if self._is_used:
            self._evaluator.writer.call("void", "llvm.x86.sse.sfence", [], 0)

    def _is_dense(self, store: Store) -> bool:
        strides = dict(store.access.strides)
        nbytes = self._lanes * self._kernel.buffers[store.buffer].dtype.itemsize
        is_dense = strides.get(self._evaluator.facts.vector_axis) == 1 and not store.access.terms
        return is_dense and nbytes in (16, 32, 64)

    def _conditions(self, store: Store) -> list[str]:
        int64, size = self._evaluator.int64, self._evaluator.size
        itemsize = str(self._kernel.buffers[store.buffer].dtype.itemsize)
        axes = {axis.name: axis for axis in (*self._kernel.outer, *self._kernel.inner)}
        strides = [(axis, stride) for axis, stride in store.access.strides if stride != 0]
        nbytes = itemsize
        for axis, _ in strides:
            nbytes = int64("mul", nbytes, size(axes[axis].extent), 0)
        pointer = self._evaluator.pointer(store.buffer)
        bits = self._pure(f"ptrtoint ptr {pointer} to i64")
        steps = [size(stride) for axis, stride in strides if stride != 1]
        for step in (size(store.access.offset), self._begin, *steps):
            if step != "0":
                bits = self._pure(f"or i64 {bits}, {int64('mul', step, itemsize, 0)}")
        bits = self._pure(f"and i64 {bits}, {_LINE - 1}")
        return [
            self._pure(f"icmp uge i64 {nbytes}, {self._large}"),
            self._pure(f"icmp eq i64 {bits}, 0"),
            *[
                self._pure(f"icmp ne ptr {pointer}, {self._evaluator.pointer(number)}")
                for number, buffer in enumerate(self._kernel.buffers)
                if not buffer.written
            ],
        ]

    def _pure(self, text: str) -> str:
        return self._evaluator.writer.pure(text, 0)
