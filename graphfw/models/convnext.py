"""`ConvNeXt`: a convolutional network with the proportions of vision transformers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from graphfw import nn
from graphfw.hints import calls
from graphfw.ir.functions import CALLED as F
from graphfw.ir.tensor import Tensor
from graphfw.models.blocks import checked_factor, pooled, sizes
from graphfw.nn.checks import checked_size, explained
from graphfw.nn.convolution import check_rank
from graphfw.nn.parameters import parameter
from graphfw.nn.torch_rules import RenamedScopes, TorchRule
from graphfw.ops.args import TensorLike, as_tensor
from graphfw.ops.composed import demand_probability

_INIT = nn.init.truncated_normal(std=0.02)

_conv = partial(nn.Conv2d, weight_init=_INIT, bias_init=nn.init.zeros)
_linear = partial(nn.Linear, weight_init=_INIT, bias_init=nn.init.zeros)


class LayerNorm2d(nn.LayerNorm):
    """Normalise the channels at each position of images.  x: [N, C, H, W] -> the same

    Args:
        channels: The number of channels, C.
        eps: The number that is added to the variance.
        name: See `Module`.

    Attributes:
        weight: [C].
        bias: [C].

    Raises:
        ArgumentError: channels is no int, or below 1.
        ShapeError: In a call: x has other dims or channels.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     gf.models.LayerNorm2d(8)(gf.placeholder(("batch", 8, 4, 4))).shape
    (batch, 8, 4, 4)
    """

    def __init__(self, channels: int, eps: float = 1e-6, *, name: str | None = None) -> None:
        super().__init__(checked_size("LayerNorm2d", "channels", channels), eps, name=name)

    def forward(self, x: TensorLike) -> Tensor:
        """Normalise.  x: [N, C, H, W] -> the same"""
        tensor = as_tensor(x)
        check_rank("LayerNorm2d", 2, tensor)
        with explained(lambda: f"use LayerNorm2d({tensor.shape[1]})"):
            return F.layer_norm(tensor, self.weight, self.bias, axis=1, eps=self.eps)


class ConvNeXtBlock(nn.Module):
    """A depthwise convolution, and two layers at each position, added.  [N, C, H, W] -> the same

    Z. Liu et al., "A ConvNet for the 2020s", 2022.

    Args:
        channels: The number of channels, C.
        layer_scale: The initial factors of the change to x.
        drop_path: In training, the probability of leaving out the change.
        name: See `Module`.

    Attributes:
        depthwise: The `Conv2d` of 7 × 7.
        norm: The `LayerNorm` of the channels.
        linear1, linear2: The `Linear` layers to four times the channels and back.
        layer_scale: The factor of each channel of the change, [C, 1, 1].

    Raises:
        ArgumentError: channels is no int or below 1, or drop_path is outside [0, 1).
        ShapeError: In a call: x has other dims or channels.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     gf.models.ConvNeXtBlock(8)(gf.placeholder(("batch", 8, 4, 4))).shape
    (batch, 8, 4, 4)
    """

    def __init__(
        self,
        channels: int,
        layer_scale: float = 1e-6,
        drop_path: float = 0.0,
        *,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        size = checked_size("ConvNeXtBlock", "channels", channels)
        self.depthwise = _conv(size, size, 7, padding=3, groups=size)
        self.norm = nn.LayerNorm(size, eps=1e-6)
        self.linear1 = _linear(size, 4 * size)
        self.linear2 = _linear(4 * size, size)
        demand_probability("ConvNeXtBlock", "drop_path", drop_path)
        scale = checked_factor("ConvNeXtBlock", "layer_scale", layer_scale)
        self.layer_scale = parameter(nn.init.constant(value=scale), (size, 1, 1))
        self.drop_path = nn.DropPath(drop_path)

    def forward(self, x: TensorLike) -> Tensor:
        """Convolve, transform and add.  x: [N, C, H, W] -> the same"""
        tensor = as_tensor(x)
        y = self.norm(F.moveaxis(self.depthwise(tensor), 1, -1))
        y = self.linear2(F.gelu(self.linear1(y)))
        change = self.layer_scale * F.moveaxis(y, -1, 1)
        result: Tensor = tensor + self.drop_path(change)
        return result

    def _torch_rules(self) -> list[TorchRule]:
        """Return the layers of torchvision's numbers."""
        names = {"0": "depthwise", "2": "norm", "3": "linear1", "5": "linear2"}
        return [RenamedScopes({f"block.{number}": name for number, name in names.items()})]


