"""`KernelFacts`: where in a kernel's loops each of its expressions belongs.

Level 0 is outside of all loops. With "rows", level 1 is the loop over the rows of a work item,
followed by one level for each inner axis; the last runs along the vectors. With "columns", the
outer axes but the last are fixed in a work item (level 0), level 1 runs along the vectors of the
last one, and the inner axes follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from graphfw.ir.dtype import DType
from graphfw.runtime.kernels.ir import (
    Access,
    Accumulate,
    BoundsCheck,
    Call,
    Carried,
    Carry,
    Draw,
    Expr,
    Keep,
    Kernel,
    Load,
    Param,
    Position,
    Reduce,
    Ref,
    Size,
    SizeValue,
    Store,
)
from graphfw.runtime.kernels.primitives import PRIMITIVES
from graphfw.runtime.kernels.walk import Statement, children, postorder, roots, statements
from graphfw.runtime.numpy_executor.codegen.registers import width
from graphfw.runtime.numpy_executor.codegen.target import Processor


class LoopLevel(NamedTuple):
    """The loop level of an expression, and whether it varies.

    Attributes:
        level: The innermost loop that it depends on.
        varying: Whether it differs between the lanes of a vector.
    """

    level: int
    varying: bool


class KernelFacts:
    """The facts of a kernel that code generation needs.

    Attributes:
        kernel: The kernel.
        depth: The level inside of all loops.
        vector_axis: The axis that runs along vectors.
        vector_level: The level of its loop.
        levels: The level of each axis.
        keeps: The kept rows, by name.
        carries: What is carried from position to position, by name.
    """

    def __init__(self, kernel: Kernel) -> None:
        rows = kernel.form == "rows"
        self.kernel = kernel
        self.depth = 1 + len(kernel.inner)
        self.vector_axis = (kernel.inner if rows else kernel.outer)[-1].name
        self.vector_level = self.depth if rows else 1
        self.levels = {axis.name: 1 if rows else 0 for axis in kernel.outer}
        self.levels |= {axis.name: 2 + i for i, axis in enumerate(kernel.inner)}
        self.levels[self.vector_axis] = self.vector_level
        self.keeps = {s.name: s for s in self.statements() if isinstance(s, Keep)}
        self._reduce_loop = LoopLevel(1, not rows)
        self.carries = {s.name: s for s in self.statements() if isinstance(s, Carry)}
        self._different: set[str] = set()
        self._loops: dict[Expr, LoopLevel] = {}
        self._find_loops()
        # What is carried is taken for the same in all lanes until that shows to be wrong.
        while found := {c.name for c in self.carries.values() if self._leads_to_different(c)}:
            self._different |= found
            self._find_loops()

    def _find_loops(self) -> None:
        self._loops.clear()
        for expr in postorder([root for s in self.statements() for root in roots(s)]):
            self._loops[expr] = self._loop_of_expr(expr)

    def _leads_to_different(self, carry: Carry) -> bool:
        loops = [self._loops[carry.begin], self._loops[carry.value]]
        return not self.differs(carry) and any([loop.varying for loop in loops])

    def differs(self, carry: Carry) -> bool:
        """Return whether what is carried differs between the lanes of a vector."""
        return carry.name in self._different

    def loop_of(self, expr: Expr) -> LoopLevel:
        """Return where an expression is computed."""
        return self._loops[expr]

    def loop_of_access(self, access: Access) -> LoopLevel:
        """Return where the address of an access is computed."""
        loops = [self._loop_of_axis(axis) for axis, stride in access.strides if stride != 0]
        return _innermost([*loops, *(self.loop_of(term.value) for term in access.terms)])

    def statements(self) -> Iterator[Statement]:
        """Yield all statements, in order."""
        return statements(self.kernel)

    @cached_property
    def exprs(self) -> tuple[Expr, ...]:
        """All expressions, arguments first."""
        return tuple(self._loops)

    @cached_property
    def library_calls(self) -> int:
        """The number of values of the vector loops that functions of the library compute."""
        calls = [e for e in self.exprs if isinstance(e, Call) and self.loop_of(e).varying]
        return len([e for e in calls if PRIMITIVES[e.function].source == "library"])

    @cached_property
    def params(self) -> tuple[int, ...]:
        """The parameters in use, sorted."""
        kernel = self.kernel
        sizes: list[Size | None] = [kernel.per_item, kernel.split]
        sizes += [axis.extent for axis in (*kernel.outer, *kernel.inner)]
        for access in self.accesses():
            sizes += [access.offset, *(stride for _, stride in access.strides)]
            sizes += [size for term in access.terms for size in (term.stride, term.bound)]
        sizes += [expr.size for expr in self.exprs if isinstance(expr, SizeValue)]
        sizes += [expr.key for expr in self.exprs if isinstance(expr, Draw)]
        sizes += [s.bound for s in self.statements() if isinstance(s, BoundsCheck)]
        return tuple(sorted({size.number for size in sizes if isinstance(size, Param)}))

    def accesses(self) -> Iterator[Access]:
        """Yield all accesses to buffers and streams."""
        yield from (expr.access for expr in self.exprs if isinstance(expr, Draw | Load))
        yield from (s.access for s in self.statements() if isinstance(s, Store | Accumulate))

    def stored(self) -> Iterator[DType]:
        """Yield the dtypes of what is written to memory."""
        for statement in self.statements():
            if isinstance(statement, Store | Accumulate):
                yield self.kernel.buffers[statement.buffer].dtype
            elif isinstance(statement, Keep):
                yield statement.value.dtype

    def _loop_of_axis(self, name: str) -> LoopLevel:
        return LoopLevel(self.levels[name], name == self.vector_axis)

    def _loop_of_expr(self, expr: Expr) -> LoopLevel:
        if isinstance(expr, Position):
            return self._loop_of_axis(expr.axis)
        if isinstance(expr, Carried):
            return LoopLevel(self.depth, expr.name in self._different)
        if isinstance(expr, Ref) and expr.name in self.carries:
            return LoopLevel(1, expr.name in self._different)
        if isinstance(expr, Ref):
            return LoopLevel(self.depth, True) if expr.name in self.keeps else self._reduce_loop
        if isinstance(expr, Draw | Load):
            return self.loop_of_access(expr.access)
        return _innermost([self._loops[arg] for arg in children(expr)])


class VectorShape(NamedTuple):
    """The elements that are computed side by side: `vectors` vectors of `lanes` each."""

    lanes: int
    vectors: int


def lanes_of(facts: KernelFacts, target: Processor) -> int:
    """Return how many elements a vector of a kernel has.

    Its widest floats fill a register: LLVM makes several registers of wider vectors, such as those
    of positions, and compiles slower where it has to. Without floats the widest integers do.
    """
    varying = [expr.dtype for expr in facts.exprs if facts.loop_of(expr).varying]
    floats = [width(dtype) for dtype in varying if dtype.is_floating]
    widest = max(floats or [width(dtype) for dtype in varying], default=4)
    return target.vector_bytes // widest


def vectors_of(facts: KernelFacts, body: Iterable[Statement]) -> int:
    """Return how many vectors a loop computes at once.

    Several keep independent instructions in flight, and accumulators of a reduction wait for each
    other less. Where there is much arithmetic in each they take registers from each other; where
    there is little, memory is what is waited for.
    """
    statements = list(body)
    if facts.carries:
        return _side_by_side(facts)
    exprs = list(postorder([root for s in statements for root in roots(s)]))
    calls = [expr for expr in exprs if isinstance(expr, Call) and facts.loop_of(expr).varying]
    simple = all([PRIMITIVES[call.function].source == "instruction" for call in calls])
    if any([isinstance(expr, Draw) for expr in exprs]):
        # A round waits for the one before, and its key serves all blocks.
        return 4 if simple and len(calls) <= 24 else 2
    if not simple or len(calls) > 6:
        return 2 if len(calls) <= 40 else 1
    reduces = any([isinstance(s, Reduce | Accumulate) for s in statements])
    if facts.kernel.form == "columns":
        # So many lines of memory in a row are read at once; where all rows are kept, for so many
        # columns, the cache shall hold them.
        return 2 if facts.keeps else 8
    return 4 if reduces else 1


def _side_by_side(facts: KernelFacts) -> int:
    """Return how many vectors go through a loop with carries at once.

    Each position waits for the one before, so one vector would leave most units idle; more of them
    than there are registers for would be written to the stack and read again.
    """
    calls = [expr for expr in facts.exprs if isinstance(expr, Call) and facts.loop_of(expr).varying]
    return 4 if len(calls) <= 32 else 2


def _innermost(loops: list[LoopLevel]) -> LoopLevel:
    level = max([loop.level for loop in loops], default=0)
    return LoopLevel(level, any([loop.varying for loop in loops]))
