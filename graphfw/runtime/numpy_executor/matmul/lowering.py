"""`matmul_steps`: the steps that compute the product of two tensors."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from graphfw.ir.dim import DimLike
from graphfw.ir.dtype import DType, bfloat16, float16, float32, float64
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node
from graphfw.runtime.kernels.steps import (
    Epilogue,
    Product,
    Prologue,
    Step,
    Storage,
    Temp,
    View,
)
from graphfw.runtime.limits import Precision
from graphfw.runtime.numpy_executor.codegen import Processor, host, with_stores
from graphfw.runtime.numpy_executor.matmul.amx import SIDE, Form, tiles_for
from graphfw.runtime.numpy_executor.matmul.blocks import CHUNK_ROWS, Scratch
from graphfw.runtime.numpy_executor.matmul.code import MatmulCode, operands_of
from graphfw.runtime.numpy_executor.matmul.epilogue import FusedKernel
from graphfw.runtime.numpy_executor.matmul.item import (
    FEW_HEIGHTS,
    INLINE_ROWS,
    Computed,
    GemvPolicy,
    few_heights,
    few_rows,
)
from graphfw.runtime.numpy_executor.matmul.packing import Layout
from graphfw.runtime.numpy_executor.matmul.panels import prepacked
from graphfw.runtime.numpy_executor.matmul.plan import (
    BY_PAIRS,
    BY_TILES,
    CONVERTED,
    PLAIN,
    Costs,
    ProductCut,
    cut,
    vectors,
)
from graphfw.runtime.numpy_executor.matmul.prologues import (
    apart,
    by_columns,
    by_rows,
    for_few_rows,
    pays_by_columns,
    pays_by_rows,
    scratch_of,
    source_of,
    with_prologue,
)
from graphfw.runtime.numpy_executor.matmul.sources import is_computed_inline
from graphfw.runtime.numpy_executor.matmul.split_k import SplitKReduceCode
from graphfw.runtime.numpy_executor.matmul.tile import TileShape, shape_for
from graphfw.runtime.numpy_executor.matmul.work_item import MatMulItemCode

_THIN = 8
_WIDE = 256
"""The greatest length of k for which products at least as wide are written row by row."""

_BEYOND_CACHES = 1 << 25
"""Bytes of a matrix that has to come from memory in each run."""

_TILE_ROWS = 9
"""The number of rows from which on matrix tiles of 16 rows are used."""

_COMBINED = 1 << 14
"""The elements that a work item of `SplitKReduceCode` adds up."""


class _Batch(NamedTuple):
    """One dim of the batch: its extent, and the strides of both operands."""

    extent: DimLike
    a: DimLike
    b: DimLike


class _Product(NamedTuple):
    """A product in the form that the code computes.

    `a` and `b` are views of the last two dims only. `transposed` says whether it is the transposed
    product.
    """

    a: View
    b: View
    batch: tuple[_Batch, ...]
    transposed: bool

    @property
    def sizes(self) -> tuple[DimLike, DimLike, DimLike]:
        """Rows, columns, and the length of the sums."""
        return self.a.shape[0], self.b.shape[1], self.a.shape[1]

    @property
    def members(self) -> DimLike:
        """The size of the batch."""
        return size_of([dim.extent for dim in self.batch])


def supported(dtype: DType) -> bool:
    """Return whether products of a dtype are native."""
    return dtype in (float32, float64, float16, bfloat16)


def matmul_steps(
    nodes: tuple[Node, ...],
    a: View,
    b: View,
    product: Storage | None,
    epilogue: Epilogue | None,
    *,
    fixed_b: bool = False,
    precision: Precision = "highest",
    target: Processor | None = None,
    tiles: Form | None = None,
    pairs: bool = False,
    prologue: Prologue | None = None,
) -> list[Step]:
    """Return the steps of a (batched) matrix product, [*B, M, K] @ [*B, K, N] -> [*B, M, N].

    One step; two where k of a small product is split, and a second step adds the partial products.
    The views may have any strides. All sizes may be symbolic.

    Args:
        nodes: The nodes that are computed, for reports.
        a: The left operand, float32, float64, or a float of 16 bits: these are computed in float32
            and rounded once.
        b: The right operand, of the same dtype, its batch dims those of `a`.
        product: The storage of the product, contiguous; None where only the epilogue needs it.
        epilogue: The function of its elements. Its kernel can't fail.
        fixed_b: Whether `b` stays the same from run to run: it is then packed once.
        precision: The precision of a float32 product by tiles.
        target: The processor; this machine's by default.
        tiles: The matrix tiles; None for none.
        pairs: Whether there are dot products of pairs of bfloat16, which serve where tiles don't.
        prologue: The kernel that computes `a` or `b`, which then has no memory: see
            `computes_operand`.
    """
    target = target or host()
    shape = shape_for(a.storage.dtype, target, pairs=pairs and tiles is None)
    it = _normal(a, b)
    m, n, _ = it.sizes
    sections = 1 if epilogue is None else epilogue.sections
    layout = _layout(it.b)
    computed = _computed(it, prologue)
    few, heights = _few(shape, layout, it, prologue, computed)
    by_tiles = tiles is not None and _suits(shape, few, m)
    how = _cut(shape, it, by_tiles=by_tiles, sections=sections)
    if (it.transposed or sections > 1) and how.splits > 1:
        how = how._replace(splits=1)
    left: Storage = it.a.storage
    right: Storage = it.b.storage
    is_inline = _is_inline(it, few, prologue, computed)
    if prologue is not None and is_inline:
        epilogue = apart(epilogue, prologue)
        right = source_of(prologue)
    elif prologue is not None:
        epilogue = apart(epilogue, prologue)
        its_cut = _own_cut(shape, it, computed, by_tiles=by_tiles, sections=sections)
        if computed == "a":
            left, how = source_of(prologue), its_cut._replace(chunk_columns=how.chunk_columns)
        else:
            right, how = source_of(prologue), its_cut
            if _may_be_inline(it, few, prologue, computed):
                one_row = (1, *it.sizes[1:])
                costs = _costs(shape, by_tiles=by_tiles)
                how = for_few_rows(how, it.sizes[0], cut(shape, costs, one_row, it.members))
            else:
                how = how._replace(chunk_columns=how.filled)
    right_view, steps = it.b, list[Step]()
    # Few rows of 16-bit floats are not packed, since panels are twice as large. Nor are operands of
    # tiles where that is as fast.
    is_sized = all([isinstance(size, int) for size in it.b.shape])  # else each run has its own
    is_packed = is_sized and fixed_b and not it.transposed and computed in ("no", "a")
    is_packed = is_packed and not ((shape.converts or _is_read_once(shape, it)) and few == "always")
    is_packed = is_packed and not (by_tiles and layout == "rows")
    section = n // sections if isinstance(n, int) else n
    # Sections begin with a panel of their own.
    is_packed = is_packed and (sections == 1 or section % shape.columns == 0)
    if is_packed and all([dim.b == 0 for dim in it.batch]):
        steps = [prepacked(nodes, shape, target, it.b, layout)]
        right = steps[0].operands[1]
        right_view = View(right, 0, it.b.shape, (0, 0))
        layout = "packed"
        few, heights = _few(shape, layout, it)
    if few == "always" and isinstance(m, int) and m <= CHUNK_ROWS:
        how = how._replace(chunk_rows=max(m, 1))  # the heights make up all rows, not some
    partials: Storage | None = None
    if how.splits > 1:
        partials = Temp(shape.dtype, how.splits * it.members * m * n, "partial matrix products")
    target_storage = product if partials is None else partials
    own = epilogue if partials is None else None
    operands = operands_of([left, right], target_storage, own)
    rounds = shape.converts and partials is None
    before: FusedKernel | None = None
    if prologue is not None:
        operands, before = with_prologue(operands, prologue)
    work_item = MatMulItemCode(
        shape,
        layout,
        few,
        FEW_HEIGHTS if few == "maybe" else heights,
        len(it.batch),
        rounds,
        it.transposed,
        tiles_for(tiles, shape.stored, precision) if tiles is not None and by_tiles else None,
        "no" if is_inline else computed,
        before if is_inline or _may_be_inline(it, few, prologue, computed) else None,
    )
    kept = target_storage is not None
    ragged = not isinstance(m, int)
    tall = heights or how.heights
    own_target = with_stores(target, it.members * m * n)
    code = MatmulCode(
        work_item, own_target, tall, ragged, vectors(shape, section), kept, operands.region
    )
    params = _params(it, right_view, how, sections)
    scratch: DimLike = Scratch.of(work_item).block
    if prologue is not None:
        code = replace(code, before_params=len(prologue.params))
        params += prologue.params[:-1]
    if prologue is not None and is_inline:
        params += (0,)  # nothing is written
    elif prologue is not None:
        code = replace(code, before=before)
        count = how.chunk_rows if computed == "a" else how.filled
        params += (count if computed == "b across" else it.sizes[2],)
        count *= 1 if computed == "a" else sections
        scratch += scratch_of(count, it.sizes[2], shape.stored.itemsize)
    if own is not None or rounds:
        scratch += how.chunk_rows * sections * how.chunk_columns * shape.size
    if own is not None:
        gap = how.chunk_columns * (shape.size // shape.stored.itemsize)
        if it.transposed:
            params += own.params_with(1)
        elif product is None:
            params += own.params_with(sections * gap, gap)
        else:
            params += own.params_with(n, section)
    groups = (it.members * how.splits + how.group - 1) // how.group
    work_items = groups * how.row_blocks * how.column_blocks
    steps.append(operands.step(nodes, code, params, work_items, scratch))
    if partials is not None:
        steps.append(_combine(nodes, shape, target, it, how.splits, partials, product, epilogue))
    return steps


def computes_operand(
    product: Product,
    target: Processor | None = None,
    tiles: Form | None = None,
    *,
    pairs: bool = False,
) -> bool:
    """Return whether work items should compute the prologue's operand themselves.

    They do if each element is computed once: of the left operand if a work item has all columns of
    its rows of the product, of the right one if it has all rows of its columns. With several blocks
    of columns the rows would be computed for each. With blocks of rows instead, all of `b` is
    packed for each, which is no gain for wide products.
    """
    prologue, a, b = product.prologue, product.left, product.right
    it = _normal(a, b)
    m, n, k = it.sizes
    computed = _computed(it, prologue)
    if prologue is None or not _is_whole(it, prologue, computed):
        return False
    shape = shape_for(a.storage.dtype, target or host(), pairs=pairs and tiles is None)
    few, _ = _few(shape, _layout(it.b), it, prologue, computed)
    by_tiles = tiles is not None and _suits(shape, few, m)
    if _is_inline(it, few, prologue, computed):
        return True
    if computed != "a" and not (isinstance(n, int) and isinstance(k, int)):
        return False
    how = _own_cut(shape, it, computed, by_tiles=by_tiles)
    if computed == "a":
        return pays_by_rows(how, it.members, k, shape.stored.itemsize)
    assert isinstance(k, int)
    is_across = computed == "b across"
    return pays_by_columns(how, it.members, m, k, shape.stored.itemsize, is_across=is_across)


def _computed(it: _Product, prologue: Prologue | None) -> Computed:
    """Return the operand that a prologue computes, in the code's form, and its layout."""
    if prologue is None:
        return "no"
    if not prologue.is_right and not it.transposed:
        return "a"
    return "b" if _layout(it.b) == "columns" else "b across"