class ConvNeXt(nn.Module):
    """A convolutional network that classifies images.  [N, in_channels, H, W] -> [N, num_classes]

    Z. Liu et al., "A ConvNet for the 2020s", 2022. State dicts of torchvision's `ConvNeXt` can be
    loaded.

    Args:
        depths: The number of `ConvNeXtBlock` in each of the four stages.
        channels: The number of channels of each stage.
        num_classes: The number of logits.
        in_channels: The number of channels of x.
        layer_scale: As `ConvNeXtBlock`.
        drop_path: In training, the probability of leaving out the change that the last block makes;
            those before have proportionally less.
        name: See `Module`.

    Attributes:
        features: A `Sequential` of the stages, with a reduction of the image before each.
        norm: The `LayerNorm` of the means over positions.
        head: The `Linear` layer for logits.

    Raises:
        ArgumentError: A size is no int or below 1, depths or channels are not four, or drop_path is
            outside [0, 1).
        ShapeError: In a call: x has other dims or channels.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     model = gf.models.ConvNeXt((1, 1, 2, 1), (8, 16, 32, 64), num_classes=10)
    ...     model(gf.placeholder(("batch", 3, 64, 64))).shape
    (batch, 10)
    """

    def __init__(
        self,
        depths: Sequence[int] = (3, 3, 9, 3),
        channels: Sequence[int] = (96, 192, 384, 768),
        num_classes: int = 1000,
        in_channels: int = 3,
        *,
        layer_scale: float = 1e-6,
        drop_path: float = 0.1,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        counts = sizes("ConvNeXt", "depths", depths, 4)
        widths = sizes("ConvNeXt", "channels", channels, 4)
        classes = checked_size("ConvNeXt", "num_classes", num_classes)
        demand_probability("ConvNeXt", "drop_path", drop_path)
        stem = _conv(in_channels, widths[0], 4, 4)
        self.features = nn.Sequential(nn.Sequential(stem, LayerNorm2d(widths[0])))
        made, before = 0, widths[0]
        for count, width in zip(counts, widths, strict=True):
            if made:
                reduction = nn.Sequential(LayerNorm2d(before), _conv(before, width, 2, 2))
                self.features.append(reduction)
            stage = nn.Sequential()
            for _ in range(count):
                probability = drop_path * made / max(1, sum(counts) - 1)
                stage.append(ConvNeXtBlock(width, layer_scale, probability))
                made += 1
            self.features.append(stage)
            before = width
        self.norm = nn.LayerNorm(before, eps=1e-6)
        self.head = _linear(before, classes)

    def forward(self, x: TensorLike) -> Tensor:
        """Compute logits.  x: [N, in_channels, H, W] -> [N, num_classes]"""
        result: Tensor = self.head(self.norm(pooled(self.features(x))))
        return result

    def _torch_rules(self) -> list[TorchRule]:
        """Return the layers of torchvision's numbers."""
        return [RenamedScopes({"classifier.0": "norm", "classifier.2": "head"})]


@calls.explained
def convnext_tiny(
    num_classes: int = 1000, in_channels: int = 3, *, name: str | None = None
) -> ConvNeXt:
    """Return a `ConvNeXt` of 18 blocks and 96 channels at first."""
    depths, channels = (3, 3, 9, 3), (96, 192, 384, 768)
    return ConvNeXt(depths, channels, num_classes, in_channels, drop_path=0.1, name=name)


@calls.explained
def convnext_small(
    num_classes: int = 1000, in_channels: int = 3, *, name: str | None = None
) -> ConvNeXt:
    """Return a `ConvNeXt` of 36 blocks and 96 channels at first."""
    depths, channels = (3, 3, 27, 3), (96, 192, 384, 768)
    return ConvNeXt(depths, channels, num_classes, in_channels, drop_path=0.4, name=name)


@calls.explained
def convnext_base(
    num_classes: int = 1000, in_channels: int = 3, *, name: str | None = None
) -> ConvNeXt:
    """Return a `ConvNeXt` of 36 blocks and 128 channels at first."""
    depths, channels = (3, 3, 27, 3), (128, 256, 512, 1024)
    return ConvNeXt(depths, channels, num_classes, in_channels, drop_path=0.5, name=name)


@calls.explained
def convnext_large(
    num_classes: int = 1000, in_channels: int = 3, *, name: str | None = None
) -> ConvNeXt:
    """Return a `ConvNeXt` of 36 blocks and 192 channels at first."""
    depths, channels = (3, 3, 27, 3), (192, 384, 768, 1536)
    return ConvNeXt(depths, channels, num_classes, in_channels, drop_path=0.5, name=name)
