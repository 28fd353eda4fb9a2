"""`MobileNetV2` and `MobileNetV3`."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from graphfw import nn
from graphfw.hints.calls import explained
from graphfw.models.blocks import (
    SLOW_BATCH_NORM,
    ClassifiedFeatures,
    ConvNormActivation,
    InvertedResidual,
    NormLayer,
    checked_factor,
    rounded_channels,
)
from graphfw.nn.checks import checked_size
from graphfw.nn.torch_rules import RenamedScopes, TorchRule
from graphfw.ops.composed import demand_one_of, demand_probability

_linear = partial(nn.Linear, weight_init=nn.init.normal(std=0.01), bias_init=nn.init.zeros)

_V2_STAGES = (
    *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
    *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
)
"""Expansion, channels, number of blocks and stride of each stage: table 2 of the paper."""


class MobileNetV2(ClassifiedFeatures):
    """A small network that classifies images.  [N, in_channels, H, W] -> [N, num_classes]

    M. Sandler et al., "MobileNetV2: inverted residuals and linear bottlenecks", 2018. State dicts
    of torchvision's `MobileNetV2` can be loaded.

    Args:
        num_classes: The number of logits.
        in_channels: The number of channels of x.
        width_mult: A factor of all numbers of channels.
        dropout: In training, the probability of leaving out a feature before the classifier.
        norm_layer: A function from the number of channels to a layer.
        name: See `Module`.

    Attributes:
        features: The convolutions and `InvertedResidual` blocks, a `Sequential`.
        classifier: The layers after the means over positions, a `Sequential`.

    Raises:
        ArgumentError: A size is no int or below 1, width_mult is not positive, dropout is outside
            [0, 1), or norm_layer is no function.
        ShapeError: In a call: x has other dims or channels.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     model = gf.models.MobileNetV2(10, width_mult=0.25)
    ...     model(gf.placeholder(("batch", 3, 64, 64))).shape
    (batch, 10)
    """

    def __init__(
        self,
        num_classes: int = 1000,
        in_channels: int = 3,
        width_mult: float = 1.0,
        *,
        dropout: float = 0.2,
        norm_layer: NormLayer = nn.BatchNorm2d,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        classes = checked_size("MobileNetV2", "num_classes", num_classes)
        demand_probability("MobileNetV2", "dropout", dropout)
        factor = checked_factor("MobileNetV2", "width_mult", width_mult)
        conv = partial(ConvNormActivation, activation="relu6", norm_layer=norm_layer)
        width, last = rounded_channels(32 * factor), rounded_channels(1280 * max(1.0, factor))
        self.features = nn.Sequential(conv(in_channels, width, stride=2))
        for expansion, channels, count, first_stride in _V2_STAGES:
            out = rounded_channels(channels * factor)
            for number in range(count):
                stride = 1 if number else first_stride
                sizes = width, width * expansion, out, 3, stride
                self.features.append(InvertedResidual(*sizes, norm_layer=norm_layer))
                width = out
        self.features.append(conv(width, last, 1))
        self.classifier = nn.Sequential(nn.Dropout(dropout), _linear(last, classes))

    def _torch_rules(self) -> list[TorchRule]:
        """Add the scope of the last convolution and its norm, which torchvision's blocks lack."""
        table = {}
        for name, block in self.features.named_children():
            if isinstance(block, InvertedResidual):
                theirs, own = f"features.{name}.conv", f"features.{name}.block"
                last = len(block.block) - 1
                table[theirs] = own
                table |= {f"{theirs}.{last + i}": f"{own}.{last}.{i}" for i in range(2)}
        return [RenamedScopes(table)]


class _Row(NamedTuple):
    """A row of the tables of the paper: an `InvertedResidual` block of MobileNetV3."""

    kernel_size: int
    expanded: int
    out: int
    has_squeeze_excite: bool
    activation: str
    stride: int


