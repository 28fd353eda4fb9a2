"""Rules for ops that only move elements about, and for those that do nothing."""

from __future__ import annotations

import numpy as np

from graphfw.ir.build import emit
from graphfw.ir.constants import fill_value
from graphfw.ir.dim import DimLike
from graphfw.ir.functions import F
from graphfw.ir.op import ELEMENTWISE, TRANSPARENT
from graphfw.ir.shape import Requirement, broadcast, size_of
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import Shape
from graphfw.ops.creation.inputs import AssertShape
from graphfw.ops.elementwise.arithmetic import Add
from graphfw.ops.elementwise.cast import AsType
from graphfw.ops.linalg.products import MatMul
from graphfw.ops.reduce.reductions import Reduction, Sum
from graphfw.ops.shape.concat import Concat, Split
from graphfw.ops.shape.gather_scatter import Slice, SliceSet
from graphfw.ops.shape.movement import BroadcastTo, PermuteDims, Reshape
from graphfw.passes.rules import RewriteRule, rule


@rule(TRANSPARENT, before="stop_gradient(identity(x)) * y",
      after="x * y", takes="x: float32[3, n]; y: float32[n]")  # fmt: skip
def nothing_done(node: Node, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """identity(x), stop_gradient(x) -> x: names and gradients are settled before passes run."""
    return inputs[: len(node.types)]


@rule((AssertShape, AsType, BroadcastTo, Reshape), before="assert_shape(x, (3, n))",
      after="x")  # fmt: skip
def same_type(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """Replace an op that changes only the type, and gives the type there was -> x."""
    return inputs[0] if inputs[0].type == node.types[0] else None


@rule(Reshape, before="reshape(reshape(x, (-1,)), (n, 3))", after="reshape(x, (n, 3))")
def reshape_of_reshape(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """reshape(reshape(x)) -> reshape(x)."""
    inner = inputs[0].node
    if not isinstance(inner.op, Reshape):
        return None
    x, shape = inner.inputs[0], node.types[0].shape
    # With symbolic dims x[n] -> [n//2, 2] is checked when it runs: then nothing is proved here.
    return F.reshape(x, shape) if size_of(x.shape) == size_of(shape) else None


@rule(PermuteDims, before="permute_dims(permute_dims(x, (1, 2, 0)), (1, 2, 0))",
      after="permute_dims(x, (2, 0, 1))", takes="x: float32[2, 3, n]")  # fmt: skip
def permute_of_permute(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """permute(permute(x, p), q) -> permute(x, p of q)."""
    assert isinstance(node.op, PermuteDims)
    inner = inputs[0].node
    if not isinstance(inner.op, PermuteDims):
        return None
    axes = [inner.op.axes[axis] for axis in node.op.axes]
    return F.permute_dims(inner.inputs[0], axes)


@rule(PermuteDims, before="permute_dims(x, (1, 2, 0))", after="reshape(x, (3, n, 1))",
      takes="x: float32[1, 3, n]")  # fmt: skip
def permute_of_ones(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """permute(x) -> reshape(x), where only dims of size 1 change their order."""
    assert isinstance(node.op, PermuteDims)
    shape = inputs[0].shape
    moved = [axis for axis in node.op.axes if shape[axis] != 1]
    return F.reshape(inputs[0], node.types[0].shape) if moved == sorted(moved) else None


@rule(BroadcastTo, before="broadcast_to(broadcast_to(x, (3, n)), (2, 3, n))",
      after="broadcast_to(x, (2, 3, n))", takes="x: float32[3, 1]")  # fmt: skip
def broadcast_of_broadcast(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """broadcast(broadcast(x)) -> broadcast(x)."""
    inner = inputs[0].node
    if not isinstance(inner.op, BroadcastTo):
        return None
    return F.broadcast_to(inner.inputs[0], node.types[0].shape)


@rule(BroadcastTo, before="broadcast_to(reshape(x, (1, 1, n)), (2, 3, n))",
      after="broadcast_to(x, (2, 3, n))", takes="x: float32[n]")  # fmt: skip
def broadcast_of_expand(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """broadcast(reshape(x, (1, 1, *x.shape))) -> broadcast(x), which adds leading dims itself."""
    inner = inputs[0].node
    if not isinstance(inner.op, Reshape):
        return None
    x = inner.inputs[0]
    added = inputs[0].type.ndim - x.ndim
    if added < 0 or inputs[0].shape != ((1,) * added + x.shape):
        return None
    return F.broadcast_to(x, node.types[0].shape)


@rule(ELEMENTWISE, before="broadcast_to(x, (3, n)) * y", after="x * y",
      takes="x: float32[n]; y: float32[3, n]")  # fmt: skip
def elementwise_of_broadcast(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """f(broadcast(x), y) -> f(x, y), where f broadcasts x to the same shape itself."""
    if len(inputs) == 1:
        return None
    for index, tensor in enumerate(inputs):
        if not isinstance(tensor.node.op, BroadcastTo):
            continue
        fewer = (*inputs[:index], tensor.node.inputs[0], *inputs[index + 1 :])
        if _broadcast([t.shape for t in fewer]) == node.types[0].shape:
            return emit(node.op, *fewer)
    return None


def _broadcast(shapes: list[Shape]) -> Shape | None:
    try:
        return broadcast(*shapes)
    except Requirement:
        return None


@rule(Reduction, before="max(x, axis=1)",
      after="reshape(x, (n,))", takes="x: float32[n, 1]")  # fmt: skip
def reduction_of_ones(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """A reduction over no axes, or over axes of size 1 -> reshape(x)."""
    assert isinstance(node.op, Reduction)
    x = inputs[0]
    if any(x.shape[axis] != 1 for axis in node.op.axes):
        return None
    # A sum begins with 0.0, and 0.0 + -0.0 is 0.0; a complex 1 * x is not always x.
    dtype = x.dtype
    exact = dtype.is_integer if isinstance(node.op, Sum) else not dtype.is_complex
    if not exact or dtype is not node.types[0].dtype:
        return None
    return F.reshape(x, node.types[0].shape)


@rule(Slice, before="raw('slice', x, starts=(0, 0), lengths=(3, n), steps=(1, 1))", after="x")
def slice_of_all(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """x[:] -> x."""
    op, x = node.op, inputs[0]
    assert isinstance(op, Slice)
    whole = x.type == node.types[0] and op.starts == (0,) * x.ndim and op.steps == (1,) * x.ndim
    return x if whole else None


@rule((Concat, Split), before="raw('concat', raw('split', x, lengths=(3,), axis=0), axis=1)",
      after="x")  # fmt: skip
def single_section(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """concat([x]) -> x; split(x) into one section -> x."""
    return inputs[0] if len(inputs) == 1 and len(node.types) == 1 else None


_MOST_INPUTS = 64  # else a chain of n concats of one more input each would be copied n times


@rule(Concat, before="concat([x, concat([y, x], axis=1)], axis=1)",
      after="concat([x, y, x], axis=1)", takes="x: float32[3, n]; y: float32[3, 2]")  # fmt: skip
def concat_of_concat(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """concat([a, concat([b, c])]) -> concat([a, b, c])."""
    found: list[Tensor] = []
    for tensor in inputs:
        inner = tensor.node
        found.extend(inner.inputs if inner.op == node.op else (tensor,))
    return emit(node.op, *found) if len(inputs) < len(found) <= _MOST_INPUTS else None


@rule(Concat, before="concat(split(x, 3, axis=0), axis=0)", after="x")
def concat_of_split(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """concat(split(x)) -> x, where all sections are put back in order."""
    assert isinstance(node.op, Concat)
    first = inputs[0].node
    if not isinstance(first.op, Split) or first.op.axis != node.op.axis:
        return None
    if len(inputs) != len(first.types):
        return None
    in_order = all(t.node is first and t.index == i for i, t in enumerate(inputs))
    return first.inputs[0] if in_order else None


@rule(Add, before="pad(y, ((0, 0), (0, 2))) + pad(y, ((0, 0), (2, 0)))",
      after="concat([y + 0, y + 0], axis=1)", takes="y: float32[3, 2]")  # fmt: skip
def sum_of_windows(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """The sum of zeros in which windows are set, that lie side by side -> what is set, joined.

    So the gradients of a tensor's slices come together. Adding 0 keeps the sign of zeros right.
    """
    windows = _windows(inputs) if node.types[0].dtype.is_floating else None
    if windows is None:
        return None
    shape = node.types[0].shape
    cut = [a for a, n in enumerate(windows[0][0].lengths) if n != shape[a]]
    if len(cut) != 1:
        return None
    slices = {op.starts[cut[0]]: (op, values) for op, values in windows}
    joined: list[Tensor] = []
    start: DimLike = 0
    while start in slices:
        op, values = slices.pop(start)
        start = start + op.lengths[cut[0]]
        joined.append(values)
    whole = [d for a, d in enumerate(shape) if a != cut[0]]
    same = all([d for a, d in enumerate(t.shape) if a != cut[0]] == whole for t in joined)
    if slices or start != shape[cut[0]] or not same or len(joined) != len(windows):
        return None
    return F.concat([t + 0 for t in joined], axis=cut[0])


def _windows(sums: tuple[Tensor, ...]) -> list[tuple[SliceSet, Tensor]] | None:
    """Return the windows set in zeros, and their values, where a sum consists of such only."""
    found: list[tuple[SliceSet, Tensor]] = []
    todo = list(sums)
    while todo:
        inner = todo.pop().node
        if isinstance(inner.op, Add) and len(found) + len(todo) < _MOST_INPUTS:
            todo.extend(inner.inputs)
            continue
        if not isinstance(inner.op, SliceSet) or not set(inner.op.steps) <= {1}:
            return None
        zeros, values = inner.inputs
        base = fill_value(zeros)
        if base is None or base != 0 or np.signbit(base):
            return None
        found.append((inner.op, values))
    return found


_TALL = 8  # so many steps may stand between a transposed matrix and its product


@rule(MatMul, before="raw('matmul', x, exp(permute_dims(y, (1, 0)) * 2.0) + z)",
      after="raw('matmul', x, permute_dims(exp(y * 2.0) + reshape(z, (2, 1)), (1, 0)))",
      takes="x: float32[3, n]; y: float32[2, n]; z: float32[2]")  # fmt: skip
def product_of_transposed(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """x @ f(transposed(y)) -> x @ transposed(f(y)): a product reads the transposed as it lies."""
    found = [_untransposed(t, _TALL) if _is_elementwise(t) else None for t in inputs]
    if all(t is None for t in found):
        return None
    transposed = [None if t is None else F.swapaxes(t, -1, -2) for t in found]
    return emit(node.op, *[a if t is None else t for a, t in zip(inputs, transposed, strict=True)])


def _is_elementwise(x: Tensor) -> bool:
    return ELEMENTWISE in x.node.op.traits and bool(x.node.inputs)


def _untransposed(x: Tensor, tall: int) -> Tensor | None:
    """Return the matrix whose transpose x is, if all its inputs of its dims were transposed."""
    node, ndim = x.node, x.ndim
    *batch, rows, columns = range(ndim)
    if isinstance(node.op, PermuteDims) and node.op.axes == (*batch, columns, rows):
        return node.inputs[0]
    if not tall or not _is_elementwise(x):
        return None
    made: list[Tensor] = []
    is_changed = False
    for t in node.inputs:
        shape = (1,) * (ndim - t.ndim) + t.shape
        if 1 in shape[-2:]:  # it has no order of its own
            made.append(F.swapaxes(F.reshape(t, shape), -1, -2) if t.ndim else t)
            continue
        inner = _untransposed(t, tall - 1) if t.shape == x.shape else None
        if inner is None:
            return None
        made.append(inner)
        is_changed = True
    return emit(node.op, *made) if is_changed else None


RULES: tuple[RewriteRule, ...] = (
    nothing_done,
    same_type,
    reshape_of_reshape,
    permute_of_permute,
    permute_of_ones,
    broadcast_of_broadcast,
    broadcast_of_expand,
    elementwise_of_broadcast,
    reduction_of_ones,
    slice_of_all,
    single_section,
    concat_of_concat,
    concat_of_split,
    sum_of_windows,
    product_of_transposed,
)