def _is_computable(prologue: Prologue | None, computed: Computed) -> bool:
    """Return whether the right operand can be computed in registers, where it is multiplied."""
    if prologue is None or computed not in ("b", "b across"):
        return False
    return is_computed_inline(prologue.kernel)


def _is_inline(
    it: _Product, few: GemvPolicy, prologue: Prologue | None, computed: Computed
) -> bool:
    """Return whether it is computed there, because there are few rows."""
    m = it.sizes[0]
    is_few = few == "always" and isinstance(m, int) and m <= INLINE_ROWS
    return is_few and _is_computable(prologue, computed)


def _may_be_inline(
    it: _Product, few: GemvPolicy, prologue: Prologue | None, computed: Computed
) -> bool:
    """Return whether it is computed there if the rows, of unknown number, turn out to be few."""
    is_open = not isinstance(it.sizes[0], int) and isinstance(it.sizes[2], int)
    return few == "maybe" and is_open and _is_computable(prologue, computed)


def _own_cut(
    shape: TileShape, it: _Product, computed: Computed, *, by_tiles: bool, sections: int = 1
) -> ProductCut:
    """Return the cut of a product whose work items compute an operand.

    The cut for the left operand is made before it is known whether there is an epilogue.
    """
    how = _cut(shape, it, by_tiles=by_tiles)
    if computed == "a":
        return by_rows(how, it.sizes[0])
    return by_columns(how, shape, it.sizes, sections)