_V3_ROWS = {
    "large": (
        _Row(3, 16, 16, False, "relu", 1),
        _Row(3, 64, 24, False, "relu", 2),
        _Row(3, 72, 24, False, "relu", 1),
        _Row(5, 72, 40, True, "relu", 2),
        _Row(5, 120, 40, True, "relu", 1),
        _Row(5, 120, 40, True, "relu", 1),
        _Row(3, 240, 80, False, "hardswish", 2),
        _Row(3, 200, 80, False, "hardswish", 1),
        _Row(3, 184, 80, False, "hardswish", 1),
        _Row(3, 184, 80, False, "hardswish", 1),
        _Row(3, 480, 112, True, "hardswish", 1),
        _Row(3, 672, 112, True, "hardswish", 1),
        _Row(5, 672, 160, True, "hardswish", 2),
        _Row(5, 960, 160, True, "hardswish", 1),
        _Row(5, 960, 160, True, "hardswish", 1),
    ),
    "small": (
        _Row(3, 16, 16, True, "relu", 2),
        _Row(3, 72, 24, False, "relu", 2),
        _Row(3, 88, 24, False, "relu", 1),
        _Row(5, 96, 40, True, "hardswish", 2),
        _Row(5, 240, 40, True, "hardswish", 1),
        _Row(5, 240, 40, True, "hardswish", 1),
        _Row(5, 120, 48, True, "hardswish", 1),
        _Row(5, 144, 48, True, "hardswish", 1),
        _Row(5, 288, 96, True, "hardswish", 2),
        _Row(5, 576, 96, True, "hardswish", 1),
        _Row(5, 576, 96, True, "hardswish", 1),
    ),
}
_V3_HIDDEN = {"large": 1280, "small": 1024}


class MobileNetV3(ClassifiedFeatures):
    """A small network that classifies images.  [N, in_channels, H, W] -> [N, num_classes]

    A. Howard et al., "Searching for MobileNetV3", 2019. State dicts of torchvision's `MobileNetV3`
    can be loaded.

    Args:
        size: "large" or "small".
        num_classes: The number of logits.
        in_channels: The number of channels of x.
        width_mult: A factor of all numbers of channels.
        dropout: In training, the probability of leaving out a feature before the last map.
        norm_layer: A function from the number of channels to a layer; `BatchNorm2d` with eps=0.001
            and momentum=0.01 by default.
        name: See `Module`.

    Attributes:
        features: The convolutions and `InvertedResidual` blocks, a `Sequential`.
        classifier: The layers after the means over positions, a `Sequential`.

    Raises:
        ArgumentError: A size is no int or below 1, `size` is no such word, width_mult is not
            positive, dropout is outside [0, 1), or norm_layer is no function.
        ShapeError: In a call: x has other dims or channels.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     model = gf.models.MobileNetV3("small", 10, width_mult=0.25)
    ...     model(gf.placeholder(("batch", 3, 64, 64))).shape
    (batch, 10)
    """

    def __init__(
        self,
        size: str = "large",
        num_classes: int = 1000,
        in_channels: int = 3,
        width_mult: float = 1.0,
        *,
        dropout: float = 0.2,
        norm_layer: NormLayer = SLOW_BATCH_NORM,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        demand_one_of("MobileNetV3", "size", size, _V3_ROWS)
        classes = checked_size("MobileNetV3", "num_classes", num_classes)
        demand_probability("MobileNetV3", "dropout", dropout)
        factor = checked_factor("MobileNetV3", "width_mult", width_mult)
        conv = partial(ConvNormActivation, activation="hardswish", norm_layer=norm_layer)
        width = rounded_channels(16 * factor)
        self.features = nn.Sequential(conv(in_channels, width, stride=2))
        for row in _V3_ROWS[size]:
            expanded, out = (rounded_channels(c * factor) for c in (row.expanded, row.out))
            squeeze = None
            if row.has_squeeze_excite:
                squeezed = rounded_channels(expanded // 4)
                squeeze = nn.SqueezeExcite(expanded, squeezed, gate="hardsigmoid")
            block = InvertedResidual(
                *(width, expanded, out, row.kernel_size, row.stride, row.activation),
                squeeze_excite=squeeze,
                norm_layer=norm_layer,
            )
            self.features.append(block)
            width = out
        self.features.append(conv(width, 6 * width, 1))
        hidden = rounded_channels(_V3_HIDDEN[size] * factor)
        self.classifier = nn.Sequential(
            _linear(6 * width, hidden),
            nn.Hardswish(),
            nn.Dropout(dropout),
            _linear(hidden, classes),
        )


@explained
def mobilenet_v2(
    num_classes: int = 1000, in_channels: int = 3, *, name: str | None = None
) -> MobileNetV2:
    """Return a `MobileNetV2` of the published size."""
    return MobileNetV2(num_classes, in_channels, name=name)


@explained
def mobilenet_v3_large(
    num_classes: int = 1000, in_channels: int = 3, *, name: str | None = None
) -> MobileNetV3:
    """Return the larger `MobileNetV3` of the published size."""
    return MobileNetV3("large", num_classes, in_channels, name=name)


@explained
def mobilenet_v3_small(
    num_classes: int = 1000, in_channels: int = 3, *, name: str | None = None
) -> MobileNetV3:
    """Return the smaller `MobileNetV3` of the published size."""
    return MobileNetV3("small", num_classes, in_channels, name=name)
