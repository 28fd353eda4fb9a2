"""The steps of `attention` and `attention_grad`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphfw.ir.dim import DimLike
from graphfw.ir.dtype import bfloat16, float16, float32, float64
from graphfw.ir.tensor import Node
from graphfw.ops.attention_core import Attention, AttentionGrad
from graphfw.passes.fuse_views import contiguous
from graphfw.runtime.cupy_executor.attention.kind import WIDEST, Kind, Mask, Role
from graphfw.runtime.cupy_executor.codegen import CudaCode
from graphfw.runtime.kernels.steps import Step, View
from graphfw.runtime.limits import Precision
from graphfw.runtime.planning.copies import copied


def attention_steps(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], precision: Precision
) -> list[Step]:
    """Return the steps of an `attention` node, or nothing where CuPy is to compute it.

    Operands may lie anyhow; those whose elements are not next to one another along the last axis
    are copied first. Of heads whose width is not known, or more than 256 (128 of float64), it is
    CuPy's.

    Args:
        node: The node.
        inputs: q, k, v, and, where there is one, the mask.
        outputs: The result, lse and rest.
        precision: See `Options`.
    """
    if not _is_covered(node):
        return []
    steps: list[Step] = []
    q, k, v = [_in_rows(view, node, steps) for view in inputs[:3]]
    views = (q, k, v, outputs[0], *[_as_column(view) for view in outputs[1:]])
    return [*steps, _step(node, "forward", views, inputs[3:], precision)]


def attention_grad_steps(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], precision: Precision
) -> list[Step]:
    """Return the steps of an `attention_grad` node, as `attention_steps` does.

    Args:
        node: The node.
        inputs: q, k, v, lse, rest, delta, the result's gradient, and, where there is one, the mask.
        outputs: The gradients of q, k and v.
        precision: See `Options`.
    """
    if not _is_covered(node):
        return []
    steps: list[Step] = []
    q, k, v, d_out = [_in_rows(inputs[i], node, steps) for i in (0, 1, 2, 6)]
    numbers = [_as_column(view) for view in inputs[3:6]]
    d_q, d_k, d_v = outputs
    return [
        *steps,
        _step(node, "queries", (q, d_out, k, v, *numbers, d_q), inputs[7:], precision),
        _step(node, "keys", (k, v, q, d_out, *numbers, d_k, d_v), inputs[7:], precision),
    ]


def _is_covered(node: Node) -> bool:
    q, _, v = node.inputs[:3]
    widest = WIDEST // 2 if q.dtype is float64 else WIDEST
    return q.dtype in (float16, bfloat16, float32, float64) and all(
        [isinstance(width, int) and 1 <= width <= widest for width in (q.shape[-1], v.shape[-1])]
    )


def _in_rows(view: View, node: Node, steps: list[Step]) -> View:
    """Return matrices whose rows lie in a row: copied, if they are not."""
    if view.strides[-1] == 1 or view.shape[-1] == 1:
        return view
    step, temp = copied(view, (node,), "an operand of attention", CudaCode)
    steps.append(step)
    return View(temp, 0, view.shape, contiguous(view.shape))


def _as_column(view: View) -> View:
    """Return a view of numbers, one a query, as one of matrices with one column."""
    return view._replace(shape=(*view.shape, 1), strides=(*view.strides, 0))


def _step(
    node: Node, role: Role, views: Sequence[View], mask: Sequence[View], precision: Precision
) -> Step:
    (*_, queries, width), (*_, keys, _), (*_, value_width) = [t.shape for t in node.inputs[:3]]
    operands = [*views, *mask]
    lead = node.outputs[0].shape[:-2]
    strides = [_strides(view, len(lead) + 2) for view in operands]
    dims, along = _joined(lead, strides)
    rows = [one[-2] for one in strides]
    assert isinstance(node.op, Attention | AttentionGrad)
    scale, causal = node.op.scale, node.op.causal
    if role == "forward" and queries == 1 and not causal and dims and _share(along[1:3]):
        # Heads of one query each are as well so many queries of one head.
        queries, steps = dims.pop(), [own.pop() for own in along]
        rows = [steps[0], *rows[1:3], *steps[3:]]
    assert isinstance(width, int)
    assert isinstance(value_width, int)
    code = Kind(
        role=role,
        dtype=node.inputs[0].dtype,
        precision=precision,
        width=width,
        value_width=value_width,
        lead=len(dims),
        causal=causal,
        scale=1 / math.sqrt(width) if scale is None else scale,
        mask=_kind_of(mask[0], rows[-1], strides[-1][-1]) if mask else None,
    ).code()
    params: list[DimLike] = [queries, keys, *dims]
    for view, row, own in zip(operands, rows, along, strict=True):
        params += [view.offset, row, *own]
    params.append(strides[-1][-1] if mask else 0)
    return Step(
        nodes=(node,),
        code=code,
        operands=tuple([view.storage for view in operands]),
        written=tuple([buffer.written for buffer in code.buffers]),
        params=tuple(params),
        cells=1,
    )


def _share(along: Sequence[Sequence[DimLike]]) -> bool:
    """Whether these operands are the same all along the last leading dim."""
    return all([own[-1] == 0 for own in along])


def _kind_of(mask: View, row: DimLike, column: DimLike) -> Mask:
    return Mask(mask.storage.dtype, has_rows=row != 0, in_rows=column == 1)


def _strides(view: View, ndim: int) -> tuple[DimLike, ...]:
    """Return a stride for each of so many dims; 0 where the view is broadcast."""
    missing = ndim - len(view.shape)
    pairs = zip(view.shape, view.strides, strict=True)
    return (*[0] * missing, *[0 if dim == 1 else stride for dim, stride in pairs])


def _joined(
    lead: Sequence[DimLike], strides: Sequence[Sequence[DimLike]]
) -> tuple[list[DimLike], list[list[DimLike]]]:
    """Return as few leading dims as will do, and the strides of each operand along them."""
    dims: list[DimLike] = []
    along: list[list[DimLike]] = [[] for _ in strides]
    for axis, dim in enumerate(lead):
        if dim == 1:
            continue
        own = [one[axis] for one in strides]
        if dims and all([s[-1] == step * dim for s, step in zip(along, own, strict=True)]):
            dims[-1] = dims[-1] * dim
            for s, step in zip(along, own, strict=True):
                s[-1] = step
            continue
        dims.append(dim)
        for s, step in zip(along, own, strict=True):
            s.append(step)
    return dims, along