def _is_whole(it: _Product, prologue: Prologue, computed: Computed) -> bool:
    """Return whether the operand is a prologue's result, in the same order or transposed."""
    m, n, k = it.sizes
    if it.transposed and prologue.is_right:  # the column is its one row
        return False
    operand = it.a if computed == "a" else it.b
    strides = [dim.a if computed == "a" else dim.b for dim in it.batch]
    lines = m if computed == "a" else n
    # Lines are the tensor's rows, with k along them, or its columns.
    rows, columns = (k, n) if computed == "b across" else (lines, k)
    along = (columns, 1) if computed in ("a", "b across") else (1, columns)
    if columns != prologue.columns or it.members * rows != prologue.rows:
        return False
    stride = rows * columns
    for dim, its in zip(reversed(it.batch), reversed(strides), strict=True):
        if its != stride:
            return False
        stride = stride * dim.extent
    return operand.offset == 0 and operand.strides == along


def _is_read_once(shape: TileShape, it: _Product) -> bool:
    """Return whether it is a row times a matrix that no cache holds, so that reading dominates."""
    m, n, k = it.sizes
    if not (m == 1 and it.members == 1 and isinstance(n, int) and isinstance(k, int)):
        return False
    return n * k * shape.stored.itemsize > _BEYOND_CACHES


