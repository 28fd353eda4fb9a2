"""The native step of `sort`, for many lines that fit a core's cache."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from graphfw.ir.dim import DimLike, dim_max
from graphfw.ir.dtype import DType
from graphfw.ir.tensor import Node
from graphfw.ops.sorting.sort_search import Sort
from graphfw.runtime.kernels.steps import Step, Storage, Temp, View
from graphfw.runtime.numpy_executor.codegen import KernelCode
from graphfw.runtime.numpy_executor.codegen.llvm_module import LlvmFunction, LlvmModule
from graphfw.runtime.numpy_executor.codegen.target import Processor, host
from graphfw.runtime.numpy_executor.sorting.keys import LaneKeys
from graphfw.runtime.numpy_executor.sorting.lines import LineCopies, Lines, Way
from graphfw.runtime.numpy_executor.sorting.merging import RunMergeCode
from graphfw.runtime.numpy_executor.sorting.network import BLOCK, Network, levels_of
from graphfw.runtime.planning.collapse import collapsed_to_3d
from graphfw.runtime.planning.copies import copied
from graphfw.runtime.planning.work import ceil

_SHORT = 1 << 9
"""Elements of a line that is sorted in less time than Python takes to call NumPy, whatever lanes
are empty."""

_RUN = 1 << 12
"""Elements of the longest run."""

_LONGEST = 1 << 13
"""Elements of the longest line: a vector of them fits a core's second cache beside other things."""

_WORK_ITEM = 1 << 15
"""Exchanges of vectors that a work item makes about, if there are so many."""

_NAMES = ("groups", "together", "per_batch", "lines", "size", "count", "levels", "whole")
"""Of vectors of lines, how many there are, of a work item, and in neighbouring lines; how many of
these there are; of elements and of vectors of one; how often runs are merged; and of elements, how
many neighbouring lines have together, where these are the runs of one."""

_VIEW = ("offset", "batch", "along", "across")

Strides: TypeAlias = "tuple[DimLike, DimLike, DimLike, DimLike]"
"""The params of an operand: see `_VIEW`."""

_WHY = "sorted runs"


