"""Tensors that only rename the elements of another, and their strides in its memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import NamedTuple

from graphfw.ir.affine import ZERO, Affine, Index, LoopVariable, index_of, regrouped
from graphfw.ir.dim import DimLike
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import Shape
from graphfw.ops.shape.movement import PermuteDims, Reshape

_CHAIN = 16
"""The most views of views that are read through; a copy follows, so that walks stay short."""


class TensorLayout(NamedTuple):
    """The address of a tensor's elements.

    Attributes:
        root: The tensor that is computed or given; it is contiguous in memory.
        offset: Of the first element, in elements.
        strides: In elements, one a dim.
        depth: How many views lie between.
    """

    root: Tensor
    offset: DimLike
    strides: tuple[DimLike, ...]
    depth: int


def contiguous(shape: Sequence[DimLike]) -> tuple[DimLike, ...]:
    """Return the strides of an array whose last dim is dense."""
    strides: list[DimLike] = []
    stride: DimLike = 1
    for dim in reversed(shape):
        strides.append(stride)
        stride = stride * dim
    return tuple(reversed(strides))


def own_layout(tensor: Tensor) -> TensorLayout:
    """Return the layout of a tensor that is computed or given."""
    return TensorLayout(tensor, 0, contiguous(tensor.shape), 0)


def view_of(tensor: Tensor, source: TensorLayout) -> TensorLayout | None:
    """Return how the output of an op that renames elements lies, given how its input does.

    None where it can't be seen as lying regularly: it needs a copy.
    """
    node, shape = tensor.node, tensor.shape
    x = node.inputs[0].shape
    if source.depth >= _CHAIN:
        return None
    if isinstance(node.op, Reshape):
        strides = _reshaped(x, shape, source.strides)
        return None if strides is None else source._replace(strides=strides, depth=source.depth + 1)
    variables = [LoopVariable(f"d{axis}", dim) for axis, dim in enumerate(shape)]
    index = renamed(tensor, tuple(map(index_of, variables)))
    if index is None:
        return None
    offset = source.offset
    steps: dict[LoopVariable, DimLike] = dict.fromkeys(variables, 0)
    for position, stride in zip(index, source.strides, strict=True):
        offset = offset + position.offset * stride
        for variable, coefficient in position.terms.items():
            steps[variable] = steps[variable] + coefficient * stride
    return TensorLayout(source.root, offset, tuple(steps.values()), source.depth + 1)


def source_of(tensor: Tensor, layout: TensorLayout) -> TensorLayout | None:
    """Return how the input of an op that renames elements must lie for its output to lie so.

    None where the output has not all elements of the input, or these would have no regular strides.
    """
    op, x = tensor.node.op, tensor.node.inputs[0].shape
    if isinstance(op, Reshape):
        strides = _reshaped(tensor.shape, x, layout.strides)
        return None if strides is None else layout._replace(strides=strides)
    if isinstance(op, PermuteDims):
        found = dict(zip(op.axes, layout.strides, strict=True))
        return layout._replace(strides=tuple([found[axis] for axis in range(len(x))]))
    return None


def _reshaped(x: Shape, y: Shape, strides: Sequence[DimLike]) -> tuple[DimLike, ...] | None:
    if size_of(x) != size_of(y):
        return None
    found: list[DimLike] = [0] * len(y)
    for before, after in regrouped(x, y):
        for axis, inner in pairwise(before):
            if strides[axis] != strides[inner] * x[inner]:
                return None
        stride = strides[before[-1]]
        for axis in reversed(after):
            found[axis] = stride
            stride = stride * y[axis]
    return tuple(found)


def axes_before(x: Shape, y: Shape, gone: Collection[int]) -> tuple[int, ...] | None:
    """Return which axes of x are some axes of its reshape y; None where others are affected."""
    found: list[int] = []
    for before, after in regrouped(x, y):
        count = sum([axis in gone for axis in after])
        if count == len(after):
            found.extend(before)
        elif count or len(before) != 1 or len(after) != 1:
            return None
    return tuple(found)


def renames(node: Node) -> bool:
    """Return whether an op computes nothing: its output's elements are those of its input."""
    return node.op.source_index is not None and len(node.inputs) == 1


def renamed(tensor: Tensor, index: Index) -> Index | None:
    """Return which element of the input the element of a view is."""
    node = tensor.node
    more = (tensor.index,) if node.op.multiple else ()
    assert node.op.source_index is not None
    found: Index | None = node.op.source_index(index, node.inputs[0].shape, tensor.shape, *more)
    return found


def unreduced(
    index: Index, shape: Shape, x: Shape, gone: Sequence[int], positions: Sequence[Affine]
) -> Index:
    """Return which element of x a reduction takes for an element of its result.

    Args:
        index: Of the result.
        shape: Of the result, with or without the axes that are gone.
        x: What is reduced.
        gone: The axes of x that the reduction is over.
        positions: Where along them.
    """
    found = dict(zip(gone, positions, strict=True))
    kept = iter([position for position, dim in zip(index, shape, strict=True) if dim != 1])
    return tuple(
        [
            found[axis] if axis in found else ZERO if dim == 1 else next(kept)
            for axis, dim in enumerate(x)
        ]
    )


def standard_index(tensor: Tensor) -> tuple[Index, dict[int, int]]:
    """Return an index with one variable for each dim that is not 1, named by its number.

    And the number for each of those dims.
    """
    index: list[Affine] = []
    numbers: dict[int, int] = {}
    for axis, dim in enumerate(tensor.shape):
        if dim == 1:
            index.append(ZERO)
        else:
            index.append(index_of(LoopVariable(str(len(numbers)), dim)))
            numbers[axis] = len(numbers)
    return tuple(index), numbers
