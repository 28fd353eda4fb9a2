"""Copying boxes: `concat`, `roll`, `slice_set`, and `slice` where it may be out of range."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from graphfw.ir.dim import DimLike
from graphfw.ir.dtype import DType
from graphfw.ir.tensor import Node
from graphfw.runtime.cupy_executor.codegen import NOTHING, HandwrittenCode, Launch, Variant
from graphfw.runtime.cupy_executor.special.launches import THREADS, blocks_for, is_wide, reach
from graphfw.runtime.kernels.handwritten_cuda import memory
from graphfw.runtime.kernels.ir import Buffer
from graphfw.runtime.kernels.steps import Step, View
from graphfw.runtime.limits import Precision
from graphfw.runtime.planning.boxes import merged, moves_of

_TEXT = (Path(__file__).parent / "moves.cuh").read_text("utf-8")

_VECTOR = 16
"""The bytes that a thread copies at once, if strides allow."""

_MOST = 48
"""The most boxes of an output: each takes a dozen parameters of a kernel."""


def move_steps(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], precision: Precision
) -> list[Step]:
    """Return the step of a node that copies; none of complex numbers, or of too many boxes."""
    (output,) = outputs
    moves = moves_of(node, inputs, output)
    dtype = output.storage.dtype
    if dtype.is_complex or moves is None or len(moves.boxes) > _MOST:
        return []
    storages = dict.fromkeys([box.source.storage for box in moves.boxes])
    numbers = {storage: number for number, storage in enumerate(storages, 1)}
    shape: list[tuple[int, int]] = []
    params: list[DimLike] = [moves.wrong]
    for box in moves.boxes:
        dims, source, target = merged(box)
        if not dims:
            dims, source, target = (1,), (1,), (1,)
        shape.append((numbers[box.source.storage], len(dims)))
        params += [box.source.offset, box.offset, *dims, *source, *target]
    return [
        Step(
            nodes=(node,),
            code=_code(dtype, len(storages), tuple(shape)),
            operands=(output.storage, *storages),
            written=(True, *[False] * len(storages)),
            params=tuple(params),
            work_items=1,
            in_place=((0, numbers[moves.over]),) if moves.over in numbers else (),
            leaves_rest=moves.over in numbers,
            can_fail=moves.wrong != 0,
        )
    ]


def _code(dtype: DType, sources: int, boxes: tuple[tuple[int, int], ...]) -> HandwrittenCode:
    """Return the kernel that copies boxes of a dtype.

    Args:
        dtype: The dtype.
        sources: The number of source buffers.
        boxes: For each box its source buffer, and the number of its dims.
    """
    params = 1 + sum([2 + 3 * rank for _, rank in boxes])
    width = _VECTOR // dtype.itemsize
    widths = {"element": 1, **({"vector": width} if width > 1 else {})}
    kind = memory(dtype)
    name = "_".join(["gf_moves", kind.replace(" ", "_"), *[f"{n}r{rank}" for n, rank in boxes]])
    parameters = [f"{kind}* b0", *[f"const {kind}* b{number + 1}" for number in range(sources)]]
    parameters += [f"gf_i64 w{number}" for number in range(params)]
    lines = [
        f"template <int V> GF void {name}({', '.join(parameters)}, int* failed, char*) {{",
        "    if (w0 > 0) {",
        "        *failed = 1;",
        "        return;",
        "    }",
    ]
    position = 1
    for number, (_, rank) in enumerate(boxes):
        names = [f"(gf_index)w{position + n}" for n in range(2 + 3 * rank)]
        position += len(names)
        groups = [names[2 + rank * n : 2 + rank * (n + 1)] for n in range(3)]
        for what, numbers in zip(("dims", "from", "to"), groups, strict=True):
            lines.append(f"    const gf_index {what}{number}[] = {{{', '.join(numbers)}}};")
        count = " * ".join(groups[0])
        lines.append(f"    const gf_index count{number} = {count} / V;")
    total = " + ".join([f"count{number}" for number in range(len(boxes))]) or "0"
    lines += [
        f"    const gf_index all = {total};",
        "    for (gf_index n = gf_single::first(); n < all; n += gf_single::step()) {",
        "        gf_index left = n;",
    ]
    position = 1
    for number, (source, rank) in enumerate(boxes):
        offsets = [f"b{source} + (gf_index)w{position}", f"b0 + (gf_index)w{position + 1}"]
        position += 2 + 3 * rank
        arrays = ", ".join([f"{what}{number}" for what in ("dims", "from", "to")])
        lines += [
            f"        if (left < count{number}) {{",
            f"            gf_move<{rank}, V>({', '.join(offsets)}, left, {arrays});",
            "            continue;",
            "        }",
            f"        left -= count{number};",
        ]
    return HandwrittenCode(
        name="moves",
        text=_TEXT,
        buffers=(Buffer(dtype, True), *[Buffer(dtype, False)] * sources),
        params=params,
        functions=tuple([Variant(one, f"{name}<{v}>", THREADS) for one, v in widths.items()]),
        launching=partial(_launched, [rank for _, rank in boxes], width),
        own="\n".join([*lines, "    }", "}", ""]),
    )


def _launched(ranks: Sequence[int], width: int, params: Sequence[int]) -> Launch:
    wrong, *rest = params
    count, lasts, is_aligned = 0, [0], width > 1
    for rank in ranks:
        (source, target), rest = rest[:2], rest[2:]
        dims, from_, to = [rest[rank * n : rank * (n + 1)] for n in range(3)]
        rest = rest[3 * rank :]
        count += math.prod(dims)
        lasts += [reach(dims, (source, *from_)), reach(dims, (target, *to))]
        if 0 not in dims:
            multiples = [source, target, dims[-1], *from_[:-1], *to[:-1]]
            is_aligned = is_aligned and from_[-1] == to[-1] == 1
            is_aligned = is_aligned and not any([size % width for size in multiples])
    if wrong > 0:
        count = 1
    if not count:
        return NOTHING
    variant, each = ("vector", width) if is_aligned else ("element", 1)
    grid = blocks_for(-(-count // each))
    return Launch(variant, grid, 1, (THREADS, 1), 0, 0, 0, is_wide(count, *lasts))
