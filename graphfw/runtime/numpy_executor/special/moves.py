"""Copying boxes: ranges of one array from ranges of others, whatever their strides.

A box is a range of the output that has one regular source. An op whose output is made of boxes that
do not overlap, and leave nothing out, is one step, whose work items are pieces of the boxes.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.ir.dim import DimLike, dim_max, dim_min
from graphfw.ir.dtype import DType
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node
from graphfw.runtime.kernels.steps import Step, Storage
from graphfw.runtime.numpy_executor.codegen.llvm_module import LlvmFunction, LlvmModule
from graphfw.runtime.planning.boxes import Box, merged
from graphfw.runtime.planning.work import ceil

_WORK_ITEM = 1 << 16
"""The bytes that a work item copies."""

_TRANSPOSED = 64
"""Bytes in a row that are written from as many positions: cache lines that are read again."""

_LONG = 1 << 12
"""Bytes from which the C library copies them sooner."""

_FRACTIONS = (32, 16, 8)
"""Bytes of the fractions of a vector that copy fewer elements: two each time, which may overlap."""

_HEADER = (
    "end",  # how many work items this box and those before it have
    "operand",
    "source",  # where its elements begin, in elements
    "target",
    "outer",  # how many pairs of last dims there are
    "outer_chunk",  # how many of them a work item has
    "row_chunk",  # how many positions of the last dim but one a work item has
    "run_chunk",  # how many of the last dim
    "row_chunks",
    "run_chunks",
)
"""The integers of a box, before its dims, its source's strides and its target's."""


class MoveCode:
    """Copies boxes of up to `rank` dims of elements of a dtype.

    Params: how many boxes, whether the run fails, then the boxes. Operands: output, sources.
    """

    def __init__(self, dtype: DType, rank: int) -> None:
        self._dtype = dtype
        self._rank = rank

    @property
    def key(self) -> str:
        return f"moves {unit(self._dtype)} {self._rank}"

    def llvm(self, symbol: str) -> str:
        module = LlvmModule()
        run = add_run(module, self._dtype)
        self._add_box(module, run)
        f = LlvmFunction(module)
        count, wrong = f.read("%params", 0), f.read("%params", 1)
        size = len(_HEADER) + 3 * self._rank
        with (
            f.unless(f.let(f"icmp ne i64 {wrong}, 0")),
            f.loop("0", count, carried=[("i64", "0")]) as loop,
        ):
            (begin,) = loop.values
            param = f.add(f.mul(loop.index, str(size)), "2")
            box = f.at("i64", "%params", param)
            end = f.let(f"load i64, ptr {box}")
            late = f.let(f"icmp sge i64 %work_item, {begin}")
            early = f.let(f"icmp slt i64 %work_item, {end}")
            with f.when(f.let(f"and i1 {late}, {early}")):
                work_item = f.sub("%work_item", begin)
                f.do(f"call void @box(ptr %buffers, ptr {box}, i64 {work_item})")
            loop.following = [end]
        return f.work_item(symbol)

    def _add_box(self, module: LlvmModule, run: str) -> None:
        """Add the function that copies the work item of a box."""
        f = LlvmFunction(module)
        rank, kind = self._rank, unit(self._dtype)
        names = [*_HEADER, *[f"{what}{i}" for what in ("dim", "from", "to") for i in range(rank)]]
        n = {name: f.read("%box", i) for i, name in enumerate(names)}
        y = f.operand(0)
        x = f.let(f"load ptr, ptr {f.at('ptr', '%buffers', n['operand'])}")
        left = f.div("%work_item", n["run_chunks"])
        column = f.mul(f.rem("%work_item", n["run_chunks"]), n["run_chunk"])
        row = f.mul(f.rem(left, n["row_chunks"]), n["row_chunk"])
        outer = f.mul(f.div(left, n["row_chunks"]), n["outer_chunk"])
        down, along = rank - 2, rank - 1
        length = f.low(n["run_chunk"], f.sub(n[f"dim{along}"], column))
        row_end = f.low(f.add(row, n["row_chunk"]), n[f"dim{down}"])
        outer_end = f.low(f.add(outer, n["outer_chunk"]), n["outer"])
        source = f.add(n["source"], f.mul(column, n[f"from{along}"]))
        target = f.add(n["target"], f.mul(column, n[f"to{along}"]))
        # If the output is written over a source, the source's elements are in place.
        stays = f.let(f"icmp eq ptr {f.at(kind, x, source)}, {f.at(kind, y, target)}")
        for axis in range(rank):
            same = f.let(f"icmp eq i64 {n[f'from{axis}']}, {n[f'to{axis}']}")
            stays = f.let(f"and i1 {stays}, {same}")
        outer_end = f.let(f"select i1 {stays}, i64 {outer}, i64 {outer_end}")
        with f.loop(outer, outer_end) as number:
            left, s, t = number.index, source, target
            for axis in reversed(range(down)):
                index = left
                if axis:
                    index = f.rem(left, n[f"dim{axis}"])
                    left = f.div(left, n[f"dim{axis}"])
                s = f.add(s, f.mul(index, n[f"from{axis}"]))
                t = f.add(t, f.mul(index, n[f"to{axis}"]))
            with f.loop(row, row_end) as line:
                a = f.at(kind, x, f.add(s, f.mul(line.index, n[f"from{down}"])))
                b = f.at(kind, y, f.add(t, f.mul(line.index, n[f"to{down}"])))
                call_run(f, run, b, n[f"to{along}"], a, n[f"from{along}"], length)
        f.define("define internal void @box(ptr %buffers, ptr %box, i64 %work_item)")


def moved(
    node: Node,
    boxes: Sequence[Box],
    output: Storage,
    *,
    wrong: DimLike = 0,
    over: Storage | None = None,
) -> Step:
    """Return a step that fills an output from boxes.

    Args:
        node: The node that it computes.
        boxes: They don't overlap, and fill the output, or a view of some of it.
        output: The view that is written.
        wrong: Not 0 at run time if the run must fail.
        over: A storage that the output may be written over: its elements stay where they are.
    """
    sources = dict.fromkeys([box.source.storage for box in boxes])
    operands = {storage: number for number, storage in enumerate(sources, 1)}
    merged_boxes = [merged(box) for box in boxes]
    rank = max([2, *[len(dims) for dims, _, _ in merged_boxes]])
    params: list[DimLike] = [len(boxes), wrong]
    work_items: DimLike = 0
    for box, (dims, source, target) in zip(boxes, merged_boxes, strict=True):
        missing = rank - len(dims)
        dims = (*[1] * missing, *dims)
        most = _WORK_ITEM // output.dtype.itemsize
        *outer, rows, run = dims
        # If the source is transposed, an iteration reads the neighbours of the elements before.
        is_transposed = len(source) > 1 and source[-2] == 1
        run_chunk = _TRANSPOSED // output.dtype.itemsize if is_transposed else most
        row_chunk = dim_max(1, most // dim_max(1, dim_min(run, run_chunk)))
        outer_chunk = dim_max(1, most // dim_max(1, rows * run))
        row_chunks, run_chunks = ceil(rows, row_chunk), ceil(run, run_chunk)
        work_items = work_items + ceil(size_of(outer), outer_chunk) * row_chunks * run_chunks
        params += [
            *[work_items, operands[box.source.storage], box.source.offset, box.offset],
            *[size_of(outer), outer_chunk, row_chunk, run_chunk, row_chunks, run_chunks],
            *[*dims, *[0] * missing, *source, *[0] * missing, *target],
        ]
    return Step(
        nodes=(node,),
        code=MoveCode(output.dtype, rank),
        operands=(output, *operands),
        written=(True, *[False] * len(operands)),
        params=tuple(params),
        work_items=work_items if wrong == 0 else dim_max(1, work_items),
        in_place=((0, operands[over]),) if over in operands else (),
        leaves_rest=over in operands,
        can_fail=wrong != 0,
    )


# Runs.


def unit(dtype: DType) -> str:
    """Return the type of an element as bits."""
    return f"i{8 * dtype.itemsize}"


def alignment(dtype: DType) -> int:
    """Return the alignment of elements in bytes."""
    return min(8, dtype.itemsize)


def add_run(module: LlvmModule, dtype: DType) -> str:
    """Add the function that copies elements along one dim; return its name.

    It does nothing if source and target are the same.
    """
    kind, align, lanes = unit(dtype), alignment(dtype), 64 // dtype.itemsize
    f = LlvmFunction(module)
    other = f.let("icmp ne ptr %to, %from")
    from_row = f.let("icmp eq i64 %from_stride, 1")
    to_row = f.let("icmp eq i64 %to_stride, 1")
    same = f.let("icmp eq i64 %from_stride, 0")
    rows = f.let(f"and i1 {from_row}, {to_row}")
    some = f.let("icmp sgt i64 %count, 0")
    f.branch(f.let(f"and i1 {other}, {some}"), "work", "done")
    f.label("work")
    f.branch(rows, "copy", "other")
    f.label("copy")
    long = f.let(f"icmp sge i64 %count, {_LONG // dtype.itemsize}")
    f.branch(long, "long", "short")
    f.label("long")
    size = f.mul("%count", str(dtype.itemsize))
    memcpy = module.declare("void", "llvm.memcpy.p0.p0.i64", "ptr", "ptr", "i64", "i1")
    f.do(f"call void {memcpy}(ptr %to, ptr %from, i64 {size}, i1 false)")
    f.do("br label %done")
    f.label("short")
    last = f.sub("%count", str(lanes))
    f.branch(f.let(f"icmp sge i64 {last}, 0"), "vectors", "fractions")
    f.label("vectors")
    with f.loop("0", last, lanes) as loop:
        _move(f, f"<{lanes} x {kind}>", align, kind, loop.index)
    _move(f, f"<{lanes} x {kind}>", align, kind, last)  # some of it once more
    f.do("br label %done")
    f.label("fractions")
    for fraction in [nbytes // dtype.itemsize for nbytes in _FRACTIONS if nbytes > dtype.itemsize]:
        last = f.sub("%count", str(fraction))
        f.branch(f.let(f"icmp sge i64 {last}, 0"), f"whole{fraction}", f"below{fraction}")
        f.label(f"whole{fraction}")
        _move(f, f"<{fraction} x {kind}>", align, kind, "0")
        _move(f, f"<{fraction} x {kind}>", align, kind, last)
        f.do("br label %done")
        f.label(f"below{fraction}")
    f.do("br label %strided")
    f.label("other")
    f.branch(f.let(f"and i1 {same}, {to_row}"), "fill", "strided")
    f.label("fill")
    value = f.let(f"load {kind}, ptr %from, align {align}")
    one = f.let(f"insertelement <{lanes} x {kind}> poison, {kind} {value}, i64 0")
    all_lanes = f.let(
        f"shufflevector <{lanes} x {kind}> {one}, <{lanes} x {kind}> poison, "
        f"<{lanes} x i32> zeroinitializer"
    )
    whole = f.let(f"and i64 %count, {-lanes}")
    with f.loop("0", whole, lanes) as loop:
        address = f.at(kind, "%to", loop.index)
        f.do(f"store <{lanes} x {kind}> {all_lanes}, ptr {address}, align {align}")
    with f.loop(whole, "%count") as loop:
        f.do(f"store {kind} {value}, ptr {f.at(kind, '%to', loop.index)}, align {align}")
    f.do("br label %done")
    f.label("strided")
    with f.loop("0", "%count") as loop:
        source = f.at(kind, "%from", f.mul(loop.index, "%from_stride"))
        target = f.at(kind, "%to", f.mul(loop.index, "%to_stride"))
        value = f.let(f"load {kind}, ptr {source}, align {align}")
        f.do(f"store {kind} {value}, ptr {target}, align {align}")
    f.do("br label %done")
    f.label("done")
    head = "ptr %to, i64 %to_stride, ptr %from, i64 %from_stride, i64 %count"
    f.define(f"define internal void @run({head})")
    return "@run"


def _move(f: LlvmFunction, what: str, align: int, kind: str, index: str) -> None:
    value = f.let(f"load {what}, ptr {f.at(kind, '%from', index)}, align {align}")
    f.do(f"store {what} {value}, ptr {f.at(kind, '%to', index)}, align {align}")


def call_run(
    f: LlvmFunction, run: str, to: str, to_stride: str, x: str, stride: str, count: str
) -> None:
    """Call the function of `add_run`."""
    f.do(f"call void {run}(ptr {to}, i64 {to_stride}, ptr {x}, i64 {stride}, i64 {count})")


def copy_block(
    f: LlvmFunction,
    run: str,
    kind: str,
    n: dict[str, str],
    addresses: tuple[str, str],
    size: tuple[str, str],
) -> None:
    """Copy a work item's block of x: at once where it is contiguous in both, or uniform.

    The addresses are those in the output and in x, the size is in rows and elements of a row.
    """
    (out, base), (height, width) = addresses, size
    flat = f.mul(n["x.last"], n["after"])
    together = f.let(f"icmp eq i64 {flat}, {n['x.middle']}")
    full = f.let(f"icmp eq i64 {width}, {n['after']}")
    at_once = f.let(f"and i1 {together}, {full}")
    lines = f.let(f"select i1 {at_once}, i64 1, i64 {height}")
    in_place = f.let(f"icmp eq ptr {base}, {out}")
    lines = f.let(f"select i1 {in_place}, i64 0, i64 {lines}")
    wide = f.let(f"select i1 {at_once}, i64 {f.mul(width, height)}, i64 {width}")
    with f.loop("0", lines) as line:
        a = f.at(kind, base, f.mul(line.index, n["x.middle"]))
        b = f.at(kind, out, f.mul(line.index, n["after"]))
        call_run(f, run, b, "1", a, n["x.last"], wide)
