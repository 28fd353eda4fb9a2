"""The ops that have native code of their own for GPUs, by class."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.linalg.fused_matmul import FusedProduct
from graphfw.ops.linalg.products import MatMul
from graphfw.ops.nn.attention_backward import AttentionBackward
from graphfw.ops.nn.attention_ops import Attention, AttentionGrad
from graphfw.ops.nn.channels_last import PixelConv, PixelConvWeight
from graphfw.ops.nn.convolution_ops import Conv, ConvWeight
from graphfw.ops.nn.pooling_ops import (
    WindowArgmax,
    WindowMax,
    WindowPut,
    WindowSum,
    WindowTake,
)
from graphfw.ops.nn.unfold import Fold
from graphfw.ops.nn.unpooling import MaxUnpool
from graphfw.ops.reduce.cumulative import CumulativeProd, CumulativeSum, Recurrence
from graphfw.ops.shape.concat import Concat
from graphfw.ops.shape.flip_roll import Roll
from graphfw.ops.shape.gather_scatter import IndexAdd, IndexSet, Slice, SliceSet
from graphfw.runtime.cupy_executor import attention, convolution
from graphfw.runtime.cupy_executor.convolution import Numerics
from graphfw.runtime.cupy_executor.products import fused_product_steps, product_steps
from graphfw.runtime.cupy_executor.special.moves import move_steps
from graphfw.runtime.cupy_executor.special.scans import scan_steps
from graphfw.runtime.cupy_executor.special.scatter import scatter_steps
from graphfw.runtime.kernels.lowerings import lowers, multiplies
from graphfw.runtime.kernels.steps import Product, Step, View
from graphfw.runtime.limits import Precision


class GpuSettings(NamedTuple):
    """How lowerings are to compute.

    Attributes:
        precision: See `Options`.
        cudnn: What cuDNN may compute convolutions by; None where it is not asked.
        read: What nodes read, where cuDNN is asked for attention; None where it is not.
    """

    precision: Precision
    cudnn: Numerics | None = None
    read: Collection[Tensor] | None = None


# Copies, scatters and scans.


@lowers(Concat, Roll, Slice, SliceSet, target="cupy", fills=True)
def _copies(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], settings: GpuSettings
) -> Sequence[Step]:
    return move_steps(node, inputs, outputs, settings.precision)


@lowers(IndexAdd, IndexSet, MaxUnpool, target="cupy")
def _scatters(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], settings: GpuSettings
) -> Sequence[Step]:
    return scatter_steps(node, inputs, outputs, settings.precision)


@lowers(CumulativeSum, CumulativeProd, Recurrence, target="cupy")
def _scans(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], settings: GpuSettings
) -> Sequence[Step]:
    return scan_steps(node, inputs, outputs, settings.precision)


# Matrix products: cuBLASLt's. Their steps return none where a result does not fill a view.


@lowers(MatMul, target="cupy", fills=True)
def _matrix_product(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], settings: GpuSettings
) -> Sequence[Step]:
    return product_steps(node, inputs, outputs, settings.precision)


@lowers(FusedProduct, target="cupy", fills=True)
def _fused_matrix_product(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], settings: GpuSettings
) -> Sequence[Step]:
    return fused_product_steps(node, inputs, outputs, settings.precision)


# Attention.


@lowers(Attention, target="cupy")
def _attention(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], settings: GpuSettings
) -> Sequence[Step]:
    return attention.attention_steps(node, inputs, outputs, settings.precision, read=settings.read)


@lowers(AttentionBackward, target="cupy")
def _attention_backward(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], settings: GpuSettings
) -> Sequence[Step]:
    return attention.attention_backward_steps(
        node, inputs, outputs, settings.precision, read=settings.read
    )


@lowers(AttentionGrad, target="cupy")
def _attention_grad(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], settings: GpuSettings
) -> Sequence[Step]:
    return attention.attention_grad_steps(node, inputs, outputs, settings.precision)


# Pooling.


@lowers(WindowArgmax, WindowMax, WindowSum, target="cupy")
def _pools(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], settings: GpuSettings
) -> Sequence[Step]:
    return convolution.pool_steps(node, inputs, outputs, settings.precision)


@lowers(WindowTake, target="cupy")
def _takes(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], settings: GpuSettings
) -> Sequence[Step]:
    return convolution.take_steps(node, inputs, outputs, settings.precision)


@lowers(WindowPut, target="cupy")
def _puts(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], settings: GpuSettings
) -> Sequence[Step]:
    return convolution.put_steps(node, inputs, outputs, settings.precision)


@lowers(Fold, target="cupy")
def _folds(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], settings: GpuSettings
) -> Sequence[Step]:
    return convolution.fold_steps(node, inputs, outputs, settings.precision)


# Convolution.


@lowers(Conv, PixelConv, target="cupy")
def _convolution(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], settings: GpuSettings
) -> Sequence[Step]:
    steps = convolution.conv_steps(node, inputs, outputs, settings.precision)
    return _by_cudnn(node, inputs, outputs, settings, steps)


@lowers(ConvWeight, PixelConvWeight, target="cupy")
def _convolution_gradient(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], settings: GpuSettings
) -> Sequence[Step]:
    steps = convolution.conv_weight_steps(node, inputs, outputs, settings.precision)
    return _by_cudnn(node, inputs, outputs, settings, steps)


def _by_cudnn(
    node: Node,
    inputs: Sequence[View],
    outputs: Sequence[View],
    settings: GpuSettings,
    steps: Sequence[Step],
) -> Sequence[Step]:
    if settings.cudnn is None:
        return steps
    storage = outputs[0].storage
    return convolution.with_cudnn(node, (node,), inputs, storage, None, settings.cudnn, steps)


def _is_convolution(node: Node, settings: GpuSettings) -> bool:
    return convolution.is_native(node)


@multiplies(Conv, PixelConv, target="cupy", when=_is_convolution)
def _fused_convolution(product: Product, settings: GpuSettings) -> Sequence[Step]:
    steps = convolution.fused_conv_steps(*product[:6], settings.precision)
    if settings.cudnn is None:
        return steps
    node, nodes, x, weight, result, epilogue, *_ = product
    return convolution.with_cudnn(node, nodes, (x, weight), result, epilogue, settings.cudnn, steps)
