"""Scatters in which the order of values changes no bit: sums of integers, maxima and minima.

Each work item goes through a chunk of the indices, and leaves a partial result of all positions. A
second step joins these with x. So each index is read once, however many positions there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from graphfw.ir.dim import dim_max, dim_min
from graphfw.ir.dtype import DType
from graphfw.ir.shape import broadcast, size_of
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.shape.gather_scatter import IndexAdd, Putting
from graphfw.ops.shape.scatter_extremes import IndexExtreme, IndexMax
from graphfw.runtime.kernels.steps import Step, Storage, Temp, View
from graphfw.runtime.kernels.views import is_whole
from graphfw.runtime.numpy_executor.codegen.llvm_module import LlvmFunction, LlvmModule
from graphfw.runtime.numpy_executor.codegen.numbers import Number
from graphfw.runtime.numpy_executor.special.indices import index_step, load_index
from graphfw.runtime.numpy_executor.special.moves import add_run, alignment, copy_block, unit
from graphfw.runtime.planning.collapse import joint_stride
from graphfw.runtime.planning.work import ceil

_CHUNK = 1 << 14
"""Elements that a work item adds up at least, if there are so many."""

_CHUNKS = 16
"""Chunks of the indices at most: each has a result for all positions."""

_JOINED = 1 << 14
"""Elements of the output that a work item joins, about."""

_FEW_ROWS = 1 << 14
"""The most positions, if the number of indices is not known."""

_LONG = 1 << 12
"""Elements that are worth a second step."""

_PARTIAL_NAMES = (
    *("size", "after", "count", "chunk", "chunks", "index.offset", "index.stride"),
    *[f"values.{field}" for field in ("offset", "before", "middle", "last")],
)

_JOIN_NAMES = (
    *("size", "after", "rows", "ranges", "chunks"),
    *[f"x.{field}" for field in ("offset", "before", "middle", "last")],
)


class _Choice:
    """The function that joins two elements.

    Args:
        kind: "sum", "max" or "min".
        dtype: The dtype of the elements.
    """

    def __init__(self, kind: str, dtype: DType) -> None:
        self.kind = kind
        self.dtype = dtype

    @property
    def identity(self) -> bytes:
        """Return the bytes of the identity element."""
        if self.kind == "sum":
            value: float = 0
        elif self.dtype.is_floating:
            value = -np.inf if self.kind == "max" else np.inf
        else:
            bounds = np.iinfo(self.dtype.dtype)
            value = bounds.min if self.kind == "max" else bounds.max
        return np.asarray(value).astype(self.dtype.dtype).tobytes()

    def write(self, f: LlvmFunction, to: str, more: str, lanes: int) -> None:
        """Write the join of elements in memory with others; of equal ones the last counts."""
        x = Number(self.dtype, lanes)
        a, b = x.load(f, to), x.load(f, more)
        if self.kind == "sum":
            x.store(f, x.add(f, a, b), to)
            return
        order = "gt" if self.kind == "max" else "lt"
        condition = "i1" if lanes == 1 else f"<{lanes} x i1>"
        if self.dtype.is_floating:
            better = f.let(f"fcmp o{order} {x.kind} {a}, {b}")
            is_nan = f.let(f"fcmp uno {x.kind} {a}, {a}")
            better = f.let(f"or {condition} {better}, {is_nan}")
        else:
            sign = "s" if self.dtype.kind == "int" else "u"
            better = f.let(f"icmp {sign}{order} {x.kind} {a}, {b}")
        x.store(f, f.let(f"select {condition} {better}, {x.kind} {a}, {x.kind} {b}"), to)

    def add_lines(self, module: LlvmModule) -> None:
        """Add the function `join`, which joins a line of elements with another one."""
        f = LlvmFunction(module)
        lanes = 64 // max(self.dtype.itemsize, 4)
        in_row = f.let("icmp eq i64 %stride, 1")
        whole = f.let(f"and i64 %count, {-lanes}")
        vectors = f.let(f"select i1 {in_row}, i64 {whole}, i64 0")
        item = Number(self.dtype).stored
        for begin, end, step in (("0", vectors, lanes), (vectors, "%count", 1)):
            with f.loop(begin, end, step) as loop:
                source = f.at(item, "%from", f.mul(loop.index, "%stride"))
                self.write(f, f.at(item, "%to", loop.index), source, step)
        f.define("define internal void @join(ptr %to, ptr %from, i64 %stride, i64 %count)")


class PartialsCode:
    """Joins the values of a chunk of the indices, row by row. Operands: partials, values, index.

    Args:
        kind: "sum", "max" or "min".
        dtype: The dtype of the values.
        index: The dtype of the index.
        from_end: Whether negative signed indices count from the end.
    """

    def __init__(self, kind: str, dtype: DType, index: DType, *, from_end: bool) -> None:
        self._choice = _Choice(kind, dtype)
        self._index = index
        self._from_end = from_end

    @property
    def key(self) -> str:
        choice = self._choice
        return f"partial {choice.kind} {choice.dtype.name} {self._index.name} {self._from_end}"

    def llvm(self, symbol: str) -> str:
        module = LlvmModule()
        choice = self._choice
        choice.add_lines(module)
        f = LlvmFunction(module)
        n = f.read_sizes(_PARTIAL_NAMES)
        y, values, index = (f.operand(i) for i in range(3))
        item = Number(choice.dtype).stored
        chunk = f.rem("%work_item", n["chunks"])
        batch = f.div("%work_item", n["chunks"])
        length = f.mul(n["size"], n["after"])
        out = f.at(item, y, f.mul("%work_item", length))
        _fill(f, out, length, choice)
        begin = f.mul(chunk, n["chunk"])
        count = f.high(f.low(n["chunk"], f.sub(n["count"], begin)), "0")
        offset = f.add(n["values.offset"], f.mul(batch, n["values.before"]))
        offset = f.at(item, values, f.add(offset, f.mul(begin, n["values.middle"])))
        first = f.add(n["index.offset"], f.mul(begin, n["index.stride"]))
        with f.when(f.let(f"icmp ne i64 {n['after']}, 1")):
            with self._valid(f, n, index, first, count) as (number, row):
                a = f.at(item, offset, f.mul(number, n["values.middle"]))
                b = f.at(item, out, f.mul(row, n["after"]))
                lie = f"i64 {n['values.last']}, i64 {n['after']}"
                f.do(f"call void @join(ptr {b}, ptr {a}, {lie})")
        # A call would take longer than the join itself.
        with self._valid(f, n, index, first, count) as (number, row):
            a = f.at(item, offset, f.mul(number, n["values.middle"]))
            choice.write(f, f.at(item, out, row), a, 1)
        return f.work_item(symbol)

    @contextmanager
    def _valid(
        self, f: LlvmFunction, n: dict[str, str], index: str, first: str, count: str
    ) -> Iterator[tuple[str, str]]:
        """Open a loop over the indices that are in range, and end the function after it.

        Yields the number of an index, and the position that it names.
        """
        with f.walk(count, carried=[("i1", "false")], asks=True) as loop:
            at = f.add(first, f.mul(loop.index, n["index.stride"]))
            row = load_index(f, self._index, index, at, n["size"], from_end=self._from_end)
            # Negative numbers are large as unsigned ones.
            outside = f.let(f"icmp uge i64 {row}, {n['size']}")
            wrong = f.let(f"or i1 {loop.values[0]}, {outside}")
            with f.when(f.let(f"xor i1 {outside}, true")):
                yield loop.index, row
            loop.following = [wrong]
        f.leave(f"ret i32 {f.let(f'zext i1 {loop.values[0]} to i32')}")


class JoinCode:
    """Joins x with the partials.  Operands: output, x, partials."""

    def __init__(self, kind: str, dtype: DType) -> None:
        self._choice = _Choice(kind, dtype)

    @property
    def key(self) -> str:
        return f"join {self._choice.kind} {self._choice.dtype.name}"

    def llvm(self, symbol: str) -> str:
        module = LlvmModule()
        choice = self._choice
        run = add_run(module, choice.dtype)
        choice.add_lines(module)
        f = LlvmFunction(module)
        n = f.read_sizes(_JOIN_NAMES)
        y, x, partials = (f.operand(i) for i in range(3))
        item = Number(choice.dtype).stored
        batch = f.div("%work_item", n["ranges"])
        row = f.mul(f.rem("%work_item", n["ranges"]), n["rows"])
        height = f.low(n["rows"], f.sub(n["size"], row))
        length = f.mul(n["size"], n["after"])
        count = f.mul(height, n["after"])
        begin = f.mul(row, n["after"])
        out = f.at(item, y, f.add(f.mul(batch, length), begin))
        base = f.add(n["x.offset"], f.mul(batch, n["x.before"]))
        base = f.at(item, x, f.add(base, f.mul(row, n["x.middle"])))
        copy_block(f, run, item, n, (out, base), (height, n["after"]))
        first = f.add(f.mul(f.mul(batch, n["chunks"]), length), begin)
        with f.loop("0", n["chunks"]) as loop:
            partial = f.at(item, partials, f.add(first, f.mul(loop.index, length)))
            f.do(f"call void @join(ptr {out}, ptr {partial}, i64 1, i64 {count})")
        return f.work_item(symbol)


def _fill(f: LlvmFunction, out: str, length: str, choice: _Choice) -> None:
    """Fill a line with identity elements."""
    kind = unit(choice.dtype)
    value = str(int.from_bytes(choice.identity, "little"))
    lanes = 64 // choice.dtype.itemsize
    whole = f.let(f"and i64 {length}, {-lanes}")
    with f.loop("0", whole, lanes) as loop:
        vector = ", ".join([f"{kind} {value}"] * lanes)
        row = f.at(kind, out, loop.index)
        f.do(f"store <{lanes} x {kind}> <{vector}>, ptr {row}, align {alignment(choice.dtype)}")
    with f.loop(whole, length) as loop:
        f.do(f"store {kind} {value}, ptr {f.at(kind, out, loop.index)}")


def _kind(node: Node) -> str:
    if isinstance(node.op, IndexAdd):
        return "sum"
    return "max" if isinstance(node.op, IndexMax) else "min"


def suits(node: Node, x: View, values: View) -> bool:
    """Return whether a node is computed by partial results; x and values have three dims.

    Floats must be added in the order of their indices. If few elements of many change, scattering
    is faster.
    """
    if not isinstance(node.op, IndexAdd):
        return isinstance(node.op, IndexExtreme)
    (_, size, after), count = x.shape, values.shape[1]
    if not x.storage.dtype.is_integer or not isinstance(after, int) or not isinstance(size, int):
        return False
    if not isinstance(count, int):
        return size * after <= _FEW_ROWS
    return count >= 2 * size and count * after >= _LONG


def partial_steps(
    node: Node, x: View, values: View, indices: Sequence[View], output: View
) -> list[Step]:
    """Return the steps of an `index_add`, `index_max` or `index_min` node.

    Args:
        node: The node.
        x: Its first operand, in three dims: before the positions, these, and after them.
        values: Likewise.
        indices: The indices.
        output: The result.
    """
    assert isinstance(node.op, Putting)
    kind, dtype = _kind(node), output.storage.dtype
    before, size, after = x.shape
    count = values.shape[1]
    from_end = not node.op.refusal
    steps: list[Step] = []
    named = broadcast(*[view.shape for view in indices])
    stride = joint_stride(indices[0].shape, indices[0].strides) if len(indices) == 1 else None
    index: Storage = indices[0].storage
    offset = indices[0].offset
    if stride is None:
        axis = node.op.axis
        sizes = node.inputs[0].shape[axis : axis + len(indices)]
        naming, index = index_step(node, indices, sizes, from_end=from_end)
        steps.append(naming)
        offset, stride, from_end = 0, 1, False
    least = dim_max(1, size_of(named) * after // _CHUNK)
    chunks = dim_max(1, dim_min(_CHUNKS, least, count // dim_max(1, size)))
    length = size * after
    partials = Temp(dtype, before * chunks * length, "partial results of the indices")
    steps.append(
        Step(
            nodes=(node,),
            code=PartialsCode(kind, dtype, index.dtype, from_end=from_end),
            operands=(partials, values.storage, index),
            written=(True, False, False),
            params=(
                *(size, after, count, ceil(count, chunks), chunks, offset, stride),
                *(values.offset, *values.strides),
            ),
            work_items=before * chunks,
            can_fail=True,
        )
    )
    rows = dim_max(1, _JOINED // dim_max(1, after))
    ranges = ceil(size, rows)
    if after == 1:
        x = x._replace(strides=(*x.strides[:2], x.strides[1]))
    over = isinstance(x.storage, Tensor) and is_whole(x)
    steps.append(
        Step(
            nodes=(node,),
            code=JoinCode(kind, dtype),
            operands=(output.storage, x.storage, partials),
            written=(True, False, False),
            params=(size, after, rows, ranges, chunks, x.offset, *x.strides),
            work_items=before * ranges,
            in_place=((0, 1),) if over else (),
        )
    )
    return steps