class SortCode:
    """Sorts vectors of lines.

    Operands: output, input. Params: `_NAMES`, then `_VIEW` for each.

    Args:
        dtype: Of the elements.
        bits: Of a vector.
        ways: How lines lie in the output and in the input.
        descending: Whether the largest come first.
        stable: Whether zeros of two signs keep their order.
        are_runs: Whether neighbouring lines are runs of one, and their keys are written.
    """

    def __init__(
        self,
        dtype: DType,
        bits: int,
        ways: tuple[Way, Way],
        *,
        descending: bool,
        stable: bool,
        are_runs: bool = False,
    ) -> None:
        self._dtype = dtype
        self._bits = bits
        self.lanes = bits // (8 * dtype.itemsize)
        self._ways = ways
        self._descending = descending
        self._stable = stable
        self._are_runs = are_runs

    @property
    def key(self) -> str:
        traits = f"{self._bits} {self._ways} {self._descending} {self._stable} {self._are_runs}"
        return f"sort {self._dtype.name} {traits}"

    def llvm(self, symbol: str) -> str:
        f = LlvmFunction(LlvmModule())
        lanes = self.lanes
        keys = LaneKeys(self._dtype, lanes, descending=self._descending)
        n = f.read_sizes(_NAMES)
        views = [
            [f.read("%params", len(_NAMES) + len(_VIEW) * number + i) for i in range(len(_VIEW))]
            for number in range(2)
        ]
        arrays = [f.operand(i) for i in range(2)]
        network = Network(f, keys, n["count"])
        copies = LineCopies(f, keys, network)
        begin = f.mul("%work_item", n["together"])
        end = f.low(f.add(begin, n["together"]), n["groups"])
        with f.loop(begin, end, asks=True) as group:
            batch = f.div(group.index, n["per_batch"])
            first = f.mul(f.rem(group.index, n["per_batch"]), str(lanes))
            count = f.low(f.sub(n["lines"], first), str(lanes))
            target, source = [
                Lines(
                    f.at(
                        keys.single,
                        array,
                        f.add(f.add(offset, f.mul(batch, apart)), f.mul(first, across)),
                    ),
                    along,
                    across,
                    count,
                    n["size"],
                )
                for array, (offset, apart, along, across) in zip(arrays, views, strict=True)
            ]
            if self._are_runs:
                source = source._replace(left=f.sub(n["whole"], f.mul(first, n["size"])))
            copies.read(source, self._ways[1])
            with f.loop(n["size"], n["count"]) as rest:
                network.put(rest.index, keys.last())
            self._sort(f, keys, network, copies, source, n["levels"])
            copies.write(target, self._ways[0], decodes=not self._are_runs)
        return f.work_item(symbol)

    def _sort(
        self,
        f: LlvmFunction,
        keys: LaneKeys,
        network: Network,
        copies: LineCopies,
        source: Lines,
        levels: str,
    ) -> None:
        integers = f"<{keys.lanes} x i{8 * self._dtype.itemsize}>"
        bits = f"<{keys.lanes} x i1>"
        carried = []
        if keys.counts_nan:
            carried.append((integers, keys.splat(0)))
        if keys.has_zeros and self._stable:
            carried.append((bits, "zeroinitializer"))

        def encode(values: Sequence[str], found: Sequence[str]) -> tuple[list[str], list[str]]:
            following = list(found)
            for x in values:
                if keys.counts_nan:
                    following[0] = f.let(f"add {integers} {following[0]}, {keys.is_nan(f, x)}")
                if keys.has_zeros and self._stable:
                    is_zero = keys.is_negative_zero(f, x)
                    following[-1] = f.let(f"or {bits} {following[-1]}, {is_zero}")
            return [keys.encoded(f, x) for x in values], following

        found = network.sort_blocks(encode, carried)
        network.merge(levels)
        if keys.has_zeros and self._stable:
            any_zero = f.call("i1", f"llvm.vector.reduce.or.v{keys.lanes}i1", (bits, found[-1]))
            with f.when(any_zero):
                copies.keep_zeros(source)
        if keys.counts_nan:
            self._put_nan(f, keys, network, found[0], source.size)

    def _put_nan(
        self, f: LlvmFunction, keys: LaneKeys, network: Network, counts: str, size: str
    ) -> None:
        """Put the NaN of each line where they come in order."""
        wide = f"<{keys.lanes} x i{8 * self._dtype.itemsize}>"
        single = f"i{8 * self._dtype.itemsize}"
        most = f.call(single, f"llvm.vector.reduce.smax.v{keys.lanes}{single}", (wide, counts))
        many = f.let(f"zext {single} {most} to i64") if single != "i64" else most
        with f.loop("0", many) as n:
            index = f.sub(f.sub(size, "1"), n.index) if not self._descending else n.index
            number = f.let(f"trunc i64 {n.index} to {single}") if single != "i64" else n.index
            one = f.let(f"insertelement {wide} poison, {single} {number}, i64 0")
            every = f.let(
                f"shufflevector {wide} {one}, {wide} poison, <{keys.lanes} x i32> zeroinitializer"
            )
            is_nan = f.let(f"icmp slt {wide} {every}, {counts}")
            choose = f"select <{keys.lanes} x i1> {is_nan}, {keys.kind} {keys.nan()}"
            network.put(index, f.let(f"{choose}, {keys.kind} {network.get(index)}"))


