"""Runs steps in NumPy, item by item and row by row: what kernels mean, to check lowering against.

Strict: every index must lie in its buffer, and every element of what is written must be written.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphfw.ir.dim import DimLike
from graphfw.ir.dim_text import evaluate
from graphfw.ir.graph import Graph
from graphfw.ir.tensor import Node, Tensor
from graphfw.passes.fuse import Partition, partition
from graphfw.runtime.kernels.ir import (
    Access,
    Accumulate,
    Axis,
    BoundsCheck,
    Call,
    Carried,
    Carry,
    Const,
    Expr,
    InnerLoop,
    Keep,
    Kernel,
    Load,
    Param,
    Position,
    Reduce,
    Ref,
    SizeValue,
    Store,
)
from graphfw.runtime.kernels.lower import CanCompile, Item, lower
from graphfw.runtime.kernels.primitives import PRIMITIVES
from graphfw.runtime.kernels.steps import (
    Epilogue,
    Product,
    ReferenceStep,
    Step,
    Storage,
    Table,
    View,
)
from graphfw.runtime.kernels.views import view

Array = np.ndarray[Any, np.dtype[Any]]


class Failed(Exception):
    """A check has failed."""


@dataclass(frozen=True)
class KernelAsCode:
    """The kernel itself, in place of machine code."""

    kernel: Kernel
    key: str = ""

    def llvm(self, symbol: str) -> str:
        raise AssertionError("it is interpreted")


@dataclass(frozen=True)
class ProductAsCode:
    """A matrix product and what is done to its elements.

    It names what the step reads and writes as `operands` do: steps of equal structure share it.
    """

    a: View
    b: View
    product: Storage | None
    epilogue: Epilogue | None
    operands: tuple[Storage, ...]
    key: str = ""

    def llvm(self, symbol: str) -> str:
        raise AssertionError("it is interpreted")


class Interpreted:
    """The target whose code is interpreted here."""

    most_numbers = sys.maxsize
    narrow = 8

    def kernel(self, kernel: Kernel, sizes: Sequence[DimLike]) -> KernelAsCode:
        del sizes
        return KernelAsCode(kernel)

    def scratch(self, kernel: Kernel) -> tuple[int, int]:
        return 0, 0

    def multiplies(self, node: Node) -> bool:
        return node.op.name == "matmul" and node.types[0].dtype.name in ("float32", "float64")

    def keeps_rows(self, node: Node) -> bool:
        return False

    def computes_operand(self, product: Product) -> bool:
        return False

    def fills(self, node: Node) -> bool:
        return False

    def lower_node(
        self, node: Node, inputs: Sequence[View], outputs: Sequence[View]
    ) -> Sequence[Step]:
        return ()

    def product(self, product: Product) -> list[Step]:
        _, nodes, a, b, result, epilogue, *_ = product
        read = [a.storage, b.storage]
        written = [result] if result is not None else []
        if epilogue is not None:
            for storage, buffer in zip(epilogue.operands, epilogue.kernel.buffers, strict=True):
                if storage is not None:
                    (written if buffer.written else read).append(storage)
        flags = (*[False] * len(read), *[True] * len(written))
        operands = (*read, *written)
        code = ProductAsCode(a, b, result, epilogue, operands)
        return [Step(nodes, code, operands, flags, (), 1)]


def compiled(graph: Graph, target: Interpreted | None = None) -> tuple[Partition, list[Item]]:
    """Partition and lower a graph for the interpreter, or for a target that is like it."""
    target = target or Interpreted()
    groups = partition(graph, CanCompile(target))
    return groups, lower(graph, groups, target)


def run(
    graph: Graph,
    groups: Partition,
    items: Sequence[Item],
    feeds: Mapping[Node, Array],
    sizes: Mapping[str, int],
    execute: Callable[[Step, dict[Storage, Array], Mapping[str, int]], None] | None = None,
) -> list[Array]:
    """Run steps, and return the graph's outputs. `execute` runs those that are kernels."""
    memory: dict[Storage, Array] = {}
    for node in graph.nodes:
        if node.op.name == "constant":
            memory[node.outputs[0]] = np.ascontiguousarray(node.op.eval(np))
        elif node in feeds:
            memory[node.outputs[0]] = np.ascontiguousarray(feeds[node])
    for item in items:
        if isinstance(item, Step):
            memory.update({s: s.literal.array for s in item.operands if isinstance(s, Table)})
    with np.errstate(all="ignore"):
        for item in items:
            if isinstance(item, ReferenceStep):
                node = item.node
                op = node.op.bind(sizes)
                xs = [_viewed(view(t, groups.facts), memory, sizes) for t in node.inputs]
                result = op.eval(np, *xs)
                results = result if op.multiple else (result,)
                for tensor, array in zip(node.outputs, results, strict=True):
                    memory[tensor] = np.ascontiguousarray(array)
            elif isinstance(item.code, ProductAsCode):
                _multiply(item.code, item.operands, memory, sizes)
            else:
                if any(evaluate(size, sizes) == 0 for size in item.nonzero):
                    raise Failed
                (execute or _interpret)(item, memory, sizes)
    return [_viewed(view(t, groups.facts), memory, sizes) for t in graph.outputs]


