"""Blocks that several models of images are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias, cast

from graphfw import nn
from graphfw.errors import a_type
from graphfw.ir.functions import CALLED as F
from graphfw.ir.tensor import Tensor
from graphfw.nn.activations import ActivationOption, activated, activation_text, checked_activation
from graphfw.nn.checks import checked_size
from graphfw.ops.args import TensorLike, as_tensor
from graphfw.ops.composed import callback, demand, demand_probability

NormLayer: TypeAlias = Callable[[int], nn.Module]
"""A function from a number of channels to a layer that normalises [N, channels, H, W]."""

SLOW_BATCH_NORM = partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)
"""A batch norm whose running statistics change slowly."""

ACTIVATIONS = ("relu", "relu6", "silu", "hardswish", "gelu")

_CONV_INIT = nn.init.he_normal(mode="fan_out", in_axis=1, out_axis=0)
"""The initial weights of convolutions, after K. He et al., "Delving deep into rectifiers", 2015."""


def padded_conv(
    in_channels: int, out_channels: int, kernel_size: int, stride: int = 1, groups: int = 1
) -> nn.Conv2d:
    """Return a convolution without bias that keeps the size where the stride is 1."""
    return nn.Conv2d(
        in_channels,
        out_channels,
        kernel_size,
        stride,
        padding=kernel_size // 2,
        groups=groups,
        bias=False,
        weight_init=_CONV_INIT,
    )


def checked_norm(layer: str, norm_layer: NormLayer) -> NormLayer:
    """Return a function that makes norms, with clear errors where the user's can't.

    Raises:
        ArgumentError: It is no function; when called: it returns no layer.
        CallError: When called: it does not take a number of channels.
    """
    make = callback(layer, "norm_layer", norm_layer, "norm_layer(channels)")

    def made(channels: int) -> nn.Module:
        norm = make(channels)
        message = f"{layer}: norm_layer returns {a_type(norm)}, which is no layer"
        demand(isinstance(norm, nn.Module), message, fix="use norm_layer=gf.nn.BatchNorm2d")
        return cast(nn.Module, norm)

    return made


class ConvNormActivation(nn.Sequential):
    """A convolution without bias, a norm, and an activation.  x: [N, C, H, W] -> [N, O, H', W']

    The image is padded so that a stride of 1 keeps its size. State dicts of torchvision's
    `Conv2dNormActivation` can be loaded.

    Args:
        in_channels: The number of channels of x, C.
        out_channels: The number of channels of the result, O.
        kernel_size: The kernel's size, an odd number.
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
        norm = checked_norm(layer, norm_layer)
        size = checked_size(layer, "kernel_size", kernel_size)
        message = f"{layer}: kernel_size={size} is even, and has no element in its centre"
        demand(size % 2 == 1, message, fix=f"use kernel_size={size + 1}")
        if activation is not None:
            activation = checked_activation(layer, "activation", activation, ACTIVATIONS)
        conv = padded_conv(in_channels, out_channels, size, stride, groups)
        super().__init__(conv, norm(conv.out_channels), name=name)
        self.activation = activation

    def forward(self, x: TensorLike) -> Tensor:
        """Convolve, normalise and activate.  x: [N, C, H, W] -> [N, O, H', W']"""
        y: Tensor = self[1](self[0](x))  # an activation that is a layer is the third
        return y if self.activation is None else activated(self.activation, y)

    def extra_repr(self) -> str:
        """Return the text of the activation."""
        shown = None if self.activation is None else activation_text(self.activation)
        return f"activation={shown}"


