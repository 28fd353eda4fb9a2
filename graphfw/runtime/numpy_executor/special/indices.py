"""Native code that checks indices along several axes, and joins them to positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from graphfw.ir.constants import fill_value
from graphfw.ir.dim import DimLike
from graphfw.ir.dtype import DType, int64
from graphfw.ir.shape import broadcast, size_of
from graphfw.ir.tensor import Node, Tensor
from graphfw.passes.fuse_iota import iota_value
from graphfw.passes.fuse_views import standard_index
from graphfw.runtime.kernels.steps import Step, Temp, View
from graphfw.runtime.numpy_executor.codegen.llvm_module import LlvmFunction, LlvmModule
from graphfw.runtime.numpy_executor.codegen.registers import splat, vector
from graphfw.runtime.planning.common import in_common
from graphfw.runtime.planning.work import ceil

_WORK_ITEM = 2048
"""The positions of a work item."""

SCAN = 8
"""The number of positions that are read at once: there is room for so many after the last."""


class IndexCode:
    """Joins indices along axes to positions along all of the axes.

    Params: the dims of the indices' common shape; then for each of them the size of its axis, the
    offset and the strides. Operands: positions, indices.

    Args:
        dtypes: The dtypes of the indices.
        rank: The number of dims of their common shape.
        from_end: Whether negative signed indices count from the end.
    """

    def __init__(self, dtypes: Sequence[DType], rank: int, *, from_end: bool) -> None:
        self._dtypes = tuple(dtypes)
        self._rank = rank
        self._from_end = from_end

    @property
    def key(self) -> str:
        names = " ".join([dtype.name for dtype in self._dtypes])
        return f"positions {self._rank} {self._from_end} {names}"

    def llvm(self, symbol: str) -> str:
        f = LlvmFunction(LlvmModule())
        rank = self._rank
        dims = [f.read("%params", axis) for axis in range(rank)]
        indices = []
        for number in range(len(self._dtypes)):
            first = rank + number * (rank + 2)
            words = [f.read("%params", first + i) for i in range(rank + 2)]
            indices.append((f.operand(number + 1), words[0], words[1], words[2:]))
        y = f.operand(0)
        total = "1"
        for dim in dims:
            total = f.mul(dim, total)
        begin = f.mul("%work_item", str(_WORK_ITEM))
        end = f.low(f.add(begin, str(_WORK_ITEM)), total)
        wrong = "false"
        if rank == 1 and len(indices) == 1:
            begin, wrong = self._densely(f, y, indices[0], begin, end)
        with f.loop(begin, end, carried=[("i1", wrong)]) as loop:
            left, at = loop.index, []
            for axis in reversed(range(rank)):
                at.append(f.rem(left, dims[axis]) if axis else left)
                left = f.div(left, dims[axis]) if axis else left
            wrong, position = loop.values[0], "0"
            for (x, size, offset, strides), dtype in zip(indices, self._dtypes, strict=True):
                element = offset
                for index, stride in zip(at, reversed(strides), strict=True):
                    element = f.add(element, f.mul(index, stride))
                value = load_index(f, dtype, x, element, size, from_end=self._from_end)
                # Negative numbers are large as unsigned ones.
                outside = f.let(f"icmp uge i64 {value}, {size}")
                wrong = f.let(f"or i1 {wrong}, {outside}")
                position = f.add(f.mul(position, size) if position != "0" else "0", value)
            f.do(f"store i64 {position}, ptr {f.at('i64', y, loop.index)}")
            loop.following = [wrong]
        (wrong,) = loop.values
        f.leave(f"ret i32 {f.let(f'zext i1 {wrong} to i32')}")
        return f.work_item(symbol)

    def _densely(
        self,
        f: LlvmFunction,
        y: str,
        index: tuple[str, str, str, list[str]],
        begin: str,
        end: str,
    ) -> tuple[str, str]:
        """Write the vectorised loop over an index that is contiguous.

        Returns the position at which it ends, and whether an index is wrong.
        """
        x, size, offset, (stride,) = index
        in_row = f.let(f"icmp eq i64 {stride}, 1")
        whole = f.add(begin, f.let(f"and i64 {f.sub(end, begin)}, {-SCAN}"))
        vectors = f.let(f"select i1 {in_row}, i64 {whole}, i64 {begin}")
        (dtype,) = self._dtypes
        sizes = all_lanes(f, size)
        mask = f"<{SCAN} x i1>"
        with f.loop(begin, vectors, SCAN, carried=[(mask, "zeroinitializer")]) as loop:
            position = f.add(offset, loop.index)
            value = load_index(f, dtype, x, position, sizes, from_end=self._from_end, lanes=SCAN)
            outside = f.let(f"icmp uge <{SCAN} x i64> {value}, {sizes}")
            f.do(f"store <{SCAN} x i64> {value}, ptr {f.at('i64', y, loop.index)}, align 8")
            loop.following = [f.let(f"or {mask} {loop.values[0]}, {outside}")]
        found = f.let(f"bitcast {mask} {loop.values[0]} to i{SCAN}")
        return vectors, f.let(f"icmp ne i{SCAN} {found}, 0")


def load_index(
    f: LlvmFunction,
    dtype: DType,
    x: str,
    element: str,
    size: str,
    *,
    from_end: bool,
    lanes: int = 1,
) -> str:
    """Write the load of indices; negative ones count from the end of `size`, if allowed."""
    kind, wide = [vector(f"i{bits}", lanes) for bits in (8 * dtype.itemsize, 64)]
    address = f.at(f"i{8 * dtype.itemsize}", x, element)
    value = f.let(f"load {kind}, ptr {address}, align {dtype.itemsize}")
    signed = dtype.kind == "int"
    if dtype.itemsize < 8:
        value = f.let(f"{'sext' if signed else 'zext'} {kind} {value} to {wide}")
    if not (signed and from_end):
        return value
    later = f.let(f"add {wide} {value}, {size}")
    negative = f.let(f"icmp slt {wide} {value}, {splat('i64', '0', lanes)}")
    return f.let(f"select {vector('i1', lanes)} {negative}, {wide} {later}, {wide} {value}")


def all_lanes(f: LlvmFunction, value: str) -> str:
    """Return an i64 in all of `SCAN` lanes."""
    kind = f"<{SCAN} x i64>"
    one = f.let(f"insertelement {kind} poison, i64 {value}, i64 0")
    return f.let(f"shufflevector {kind} {one}, {kind} poison, <{SCAN} x i32> zeroinitializer")


class BatchedIndices(NamedTuple):
    """Indices of which the first only count up: each batch is indexed by itself.

    Attributes:
        counting: The number of the first indices that count up, each along a dim of its own, in
            order.
        share: The number of consecutive batches with the same indices.
        sets: The number of sets of indices that differ.
        indices: The other indices; the dims of the sets come first in their common shape.
    """

    counting: int
    share: DimLike
    sets: DimLike
    indices: list[View]


def batched(indices: Sequence[View], sizes: Sequence[DimLike]) -> BatchedIndices:
    """Return the batches of `x[arange(n)[:, None], columns]` and the like.

    Args:
        indices: The indices; they broadcast to [*I].
        sizes: The sizes of the axes that they index.
    """
    dims = broadcast(*[view.shape for view in indices])
    counting = 0
    for view, size, dim in zip(indices[:-1], sizes, dims, strict=False):
        if dim != size or not _counts(view, len(dims) - counting):
            break
        counting += 1
    lying = [_of_rank(view, len(dims)) for view in indices[counting:]]
    varying = counting
    while varying and all([view.shape[varying - 1] == 1 for view in lying]):
        varying -= 1
    if counting:
        (first, *others) = lying
        shape = (*dims[:varying], *first.shape[varying:])
        own = zip(first.shape, first.strides, strict=True)
        strides = tuple([0 if dim == 1 else stride for dim, stride in own])
        lying = [first._replace(shape=shape, strides=strides), *others]
    share, sets = size_of(dims[varying:counting]), size_of(dims[:varying])
    return BatchedIndices(counting, share, sets, lying)


def _of_rank(view: View, rank: int) -> View:
    more = rank - len(view.shape)
    return view._replace(shape=(1,) * more + view.shape, strides=(0,) * more + view.strides)


def _counts(view: View, dim: int) -> bool:
    """Return whether an index is 0, 1, 2, … along one dim, counted from the last, its only one."""
    root = view.storage
    axis = len(view.shape) - dim
    if axis < 0 or not isinstance(root, Tensor) or view.offset != 0:
        return False
    if any(size != 1 for number, size in enumerate(view.shape) if number != axis):
        return False
    if view.shape[axis] == 1:
        return fill_value(root) == 0
    index, _ = standard_index(root)
    value = iota_value(root, index)
    variable = None if value is None else value.lone_variable
    is_whole = variable is not None and variable.extent == view.shape[axis]
    return is_whole and view.strides[axis] == 1


def index_step(
    node: Node, indices: Sequence[View], sizes: Sequence[DimLike], *, from_end: bool
) -> tuple[Step, Temp]:
    """Return a step that joins indices to positions, and the storage of these: int64, [*I].

    The run fails where an index is out of range.

    Args:
        node: The node that needs it.
        indices: They broadcast to [*I].
        sizes: The sizes of the axes that they index, one after the other in memory.
        from_end: Whether negative indices count from the end.
    """
    named = broadcast(*[view.shape for view in indices])
    dims, together = in_common(indices)
    temp = Temp(int64, size_of(named) + SCAN, "positions that indices name")
    params: list[DimLike] = [*dims]
    for view, size, strides in zip(indices, sizes, together, strict=True):
        params += [size, view.offset, *strides]
    dtypes = [view.storage.dtype for view in indices]
    step = Step(
        nodes=(node,),
        code=IndexCode(dtypes, len(dims), from_end=from_end),
        operands=(temp, *[view.storage for view in indices]),
        written=(True, *[False] * len(indices)),
        params=tuple(params),
        work_items=ceil(size_of(named), _WORK_ITEM),
        can_fail=True,
    )
    return step, temp
