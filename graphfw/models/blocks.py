"""Blocks that several models of images are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from graphfw import nn
from graphfw.ir.functions import CALLED as F
from graphfw.ir.tensor import Tensor
from graphfw.nn.activations import ActivationOption, activated, activation_text, checked_activation
from graphfw.nn.checks import checked_size
from graphfw.ops.args import TensorLike
from graphfw.ops.composed import callback, demand

NormLayer: TypeAlias = Callable[[int], nn.Module]
"""A function from a number of channels to a layer that normalises [N, channels, H, W]."""

ACTIVATIONS = ("relu", "relu6", "silu", "hardswish", "gelu")

CONV_INIT = nn.init.he_normal(mode="fan_out", in_axis=1, out_axis=0)
"""Initial kernels, after K. He et al., "Delving deep into rectifiers", 2015."""


class ConvNormActivation(nn.Sequential):
    """A convolution without bias, a norm, and an activation.  x: [N, C, H, W] -> [N, O, H', W']

    The image is padded so that a stride of 1 keeps its size. State dicts of torchvision's
    `Conv2dNormActivation` can be loaded.

    Args:
        in_channels: The number of channels of x, C.
        out_channels: The number of channels of the result, O.
        kernel_size: The size of the kernel, an odd number.
        stride: The stride.
        groups: The number of groups of channels.
        activation: "relu", "relu6", "silu", "hardswish", "gelu", a function or layer; None for
            none.
        norm_layer: A function from the number of channels to a layer.
        name: See `Module`.

    Raises:
        ArgumentError: A size is no int or below 1, kernel_size is even, channels are no multiple of
            groups, or activation or norm_layer is no function.
        ShapeError: In a call: x has other dims or channels.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     block = gf.models.ConvNormActivation(3, 16, stride=2)
    ...     block(gf.placeholder(("batch", 3, 32, 32))).shape
    (batch, 16, 16, 16)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int = 3,
        stride: int = 1,
        groups: int = 1,
        activation: ActivationOption | None = "relu",
        norm_layer: NormLayer = nn.BatchNorm2d,
        *,
        name: str | None = None,
    ) -> None:
        layer = "ConvNormActivation"
        callback(layer, "norm_layer", norm_layer, "norm_layer(channels)")
        size = checked_size(layer, "kernel_size", kernel_size)
        message = f"{layer}: kernel_size={size} is even, and has no element in its centre"
        demand(size % 2 == 1, message, fix=f"use kernel_size={size + 1}")
        if activation is not None:
            activation = checked_activation(layer, "activation", activation, ACTIVATIONS)
        conv = nn.Conv2d(
            in_channels,
            out_channels,
            size,
            stride,
            padding=size // 2,
            groups=groups,
            bias=False,
            weight_init=CONV_INIT,
        )
        super().__init__(conv, norm_layer(conv.out_channels), name=name)
        self.activation = activation

    def forward(self, x: TensorLike) -> Tensor:
        """Convolve, normalise and activate.  x: [N, C, H, W] -> [N, O, H', W']"""
        y: Tensor = super().forward(x)
        return y if self.activation is None else activated(self.activation, y)

    def extra_repr(self) -> str:
        """Return the text of the activation."""
        shown = None if self.activation is None else activation_text(self.activation)
        return f"activation={shown}"


def pooled(x: Tensor) -> Tensor:
    """Return the means over the positions of images.  x: [N, C, H, W] -> [N, C]"""
    result: Tensor = F.mean(x, axis=(2, 3))
    return result


def sizes(layer: str, what: str, values: Any, count: int) -> tuple[int, ...]:
    """Return an argument that has one size for each stage of a model.

    Raises:
        ArgumentError: It has another number of them, or one is no int or below 1.
    """
    is_sequence = isinstance(values, Sequence) and not isinstance(values, str)
    example = (2,) * count
    message = f"{layer}: {what}={values!r} is no sequence of {count} numbers"
    demand(is_sequence and len(values) == count, message, fix=f"use {what}={example}")
    return tuple(checked_size(layer, what, value) for value in values)
