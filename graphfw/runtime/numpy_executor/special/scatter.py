"""The native steps of `index_add` and `index_set`; those of other scatters are in `partials.py`.

An array has the shape [before, size, after], with the indexed axes joined in the middle. Leading
indices that only count up, `x[arange(n)[:, None], columns]`, select a batch. A work item owns a
block of the output, a range of the middle by a block of the last dim, and looks for the indices in
it. So an element gets its values in the order of the indices, whatever thread computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from graphfw.ir.dim import DimLike, dim_max, dim_min
from graphfw.ir.dtype import DType, float32
from graphfw.ir.shape import broadcast
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.shape.gather_scatter import IndexAdd, Putting
from graphfw.ops.shape.scatter_extremes import IndexExtreme
from graphfw.runtime.kernels.steps import Step, View
from graphfw.runtime.kernels.views import is_whole
from graphfw.runtime.numpy_executor.codegen import KernelCode
from graphfw.runtime.numpy_executor.codegen.llvm_module import LlvmFunction, LlvmModule
from graphfw.runtime.numpy_executor.codegen.numbers import Number
from graphfw.runtime.numpy_executor.special.indices import SCAN, all_lanes, batched, index_step
from graphfw.runtime.numpy_executor.special.moves import add_run, alignment, call_run, copy_block
from graphfw.runtime.numpy_executor.special.partials import partial_steps, suits
from graphfw.runtime.planning.collapse import collapsed_to_3d
from graphfw.runtime.planning.work import ceil

_BLOCK = 1024
"""Elements of the last dim that a work item owns."""

_WORK_ITEM = 1 << 14
"""Elements that a work item owns at least, if there are so many."""

_RANGES = 64
"""Ranges that the middle has at most: each looks at all indices."""

_HALVES = 2
"""The most ranges of positions of one element each."""

_FEW = 256
"""Up to so many indices, with nothing else to do, are no work for several threads."""

_ASIDE = 64
"""The bytes of scratch memory for values that a work item does not own."""

_NAMES = (
    "size",
    "after",
    "count",
    "rows",  # of the middle that a work item owns
    "block",  # elements of the last dim that a work item owns
    "ranges",
    "blocks",
    "before",
    "group",  # positions along the first dim that a work item owns
    "share",  # so many of these in a row have the same indices
    "sets",  # of indices, which are taken in turn
    *[f"x.{field}" for field in ("offset", "before", "middle", "last")],
    *[f"values.{field}" for field in ("offset", "before", "middle", "last")],
)


class ScatterCode:
    """Copies x, and adds values at positions, or sets them.

    Operands: output, x, values, positions.

    Args:
        dtype: The dtype of the output.
        adds: Whether values are added rather than set.
        once: Whether an element gets one value at most: then it is rounded at once.
    """

    def __init__(self, dtype: DType, *, adds: bool, once: bool = False) -> None:
        self._dtype = dtype
        self._adds = adds
        self.is_wide = adds and dtype.is_low_precision and not once
        """Whether sums are computed in scratch memory, in another dtype."""

    @property
    def key(self) -> str:
        # Elements that are set are copied as bits.
        kind = self._dtype.name if self._adds else f"{self._dtype.itemsize}"
        return f"scatter {kind}{' wide' if self.is_wide else ''}"

    def llvm(self, symbol: str) -> str:
        module = LlvmModule()
        run = add_run(module, self._dtype)
        if self._adds:
            self._add_sum(module)
        if self.is_wide:
            self._add_turn(module, "widened", widen=True)
            self._add_turn(module, "rounded", widen=False)
        f = LlvmFunction(module)
        n = f.read_sizes(_NAMES)
        y, x, values, positions = (f.operand(i) for i in range(4))
        kind = f"i{8 * self._dtype.itemsize}"
        left = f.div("%work_item", n["blocks"])
        column = f.mul(f.rem("%work_item", n["blocks"]), n["block"])
        row = f.mul(f.rem(left, n["ranges"]), n["rows"])
        begin = f.mul(f.div(left, n["ranges"]), n["group"])
        end = f.low(n["before"], f.add(begin, n["group"]))
        width = f.low(n["block"], f.sub(n["after"], column))
        height = f.low(n["rows"], f.sub(n["size"], row))
        with f.loop(begin, end) as turn:
            chosen = f.rem(f.div(turn.index, n["share"]), n["sets"])
            named = f.at("i64", positions, f.mul(chosen, n["count"]))
            first = f.add(f.mul(f.add(f.mul(turn.index, n["size"]), row), n["after"]), column)
            out = f.at(kind, y, first)
            base = f.add(n["x.offset"], f.mul(turn.index, n["x.before"]))
            base = f.add(base, f.mul(row, n["x.middle"]))
            base = f.at(kind, x, f.add(base, f.mul(column, n["x.last"])))
            offset = f.add(n["values.offset"], f.mul(turn.index, n["values.before"]))
            offset = f.at(kind, values, f.add(offset, f.mul(column, n["values.last"])))
            total, stride = ("%scratch", width) if self.is_wide else (out, n["after"])
            aside = (
                "%scratch" if not self.is_wide else f.at("float", "%scratch", f.mul(width, height))
            )
            if self.is_wide:
                single = "float"
                with f.loop("0", height) as line:
                    a = f.at(kind, base, f.mul(line.index, n["x.middle"]))
                    b = f.at(single, total, f.mul(line.index, stride))
                    f.do(f"call void @widened(ptr {b}, ptr {a}, i64 {n['x.last']}, i64 {width})")
            else:
                single = kind
                copy_block(f, run, kind, n, (out, base), (height, width))
            narrow = f.let(f"icmp eq i64 {width}, 1")
            with f.when(narrow), f.walk(n["count"], asks=True) as one:
                # Values of other positions go to scratch memory: a branch would take longer.
                position = f.let(f"load i64, ptr {f.at('i64', named, one.index)}, align 8")
                at = f.sub(position, row)
                here = f.let(f"icmp ult i64 {at}, {height}")
                b = f.at(single, total, f.mul(at, stride))
                b = f.let(f"select i1 {here}, ptr {b}, ptr {aside}")
                a = f.at(kind, offset, f.mul(one.index, n["values.middle"]))
                if self._adds:
                    self._sum(f, b, a, 1)
                else:
                    value = f.let(f"load {kind}, ptr {a}, align {alignment(self._dtype)}")
                    f.do(f"store {kind} {value}, ptr {b}, align {alignment(self._dtype)}")
            with (
                f.when(f.let(f"xor i1 {narrow}, true")),
                self._named(f, n, named, row, height) as (at, number),
            ):
                a = f.at(kind, offset, f.mul(number, n["values.middle"]))
                b = f.at(single, total, f.mul(at, stride))
                if self._adds:
                    f.do(f"call void @sum(ptr {b}, ptr {a}, i64 {n['values.last']}, i64 {width})")
                else:
                    call_run(f, run, b, "1", a, n["values.last"], width)
            if self.is_wide:
                with f.loop("0", height) as line:
                    a = f.at(single, total, f.mul(line.index, stride))
                    b = f.at(kind, out, f.mul(line.index, n["after"]))
                    f.do(f"call void @rounded(ptr {b}, ptr {a}, i64 1, i64 {width})")
        return f.work_item(symbol)

    @contextmanager
    def _named(
        self, f: LlvmFunction, n: dict[str, str], positions: str, row: str, height: str
    ) -> Iterator[tuple[str, str]]:
        """Open a loop over the indices in the work item's range of the middle.

        Yields the row in the range, and the number of the index.
        """
        kind = f"<{SCAN} x i64>"
        low, span = all_lanes(f, row), all_lanes(f, height)
        with f.walk(n["count"], SCAN, asks=True) as chunk:
            some = f.let(f"load {kind}, ptr {f.at('i64', positions, chunk.index)}, align 8")
            inside = f.let(f"icmp ult {kind} {f.let(f'sub {kind} {some}, {low}')}, {span}")
            packed = f.let(f"bitcast <{SCAN} x i1> {inside} to i{SCAN}")
            found = f.let(f"zext i{SCAN} {packed} to i64")
            # Memory after the last position has any numbers.
            left = f.low(f.sub(n["count"], chunk.index), str(SCAN))
            valid = f.let(f"sub i64 {f.let(f'shl i64 1, {left}')}, 1")
            found = f.let(f"and i64 {found}, {valid}")
            hits = f.call("i64", "llvm.ctpop.i64", ("i64", found))
            with f.loop("0", hits, carried=[("i64", found)]) as hit:
                (bits,) = hit.values
                first = f.call("i64", "llvm.cttz.i64", ("i64", bits), ("i1", "true"))
                number = f.add(chunk.index, first)
                position = f.let(f"load i64, ptr {f.at('i64', positions, number)}, align 8")
                yield f.sub(position, row), number
                rest = f.let(f"sub i64 {bits}, 1")
                hit.following = [f.let(f"and i64 {bits}, {rest}")]

    def _add_sum(self, module: LlvmModule) -> None:
        """Add the function that adds a line of values to a line of sums."""
        f = LlvmFunction(module)
        for begin, end, lanes in self._lines(f):
            x, sums = Number(self._dtype), self._sums(1)
            with f.loop(begin, end, lanes) as loop:
                to = f.at(sums.stored, "%to", loop.index)
                self._sum(f, to, f.at(x.stored, "%from", f.mul(loop.index, "%stride")), lanes)
        f.define("define internal void @sum(ptr %to, ptr %from, i64 %stride, i64 %count)")

    def _sum(self, f: LlvmFunction, to: str, more: str, lanes: int) -> None:
        """Add some values to sums."""
        x, sums = Number(self._dtype, lanes), self._sums(lanes)
        sums.store(f, x.add(f, sums.load(f, to), x.load(f, more)), to)

    def _add_turn(self, module: LlvmModule, name: str, *, widen: bool) -> None:
        """Add the function that converts a line of elements to sums, or back."""
        f = LlvmFunction(module)
        for begin, end, lanes in self._lines(f):
            source, target = Number(self._dtype, lanes), self._sums(lanes)
            if not widen:
                source, target = target, source
            with f.loop(begin, end, lanes) as loop:
                offset = f.mul(loop.index, "%stride")
                value = source.load(f, f.at(source.stored, "%from", offset))
                target.store(f, value, f.at(target.stored, "%to", loop.index))
        f.define(f"define internal void @{name}(ptr %to, ptr %from, i64 %stride, i64 %count)")

    def _sums(self, lanes: int) -> Number:
        return Number(float32 if self.is_wide else self._dtype, lanes)

    def _lines(self, f: LlvmFunction) -> list[tuple[str, str, int]]:
        """Return ranges of a line and the lanes of each: vectors if it is contiguous, then 1."""
        in_row = f.let("icmp eq i64 %stride, 1")
        found, begin = [], "0"
        for nbytes in (64, 16):  # many rows are short
            lanes = nbytes // self._sums(1).nbytes
            whole = f.let(f"and i64 %count, {-lanes}")
            end = f.let(f"select i1 {in_row}, i64 {whole}, i64 0")
            found.append((begin, end, lanes))
            begin = end
        return [*found, (begin, "%count", 1)]


def scatter_steps(node: Node, inputs: Sequence[View], outputs: Sequence[View]) -> list[Step]:
    """Return the steps of a node that scatters values, one after the other."""
    (output,), (x, values, *indices) = outputs, inputs
    adds, dtype = isinstance(node.op, IndexAdd), output.storage.dtype
    if dtype.is_complex or (dtype.is_storage and isinstance(node.op, IndexExtreme)):
        return []
    assert isinstance(node.op, Putting)
    axis, refuses = node.op.axis, node.op.refusal
    end = axis + len(indices)
    sizes = x.shape[axis:end]
    ndim = len(broadcast(*[view.shape for view in indices]))

    def in_three_dims(first: int) -> tuple[View, View, list[Step]]:
        """Return x and the values with the dims joined before `first`, and after the indices."""
        target, steps = collapsed_to_3d(node, x, first, end, KernelCode)
        added, more = collapsed_to_3d(node, values, first, axis + ndim, KernelCode)
        return target, added, [*steps, *more]

    target, added, steps = in_three_dims(axis)
    if suits(node, target, added):
        return [*steps, *partial_steps(node, target, added, indices, output)]
    counting, share, sets, indices = batched(indices, sizes)
    if counting:
        target, added, steps = in_three_dims(axis + counting)
    x, values = target, added
    naming, positions = index_step(node, indices, sizes[counting:], from_end=not refuses)
    steps.append(naming)
    before, size, after = x.shape
    if after == 1:  # then lines of one element are contiguous, or are uniform, as the elements do
        x = x._replace(strides=(*x.strides[:2], x.strides[1]))
    count = values.shape[1]
    code = ScatterCode(dtype, adds=adds, once=count == 1)
    block = dim_min(dim_max(1, after), _BLOCK)

    def divided(most: DimLike, least: DimLike) -> Step:
        """Return the step with at most `most` ranges of the middle, of `least` elements or more."""
        rows = dim_max(1, least // block, ceil(size, most))
        ranges, blocks = ceil(size, rows), ceil(after, block)
        # Of many short ranges a work item has some.
        group = dim_max(1, _WORK_ITEM // dim_max(1, size * after)) if ranges == blocks == 1 else 1
        known = [size, after, count, rows, block, ranges, blocks, before, group, share, sets]
        return Step(
            nodes=(node,),
            code=code,
            operands=(output.storage, x.storage, values.storage, positions),
            written=(True, False, False, False),
            params=(*known, x.offset, *x.strides, values.offset, *values.strides),
            work_items=ceil(before, group) * ranges * blocks,
            scratch=_ASIDE + (rows * block * 4 if code.is_wide else 0),
        )

    # Reading an index takes as long as adding some elements, or one if values are single.
    most = _HALVES if after == 1 else dim_min(_RANGES, 8 * block)
    step = divided(most, _WORK_ITEM)
    own = x.storage not in {values.storage, *[view.storage for view in indices]}
    if own and isinstance(x.storage, Tensor) and is_whole(x):
        # In place only the values are written.
        few = isinstance(count, int) and count <= _FEW and not code.is_wide
        values_only = divided(1, _WORK_ITEM) if few else None
        step = replace(step, in_place=((0, 1),), leaves_rest=True, when_in_place=values_only)
    steps.append(step)
    return steps
