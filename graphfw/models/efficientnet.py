"""`EfficientNet`: one network, scaled in width and depth."""

from __future__ import annotations

import math
from functools import partial

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
from graphfw.ops.composed import demand_probability

_STAGES = (
    *((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3)),
    *((6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1)),
)
"""Expansion, size of kernels, stride, channels and number of blocks of each stage: table 1."""


class EfficientNet(ClassifiedFeatures):
    """A scaled network that classifies images.  [N, in_channels, H, W] -> [N, num_classes]

    M. Tan, Q. V. Le, "EfficientNet: rethinking model scaling for convolutional neural networks",
    2019. State dicts of torchvision's `EfficientNet` can be loaded.

    Args:
        width: A factor of all numbers of channels.
        depth: A factor of all numbers of blocks.
        num_classes: The number of logits.
        in_channels: The number of channels of x.
        dropout: In training, the probability of leaving out a feature before the classifier.
        drop_path: In training, the probability of leaving out the change that the last block makes;
            those before have proportionally less.
        norm_layer: A function from the number of channels to a layer.
        name: See `Module`.

    Attributes:
        features: A convolution, the stages of `InvertedResidual` blocks, and a convolution: a
            `Sequential`.
        classifier: The layers after the means over positions, a `Sequential`.

    Raises:
        ArgumentError: A size is no int or below 1, width or depth is not positive, dropout or
            drop_path is outside [0, 1), or norm_layer is no function.
        ShapeError: In a call: x has other dims or channels.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     model = gf.models.EfficientNet(width=0.25, depth=0.5, num_classes=10)
    ...     model(gf.placeholder(("batch", 3, 64, 64))).shape
    (batch, 10)
    """

    def __init__(
        self,
        width: float = 1.0,
        depth: float = 1.0,
        num_classes: int = 1000,
        in_channels: int = 3,
        *,
        dropout: float = 0.2,
        drop_path: float = 0.2,
        norm_layer: NormLayer = nn.BatchNorm2d,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        width = checked_factor("EfficientNet", "width", width)
        depth = checked_factor("EfficientNet", "depth", depth)
        classes = checked_size("EfficientNet", "num_classes", num_classes)
        demand_probability("EfficientNet", "dropout", dropout)
        demand_probability("EfficientNet", "drop_path", drop_path)
        conv = partial(ConvNormActivation, activation="silu", norm_layer=norm_layer)
        channels = rounded_channels(32 * width)
        self.features = nn.Sequential(conv(in_channels, channels, stride=2))
        counts = [math.ceil(count * depth) for *_, count in _STAGES]
        made = 0
        for (expansion, kernel_size, first_stride, out, _), count in zip(
            _STAGES, counts, strict=True
        ):
            stage = nn.Sequential()
            for number in range(count):
                expanded = rounded_channels(channels * expansion)
                squeezed = max(1, channels // 4)
                block = InvertedResidual(
                    channels,
                    expanded,
                    rounded_channels(out * width),
                    kernel_size,
                    1 if number else first_stride,
                    "silu",
                    nn.SqueezeExcite(expanded, squeezed, "silu"),
                    drop_path * made / sum(counts),
                    norm_layer,
                )
                stage.append(block)
                channels, made = rounded_channels(out * width), made + 1
            self.features.append(stage)
        self.features.append(conv(channels, 4 * channels, 1))
        spread = nn.init.spread(classes)
        last = nn.Linear(4 * channels, classes, weight_init=spread, bias_init=nn.init.zeros)
        self.classifier = nn.Sequential(nn.Dropout(dropout), last)


_FACTORS = (
    *((1.0, 1.0), (1.0, 1.1), (1.1, 1.2), (1.2, 1.4)),
    *((1.4, 1.8), (1.6, 2.2), (1.8, 2.6), (2.0, 3.1)),
)
"""Width and depth of the published networks."""

_DROPOUTS = (0.2, 0.2, 0.3, 0.3, 0.4, 0.4, 0.5, 0.5)


def _published(number: int, num_classes: int, in_channels: int, name: str | None) -> EfficientNet:
    # As torchvision has it: only the larger networks have norms like those of the paper.
    return EfficientNet(
        *_FACTORS[number],
        num_classes,
        in_channels,
        dropout=_DROPOUTS[number],
        norm_layer=SLOW_BATCH_NORM if number >= 5 else nn.BatchNorm2d,
        name=name,
    )


@explained
def efficientnet_b0(
    num_classes: int = 1000, in_channels: int = 3, *, name: str | None = None
) -> EfficientNet:
    """Return an `EfficientNet` of width 1.0 and depth 1.0."""
    return _published(0, num_classes, in_channels, name)


@explained
def efficientnet_b1(
    num_classes: int = 1000, in_channels: int = 3, *, name: str | None = None
) -> EfficientNet:
    """Return an `EfficientNet` of width 1.0 and depth 1.1."""
    return _published(1, num_classes, in_channels, name)


@explained
def efficientnet_b2(
    num_classes: int = 1000, in_channels: int = 3, *, name: str | None = None
) -> EfficientNet:
    """Return an `EfficientNet` of width 1.1 and depth 1.2."""
    return _published(2, num_classes, in_channels, name)


@explained
def efficientnet_b3(
    num_classes: int = 1000, in_channels: int = 3, *, name: str | None = None
) -> EfficientNet:
    """Return an `EfficientNet` of width 1.2 and depth 1.4."""
    return _published(3, num_classes, in_channels, name)


@explained
def efficientnet_b4(
    num_classes: int = 1000, in_channels: int = 3, *, name: str | None = None
) -> EfficientNet:
    """Return an `EfficientNet` of width 1.4 and depth 1.8."""
    return _published(4, num_classes, in_channels, name)


@explained
def efficientnet_b5(
    num_classes: int = 1000, in_channels: int = 3, *, name: str | None = None
) -> EfficientNet:
    """Return an `EfficientNet` of width 1.6 and depth 2.2."""
    return _published(5, num_classes, in_channels, name)


@explained
def efficientnet_b6(
    num_classes: int = 1000, in_channels: int = 3, *, name: str | None = None
) -> EfficientNet:
    """Return an `EfficientNet` of width 1.8 and depth 2.6."""
    return _published(6, num_classes, in_channels, name)


@explained
def efficientnet_b7(
    num_classes: int = 1000, in_channels: int = 3, *, name: str | None = None
) -> EfficientNet:
    """Return an `EfficientNet` of width 2.0 and depth 3.1."""
    return _published(7, num_classes, in_channels, name)
