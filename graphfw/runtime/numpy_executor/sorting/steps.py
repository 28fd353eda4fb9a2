"""The native step of `sort`, for many lines that fit a core's cache."""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.ir.dim import DimLike, dim_max
from graphfw.ir.dtype import DType
from graphfw.ir.tensor import Node
from graphfw.ops.sorting.sort_search import Sort
from graphfw.runtime.kernels.steps import Step, View
from graphfw.runtime.numpy_executor.attention.layout import HEAD
from graphfw.runtime.numpy_executor.attention.text import LlvmModule
from graphfw.runtime.numpy_executor.codegen import KernelCode
from graphfw.runtime.numpy_executor.codegen.target import Processor, host
from graphfw.runtime.numpy_executor.sorting.keys import LaneKeys
from graphfw.runtime.numpy_executor.sorting.lines import LineCopies, Lines, Way
from graphfw.runtime.numpy_executor.sorting.network import BLOCK, Network, levels_of
from graphfw.runtime.numpy_executor.special.moves import ceil
from graphfw.runtime.numpy_executor.special.text import BranchWriter
from graphfw.runtime.planning.collapse import collapsed_to_3d
from graphfw.runtime.planning.copies import copied

_LONGEST = 1 << 13
"""Elements of the longest line: a vector of them fits a core's second cache beside other things."""

_WORK_ITEM = 1 << 15
"""Exchanges of vectors that a work item makes about, if there are so many."""

_NAMES = ("groups", "together", "per_batch", "lines", "size", "count", "levels")
"""Of vectors of lines, how many there are, of a work item, and in neighbouring lines; how many of
these there are; of elements and of vectors of one; and how often runs are merged."""

_VIEW = ("offset", "batch", "along", "across")


class SortCode:
    """Sorts vectors of lines.

    Operands: output, input. Params: `_NAMES`, then `_VIEW` for each.

    Args:
        dtype: Of the elements.
        bits: Of a vector.
        ways: How lines lie in the output and in the input.
        descending: Whether the largest come first.
        stable: Whether zeros of two signs keep their order.
    """

    def __init__(
        self, dtype: DType, bits: int, ways: tuple[Way, Way], *, descending: bool, stable: bool
    ) -> None:
        self._dtype = dtype
        self._bits = bits
        self._ways = ways
        self._descending = descending
        self._stable = stable

    @property
    def key(self) -> str:
        traits = f"{self._bits} {self._ways} {self._descending} {self._stable}"
        return f"sort {self._dtype.name} {traits}"

    def llvm(self, symbol: str) -> str:
        module = LlvmModule()
        f = BranchWriter(module)
        lanes = self._bits // (8 * self._dtype.itemsize)
        keys = LaneKeys(self._dtype, lanes, descending=self._descending)
        n = {name: f.read("%params", i) for i, name in enumerate(_NAMES)}
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
            copies.read(source, self._ways[1])
            with f.loop(n["size"], n["count"]) as rest:
                network.put(rest.index, keys.last())
            self._sort(f, keys, network, copies, source, n["levels"])
            copies.write(target, self._ways[0])
        f.do("ret i32 0")
        module.add(HEAD.format(symbol=symbol), f)
        return module.text

    def _sort(
        self,
        f: BranchWriter,
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
        self, f: BranchWriter, keys: LaneKeys, network: Network, counts: str, size: str
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
    """Return the steps of a sort; none of few or long lines, or where bytes are counted sooner."""
    op, (x,), (output,) = node.op, inputs, outputs
    assert isinstance(op, Sort)
    dtype, processor = output.storage.dtype, host()
    lanes = processor.vector_bytes // dtype.itemsize
    axis = op.axis % len(x.shape)
    source, copies = collapsed_to_3d(node, x, axis, axis + 1, KernelCode)
    before, size, after = source.shape
    if not isinstance(size, int) or not 2 <= size <= _LONGEST or not _is_quick(dtype, processor):
        return []
    batches, lines, apart = (1, before, 0) if after == 1 else (before, after, 1)
    if isinstance(lines, int) and 3 * lines < 2 * lanes * -(-lines // lanes):
        return []  # many lanes would be empty
    if 1 not in (source.strides[1], source.strides[2 * apart]):
        step, temp = copied(source, (node,), "lines of which nothing lies in a row", KernelCode)
        source = View(temp, 0, source.shape, (size * after, after, 1))
        copies = [*copies, step]
    target = View(output.storage, output.offset, source.shape, (size * after, after, 1))
    params: list[DimLike] = []
    ways: list[Way] = []
    for view in (target, source):
        batch, along, position = view.strides
        across = position if apart else batch
        params += [view.offset, batch if apart else 0, along, across]
        ways.append("across" if across == 1 else "along")
    count, levels = BLOCK * -(-size // BLOCK), levels_of(size)
    per_batch = ceil(lines, lanes)
    together = max(1, _WORK_ITEM // (count * (levels + 4) * (levels + 5) // 4))
    groups = batches * per_batch
    step = Step(
        nodes=(node,),
        code=SortCode(
            dtype,
            8 * processor.vector_bytes,
            (ways[0], ways[1]),
            descending=op.descending,
            stable=op.stable,
        ),
        operands=(output.storage, source.storage),
        written=(True, False),
        params=(groups, together, dim_max(1, per_batch), lines, size, count, levels, *params),
        work_items=ceil(lines, together * lanes) if batches == 1 else ceil(groups, together),
        scratch=count * processor.vector_bytes,
    )
    return [*copies, step]


def _is_quick(dtype: DType, processor: Processor) -> bool:
    """Whether vectors have the smaller of two elements in one instruction, and many of them.

    Bytes are counted sooner.
    """
    if dtype.is_integer and dtype.itemsize == 8:
        return processor.vector_bytes >= 64
    return dtype.itemsize > 1 and processor.vector_bytes >= 32