def _viewed(view: View, memory: Mapping[Storage, Array], sizes: Mapping[str, int]) -> Array:
    array = memory[view.storage].reshape(-1)
    shape = [evaluate(dim, sizes) for dim in view.shape]
    strides = [evaluate(s, sizes) for s in view.strides]
    offset = evaluate(view.offset, sizes)
    if 0 in shape:
        return np.zeros(shape, array.dtype)
    index = np.full(shape, offset)
    for axis, (dim, stride) in enumerate(zip(shape, strides, strict=True)):
        index += (np.arange(dim) * stride).reshape([-1] + [1] * (len(shape) - 1 - axis))
    assert index.min() >= 0
    return array[index]


def _multiply(
    code: ProductAsCode,
    operands: Sequence[Storage],
    whole: dict[Storage, Array],
    sizes: Mapping[str, int],
) -> None:
    names = list(zip(code.operands, operands, strict=True))
    memory = {name: whole[storage] for name, storage in names if storage in whole}
    _multiply_named(code, memory, sizes)
    whole.update({storage: memory[name] for name, storage in names})


def _multiply_named(
    code: ProductAsCode, memory: dict[Storage, Array], sizes: Mapping[str, int]
) -> None:
    a, b = (_viewed(x, memory, sizes) for x in (code.a, code.b))
    assert a.shape[:-2] == b.shape[:-2]
    result = np.ascontiguousarray(a @ b)
    if code.product is not None:
        memory[code.product] = result
    if code.epilogue is None:
        return
    kernel, operands, params, product, row_stride = code.epilogue[:5]
    arrays = []
    for number, (storage, buffer) in enumerate(zip(operands, kernel.buffers, strict=True)):
        if number == product:
            assert storage is None
            arrays.append(result)
        elif buffer.written:
            arrays.append(new_array(storage, sizes))
        else:
            arrays.append(memory[storage])
    assert kernel.form == "rows"
    assert len(kernel.outer) == len(kernel.inner) == 1
    numbers = [evaluate(p, sizes) for p in params]
    # The product lies in a block whose rows are farther apart.
    matrix = result.reshape(math.prod(result.shape[:-1]), result.shape[-1])
    block = np.full((matrix.shape[0], matrix.shape[1] + 3), np.nan)
    block[:, :-3] = matrix
    numbers[row_stride] = result.shape[-1] + 3
    arrays[product] = block.astype(result.dtype)
    run_ = _Run(kernel, arrays, numbers)
    for row in range(run_.size(kernel.outer[0].extent)):
        run_.row({kernel.outer[0].name: row}, 0, None)
    run_.check_written()
    pairs = zip(operands, arrays, kernel.buffers, strict=True)
    memory.update({storage: array for storage, array, buffer in pairs if buffer.written})


def new_array(storage: Storage | None, sizes: Mapping[str, int]) -> Array:
    """Return memory for what a step writes."""
    assert storage is not None
    return np.zeros(evaluate(storage.size, sizes), storage.dtype.dtype)


def _interpret(step: Step, memory: dict[Storage, Array], sizes: Mapping[str, int]) -> None:
    kernel = step.code.kernel
    arrays = []
    assert len(step.operands) == len(kernel.buffers) == len(step.written)
    for storage, buffer, written in zip(step.operands, kernel.buffers, step.written, strict=True):
        assert buffer.written == written
        # Kernels that compute complex numbers see their parts.
        assert buffer.dtype in (storage.dtype, storage.dtype.real)
        arrays.append(new_array(storage, sizes) if written else memory[storage])
    params = [evaluate(p, sizes) for p in step.params]
    assert len(params) == kernel.params
    run_ = _Run(kernel, arrays, params)
    work_items = evaluate(step.work_items, sizes)
    for work_item in range(work_items):
        run_.work_item(work_item)
    run_.check_written()
    triples = zip(step.operands, arrays, step.written, strict=True)
    memory.update({storage: array for storage, array, written in triples if written})