def _normal(a: View, b: View) -> _Product:
    """Join batch dims with each other, and with the rows where all of them share one `b`."""
    batch = [
        _Batch(extent, *strides)
        for extent, *strides in zip(a.shape[:-2], a.strides[:-2], b.strides[:-2], strict=True)
        if extent != 1
    ]
    joined: list[_Batch] = []
    for dim in batch:
        if joined:
            before = joined[-1]
            if before.a == dim.a * dim.extent and before.b == dim.b * dim.extent:
                joined[-1] = _Batch(before.extent * dim.extent, dim.a, dim.b)
                continue
        joined.append(dim)
    rows, row_stride = a.shape[-2], a.strides[-2]
    while joined and joined[-1].b == 0 and (rows == 1 or joined[-1].a == row_stride * rows):
        last = joined.pop()
        row_stride = last.a if rows == 1 else row_stride
        rows = rows * last.extent
    left = View(a.storage, a.offset, (rows, a.shape[-1]), (row_stride, a.strides[-1]))
    right = View(b.storage, b.offset, b.shape[-2:], b.strides[-2:])
    if right.shape[1] != 1 or rows == 1:
        return _Product(left, right, tuple(joined), False)
    # One column: the transposed product has one row, for which there is faster code.
    return _Product(
        _transposed(right),
        _transposed(left),
        tuple([_Batch(d.extent, d.b, d.a) for d in joined]),
        True,
    )


