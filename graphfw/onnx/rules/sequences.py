"""Sequences and optionals: lists of values, and values that may be absent."""

from __future__ import annotations

import graphfw as gf
from graphfw.errors import ShapeError
from graphfw.ir.tensor import Tensor
from graphfw.onnx.errors import OnnxError
from graphfw.onnx.fitting import joined
from graphfw.onnx.node import ModelNode, Value
from graphfw.onnx.table import reads

# Sequences: lists, whose lengths are known


@reads("SequenceEmpty", "SequenceConstruct")
def _sequence(node: ModelNode, *items: Value) -> tuple[Value]:
    return (list(items),)


@reads("SequenceAt")
def _at(node: ModelNode, items: list[Value], position: Tensor) -> Value:
    return items[_position(node, position, len(items))]


@reads("SequenceErase")
def _erase(node: ModelNode, items: list[Value], position: Tensor | None = None) -> tuple[Value]:
    at = len(items) - 1 if position is None else _position(node, position, len(items))
    return (items[:at] + items[at + 1 :],)


@reads("SequenceInsert")
def _insert(
    node: ModelNode, items: list[Value], item: Value, position: Tensor | None = None
) -> tuple[Value]:
    count = len(items)
    at = count if position is None else node.integer(position, "the position")
    if not -count <= at <= count:
        raise OnnxError(f"SequenceInsert: there is no position {at} in a sequence of {count}")
    at += count if at < 0 else 0
    return ([*items[:at], item, *items[at:]],)


def _position(node: ModelNode, position: Tensor, count: int) -> int:
    at = node.integer(position, "the position")
    if not -count <= at < count:
        raise OnnxError(f"{node.op_type}: there is no position {at} in a sequence of {count}")
    return at % count


@reads("SequenceLength")
def _length(node: ModelNode, items: list[Value]) -> Tensor:
    return gf.constant(len(items))


@reads("SplitToSequence")
def _split_to_sequence(node: ModelNode, x: Tensor, sizes: Tensor | None = None) -> tuple[Value]:
    axis = node.axis(node.attr("axis", 0), x.ndim)
    size = x.shape[axis]
    if not isinstance(size, int):
        raise ShapeError(
            "SplitToSequence: the size of the axis must be known when the model is loaded",
            fix="say it when you load: shapes={name: (…)}",
        )
    if sizes is None:
        slices = gf.split(x, size, axis=axis)
        return (
            list(slices if node.attr("keepdims", 1) else (gf.squeeze(p, axis) for p in slices)),
        )
    lengths = node.ints(sizes, "the sizes")
    if not sizes.ndim:  # one size for all slices but the last
        lengths = tuple([min(lengths[0], size - at) for at in range(0, size, lengths[0])])
    positions = [sum(lengths[: i + 1]) for i in range(len(lengths) - 1)]
    return (list(gf.split(x, positions, axis=axis)) if positions else [x],)


@reads("ConcatFromSequence")
def _concat_from_sequence(node: ModelNode, items: list[Tensor]) -> Tensor:
    axis = node.attr("axis")
    if node.attr("new_axis", 0):
        return gf.stack(joined(items), axis=axis)
    return gf.concat(joined(items, node.axis(axis, items[0].ndim)), axis=axis)


@reads("SequenceMap")
def _sequence_map(node: ModelNode, items: list[Value], *others: Value) -> tuple[Value, ...]:
    body = node.attr("body")
    rows = [
        node.subgraph(body, [item, *[o[i] if isinstance(o, list) else o for o in others]])
        for i, item in enumerate(items)
    ]
    return tuple([[row[i] for row in rows] for i in range(len(body.output))])


# Optionals: None, or the value


@reads("OptionalHasElement")
def _has_element(node: ModelNode, x: Value = None) -> Tensor:
    return gf.constant(x is not None)


@reads("OptionalGetElement")
def _element(node: ModelNode, x: Value) -> tuple[Value]:
    if x is None:
        raise OnnxError("OptionalGetElement: the optional has no value")
    return (x,)
