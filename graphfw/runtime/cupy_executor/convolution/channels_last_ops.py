"""The ops that can work on channels-last images, and their channels-last forms.

Images are [N, C, *S]; channels-last they are [N, *S, C]. A channels-last form reads and makes such
images: the op's axes, or its window, get other numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from graphfw.ir.build import constant, emit, emit_all
from graphfw.ir.constants import constant_array
from graphfw.ir.functions import F
from graphfw.ir.op import ELEMENTWISE, RANDOM, Op
from graphfw.ir.shape import permuted, size_of
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import Shape
from graphfw.ops.batching import changed
from graphfw.ops.control.checkpoint_ops import Barrier
from graphfw.ops.nn.channels_last import PixelConv, PixelConvWeight, channels_second, pixels_last
from graphfw.ops.nn.convolution_ops import Conv, ConvWeight, Correlation
from graphfw.ops.nn.pooling_ops import (
    Padded,
    WindowArgmax,
    WindowMax,
    WindowPut,
    WindowSum,
    WindowTake,
)
from graphfw.ops.reduce.reductions import Reduction
from graphfw.ops.shape.concat import Concat, Split
from graphfw.ops.shape.flip_roll import Flip
from graphfw.ops.shape.gather_scatter import Slice, SliceSet
from graphfw.ops.shape.movement import BroadcastTo, PermuteDims
from graphfw.runtime.cupy_executor.convolution.codes import RANK
from graphfw.runtime.cupy_executor.convolution.common import engine_of, is_depthwise

CHANNELS = 1
"""The index of the channels' axis."""

_WINDOWED = (WindowArgmax, WindowMax, WindowPut, WindowSum, WindowTake)

_EVEN = 8
"""Weights of one element are matrices for cuBLASLt where these have so many rows and columns, or a
multiple: 16 bytes can be read at once then."""


def keeps_order(shape: Shape, axes: Sequence[int]) -> bool:
    """Return whether elements keep their order where dims are put in another one."""
    moved = [axis for axis in axes if shape[axis] != 1]
    return moved == sorted(moved)


def moves(shape: Shape) -> bool:
    """Return whether the elements of an image have another order if it is channels-last."""
    return len(shape) > 2 and not keeps_order(shape, pixels_last(len(shape)))


def permuted_as_needed(tensor: Tensor, axes: Sequence[int]) -> Tensor:
    """Return a tensor with its dims in another order, by the cheapest op."""
    if isinstance(tensor.node.op, PermuteDims):
        axes = [tensor.node.op.axes[axis] for axis in axes]
        (tensor,) = tensor.node.inputs
    if [*axes] == [*range(tensor.ndim)]:
        return tensor
    if keeps_order(tensor.shape, axes):
        return F.reshape(tensor, permuted(tensor.shape, axes))
    array = constant_array(tensor)
    if array is not None:
        return constant(array.transpose(axes))
    return F.permute_dims(tensor, tuple(axes))


def by_pixel(tensor: Tensor, rank: int) -> Tensor:
    """Return a tensor that broadcasts with channels-last images as `tensor` does with images."""
    if tensor.ndim == 0:
        return tensor
    whole = (1,) * (rank - tensor.ndim) + tensor.shape
    if tensor.ndim < rank:
        tensor = F.reshape(tensor, whole)
    return permuted_as_needed(tensor, pixels_last(rank))


class ChannelsLastForm(NamedTuple):
    """A node that also works on channels-last images.

    Attributes:
        rank: The number of dims of images.
        images: The indices of its inputs that are images; the others are not permuted.
        makes: Whether its outputs are images; else they are not permuted.
        make: The function from inputs to outputs.
    """

    rank: int
    images: tuple[int, ...]
    makes: bool
    make: Callable[[Sequence[Tensor]], tuple[Tensor, ...]]


def channels_last_form(node: Node) -> ChannelsLastForm | None:
    """Return the channels-last form of a node; None if it has none."""
    op = node.op
    if ELEMENTWISE in op.traits and RANDOM not in op.traits:
        return _elementwise(node)
    if isinstance(op, Correlation):
        return _convolution(node, op) if is_asked(node) else None
    if isinstance(op, Reduction):
        return _reduction(node, op)
    if isinstance(op, Padded):
        return _windows(node, op)
    if isinstance(op, BroadcastTo):
        return _broadcast(node, op)
    return _barrier(node, op) if isinstance(op, Barrier) else _renamed(node)


def is_asked(node: Node) -> bool:
    """Return whether a node is a convolution of 16-bit floats that cuDNN may compute."""
    op = node.op
    if not isinstance(op, Conv | ConvWeight) or not node.types[0].dtype.is_low_precision:
        return False
    assert isinstance(op, Correlation)
    weights = node.types[0] if isinstance(op, ConvWeight) else node.inputs[1].type
    if engine_of(node, "highest") is None or is_depthwise(op, *weights.shape[:2]):
        return False
    is_plain = all([spread == 1 for spread in op.input_dilations])
    return is_plain or (isinstance(op, Conv) and all([stride == 1 for stride in op.strides]))


