"""The steps of `attention`, `attention_grad` and `attention_backward`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from graphfw.ir.dim import DimLike
from graphfw.ir.dtype import bfloat16, float16, float32, float64
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node, Tensor
from graphfw.passes.fuse_views import contiguous
from graphfw.runtime.cupy_executor.attention.axes import joined, strides_of
from graphfw.runtime.cupy_executor.attention.config import WIDEST, KernelConfig, Mask, Role, form_of
from graphfw.runtime.cupy_executor.attention.cudnn_choice import declined, preferred
from graphfw.runtime.cupy_executor.attention.row_statistics import delta_step, sum_step, zeros_step
from graphfw.runtime.cupy_executor.codegen import CudaCode
from graphfw.runtime.kernels.steps import Step, Temp, View
from graphfw.runtime.limits import Precision
from graphfw.runtime.planning.copies import copied


def attention_steps(
    node: Node,
    inputs: Sequence[View],
    outputs: Sequence[View],
    precision: Precision,
    *,
    read: Collection[Tensor] | None = None,
) -> list[Step]:
    """Return the steps of an `attention` node; none if CuPy computes it.

    Operands may have any strides; those whose last axis is not contiguous are copied first. CuPy
    computes heads whose width is unknown, or more than 256 (128 of float64).

    Args:
        node: The node.
        inputs: q, k, v, and the mask, if there is one.
        outputs: The result, lse and rest.
        precision: See `Options`.
        read: None, or cuDNN is asked first, unless it is `declined`: then it is what others read.
            cuDNN makes no rest, which is 0 then: so exact its lse is.
    """
    if not _is_covered(node):
        return []
    steps: list[Step] = []
    q, k, v = [_in_rows(view, node, steps) for view in inputs[:3]]
    out, *numbers = outputs
    views = (q, k, v, out, *[_as_column(view) for view in numbers])
    own = _step(node, "forward", views, inputs[3:], precision)
    if read is not None and not declined(node):
        zeros = [zeros_step(node, outputs[2])] if node.outputs[2] in read else []
        own = preferred(node, views[:5], epilogue=zeros, fallback=[own])
    return [*steps, own]


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
    operands = [_in_rows(inputs[i], node, steps) for i in (0, 1, 2, 6)]
    return [*steps, *_gradients(node, operands, inputs[3:6], outputs, inputs[7:], precision)]


def attention_backward_steps(
    node: Node,
    inputs: Sequence[View],
    outputs: Sequence[View],
    precision: Precision,
    *,
    read: Collection[Tensor] | None = None,
) -> list[Step]:
    """Return the steps of an `attention_backward` node, as `attention_steps` does.

    Args:
        node: The node.
        inputs: q, k, v, the result, lse, rest and the result's gradient.
        outputs: The gradients of q, k and v.
        precision: See `Options`.
        read: None, or cuDNN is asked first, unless it is `declined`. What rounding took from lse it
            does not know: without a mask, that is no more than its own lse has lost.
    """
    if not _is_covered(node):
        return []
    steps: list[Step] = []
    q, k, v, out, d_out = [_in_rows(inputs[i], node, steps) for i in (0, 1, 2, 3, 6)]
    lse, rest = inputs[4:6]
    first, delta = delta_step(node, out, d_out)
    lead = out.shape[:-2]
    whole = [outputs[0], *[_with_all(view, lead) for view in outputs[1:]]]
    numbers = (lse, rest, delta)
    own = [first, *_gradients(node, (q, k, v, d_out), numbers, whole, (), precision)]
    pairs = zip(whole, outputs, strict=True)
    own += [sum_step(node, made, view) for made, view in pairs if made is not view]
    if read is not None and not declined(node):
        views = (q, k, v, out, _as_column(lse), d_out, *outputs)
        own = [preferred(node, views, fallback=own)]
    return [*steps, *own]


def _gradients(
    node: Node,
    operands: Sequence[View],
    numbers: Sequence[View],
    outputs: Sequence[View],
    mask: Sequence[View],
    precision: Precision,
) -> list[Step]:
    """Return the two kernels of a gradient, of q, k, v and d_out, and lse, rest and delta."""
    q, k, v, d_out = operands
    d_q, d_k, d_v = outputs
    columns = [_as_column(view) for view in numbers]
    return [
        _step(node, "queries", (q, d_out, k, v, *columns, d_q), mask, precision),
        _step(node, "keys", (k, v, q, d_out, *columns, d_k, d_v), mask, precision),
    ]


def _is_covered(node: Node) -> bool:
    q, _, v = node.inputs[:3]
    widest = WIDEST // 2 if q.dtype is float64 else WIDEST
    return q.dtype in (float16, bfloat16, float32, float64) and all(
        [isinstance(width, int) and 1 <= width <= widest for width in (q.shape[-1], v.shape[-1])]
    )


def _with_all(view: View, lead: Sequence[DimLike]) -> View:
    """Return the view that a gradient with all leading dims goes to: its own, or of summands."""
    shape = (*lead, *view.shape[-2:])
    if shape == view.shape:
        return view
    temp = Temp(view.storage.dtype, size_of(shape), "gradients of what heads share")
    return View(temp, 0, shape, contiguous(shape))


def _in_rows(view: View, node: Node, steps: list[Step]) -> View:
    """Return matrices whose rows are contiguous: copied, if they are not."""
    if view.strides[-1] == 1 or view.shape[-1] == 1:
        return view
    step, temp = copied(view, (node,), "an operand of attention", CudaCode)
    steps.append(step)
    return View(temp, 0, view.shape, contiguous(view.shape))


def _as_column(view: View) -> View:
    """Return a view of one number a query as a view of matrices with one column."""
    return view._replace(shape=(*view.shape, 1), strides=(*view.strides, 0))


def _step(
    node: Node, role: Role, views: Sequence[View], mask: Sequence[View], precision: Precision
) -> Step:
    (*_, queries, width), (*_, keys, _), (*_, value_width) = [t.shape for t in node.inputs[:3]]
    operands = [*views, *mask]
    lead = node.outputs[0].shape[:-2]
    strides = [strides_of(view, len(lead) + 2) for view in operands]
    dims, along = joined(lead, strides)
    rows = [one[-2] for one in strides]
    causal, scale = form_of(node)
    if role == "forward" and queries == 1 and not causal and dims and _share(along[1:3]):
        # Heads of one query each are as well so many queries of one head.
        queries, steps = dims.pop(), [own.pop() for own in along]
        rows = [steps[0], *rows[1:3], *steps[3:]]
    assert isinstance(width, int)
    assert isinstance(value_width, int)
    code = KernelConfig(
        role=role,
        dtype=node.inputs[0].dtype,
        precision=precision,
        width=width,
        value_width=value_width,
        lead=len(dims),
        causal=causal,
        scale=scale,
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
        work_items=1,
    )


def _share(along: Sequence[Sequence[DimLike]]) -> bool:
    """Return whether these operands are the same all along the last leading dim."""
    return all([own[-1] == 0 for own in along])


def _kind_of(mask: View, row: DimLike, column: DimLike) -> Mask:
    return Mask(mask.storage.dtype, has_rows=row != 0, in_rows=column == 1)
