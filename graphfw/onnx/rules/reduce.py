"""Reductions, cumulative sums, and operators along an axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import graphfw as gf
from graphfw.ir.build import emit
from graphfw.ir.dtype import bool_, int32, int64
from graphfw.ir.tensor import Node, Tensor
from graphfw.onnx.builder import Builder, Val, fields
from graphfw.onnx.node import ModelNode
from graphfw.onnx.table import Attribute, Rule, flag, reads, write_only, writes
from graphfw.ops.args import Axes, axes_of
from graphfw.ops.reduce.cumulative import CumulativeProd, CumulativeSum
from graphfw.ops.reduce.reductions import Extreme, Max, Min


def _log_sum(x: Tensor, **how: Any) -> Tensor:
    return gf.log(gf.sum(x, **how))


def _l1(x: Tensor, **how: Any) -> Tensor:
    return gf.sum(gf.abs(x), **how)


def _l2(x: Tensor, **how: Any) -> Tensor:
    squares = gf.sum(gf.square(x), **how)
    if squares.dtype.is_floating:
        return gf.sqrt(squares)
    return gf.astype(gf.sqrt(gf.astype(squares, gf.float64)), squares.dtype)


def _sum_square(x: Tensor, **how: Any) -> Tensor:
    return gf.sum(gf.square(x), **how)


def _extreme(op: type[Extreme], of_bools: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def reduced(x: Tensor, axis: Axes, keepdims: bool) -> Tensor:
        if x.dtype.is_bool:
            return of_bools(x, axis=axis, keepdims=keepdims)
        return emit(op(axes_of(op.name, x, axis), keepdims, identity=True), x)

    return reduced


_REDUCTIONS: dict[str, Callable[..., Tensor]] = {
    "ReduceL1": _l1,
    "ReduceL2": _l2,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": gf.logsumexp,
    "ReduceMax": _extreme(Max, gf.any),
    "ReduceMean": gf.mean,
    "ReduceMin": _extreme(Min, gf.all),
    "ReduceProd": gf.prod,
    "ReduceSum": gf.sum,
    "ReduceSumSquare": _sum_square,
}


@reads(*_REDUCTIONS)
def _reduce(node: ModelNode, x: Tensor, axes: Tensor | None = None) -> Tensor:
    along = node.attr("axes", None) if axes is None else node.ints(axes, "the axes")
    if not along and node.attr("noop_with_empty_axes", 0):
        along = ()
        if node.op_type in ("ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd", "ReduceSum"):
            return x
    elif not along:
        along = None
    function = _REDUCTIONS[node.op_type]
    made = function(x, axis=along, keepdims=bool(node.attr("keepdims", 1)))
    return gf.astype(made, x.dtype)


def _write_reduced(b: Builder, kind: str, x: Val, axes: Sequence[int], keepdims: bool) -> Val:
    """Reduce along axes; before opset 18 most operators have them as an attribute."""
    if not axes:
        return x
    if kind != "ReduceSum" and b.opset < 18:
        return b(kind, x, axes=axes, keepdims=int(keepdims))
    return b(kind, x, b.ints(axes), keepdims=int(keepdims))


@writes("sum", "prod", "max", "min")
def _write_reduction(b: Builder, node: Node, x: Val) -> Val:
    op = fields(node)
    made = _write_reduced(
        b, f"Reduce{node.op.name.title()}", b.accumulated(x), op.axes, op.keepdims
    )
    return b.cast(made, x.dtype)


@writes("all", "any")
def _write_truth(b: Builder, node: Node, x: Val) -> Val:
    """Write a count that is compared with 0: of no elements all are true, and none is."""
    op = fields(node)
    if not op.axes:
        return x
    counted = b("Not", x) if node.op.name == "all" else x
    count = _write_reduced(b, "ReduceSum", b.cast(counted, int32), op.axes, op.keepdims)
    found = b("Greater", count, b.scalar(0, int32), dtype=bool_)
    return b("Not", found) if node.op.name == "all" else found


_ARG = {"axis": Attribute("axis"), "keepdims": flag("keepdims")}

write_only(
    Rule("ArgMax", gf.argmax, _ARG, result=gf.int64),
    Rule("ArgMin", gf.argmin, _ARG, result=gf.int64),
)


@reads("ArgMax", "ArgMin")
def _arg(node: ModelNode, x: Tensor) -> Tensor:
    axis, keepdims = node.attr("axis", 0), bool(node.attr("keepdims", 1))
    find = gf.argmax if node.op_type == "ArgMax" else gf.argmin
    if not node.attr("select_last_index", 0):
        return find(x, axis=axis, keepdims=keepdims)
    from_end = find(gf.flip(x, axis=axis), axis=axis, keepdims=keepdims)
    return gf.asarray(x.shape[axis]) - 1 - from_end


@reads("CumSum", "CumProd")
def _cumulative(node: ModelNode, x: Tensor, axis: Tensor) -> Tensor:
    op = CumulativeSum if node.op_type == "CumSum" else CumulativeProd
    along = node.axis(node.integer(axis, "the axis"), x.ndim)
    return emit(op(along, bool(node.attr("reverse", 0)), bool(node.attr("exclusive", 0))), x)


@writes("cumulative_sum")
def _write_cumulative_sum(b: Builder, node: Node, x: Val) -> Val:
    op = fields(node)
    made = b(
        "CumSum",
        b.accumulated(x),
        b.constant(op.axis, int64),
        exclusive=int(op.exclusive),
        reverse=int(op.reverse),
    )
    return b.cast(made, x.dtype)


# Along an axis


@reads("Softmax", "LogSoftmax", "Hardmax")
def _softmax(node: ModelNode, x: Tensor) -> Tensor:
    build = _ALONG[node.op_type]
    if node.version >= 13:
        return build(x, axis=node.attr("axis", -1))
    axis = node.axis(node.attr("axis", 1), max(x.ndim, 1))
    if axis == x.ndim - 1:
        return build(x, axis=-1)
    # Of a matrix, as these opsets see x.
    rows = gf.flatten(gf.flatten(x, axis, -1), 0, axis - 1) if axis else gf.flatten(x, 0, -1)
    return gf.reshape(build(rows, axis=-1), x.shape)


def _hardmax(x: Tensor, axis: int) -> Tensor:
    indices = gf.argmax(x, axis=axis)
    return gf.one_hot(indices, x.shape[axis], dtype=x.dtype, axis=axis)


_ALONG: dict[str, Callable[..., Tensor]] = {
    "Softmax": gf.softmax,
    "LogSoftmax": gf.log_softmax,
    "Hardmax": _hardmax,
}


@reads("LpNormalization")
def _lp_normalization(node: ModelNode, x: Tensor) -> Tensor:
    order, axis = node.attr("p", 2), node.attr("axis", -1)
    node.require(order in (1, 2), f"p={order} is neither 1 nor 2")
    norm = (_l1 if order == 1 else _l2)(x, axis=axis, keepdims=True)
    return gf.where(norm == 0, gf.zeros_like(x), x / norm)


@reads("MeanVarianceNormalization")
def _mean_variance_normalization(node: ModelNode, x: Tensor) -> Tensor:
    axes = node.attr("axes", (0, 2, 3))
    centred = x - gf.mean(x, axis=axes, keepdims=True)
    return centred / (gf.sqrt(gf.mean(gf.square(centred), axis=axes, keepdims=True)) + 1e-9)
