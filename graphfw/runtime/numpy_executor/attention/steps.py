"""The native steps of `attention` and `attention_grad`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from graphfw.ir.dim import DimLike, dim_max, dim_min
from graphfw.ir.dtype import DType, bfloat16, float16, float32, float64
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node
from graphfw.ir.types import Shape
from graphfw.ops.nn.attention_ops import Attention, AttentionGrad
from graphfw.runtime.kernels.steps import Step, Storage, Temp, View
from graphfw.runtime.numpy_executor.attention.backward import KEYS as BLOCK_KEYS
from graphfw.runtime.numpy_executor.attention.backward import QUERIES as BLOCK_QUERIES
from graphfw.runtime.numpy_executor.attention.backward import (
    BackwardCode,
    SumCode,
    block_length,
)
from graphfw.runtime.numpy_executor.attention.few_queries import FewQueriesCode, MergeCode
from graphfw.runtime.numpy_executor.attention.forward import ForwardCode, strip_length
from graphfw.runtime.numpy_executor.attention.layout import AttentionParams
from graphfw.runtime.numpy_executor.attention.packing import KEYS, PackKeysCode
from graphfw.runtime.numpy_executor.attention.tile import AttentionTile
from graphfw.runtime.numpy_executor.codegen.target import host

_WORK_ITEM = 1 << 17
"""The multiplications for a query of a work item of 32 queries; with fewer it has more queries."""

_FEW = 4
"""The number of queries up to which keys and values are not packed."""

_PIECE = 1 << 16
"""About the number of elements of keys and values that a work item reads then."""

_MOST_KEYS = 1 << 10
"""The most keys of such a work item, however narrow they are."""

_JOINED = 1 << 12
"""About the number of elements of chunks' results that a work item combines."""

_CHUNKS = 32
"""The number of pairs of a head and a chunk of keys in the gradient, if there are enough keys."""

_SUM_WORK_ITEM = 1 << 13
"""The elements of d_q that a work item adds."""


def is_native(*dtypes: DType) -> bool:
    """Return whether there are kernels for tensors of these dtypes, the mask's left out."""
    return all(dtype in (float16, bfloat16, float32, float64) for dtype in dtypes)


class _Problem(NamedTuple):
    """The sizes of one attention.

    Attributes:
        tile: The tiles to compute it with.
        lead: The leading dims, without those that are 1.
        axes: Their indices among all leading dims.
        ndim: The number of the result's dims.
        sizes: `queries`, `keys`, `width`, `value_width`.
    """

    tile: AttentionTile
    lead: Shape
    axes: tuple[int, ...]
    ndim: int
    sizes: Mapping[str, DimLike]

    @classmethod
    def of(cls, q: View, k: View, v: View, lead: Shape, dtype: DType) -> _Problem:
        """Return the problem of these operands."""
        axes = tuple(i for i, dim in enumerate(lead) if dim != 1)
        sizes = {
            "queries": q.shape[-2],
            "keys": k.shape[-2],
            "width": k.shape[-1],
            "value_width": v.shape[-1],
        }
        tile = AttentionTile.of(dtype, host().vector_bytes)
        return cls(tile, tuple(lead[i] for i in axes), axes, len(lead) + 2, sizes)

    @property
    def heads(self) -> DimLike:
        """The number of pairs of matrices."""
        return size_of(self.lead)

    def params(
        self, layout: AttentionParams, sizes: Mapping[str, DimLike], views: Mapping[str, View]
    ) -> tuple[DimLike, ...]:
        """Return the run-time integers of a layout."""
        values: dict[str, DimLike] = {**self.sizes, **sizes}
        values.update({f"lead{i}": dim for i, dim in enumerate(self.lead)})
        for name in layout.views:
            view = views[name]
            strides = self._strides(view)
            values[f"{name}.offset"] = view.offset
            values.update({f"{name}.lead{i}": strides[axis] for i, axis in enumerate(self.axes)})
            values[f"{name}.row"], values[f"{name}.col"] = strides[-2:]
        return tuple(values[name] for name in layout.names)

    def _strides(self, view: View) -> tuple[DimLike, ...]:
        """Return a stride for each dim of the result; 0 where the view is broadcast."""
        missing = self.ndim - len(view.shape)
        pairs = zip(view.shape, view.strides, strict=True)
        return (*[0] * missing, *[0 if dim == 1 else stride for dim, stride in pairs])