def _transposed(view: View) -> View:
    return view._replace(shape=view.shape[::-1], strides=view.strides[::-1])


def _layout(b: View) -> Layout:
    if b.strides[1] == 1:
        return "rows"
    return "columns" if b.strides[0] == 1 else "other"


def _few(
    shape: TileShape,
    layout: Layout,
    it: _Product,
    prologue: Prologue | None = None,
    computed: Computed = "no",
) -> tuple[GemvPolicy, tuple[int, ...]]:
    """Return whether `dots` or `streams` compute the product, and the heights if always."""
    m, n, k = it.sizes
    wide = isinstance(n, int) and n >= _WIDE
    if layout == "rows" and wide and isinstance(k, int) and 0 < k <= _THIN:
        return "always", FEW_HEIGHTS
    most, least = few_rows(shape, layout)
    if _is_computable(prologue, computed):
        most = INLINE_ROWS
    readable = layout == "rows" or (layout == "columns" and it.a.strides[1] == 1)
    if not readable or (isinstance(m, int) and m > most) or (isinstance(k, int) and k < least):
        return "never", ()
    if isinstance(m, int) and isinstance(k, int):
        return "always", few_heights(max(m, 1))
    return "maybe", ()


def _suits(shape: TileShape, few: GemvPolicy, m: DimLike) -> bool:
    """Return whether matrix tiles serve: panels are as wide as tiles, and rows enough to pay."""
    enough = few != "always" and not (isinstance(m, int) and m < _TILE_ROWS)
    return enough and shape.dtype is float32 and shape.columns == SIDE


def _costs(shape: TileShape, *, by_tiles: bool) -> Costs:
    """Return the costs of the kinds of work."""
    if by_tiles or shape.k_pack == 2:
        return BY_TILES if by_tiles else BY_PAIRS
    return CONVERTED if shape.converts else PLAIN


def _cut(shape: TileShape, it: _Product, *, by_tiles: bool, sections: int = 1) -> ProductCut:
    """Return how a product is cut whose operands are read."""
    row, step = it.a.strides
    # Converted elements are closer together.
    gap = row * shape.size if step == 1 and not shape.converts else 0
    costs = _costs(shape, by_tiles=by_tiles)
    return cut(shape, costs, it.sizes, it.members, sections, gap=gap)


def _params(it: _Product, right: View, how: ProductCut, sections: int) -> tuple[DimLike, ...]:
    """The integers of `MatmulCode`, in the order of `work_item.P`."""
    m, n, k = it.sizes
    batch = [size for dim in it.batch for size in dim]
    return (
        *(m, n, k),
        *(it.a.offset, *it.a.strides),
        *(right.offset, *right.strides),
        *(how.row_blocks, how.column_blocks, how.group, it.members, how.splits),
        *(how.chunk_rows, how.chunk_columns, sections),
        *batch,
    )


def _combine(
    nodes: tuple[Node, ...],
    shape: TileShape,
    target: Processor,
    it: _Product,
    splits: int,
    partials: Storage,
    product: Storage | None,
    epilogue: Epilogue | None,
) -> Step:
    """Return the step that adds the partial products."""
    m, n, _ = it.sizes
    operands = operands_of([partials], product, epilogue)
    rows = it.members * m
    # k is split only where n is known.
    per_item = max(_COMBINED // max(n, 1), 1) if isinstance(n, int) else 1
    params: tuple[DimLike, ...] = (rows, n, splits, per_item)
    if epilogue is not None:
        params += epilogue.params_with(n)
    target = with_stores(target, it.members * m * n)
    code = SplitKReduceCode(shape, target, product is not None, operands.region)
    scratch = per_item * n * shape.stored.itemsize if product is None else 0
    return operands.step(nodes, code, params, (rows + per_item - 1) // per_item, scratch)
