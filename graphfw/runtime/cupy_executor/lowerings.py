"""The ops that have native code of their own for GPUs, by class."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, TypeAlias

from graphfw.ir.op import Op
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
from graphfw.ops.nn.unfold import FoldWindows
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
    """The settings of lowerings.

    Attributes:
        precision: See `Options`.
        cudnn: What cuDNN may compute convolutions by; None where it is not asked.
        read: What nodes read, where cuDNN is asked for attention; None where it is not.
    """

    precision: Precision
    cudnn: Numerics | None = None
    read: Collection[Tensor] | None = None


ViewSteps: TypeAlias = Callable[[Node, Sequence[View], Sequence[View], Precision], Sequence[Step]]


def _register(*ops: type[Op], steps: ViewSteps, fills: bool = False) -> None:
    """Register a function that asks for no settings but the precision."""

    def lowering(
        node: Node, inputs: Sequence[View], outputs: Sequence[View], settings: GpuSettings
    ) -> Sequence[Step]:
        return steps(node, inputs, outputs, settings.precision)

    lowers(*ops, target="cupy", fills=fills)(lowering)


_register(Concat, Roll, Slice, SliceSet, steps=move_steps, fills=True)
_register(IndexAdd, IndexSet, MaxUnpool, steps=scatter_steps)
_register(CumulativeSum, CumulativeProd, Recurrence, steps=scan_steps)
_register(WindowArgmax, WindowMax, WindowSum, steps=convolution.pool_steps)
_register(WindowPut, WindowTake, steps=convolution.choice_steps)
_register(FoldWindows, steps=convolution.fold_steps)
_register(AttentionGrad, steps=attention.attention_grad_steps)

# cuBLASLt's products; their steps return none where a result does not fill a view.
_register(MatMul, steps=product_steps, fills=True)
_register(FusedProduct, steps=fused_product_steps, fills=True)


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