def attention_steps(
    node: Node,
    q: View,
    k: View,
    v: View,
    mask: View | None,
    out: View,
    lse: Storage,
    rest: Storage,
) -> list[Step]:
    """Return the steps of an `attention` node, to be run one after the other.

    q, k and v are floats (`is_native`) with any strides, the mask is bool or of their dtype. Their
    leading dims, and all dims of the mask, may be broadcast.

    Few queries take other steps than many. If their number is unknown, there are steps for both
    cases, and in a run the steps of one case have no work items.

    Args:
        node: The node.
        q: [*B, Tq, D].
        k: [*B, Tk, D].
        v: [*B, Tk, E].
        mask: Broadcasts to [*B, Tq, Tk].
        out: [*B, Tq, E], the result: the last stride is 1, others may be any, so
            that heads can be written side by side.
        lse: [*B, Tq], contiguous.
        rest: [*B, Tq], contiguous.
    """
    dtype = node.types[0].dtype
    problem = _Problem.of(q, k, v, node.types[1].shape[:-1], dtype)
    tile, sizes = problem.tile, problem.sizes
    causal, scale = _fields(node)
    kind = None if mask is None else mask.storage.dtype
    options = (len(problem.lead), causal, scale, kind)
    views = {"q": q, "k": k, "v": v, "out": out, **({} if mask is None else {"mask": mask})}
    sums = {"lse": lse, "rest": rest}
    # In causal attention few queries see as few keys.
    few = 0 if causal else dim_max(0, dim_min(1, _FEW + 1 - sizes["queries"]))
    of_few = (
        _few_steps(node, problem, FewQueriesCode(tile, *options), views, sums, few)
        if few != 0
        else []
    )
    if few == 1:
        return of_few
    of_many = _many_steps(node, problem, ForwardCode(tile, *options), views, sums, 1 - few)
    if of_few:
        # The last steps of both cases write the result, so they are on one level.
        partials = of_few[0].operands[-1]
        of_many[-1] = replace(of_many[-1], after=(partials,))
    return of_many + of_few


