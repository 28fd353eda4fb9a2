"""Fixes for operands whose shapes don't broadcast, found from the nodes that made them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from graphfw.ir.op import ELEMENTWISE, Op
from graphfw.ir.shape import ShapeMismatch, broadcast, reduced, shape_text
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import Shape

_STEPS = 8
"""The most elementwise ops that may follow the reduction or the layer."""

_NODES = 64
"""The most nodes of one line that are searched: `quantile` has some dozens."""


def to_broadcast(
    op: Op, operands: Sequence[Any], labels: Sequence[str], failed: ShapeMismatch
) -> str:
    """Return a fix for two of an op's operands, or "" where what made them says nothing.

    Args:
        op: The op that was to be applied.
        operands: What it was given; only tensors are looked at.
        labels: What the error calls the operands.
        failed: Says which two, and at which axis.
    """
    (first, axis), (second, _) = failed.at
    a, b = operands[first], operands[second]
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return ""
    for label, one, other in ((labels[first], a, b), (labels[second], b, a)):
        fix = _keep_dims(label, one, other.shape)
        if fix:
            return fix
    if op.name != "add" or not (_is_of_layer(a) or _is_of_layer(b)):
        return ""
    # A skip connection leads around layers: what was made outside of them, or earlier.
    pair = ((labels[first], a), (labels[second], b))
    (label, shortcut), (_, result) = sorted(
        pair, key=lambda one: (_is_of_layer(one[1]), one[1].node.serial)
    )
    return _project(label, shortcut.shape, result.shape, axis)


def _is_of_layer(tensor: Tensor) -> bool:
    """Return whether a layer made a tensor, or what it was made of element by element."""
    return any(made.node.loc.layer for made in _made_elementwise(tensor))


def _keep_dims(label: str, tensor: Tensor, other: Shape) -> str:
    """Advise keepdims=True where a reduction made the tensor and that would make it fit."""
    for made in _made_elementwise(tensor):
        for node, kept in _reductions(made):
            try:
                broadcast(kept, other)
            except ShapeMismatch:
                continue
            return (
                f"keep the reduced dim: with keepdims=True in the reduction at {node.loc.short()} "
                f"{label} is {shape_text(kept)}"
            )
    return ""


def _made_elementwise(tensor: Tensor) -> Iterator[Tensor]:
    """Yield a tensor, and what it was made of element by element, as `sum(x) * 0.5` is."""
    for _ in range(_STEPS):
        yield tensor
        node = tensor.node
        inputs = [t for t in node.inputs if t.shape == tensor.shape]
        if ELEMENTWISE not in node.op.traits or not inputs:
            return
        tensor = inputs[0]


def _reductions(tensor: Tensor) -> Iterator[tuple[Node, Shape]]:
    """Yield the reductions on the line that made a tensor, each with the shape that it would keep.

    Functions such as `logsumexp` keep the reduced dim inside, and `median` sorts along it.
    """
    seen = [tensor.node]
    for node in seen:  # which grows
        if hasattr(node.op, "keepdims") or node.op.name == "sort":
            source = _unmoved(node.inputs[0])
            for axes in _axes(node.op, source.ndim):
                if reduced(source.shape, axes, keepdims=False) == tensor.shape:
                    yield node, reduced(source.shape, axes, keepdims=True)
        if len(seen) < _NODES:
            made = [t.node for t in node.inputs if t.node.loc == tensor.node.loc]
            seen += [one for one in made if one not in seen]


def _axes(op: Op, rank: int) -> list[tuple[int, ...]]:
    """Return the axes that an op reduces; of a sort, in a function, that may be any."""
    if op.name == "sort":
        return [(axis,) for axis in range(rank)]
    return [op.axes if hasattr(op, "axes") else (op.axis,)]  # type: ignore[attr-defined]  # each has one of them


def _unmoved(tensor: Tensor) -> Tensor:
    """Return the tensor as it was before a function moved the axis to sort along to the end."""
    node = tensor.node
    return node.inputs[0] if node.op.name == "permute_dims" else tensor


def _project(label: str, shortcut: Shape, result: Shape, axis: int) -> str:
    """Advise a 1×1 convolution or a Linear layer where only the numbers of features differ."""
    rank = len(shortcut)
    others = [i for i in range(-rank, 0) if i != axis]
    if len(result) != rank or any(shortcut[i] != result[i] for i in others):
        return ""
    old, new = shortcut[axis], result[axis]
    if axis == -1 and rank > 1:
        return f"make the features of both as many: gf.nn.Linear({old}, {new}) projects {label}"
    if axis == 1 - rank and 3 <= rank <= 5:
        layer = f"gf.nn.Conv{rank - 2}d({old}, {new}, 1)"
        return f"make the channels of both as many: a 1×1 convolution, {layer}, projects {label}"
    return ""