def sort_steps(node: Node, inputs: Sequence[View], outputs: Sequence[View]) -> list[Step]:
    """Return the steps of a sort; none where NumPy sorts as quickly, or more so."""
    op, (x,), (output,) = node.op, inputs, outputs
    assert isinstance(op, Sort)
    dtype, processor = output.storage.dtype, host()
    lanes = processor.vector_bytes // dtype.itemsize
    axis = op.axis % len(x.shape)
    source, copies = collapsed_to_3d(node, x, axis, axis + 1, KernelCode)
    before, size, after = source.shape
    if not isinstance(size, int) or size < 2:
        return []
    batches, lines, apart = (1, before, 0) if after == 1 else (before, after, 1)
    fills = not isinstance(lines, int) or 3 * lines >= 2 * lanes * -(-lines // lanes)
    in_lanes = (fills or size <= _SHORT) and size <= _longest(dtype, processor)
    in_runs = after == 1 and _SHORT < size <= _longest_in_runs(dtype, processor)
    if not in_lanes and not in_runs:
        return []
    rows = source.strides[1] == 1
    if not rows and (not in_lanes or source.strides[2 * apart] != 1):
        step, temp = copied(source, (node,), "lines of which nothing lies in a row", KernelCode)
        source = View(temp, 0, source.shape, (size * after, after, 1))
        copies = [*copies, step]
    if not in_lanes:
        return [*copies, *_run_steps(node, op, source, output, size)]
    target = View(output.storage, output.offset, source.shape, (size * after, after, 1))
    views = []
    for view in (target, source):
        batch, along, position = view.strides
        views.append(
            (view.offset, batch, along, position) if apart else (view.offset, 0, along, batch)
        )
    code = SortCode(
        dtype,
        8 * processor.vector_bytes,
        (_way(views[0]), _way(views[1])),
        descending=op.descending,
        stable=op.stable,
    )
    operands = (output.storage, source.storage)
    return [*copies, _lanes_step(node, code, operands, (batches, lines, size, 0), views)]


def _way(view: Strides) -> Way:
    return "across" if view[3] == 1 else "along"


def _lanes_step(
    node: Node,
    code: SortCode,
    operands: tuple[Storage, Storage],
    sizes: tuple[DimLike, DimLike, int, int],
    views: Sequence[Strides],
) -> Step:
    """Return the step that sorts lines in lanes.

    Args:
        node: What it computes.
        code: Its code.
        operands: The output and the input.
        sizes: How many times there are neighbouring lines, how many, of how many elements each, and
            how many elements they have together, where they are runs.
        views: How the operands lie.
    """
    batches, lines, size, whole = sizes
    count, levels = BLOCK * -(-size // BLOCK), levels_of(size)
    per_batch = ceil(lines, code.lanes)
    together = max(1, _WORK_ITEM // (count * (levels + 4) * (levels + 5) // 4))
    groups = batches * per_batch
    head = (groups, together, dim_max(1, per_batch), lines, size, count, levels, whole)
    return Step(
        nodes=(node,),
        code=code,
        operands=operands,
        written=(True, False),
        params=(*head, *views[0], *views[1]),
        work_items=(ceil(lines, together * code.lanes) if batches == 1 else ceil(groups, together)),
        scratch=count * host().vector_bytes,
    )


def _run_steps(node: Node, op: Sort, source: View, output: View, size: int) -> list[Step]:
    """Return the steps that sort each line in runs, and merge these.

    What the last run lacks is filled with what comes after all others.
    """
    dtype, bits = output.storage.dtype, 8 * host().vector_bytes
    lanes = bits // (8 * dtype.itemsize)
    runs = lanes
    while runs * _RUN < size:
        runs *= 2
    run = lanes * -(-size // (runs * lanes))
    batches, apart = source.shape[0], source.strides[0]
    total = batches * runs * run
    temp = Temp(dtype, total, _WHY)
    code = SortCode(
        dtype, bits, ("along", "along"), descending=op.descending, stable=False, are_runs=True
    )
    views: list[Strides] = [(0, runs * run, 1, run), (source.offset, apart, 1, run)]
    sizes = (batches, runs, run, size)
    steps = [_lanes_step(node, code, (temp, source.storage), sizes, views)]
    while runs > 1:
        runs //= 2
        is_last = runs == 1
        target: Storage = output.storage if is_last else Temp(dtype, total, _WHY)
        pairs, together = batches * runs, max(1, _WORK_ITEM // (2 * run))
        params = (pairs, together, run, size, source.offset, apart, 1)
        steps.append(
            Step(
                nodes=(node,),
                code=RunMergeCode(
                    dtype, bits, is_last=is_last, descending=op.descending, stable=op.stable
                ),
                operands=(target, temp, source.storage) if is_last else (target, temp),
                written=(True, False, False) if is_last else (True, False),
                params=params,
                work_items=ceil(pairs, together),
            )
        )
        if isinstance(target, Temp):
            temp = target
        run *= 2
    return steps


def _longest(dtype: DType, processor: Processor) -> int:
    """Return the most elements of a line that is sorted in a lane.

    Bytes are counted sooner, and longer lines of 64-bit integers where these are of a small range.
    AVX2 does not find the smaller of two such.
    """
    if dtype.itemsize == 1:
        return 0
    if dtype.is_integer and dtype.itemsize == 8:
        return _LONGEST // 4 if processor.vector_bytes == 64 else 0
    return _LONGEST if processor.vector_bytes >= 32 else _SHORT


def _longest_in_runs(dtype: DType, processor: Processor) -> float:
    """Return the most elements of a line that is sorted in runs.

    With AVX2 NumPy takes less time for longer ones, and so does counting integers of a small range.
    """
    if dtype.is_low_precision:
        return 0
    if processor.vector_bytes == 64:
        return math.inf if dtype.is_floating else _longest(dtype, processor)
    return _LONGEST if processor.vector_bytes == 32 and dtype.itemsize == 4 else 0
