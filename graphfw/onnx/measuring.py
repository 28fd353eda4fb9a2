"""Sizes that depend on values: runs find them out, where nothing tells when a model is loaded.

In the body of a loop or a branch they can't: there values must be known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import graphfw as gf
from graphfw.ir.dim import DimLike
from graphfw.ir.graph import current_graph
from graphfw.ir.tensor import Tensor
from graphfw.onnx.node import ModelNode
from graphfw.ops.data_dependent.measuring_ops import Sizes, measure


def is_measured(node: ModelNode, *xs: Tensor) -> bool:
    """Return whether runs find out what depends on these values."""
    values = [node.facts.value(x) for x in xs]
    is_known = all(value is not None and value.dtype != object for value in values)
    return not is_known and not _is_in_body()


def dims_of(
    node: ModelNode, x: Tensor, what: str, in_runs: Callable[[Tensor], Tensor] | None = None
) -> tuple[DimLike, ...]:
    """Return the elements of a tensor of sizes; those that depend on values are measured.

    Args:
        node: The node.
        x: The tensor.
        what: What errors call it.
        in_runs: What runs do to it first, as sizes can't be negative.

    Raises:
        ValueNeeded: It can't be here.
    """
    entries = _entries(node, x)
    if entries is None or None not in entries or not node.facts.measures or _is_in_body():
        return node.dims(x, what)
    unknown = [i for i, entry in enumerate(entries) if entry is None]
    numbers = gf.reshape(x if in_runs is None else in_runs(x), (-1,))
    if len(unknown) < len(entries):
        numbers = gf.stack([numbers[i] for i in unknown])
    found = iter(measured(node, numbers, what))
    return tuple([next(found) if entry is None else entry for entry in entries])


def measured(node: ModelNode, numbers: Tensor, what: str) -> tuple[DimLike, ...]:
    """Return the elements of a vector as sizes that runs find out."""
    (count,) = numbers.shape
    assert isinstance(count, int)
    what = f"{node.op_type}: {what}"
    (made,) = measure(Sizes, ["size"] * count, gf.astype(numbers, gf.int64), what=what)
    op = made.node.op
    return op.dims if isinstance(op, Sizes) else tuple(made.numpy().tolist())


def resolved(x: Tensor, shape: Tensor, copies_zeros: bool) -> Tensor:
    """Return a shape that a run computes with sizes in the place of -1, and of 0 as in x."""
    shape = gf.astype(shape, gf.int64)
    if copies_zeros:
        count = shape.shape[0]
        own = [*x.shape, *[0] * count][:count] if isinstance(count, int) else x.shape
        shape = gf.where(shape == 0, _vector(own), shape)
    is_open = shape == -1
    rest = gf.prod(gf.where(is_open, 1, shape))
    return gf.where(is_open, gf.asarray(x.size) // gf.maximum(rest, 1), shape)


def clipped(x: Tensor, bounds: Tensor, axes: Sequence[int] | None) -> Tensor:
    """Return bounds of slices, which a run computes, counted from the front and inside of x."""
    bounds = gf.astype(bounds, gf.int64)
    ends = _vector([x.shape[axis] for axis in axes] if axes else x.shape[: bounds.size])
    return gf.clip(gf.where(bounds < 0, bounds + ends, bounds), gf.zeros_like(ends), ends)


def _vector(sizes: Sequence[DimLike]) -> Tensor:
    return gf.stack([gf.asarray(size, dtype=gf.int64) for size in sizes])


def _is_in_body() -> bool:
    graph = current_graph()
    return graph.root is not graph


def _entries(node: ModelNode, x: Tensor) -> list[DimLike | None] | None:
    """Return the known elements of a tensor, one by one; None if not even their number is known."""
    if node.facts.value(x) is not None:
        return [*node.dims(x, "the size")]
    source = x.node
    if source.op.name == "concat" and x.ndim == 1:
        lists = [_entries(node, each) for each in source.inputs]
        known = [entries for entries in lists if entries is not None]
        return [e for entries in known for e in entries] if len(known) == len(lists) else None
    return [None] * x.size if isinstance(x.size, int) else None