class InvertedResidual(nn.Module):
    """More channels, a depthwise convolution, and fewer channels.  [N, C, H, W] -> [N, O, H', W']

    x is added to the result where sizes are equal. M. Sandler et al., "MobileNetV2: inverted
    residuals and linear bottlenecks", 2018; with `SqueezeExcite` it is the block of MobileNetV3
    and EfficientNet.

    Args:
        in_channels: The number of channels of x, C.
        expanded_channels: The number of channels of the depthwise convolution. Where it is C, the
            first convolution is left out.
        out_channels: The number of channels of the result, O.
        kernel_size: The kernel's size of the depthwise convolution, an odd number.
        stride: Its stride.
        activation: As `ConvNormActivation`; the last convolution has none.
        squeeze_excite: A layer after the depthwise convolution, such as
            `SqueezeExcite(expanded_channels, 8)`.
        drop_path: In training, the probability of leaving out the change to x.
        norm_layer: A function from the number of channels to a layer.
        name: See `Module`.

    Attributes:
        block: The layers, a `Sequential`.

    Raises:
        ArgumentError: A size is no int or below 1, kernel_size is even, drop_path is outside
            [0, 1), or activation or norm_layer is no function.
        ShapeError: In a call: x has other dims or channels.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     block = gf.models.InvertedResidual(16, 96, 24, stride=2)
    ...     block(gf.placeholder(("batch", 16, 32, 32))).shape
    (batch, 24, 16, 16)
    """

    def __init__(
        self,
        in_channels: int,
        expanded_channels: int,
        out_channels: int,
        kernel_size: int = 3,
        stride: int = 1,
        activation: ActivationOption = "relu6",
        squeeze_excite: nn.Module | None = None,
        drop_path: float = 0.0,
        norm_layer: NormLayer = nn.BatchNorm2d,
        *,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        layer = "InvertedResidual"
        expanded = checked_size(layer, "expanded_channels", expanded_channels)
        demand_probability(layer, "drop_path", drop_path)
        self.is_residual = stride == 1 and in_channels == out_channels
        self.block = nn.Sequential()
        if in_channels != expanded:
            first = ConvNormActivation(
                in_channels, expanded, 1, activation=activation, norm_layer=norm_layer
            )
            self.block.append(first)
        depthwise = ConvNormActivation(
            expanded, expanded, kernel_size, stride, expanded, activation, norm_layer
        )
        self.block.append(depthwise)
        if squeeze_excite is not None:
            message = f"{layer}: squeeze_excite={squeeze_excite!r} is no layer"
            fix = f"use squeeze_excite=gf.nn.SqueezeExcite({expanded}, {max(1, expanded // 4)})"
            demand(isinstance(squeeze_excite, nn.Module), message, fix=fix)
            self.block.append(squeeze_excite)
        last = ConvNormActivation(expanded, out_channels, 1, activation=None, norm_layer=norm_layer)
        self.block.append(last)
        self.drop_path = nn.DropPath(drop_path)

    def forward(self, x: TensorLike) -> Tensor:
        """Convolve and add.  x: [N, C, H, W] -> [N, O, H', W']"""
        tensor = as_tensor(x)
        y: Tensor = self.block(tensor)
        return tensor + self.drop_path(y) if self.is_residual else y


def pooled(x: Tensor) -> Tensor:
    """Return the means over the positions of images.  x: [N, C, H, W] -> [N, C]"""
    result: Tensor = F.mean(x, axis=(2, 3))
    return result


class ClassifiedFeatures(nn.Module):
    """The base of several models: features of images, their means, and a classifier."""

    features: nn.Sequential
    classifier: nn.Sequential

    def forward(self, x: TensorLike) -> Tensor:
        """Compute logits.  x: [N, in_channels, H, W] -> [N, num_classes]"""
        result: Tensor = self.classifier(pooled(self.features(x)))
        return result


def rounded_channels(channels: float) -> int:
    """Return a multiple of 8 near a number of channels, and no less than 90 % of it."""
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest if nearest >= 0.9 * channels else nearest + 8


def checked_factor(layer: str, what: str, value: Any) -> float:
    """Return a positive factor as a float.

    Raises:
        ArgumentError: It is no positive number.
    """
    message = f"{layer}: {what}={value!r} is no positive number"
    fits = isinstance(value, int | float) and 0 < value < float("inf")
    demand(fits, message, fix=f"use {what}=1.0")
    return float(value)


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
