"""`ResNet`: residual networks, and their two blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from graphfw import nn
from graphfw.errors import a_type
from graphfw.hints.calls import explained
from graphfw.ir.functions import CALLED as F
from graphfw.ir.tensor import Tensor
from graphfw.models.blocks import (
    ConvNormActivation,
    NormLayer,
    checked_norm,
    padded_conv,
    pooled,
    sizes,
)
from graphfw.nn.checks import checked_size
from graphfw.ops.args import TensorLike, as_tensor
from graphfw.ops.composed import callback, demand


class _Residual(nn.Module):
    """The base of both blocks: adds x to their results, by a convolution if sizes differ."""

    out_channels: int
    downsample: ConvNormActivation | None

    def _shortcut(self, in_channels: int, stride: int, norm: NormLayer) -> None:
        """Make the convolution that brings x to the size of the result, where the two differ."""
        if stride == 1 and in_channels == self.out_channels:
            self.downsample = None
            return
        self.downsample = ConvNormActivation(
            in_channels, self.out_channels, 1, stride, activation=None, norm_layer=norm
        )

    def _added(self, x: Tensor, change: Tensor) -> Tensor:
        """Return the activated sum.  [N, C, H, W] and [N, O, H', W'] -> [N, O, H', W']"""
        result: Tensor = F.relu((x if self.downsample is None else self.downsample(x)) + change)
        return result


class BasicBlock(_Residual):
    """Two convolutions of 3 × 3, and a sum.  x: [N, C, H, W] -> [N, channels, H', W']

    K. He et al., "Deep residual learning for image recognition", 2016.

    Args:
        in_channels: The number of channels of x, C.
        channels: The number of channels of the result.
        stride: The stride of the first convolution: 2 halves height and width.
        norm_layer: A function from the number of channels to a layer.
        name: See `Module`.

    Attributes:
        out_channels: The number of channels of the result.

    Raises:
        ArgumentError: A size is no int or below 1, or norm_layer is no function.
        ShapeError: In a call: x has other dims or channels.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     block = gf.models.BasicBlock(16, 32, stride=2)
    ...     block(gf.placeholder(("batch", 16, 8, 8))).shape
    (batch, 32, 4, 4)
    """

    def __init__(
        self,
        in_channels: int,
        channels: int,
        stride: int = 1,
        *,
        norm_layer: NormLayer = nn.BatchNorm2d,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        norm = checked_norm("BasicBlock", norm_layer)
        self.out_channels = checked_size("BasicBlock", "channels", channels)
        self.conv1 = padded_conv(in_channels, channels, 3, stride)
        self.bn1 = norm(channels)
        self.conv2 = padded_conv(channels, channels, 3)
        self.bn2 = norm(channels)
        self._shortcut(in_channels, stride, norm)

    def forward(self, x: TensorLike) -> Tensor:
        """Convolve twice and add.  x: [N, C, H, W] -> [N, channels, H', W']"""
        tensor = as_tensor(x)
        y = F.relu(self.bn1(self.conv1(tensor)))
        return self._added(tensor, self.bn2(self.conv2(y)))


class Bottleneck(_Residual):
    """Convolutions to fewer channels, of 3 × 3, and to more, and a sum.

    x: [N, C, H, W] -> [N, 4 * channels, H', W']. K. He et al., "Deep residual learning for image
    recognition", 2016; the stride is that of the convolution of 3 × 3, as in torchvision. With
    groups it is the block of ResNeXt (S. Xie et al., 2017), with more than 64 as `width_per_group`
    that of wide residual networks (S. Zagoruyko, N. Komodakis, 2016).

    Args:
        in_channels: The number of channels of x, C.
        channels: A quarter of the number of channels of the result.
        stride: The stride of the second convolution: 2 halves height and width.
        groups: The number of groups of the second convolution.
        width_per_group: The number of channels of a group, where `channels` is 64.
        norm_layer: A function from the number of channels to a layer.
        name: See `Module`.

    Attributes:
        out_channels: The number of channels of the result.

    Raises:
        ArgumentError: A size is no int or below 1, or norm_layer is no function.
        ShapeError: In a call: x has other dims or channels.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     block = gf.models.Bottleneck(64, 16)
    ...     block(gf.placeholder(("batch", 64, 8, 8))).shape
    (batch, 64, 8, 8)
    """

    def __init__(
        self,
        in_channels: int,
        channels: int,
        stride: int = 1,
        *,
        groups: int = 1,
        width_per_group: int = 64,
        norm_layer: NormLayer = nn.BatchNorm2d,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        layer = "Bottleneck"
        norm = checked_norm(layer, norm_layer)
        per_group = checked_size(layer, "width_per_group", width_per_group)
        count = checked_size(layer, "groups", groups)
        width = checked_size(layer, "channels", channels) * per_group // 64 * count
        message = f"{layer}: channels={channels} with width_per_group={per_group} leave no channels"
        demand(width >= 1, message, fix=f"use width_per_group={-(-64 // channels)}")
        self.out_channels = 4 * channels
        self.conv1 = padded_conv(in_channels, width, 1)
        self.bn1 = norm(width)
        self.conv2 = padded_conv(width, width, 3, stride, count)
        self.bn2 = norm(width)
        self.conv3 = padded_conv(width, self.out_channels, 1)
        self.bn3 = norm(self.out_channels)
        self._shortcut(in_channels, stride, norm)

    def forward(self, x: TensorLike) -> Tensor:
        """Convolve three times and add.  x: [N, C, H, W] -> [N, 4 * channels, H', W']"""
        tensor = as_tensor(x)
        y = F.relu(self.bn1(self.conv1(tensor)))
        y = F.relu(self.bn2(self.conv2(y)))
        return self._added(tensor, self.bn3(self.conv3(y)))


Block: TypeAlias = Callable[..., Any]
"""A function that makes a block, a layer with the attribute `out_channels`."""


_CALL = "block(in_channels, channels, stride, norm_layer=norm_layer)"


class ResNet(nn.Module):
    """A residual network that classifies images.  [N, in_channels, H, W] -> [N, num_classes]

    K. He et al., "Deep residual learning for image recognition", 2016. State dicts of torchvision's
    `ResNet` can be loaded.

    For images as small as 32 × 32 it is usual to replace two layers:
    `model.conv1 = gf.nn.Conv2d(3, 64, 3, padding=1, bias=False)` and
    `model.maxpool = gf.nn.Identity()`.

    Args:
        block: `BasicBlock`, `Bottleneck`, or a function that makes such a layer, which has
            `out_channels`: `functools.partial(Bottleneck, groups=32, width_per_group=4)` for a
            ResNeXt. It is called as `block(in_channels, channels, stride, norm_layer=norm_layer)`.
        layers: The number of blocks in each of the four stages.
        num_classes: The number of logits.
        in_channels: The number of channels of x.
        base_channels: The `channels` of the blocks of the first stage; each stage doubles them.
        norm_layer: A function from the number of channels to a layer.
        name: See `Module`.

    Attributes:
        conv1, bn1, maxpool: The layers before the stages.
        layer1, layer2, layer3, layer4: The stages, `Sequential` of blocks.
        fc: The `Linear` layer for logits.

    Raises:
        ArgumentError: A size is no int or below 1, layers are not four, or block or norm_layer is
            no function.
        ShapeError: In a call: x has other dims or channels.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     model = gf.models.ResNet(gf.models.BasicBlock, (1, 1, 1, 1), 10, base_channels=8)
    ...     model(gf.placeholder(("batch", 3, 64, 64))).shape
    (batch, 10)
    """

    def __init__(
        self,
        block: Block,
        layers: Sequence[int],
        num_classes: int = 1000,
        in_channels: int = 3,
        *,
        base_channels: int = 64,
        norm_layer: NormLayer = nn.BatchNorm2d,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        make = callback("ResNet", "block", block, _CALL)
        norm = checked_norm("ResNet", norm_layer)
        counts = sizes("ResNet", "layers", layers, 4)
        channels = checked_size("ResNet", "base_channels", base_channels)
        self.conv1 = padded_conv(in_channels, channels, 7, 2)
        self.bn1 = norm(channels)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        width = channels
        for stage, count in enumerate(counts):
            blocks = nn.Sequential()
            for number in range(count):
                stride = 2 if stage and not number else 1
                made = make(width, channels << stage, stride, norm_layer=norm_layer)
                message = f"ResNet: block returns {a_type(made)}, which has no out_channels"
                is_block = hasattr(made, "out_channels")
                demand(is_block, message, fix="use gf.models.BasicBlock")
                width = made.out_channels
                blocks.append(made)
            self.add_module(f"layer{stage + 1}", blocks)
        self.fc = nn.Linear(width, checked_size("ResNet", "num_classes", num_classes))

    layer1: nn.Sequential
    layer2: nn.Sequential
    layer3: nn.Sequential
    layer4: nn.Sequential

    def forward(self, x: TensorLike) -> Tensor:
        """Compute logits.  x: [N, in_channels, H, W] -> [N, num_classes]"""
        y = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            y = stage(y)
        result: Tensor = self.fc(pooled(y))
        return result


@explained
def resnet18(num_classes: int = 1000, in_channels: int = 3, *, name: str | None = None) -> ResNet:
    """Return a `ResNet` of 18 layers, with `BasicBlock`."""
    return ResNet(BasicBlock, (2, 2, 2, 2), num_classes, in_channels, name=name)


@explained
def resnet34(num_classes: int = 1000, in_channels: int = 3, *, name: str | None = None) -> ResNet:
    """Return a `ResNet` of 34 layers, with `BasicBlock`."""
    return ResNet(BasicBlock, (3, 4, 6, 3), num_classes, in_channels, name=name)


@explained
def resnet50(num_classes: int = 1000, in_channels: int = 3, *, name: str | None = None) -> ResNet:
    """Return a `ResNet` of 50 layers, with `Bottleneck`."""
    return ResNet(Bottleneck, (3, 4, 6, 3), num_classes, in_channels, name=name)


@explained
def resnet101(num_classes: int = 1000, in_channels: int = 3, *, name: str | None = None) -> ResNet:
    """Return a `ResNet` of 101 layers, with `Bottleneck`."""
    return ResNet(Bottleneck, (3, 4, 23, 3), num_classes, in_channels, name=name)


@explained
def resnet152(num_classes: int = 1000, in_channels: int = 3, *, name: str | None = None) -> ResNet:
    """Return a `ResNet` of 152 layers, with `Bottleneck`."""
    return ResNet(Bottleneck, (3, 8, 36, 3), num_classes, in_channels, name=name)
