"""`index_add` and `index_set`, without atomics: the same results in every run.

Positions are sorted, equal ones in the indices' order: a block sorts each chunk, then all chunks
are merged, where each position finds its place by searching in the other chunks. Then each line of
the output adds its values in that order, which is that of the reference path.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from graphfw.ir.dim import DimLike
from graphfw.ir.dtype import DType, int64
from graphfw.ir.shape import broadcast, size_of
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.shape.gather_scatter import IndexAdd, Putting
from graphfw.runtime.cupy_executor.codegen import (
    NOTHING,
    CudaCode,
    HandwrittenCode,
    Launch,
    Variant,
)
from graphfw.runtime.cupy_executor.codegen.launch import BLOCKS
from graphfw.runtime.cupy_executor.codegen.types import register
from graphfw.runtime.cupy_executor.special.launches import (
    THREADS,
    blocks_for,
    is_wide,
    reach,
)
from graphfw.runtime.kernels.handwritten_cuda import memory
from graphfw.runtime.kernels.ir import Buffer
from graphfw.runtime.kernels.steps import Step, Temp, View
from graphfw.runtime.kernels.views import is_whole
from graphfw.runtime.limits import Precision
from graphfw.runtime.planning.collapse import collapsed_to_3d
from graphfw.runtime.planning.common import in_common

_TEXT = (Path(__file__).parent / "scatter.cuh").read_text("utf-8")

_CHUNK = 1024
"""Positions that one block sorts."""

_VECTOR = 16
"""The bytes that a thread reads and writes at once."""

_LINE = 16
"""The least length of lines of which a warp computes several elements at a time."""


def scatter_steps(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], precision: Precision
) -> list[Step]:
    """Return the steps of an `index_add` or `index_set` node; none of complex numbers."""
    (output,), (x, values, *indices) = outputs, inputs
    if output.storage.dtype.is_complex:
        return []
    assert isinstance(node.op, Putting)
    axis = node.op.axis
    end = axis + len(indices)
    steps, keys, order = _sorted(node, indices, x.shape[axis:end])
    ndim = len(broadcast(*[view.shape for view in indices]))
    x, more = collapsed_to_3d(node, x, axis, end, CudaCode)
    steps += more
    values, more = collapsed_to_3d(node, values, axis, axis + ndim, CudaCode)
    steps += more
    own = x.storage not in {values.storage, *[view.storage for view in indices]}
    over = own and isinstance(x.storage, Tensor) and is_whole(x)
    params = [*x.shape, values.shape[1], x.offset, *x.strides, values.offset, *values.strides]
    step = Step(
        nodes=(node,),
        code=_put_code(output.storage.dtype, adds=isinstance(node.op, IndexAdd)),
        operands=(output.storage, x.storage, values.storage, keys, order),
        written=(True, False, False, False, False),
        params=tuple(params),
        work_items=1,
        in_place=((0, 1),) if over else (),
        leaves_rest=over,
    )
    return [*steps, step]


def _sorted(
    node: Node, indices: Sequence[View], sizes: Sequence[DimLike]
) -> tuple[list[Step], Temp, Temp]:
    """Return steps that sort positions, the sorted positions, and the numbers of their indices."""
    assert isinstance(node.op, Putting)
    dims, lying = in_common(indices)
    count = size_of(dims)
    positions, numbers, keys, order = [
        Temp(int64, count, what)
        for what in ("named positions", "their numbers", "sorted positions", "their order")
    ]
    params: list[DimLike] = [*dims]
    for view, size, strides in zip(indices, sizes, lying, strict=True):
        params += [size, view.offset, *strides]
    dtypes = tuple([view.storage.dtype for view in indices])
    first = Step(
        nodes=(node,),
        code=_sort_code(dtypes, len(dims), from_end=not node.op.refusal),
        operands=(positions, numbers, *[view.storage for view in indices]),
        written=(True, True, *[False for _ in indices]),
        params=tuple(params),
        work_items=1,
        can_fail=True,
    )
    second = Step(
        nodes=(node,),
        code=_JOIN,
        operands=(positions, numbers, keys, order),
        written=(False, False, True, True),
        params=(count,),
        work_items=1,
    )
    return [first, second], keys, order


def _sort_code(dtypes: tuple[DType, ...], rank: int, *, from_end: bool) -> HandwrittenCode:
    """Return the kernel that joins indices along axes to flat positions, and sorts these.

    Args:
        dtypes: The dtypes of the indices.
        rank: The number of dims of their common shape.
        from_end: Whether negative indices count from the end.
    """
    kinds = [memory(dtype) for dtype in dtypes]
    names = [kind.replace(" ", "_") for kind in kinds]
    name = "_".join(["gf_places", str(rank), "from_end" if from_end else "from_0", *names])
    params = rank + (rank + 2) * len(dtypes)
    parameters = ["gf_i64* b0", "gf_i64* b1"]
    parameters += [f"const {kind}* b{number}" for number, kind in enumerate(kinds, 2)]
    parameters += [f"gf_i64 w{number}" for number in range(params)]
    count = " * ".join([f"(gf_index)w{axis}" for axis in range(rank)]) or "1"
    lines = [
        f"GF void {name}({', '.join(parameters)}, int* failed, char*) {{",
        f"    const gf_index count = {count};",
        "    for (gf_index first = (gf_index)(blockIdx.x * GF_CHUNK); first < count;",
        "         first += (gf_index)(gridDim.x * GF_CHUNK)) {",
        "        gf_index left = first + (gf_index)threadIdx.x;",
        "        gf_i64 key = 0;",
        "        if (left < count) {",
    ]
    for axis in reversed(range(rank)):
        dim = f"(gf_index)w{axis}"
        lines.append(f"            const gf_index i{axis} = {f'left % {dim}' if axis else 'left'};")
        if axis:
            lines.append(f"            left /= {dim};")
    for number, dtype in enumerate(dtypes):
        begin = rank + number * (rank + 2)
        terms = [f"i{axis} * (gf_index)w{begin + 2 + axis}" for axis in range(rank)]
        position = " + ".join([f"(gf_index)w{begin + 1}", *terms])
        lines.append(f"            gf_i64 at{number} = (gf_i64)b{number + 2}[{position}];")
        if from_end and dtype.kind == "int":
            lines.append(f"            if (at{number} < 0) at{number} += w{begin};")
        lines += [
            f"            if ((gf_u64)at{number} >= (gf_u64)w{begin}) {{",
            "                *failed = 1;",
            f"                at{number} = 0;",
            "            }",
            f"            key = key * w{begin} + at{number};",
        ]
    lines += ["        }", "        gf_sort_chunk(key, first, count, b0, b1);", "    }", "}", ""]

    def launched(sizes: Sequence[int]) -> Launch:
        count = 1
        for dim in sizes[:rank]:
            count *= dim
        if not count:
            return NOTHING
        begins = [rank + 1 + number * (rank + 2) for number in range(len(dtypes))]
        lasts = [reach(sizes[:rank], sizes[begin : begin + rank + 1]) for begin in begins]
        grid = min(-(-count // _CHUNK), BLOCKS)
        return Launch("all", grid, 1, (_CHUNK, 1), 0, 0, 0, is_wide(count + _CHUNK, *lasts))

    return HandwrittenCode(
        name="places",
        text=_TEXT,
        buffers=(*[Buffer(int64, True)] * 2, *[Buffer(dtype, False) for dtype in dtypes]),
        params=params,
        functions=(Variant("all", name, _CHUNK),),
        launching=launched,
        own="\n".join(lines),
    )


def _joined(params: Sequence[int]) -> Launch:
    (count,) = params
    if not count:
        return NOTHING
    return Launch("all", blocks_for(count), 1, (THREADS, 1), 0, 0, 0, is_wide(count + _CHUNK))


_JOIN = HandwrittenCode(
    name="join_chunks",
    text=_TEXT,
    buffers=(*[Buffer(int64, False)] * 2, *[Buffer(int64, True)] * 2),
    params=1,
    functions=(Variant("all", "gf_join_chunks", THREADS),),
    launching=_joined,
)


def _put_code(dtype: DType, *, adds: bool) -> HandwrittenCode:
    """Return the kernel that makes the output."""
    width = _VECTOR // dtype.itemsize
    functions = []
    for name, group, v in (
        ("element", "gf_single", 1),
        ("line", "gf_warp", 1),
        *((("packs", "gf_warp", width),) if width > 1 else ()),
    ):
        arguments = f"{group}, {v}, {'true' if adds else 'false'}, {register(dtype)}"
        functions.append(Variant(name, f"gf_put_lines<{arguments}>", THREADS))

    def launched(params: Sequence[int]) -> Launch:
        before, size, after, count, *lying = params
        if before * size * after == 0:
            return NOTHING
        x, values = lying[:4], lying[4:]
        multiples = [after]
        for lies in (x, values):
            multiples += lies[:3] if lies[3] == 1 else []
        if after < _LINE:
            name, threads = "element", before * size * after
        else:
            is_aligned = width > 1 and not any([n % width for n in multiples])
            name, each = ("packs", 32 * width) if is_aligned else ("line", 32)
            threads = 32 * before * size * -(-after // each)
        lasts = [before * size * after, count]
        lasts += [reach((before, size, after), x), reach((before, count, after), values)]
        grid = blocks_for(threads)
        return Launch(name, grid, 1, (THREADS, 1), 0, 0, 0, is_wide(*lasts))

    return HandwrittenCode(
        name="index_add" if adds else "index_set",
        text=_TEXT,
        buffers=(
            Buffer(dtype, True),
            *[Buffer(dtype, False)] * 2,
            *[Buffer(int64, False)] * 2,
        ),
        params=12,
        functions=tuple(functions),
        launching=launched,
    )