def _elementwise(node: Node) -> ChannelsLastForm | None:
    shape = node.types[0].shape
    if not moves(shape):
        return None
    rank = len(shape)
    images = tuple([n for n, t in enumerate(node.inputs) if t.ndim == rank and moves(t.shape)])

    def make(inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        operands = [t if n in images else by_pixel(t, rank) for n, t in enumerate(inputs)]
        return emit_all(node.op, *operands)

    return ChannelsLastForm(rank, images, True, make)


def _broadcast(node: Node, op: BroadcastTo) -> ChannelsLastForm | None:
    (x,), rank = node.inputs, len(op.dims)
    if not moves(op.dims):
        return None
    is_image = x.ndim == rank and moves(x.shape)
    dims = permuted(op.dims, pixels_last(rank))

    def make(inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        x = inputs[0] if is_image else by_pixel(inputs[0], rank)
        return emit_all(BroadcastTo(dims), x)

    return ChannelsLastForm(rank, (0,) if is_image else (), True, make)


def _convolution(node: Node, op: Correlation) -> ChannelsLastForm:
    rank, is_product = len(op.output_sizes) + 2, is_matrix_product(node)

    def conv(inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        x, weight = inputs
        if is_product:
            matrix = F.permute_dims(F.reshape(weight, weight.shape[:2]), (1, 0))
            return (F.matmul(x, matrix),)
        return emit_all(PixelConv(*op.values), x, permuted_as_needed(weight, pixels_last(rank)))

    def conv_weight(inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        x, y = inputs
        shape = node.types[0].shape
        if is_product:
            rows, columns = [F.reshape(t, (size_of(t.shape[:-1]), t.shape[-1])) for t in (y, x)]
            return (F.reshape(F.matmul(F.permute_dims(rows, (1, 0)), columns), shape),)
        made = emit(PixelConvWeight(*op.values), x, y)
        return (permuted_as_needed(made, channels_second(rank)),)

    if isinstance(op, ConvWeight):
        return ChannelsLastForm(rank, (0, 1), False, conv_weight)
    return ChannelsLastForm(rank, (0,), True, conv)


def is_matrix_product(node: Node) -> bool:
    """Return whether a convolution is a product of all pixels and a matrix, or its gradient."""
    op = node.op
    assert isinstance(op, Correlation)
    weights = (node.inputs[1] if isinstance(op, Conv) else node.types[0]).shape
    steps = (*op.strides, *op.input_dilations, *weights[2:], op.groups)
    if any([step != 1 for step in steps]) or any([start != 0 for start in op.before]):
        return False
    output_sizes = op.output_sizes if isinstance(op, Conv) else node.inputs[1].shape[2:]
    is_even = all([isinstance(n, int) and n % _EVEN == 0 for n in weights[:2]])
    return is_even and output_sizes == node.inputs[0].shape[2:]


def _reduction(node: Node, op: Reduction) -> ChannelsLastForm | None:
    (x,) = node.inputs
    if not moves(x.shape):
        return None
    order = pixels_last(x.ndim)
    axes = tuple(sorted([order.index(axis) for axis in op.axes]))
    kept = [axis for axis in order if axis not in op.axes and x.shape[axis] != 1]
    if kept != sorted(kept):
        return None  # its result would change layout back

    def make(inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        made = emit(changed(op, axes=axes), *inputs)
        return (F.reshape(made, node.types[0].shape),)

    return ChannelsLastForm(x.ndim, (0,), False, make)


def _windows(node: Node, op: Padded) -> ChannelsLastForm | None:
    """Return the windows over channels-last images: the channels are one more dim, of one tap.

    Taps keep their numbers.
    """
    shapes, spatial = _shapes(node), len(op.window)
    is_over_images = all([len(shape) == spatial + 2 for shape in shapes])
    is_known = isinstance(op, _WINDOWED) and spatial < RANK
    if not (is_known and is_over_images and any(map(moves, shapes))):
        return None
    fields: dict[str, Any] = {
        **{name: (*getattr(op, name), 1) for name in ("window", "strides", "dilations")},
        **{name: (*getattr(op, name), 0) for name in ("before", "after")},
    }
    if isinstance(op, WindowPut):
        fields["dims"] = (*op.dims, shapes[0][CHANNELS])
    return _whole(node, changed(op, **fields))


def _renamed(node: Node) -> ChannelsLastForm | None:
    """Return the channels-last form of ops that have axes, or a field for each axis."""
    op, shapes = node.op, _shapes(node)
    rank = len(shapes[0]) if shapes else 0
    if any([len(shape) != rank for shape in shapes]) or not any(map(moves, shapes)):
        return None
    order = pixels_last(rank)
    if isinstance(op, Concat | Split):
        return _whole(node, changed(op, axis=order.index(op.axis)))
    if isinstance(op, Flip):
        return _whole(node, changed(op, axes=tuple(sorted(map(order.index, op.axes)))))
    if isinstance(op, Slice | SliceSet):
        names = ("starts", "lengths", "steps")
        return _whole(node, changed(op, **{n: permuted(getattr(op, n), order) for n in names}))
    return None


def _barrier(node: Node, op: Barrier) -> ChannelsLastForm | None:
    """Return the channels-last form of a barrier; tensors that it waits for may have any layout."""
    rank, images = node.types[0].ndim, tuple(range(op.count))
    if any([kind.ndim != rank or not moves(kind.shape) for kind in node.types]):
        return None
    return ChannelsLastForm(rank, images, True, lambda inputs: emit_all(op, *inputs))


def _shapes(node: Node) -> list[Shape]:
    return [*[tensor.shape for tensor in node.inputs], *[kind.shape for kind in node.types]]


def _whole(node: Node, op: Op) -> ChannelsLastForm:
    """Return the channels-last form of a node all of whose inputs and outputs are images."""
    every = tuple(range(len(node.inputs)))
    return ChannelsLastForm(node.types[0].ndim, every, True, lambda inputs: emit_all(op, *inputs))
