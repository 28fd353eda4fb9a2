"""Changes of colour: brightness, contrast, saturation, hue."""

from __future__ import annotations

from graphfw.errors import ShapeError
from graphfw.hints.calls import explained
from graphfw.ir import ambient
from graphfw.ir.functions import CALLED as F
from graphfw.ir.shape import shape_text
from graphfw.ir.tensor import Tensor
from graphfw.nn.augment.common import (
    Range,
    between,
    demand_floats,
    demand_share,
    draws,
    images,
    over_images,
    read_range,
)
from graphfw.ops.args import TensorLike, converted
from graphfw.ops.composed import demand, wide


@explained
def color_jitter(
    x: TensorLike,
    /,
    *,
    brightness: Range = 0.0,
    contrast: Range = 0.0,
    saturation: Range = 0.0,
    hue: Range = 0.0,
    name: str | None = None,
) -> Tensor:
    """Change each image's colours at random.  x: [*B, C, H, W] -> [*B, C, H, W]

    As torchvision defines it, but always in this order: brightness (x times a factor), contrast
    (the distance from the mean of the grey image times a factor), saturation (that from the grey
    image), and hue (turned around the circle of colours). Each is cut off at 0 and 1. float16 and
    bfloat16 are computed in float32. Not in evaluation (`gf.training(False)`), where x is returned.

    Args:
        x: Floats from 0 to 1, with red, green, blue as channels; for brightness and contrast also
            one channel.
        brightness: A number d for factors between max(0, 1 - d) and 1 + d, or a pair (low, high).
        contrast: The same.
        saturation: The same.
        hue: A number d up to 0.5 for turns between -d and d, or a pair (low, high) in [-0.5, 0.5];
            1 is once around.
        name: The name of the random stream; see `graphfw.random`.

    Raises:
        ShapeError: x has fewer than three dims, or other channels.
        DTypeError: x has no real floats.
        ArgumentError: A number is negative, a pair is not in order, or a range reaches too far.

    >>> import graphfw as gf
    >>> image = gf.asarray([[[0.25]], [[0.5]], [[0.25]]])
    >>> gf.flatten(gf.nn.augment.color_jitter(image, brightness=(2, 2)))
    Tensor([0.5, 1. , 0.5], dtype=float32)
    """
    what = "color_jitter"
    tensor = images(what, x)
    demand_floats(what, tensor)
    ranges = {
        label: read_range(what, label, given, middle=1.0, least=0.0)
        for label, given in (
            ("brightness", brightness),
            ("contrast", contrast),
            ("saturation", saturation),
        )
    }
    ranges["hue"] = read_range(what, "hue", hue, least=-0.5, most=0.5)
    neutral = {"brightness": 1.0, "contrast": 1.0, "saturation": 1.0, "hue": 0.0}
    changed = [label for label, bounds in ranges.items() if bounds != (neutral[label],) * 2]
    if changed:
        for_colours = [label for label in changed if label in ("saturation", "hue")]
        _demand_channels(what, tensor, (3,) if for_colours else (1, 3))
    if not (changed and ambient.asks_for_training()):
        return tensor
    colours = wide(tensor)
    fractions = draws(tensor.shape[:-3], 4, name)
    for (label, bounds), fraction in zip(ranges.items(), fractions, strict=True):
        if label in changed:
            amount = converted(over_images(between(fraction, bounds)), colours.dtype)
            colours = _CHANGES[label](colours, amount)
    return converted(colours, tensor.dtype)


@explained
def random_grayscale(x: TensorLike, /, *, p: float = 0.1, name: str | None = None) -> Tensor:
    """Make images grey with probability p.  x: [*B, 3, H, W] -> [*B, 3, H, W]

    All three channels become 0.2989 R + 0.587 G + 0.114 B. float16 and bfloat16 are computed in
    float32. Not in evaluation (`gf.training(False)`), where x is returned.

    Args:
        x: Floats, with red, green, blue as channels.
        p: The probability, from 0 to 1.
        name: The name of the random stream; see `graphfw.random`.

    Raises:
        ShapeError: x has fewer than three dims, or not three channels.
        DTypeError: x has no real floats.
        ArgumentError: p is outside [0, 1].
    """
    tensor = images("random_grayscale", x)
    demand_floats("random_grayscale", tensor)
    _demand_channels("random_grayscale", tensor, (3,))
    demand_share("random_grayscale", "p", p)
    if not ambient.asks_for_training():
        return tensor
    (fraction,) = draws(tensor.shape[:-3], 1, name)
    grey = converted(_grey(wide(tensor)), tensor.dtype)
    return F.where(over_images(fraction < p), grey, tensor)


def _demand_channels(what: str, x: Tensor, counts: tuple[int, ...]) -> None:
    wanted = " or ".join(map(str, counts))
    is_last = x.shape[-1] in counts
    fix = "move channels that come last: gf.moveaxis(x, -1, -3)" if is_last else ""
    demand(
        x.shape[-3] in counts,
        f"{what}: images must have {wanted} channels, [*B, C, H, W]; x is {shape_text(x.shape)}",
        {"x": x},
        fix=fix or f"give each image {wanted} channels, as x[..., :3, :, :] does of more",
        error=ShapeError,
    )


def _grey(x: Tensor) -> Tensor:
    """Return the grey image.  [*B, C, H, W] -> [*B, 1, H, W]"""
    if x.shape[-3] == 1:
        return x
    red, green, blue = _channels(x)
    return 0.2989 * red + 0.587 * green + 0.114 * blue


def _channels(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x[..., 0:1, :, :], x[..., 1:2, :, :], x[..., 2:3, :, :]


def _away(x: Tensor, centre: Tensor, factor: Tensor) -> Tensor:
    return F.clip(factor * x + (1 - factor) * centre, 0.0, 1.0)


def _brighten(x: Tensor, factor: Tensor) -> Tensor:
    return F.clip(factor * x, 0.0, 1.0)


def _contrast(x: Tensor, factor: Tensor) -> Tensor:
    return _away(x, F.mean(_grey(x), axis=(-3, -2, -1), keepdims=True), factor)


def _saturate(x: Tensor, factor: Tensor) -> Tensor:
    return _away(x, _grey(x), factor)


def _turn_hue(x: Tensor, turn: Tensor) -> Tensor:
    """Turn hues, by way of hue, saturation and value (HSV)."""
    red, green, blue = _channels(x)
    value = F.maximum(F.maximum(red, green), blue)
    chroma = value - F.minimum(F.minimum(red, green), blue)
    divisor = F.where(chroma == 0, 1, chroma)
    hue = F.where(
        value == red,
        (green - blue) / divisor,
        F.where(value == green, 2 + (blue - red) / divisor, 4 + (red - green) / divisor),
    )
    sixths = hue + 6 * turn

    def channel(shift: int) -> Tensor:
        # A. R. Smith's hexcone as one formula: https://en.wikipedia.org/wiki/HSL_and_HSV
        k = (sixths + shift) % 6
        return value - chroma * F.clip(F.minimum(k, 4 - k), 0.0, 1.0)

    return F.concat([channel(5), channel(3), channel(1)], axis=-3)


_CHANGES = {
    "brightness": _brighten,
    "contrast": _contrast,
    "saturation": _saturate,
    "hue": _turn_hue,
}