def _many_steps(
    node: Node,
    problem: _Problem,
    code: ForwardCode,
    views: Mapping[str, View],
    sums: Mapping[str, Storage],
    used: DimLike,
) -> list[Step]:
    """Return the steps for many queries, if `used` is 1: packing of keys and values, and attention.

    There is no packing where all heads are known not to need it.
    """
    tile, sizes, heads = problem.tile, problem.sizes, problem.heads * used
    k, v = views["k"], views["v"]
    work = sizes["keys"] * (sizes["width"] + sizes["value_width"])
    rows = 32 * dim_max(1, dim_min(4, _WORK_ITEM // dim_max(1, work)))
    groups = ceil(sizes["queries"], rows)
    # The only work item of a head packs keys and values itself, in its scratch memory.
    packed = heads * dim_max(0, dim_min(1, groups - 1))
    width, value_width = sizes["width"], whole(sizes["value_width"], tile.columns)
    keys = Temp(tile.wide, packed * whole(sizes["keys"], tile.columns) * width, "packed keys")
    values = Temp(tile.wide, packed * sizes["keys"] * value_width, "packed values")
    pack = PackKeysCode(tile, len(problem.lead))
    blocks = ceil(sizes["keys"], KEYS)
    packing = Step(
        nodes=(node,),
        code=pack,
        operands=(k.storage, v.storage, keys, values),
        written=(False, False, True, True),
        params=problem.params(pack.layout, {"blocks": blocks}, views),
        work_items=packed * blocks,
    )
    storages: dict[str, Storage] = {name: view.storage for name, view in views.items()}
    is_packed = packed != 0
    storages.update(sums, keys=keys, values=values)
    if not is_packed:  # known not to be read
        storages.update(keys=k.storage, values=v.storage)
    strips = (1 if code.mask is None else 2) * tile.rows * strip_length(tile)
    of_queries = rows * (whole(width, tile.lanes) + value_width + 2)
    attending = Step(
        nodes=(node,),
        code=code,
        operands=tuple(storages[name] for name in code.names),
        written=tuple(name in ("out", *sums) for name in code.names),
        params=problem.params(code.layout, {"rows": rows, "groups": groups}, views),
        work_items=heads * groups,
        scratch=(strips + of_queries + KEYS * (width + value_width)) * tile.bytes,
    )
    return [packing, attending] if is_packed else [attending]


def _few_steps(
    node: Node,
    problem: _Problem,
    code: FewQueriesCode,
    views: Mapping[str, View],
    sums: Mapping[str, Storage],
    used: DimLike,
) -> list[Step]:
    """Return the steps for few queries, if `used` is 1: chunks of keys, and their combination."""
    tile, sizes, heads = problem.tile, problem.sizes, problem.heads * used
    queries, width, value_width = sizes["queries"], sizes["width"], sizes["value_width"]
    most = _PIECE // dim_max(_PIECE // _MOST_KEYS, width + value_width)
    chunk = dim_max(1, most // tile.columns) * tile.columns
    chunks = ceil(sizes["keys"], chunk)
    padded, value_padded = whole(width, tile.lanes), whole(value_width, tile.lanes)
    length = value_padded + tile.lanes
    partials = Temp(tile.wide, heads * chunks * queries * length, "partial results")
    most_queries = dim_min(queries, _FEW)  # with more it is not run, and needs no scratch memory
    strips = (1 if code.mask is None else 2) * most_queries * chunk
    copied = chunk * dim_max(padded, value_padded)
    reading = Step(
        nodes=(node,),
        code=code,
        operands=tuple(partials if x == "partials" else views[x].storage for x in code.names),
        written=tuple(name == "partials" for name in code.names),
        params=problem.params(code.layout, {"chunk": chunk, "chunks": chunks}, views),
        work_items=heads * chunks,
        scratch=(strips + most_queries * padded + copied) * tile.bytes,
    )
    joining = MergeCode(tile, code.lead)
    group = dim_max(1, _JOINED // dim_max(1, chunks * queries * length))
    more = {"chunks": chunks, "heads": heads, "group": group}
    joined = Step(
        nodes=(node,),
        code=joining,
        operands=(partials, views["out"].storage, *sums.values()),
        written=(False, True, True, True),
        params=problem.params(joining.layout, more, views),
        work_items=ceil(heads, group),
        scratch=value_padded * tile.bytes,
    )
    return [reading, joined]


def attention_grad_steps(
    node: Node,
    q: View,
    k: View,
    v: View,
    lse: View,
    rest: View,
    delta: View,
    d_out: View,
    mask: View | None,
    d_q: View,
    d_k: View,
    d_v: View,
) -> list[Step]:
    """Return the steps of an `attention_grad` node, to be run one after the other.

    Operands are as for `attention_steps`; the memory that the steps need grows with Tq and Tk, and
    is at most some tens of times d_q.

    Args:
        node: The node.
        q: [*B, Tq, D].
        k: [*B, Tk, D].
        v: [*B, Tk, E].
        lse: [*B, Tq].
        rest: [*B, Tq].
        delta: [*B, Tq].
        d_out: [*B, Tq, E].
        mask: Broadcasts to [*B, Tq, Tk].
        d_q: [*B, Tq, D], a result; the last stride is 1.
        d_k: [*B, Tk, D], likewise.
        d_v: [*B, Tk, E], likewise.
    """
    dtype = node.types[0].dtype
    problem = _Problem.of(q, k, v, node.types[0].shape[:-2], dtype)
    tile, heads, sizes = problem.tile, problem.heads, problem.sizes
    some = dim_max(1, dim_min(ceil(sizes["keys"], 2 * BLOCK_KEYS), _CHUNKS // dim_max(1, heads)))
    chunk = dim_max(1, ceil(ceil(sizes["keys"], some), BLOCK_KEYS)) * BLOCK_KEYS
    chunks = ceil(sizes["keys"], chunk)
    width, value_width = (whole(sizes[x], tile.columns) for x in ("width", "value_width"))
    rows = whole(sizes["queries"], tile.rows)
    partials = Temp(tile.wide, chunks * heads * rows * width, "partial sums of d_q")
    causal, scale = _fields(node)
    kind = None if mask is None else mask.storage.dtype
    code = BackwardCode(tile, len(problem.lead), causal, scale, kind)
    views = {
        "q": q,
        "k": k,
        "v": v,
        "lse": _as_rows(lse),
        "rest": _as_rows(rest),
        "delta": _as_rows(delta),
        "d_out": d_out,
        "d_q": d_q,
        "d_k": d_k,
        "d_v": d_v,
        **({} if mask is None else {"mask": mask}),
    }
    blocks = (2 if mask is None else 3) * BLOCK_QUERIES * block_length(tile)
    of_keys = BLOCK_KEYS * (sizes["width"] + sizes["value_width"] + 2 * width + value_width)
    of_queries = BLOCK_QUERIES * (3 + width + value_width)
    computing = Step(
        nodes=(node,),
        code=code,
        operands=tuple(partials if x == "partials" else views[x].storage for x in code.names),
        written=tuple(name in ("d_k", "d_v", "partials") for name in code.names),
        params=problem.params(code.layout, {"chunk": chunk, "heads": heads}, views),
        work_items=chunks * heads,
        scratch=(blocks + of_keys + of_queries) * tile.bytes,
    )
    adding = SumCode(tile, len(problem.lead), causal, scale)
    work_item = dim_max(1, _SUM_WORK_ITEM // dim_max(1, width))
    groups = ceil(sizes["queries"], work_item)
    more = {"chunk": chunk, "chunks": chunks, "heads": heads, "rows": work_item, "groups": groups}
    summing = Step(
        nodes=(node,),
        code=adding,
        operands=(partials, d_q.storage),
        written=(False, True),
        params=problem.params(adding.layout, more, views),
        work_items=heads * groups,
        scratch=width * tile.bytes,
    )
    return [computing, summing]


def _fields(node: Node) -> tuple[bool, float | None]:
    """Return whether the attention is causal, and its scale."""
    assert isinstance(node.op, Attention | AttentionGrad)
    return node.op.causal, node.op.scale


def _as_rows(view: View) -> View:
    """Return a view of one number a query as a view of matrices with one column."""
    return view._replace(shape=(*view.shape, 1), strides=(*view.strides, 0))


def ceil(size: DimLike, unit: DimLike) -> DimLike:
    """Return a size / unit, rounded up."""
    return (size + unit - 1) // unit


def whole(size: DimLike, unit: int) -> DimLike:
    """Return a size rounded up to a multiple of a unit."""
    return ceil(size, unit) * unit