class _Run:
    """One execution of a kernel."""

    def __init__(self, kernel: Kernel, arrays: Sequence[Array], params: Sequence[int]) -> None:
        self.kernel = kernel
        self.arrays = [
            array.reshape(-1).view(buffer.dtype.dtype)
            if array.dtype.kind == "c"
            else array.reshape(-1)
            for array, buffer in zip(arrays, kernel.buffers, strict=True)
        ]
        self.done = [np.zeros(array.size, bool) for array in self.arrays]
        self.params = params
        self.positions: dict[str, Any] = {}
        self.refs: dict[str, Any] = {}
        self.kept: set[str] = set()
        self.values: dict[Expr, Any] = {}

    def size(self, size: int | Param) -> int:
        return self.params[size.number] if isinstance(size, Param) else size

    def check_written(self) -> None:
        for buffer, done in zip(self.kernel.buffers, self.done, strict=True):
            assert not buffer.written or done.all(), "not all of an output is written"

    def work_item(self, work_item: int) -> None:
        kernel = self.kernel
        per_item = self.size(kernel.per_item)
        assert per_item > 0
        extents = [self.size(axis.extent) for axis in kernel.outer]
        if kernel.form == "columns":
            blocks = -(-extents[-1] // per_item)
            others, block = divmod(work_item, blocks)
            leading = list(np.unravel_index(others, extents[:-1])) if extents[:-1] else []
            for first, last in enumerate(range(block * per_item, extents[-1])):
                if first == per_item:
                    break
                self._row_at(kernel.outer, [*leading, last], work_item, None)
            return
        pieces, span = 1, None
        if kernel.split is not None:
            assert not any(isinstance(s, Reduce | Keep) for s in _statements(kernel))
            assert len(kernel.inner) == 1
            split = self.size(kernel.split)
            length = self.size(kernel.inner[0].extent)
            pieces = -(-length // split)
        rows, piece = divmod(work_item, pieces)
        if kernel.split is not None:
            span = (piece * split, min((piece + 1) * split, length))
        total = math.prod(extents)
        for row in range(rows * per_item, min((rows + 1) * per_item, total)):
            self._row_at(
                kernel.outer, np.unravel_index(row, extents) if extents else (), work_item, span
            )

    def _row_at(self, axes: Sequence[Axis], at: Iterable[Any], work_item: int, span: Any) -> None:
        self.row({axis.name: int(i) for axis, i in zip(axes, at, strict=True)}, work_item, span)

    def row(self, positions: dict[str, int], work_item: int, span: tuple[int, int] | None) -> None:
        self.refs, self.kept = {}, set()
        for item in self.kernel.body:
            self.positions = dict(positions)
            self.values = {}
            if not isinstance(item, InnerLoop):
                self._do([item], work_item, in_loop=False, count=1, first=0)
                continue
            extents = [self.size(axis.extent) for axis in self.kernel.inner]
            ranges = [range(n) for n in extents]
            if span is not None:
                ranges = [range(*span)]
            grid = np.array(list(itertools.product(*ranges)), dtype=np.int64)
            grid = grid.reshape(-1, len(ranges))
            for number, axis in enumerate(self.kernel.inner):
                self.positions[axis.name] = grid[:, number]
            carries = [s for s in item.body if isinstance(s, Carry)]
            if carries:
                self._in_order(item.body, carries, grid[:, 0], work_item)
                continue
            first = span[0] if span else 0
            self._do(item.body, work_item, in_loop=True, count=len(grid), first=first)

    def _in_order(
        self, body: Sequence[Any], carries: Sequence[Carry], positions: Array, work_item: int
    ) -> None:
        """Go through a loop in which each position is given what the one before has made."""
        (axis,) = self.kernel.inner
        rest = [s for s in body if not isinstance(s, Carry)]
        self.refs.update({c.name: self.value(c.begin) for c in carries})
        for position in positions:
            self.positions[axis.name], self.values = position, {}
            new = {c.name: self.value(c.value) for c in carries}
            self._do(rest, work_item, in_loop=True, count=1, first=int(position))
            self.refs.update(new)

    def _do(
        self, statements: Any, work_item: int, *, in_loop: bool, count: int, first: int
    ) -> None:
        shape = (count,) if in_loop else ()
        values = []
        for statement in statements:
            value = np.broadcast_to(self.value(statement.value), shape)
            assert value.dtype == statement.value.dtype.dtype, statement
            values.append(value)
        for statement, value in zip(statements, values, strict=True):
            if isinstance(statement, Reduce):
                assert in_loop
                self.refs[statement.name] = _reduced(statement.kind, value)
            elif isinstance(statement, Keep):
                assert in_loop
                self.refs[statement.name] = value
                self.kept.add(statement.name)
            elif isinstance(statement, BoundsCheck):
                assert statement.value.dtype.name == "int64"
                if ((value < 0) | (value >= self.size(statement.bound))).any():
                    raise Failed
            elif isinstance(statement, Store):
                position = np.broadcast_to(self.position(statement.buffer, statement.access), shape)
                assert np.unique(position).size == position.size, "an element is written twice"
                assert not self.done[statement.buffer][position].any(), (
                    "an element is written twice"
                )
                assert self.kernel.buffers[statement.buffer].dtype is statement.value.dtype
                self.arrays[statement.buffer][position] = value
                self.done[statement.buffer][position] = True
            else:
                self._accumulate(statement, value, work_item)

    def _accumulate(self, s: Accumulate, value: Array, work_item: int) -> None:
        lines = self.arrays[s.buffer]
        if s.inner:
            width = math.prod(self.size(axis.extent) for axis in self.kernel.inner)
            position = np.asarray(work_item * width + self.offset(s.access))
        else:
            value = np.asarray(_reduced(s.kind, value.reshape(-1))).reshape(1)
            position = np.asarray([work_item])
        old = self.done[s.buffer][position]
        joined = [
            _reduced(s.kind, np.array([a, b])) if known else b
            for a, b, known in zip(lines[position], value, old, strict=True)
        ]
        lines[position] = joined
        self.done[s.buffer][position] = True

    def value(self, root: Expr) -> Any:
        if root not in self.values:
            self.values[root] = np.asarray(self._value(root))
        return self.values[root]

    def _value(self, expr: Expr) -> Any:
        dtype = expr.dtype.dtype
        if isinstance(expr, Const):
            return np.asarray(expr.value, dtype)
        if isinstance(expr, Position):
            return np.asarray(self.positions[expr.axis], np.int64)
        if isinstance(expr, SizeValue):
            return np.asarray(self.size(expr.size), np.int64)
        if isinstance(expr, Ref | Carried):
            return self.refs[expr.name]
        if isinstance(expr, Load):
            buffer = self.kernel.buffers[expr.buffer]
            assert not buffer.written
            assert buffer.dtype is expr.dtype
            return self.arrays[expr.buffer][self.position(expr.buffer, expr.access)]
        assert isinstance(expr, Call)
        args = [self.value(arg) for arg in expr.args]
        if PRIMITIVES[expr.function].result == "cast":
            result = PRIMITIVES[expr.function].reference(args[0], dtype)
        else:
            result = PRIMITIVES[expr.function].reference(*args)
        assert result.dtype == dtype, (expr.function, result.dtype, dtype)
        return result

    def offset(self, access: Access) -> Any:
        total: Any = self.size(access.offset)
        for axis, stride in access.strides:
            total = total + np.asarray(self.positions[axis]) * self.size(stride)
        for term in access.terms:
            value = self.value(term.value)
            if ((value < 0) | (value >= self.size(term.bound))).any():
                raise Failed
            total = total + value * self.size(term.stride)
        return np.asarray(total, np.int64)

    def position(self, buffer: int, access: Access) -> Any:
        position = self.offset(access)
        size = self.arrays[buffer].size
        assert ((position >= 0) & (position < size)).all(), "outside of the buffer"
        return position


def _statements(kernel: Kernel) -> Iterable[Any]:
    for item in kernel.body:
        yield from item.body if isinstance(item, InnerLoop) else (item,)


_IDENTITY = {"sum": 0, "prod": 1, "all": True, "any": False}


def _reduced(kind: str, values: Array) -> Any:
    values = np.asarray(values)
    if values.size == 0 and kind in ("max", "min"):
        return np.asarray(0, values.dtype)  # a check has failed before, or nobody looks
    if kind in ("argmax", "argmin"):
        return np.asarray(getattr(np, kind)(values) if values.size else 0, np.int64)
    if kind in ("sum", "prod"):
        return getattr(np, kind)(values, dtype=values.dtype)
    return getattr(np, kind)(values)


def storages(items: Iterable[Item]) -> list[Tensor]:
    """Return the tensors that native steps write."""
    return [
        storage
        for item in items
        if isinstance(item, Step)
        for storage, written in zip(item.operands, item.written, strict=True)
        if written and isinstance(storage, Tensor)
    ]
