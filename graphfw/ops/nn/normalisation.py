"""Normalisation: to mean 0 and variance 1, or to norm 1, over some axes.

float16 and bfloat16 are computed in float32. Scales and shifts (`weight`, `bias`) are optional.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real

from graphfw.errors import ShapeError, counted
from graphfw.ir.functions import F, public
from graphfw.ir.shape import normalize_axis, shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import Axes, TensorLike, axes_of, converted, ruled
from graphfw.ops.composed import demand, floats, wide

__all__ = [
    "batch_norm",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "normalize",
    "rms_norm",
]


@public
def layer_norm(
    x: TensorLike,
    /,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    *,
    axis: Axes = -1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise to mean 0 and variance 1 over axes, then scale and shift.  x: [*A] -> [*A]

    (x - mean) / sqrt(variance + eps) * weight + bias.  J. L. Ba et al., "Layer normalization",
    2016.

    Args:
        x: Floats.
        weight: The scale; it has the dims of x at `axis`.
        bias: The shift; the same.
        axis: Over which axis or axes.
        eps: What is added to the variance.

    Raises:
        AxisError: There is no such axis.
        ShapeError: The shape of weight or bias is not that of x at `axis`.
        ArgumentError: eps is negative.

    >>> import graphfw as gf
    >>> gf.layer_norm(gf.asarray([[1.0, 3.0]]), eps=0.0)
    Tensor([[-1.,  1.]], dtype=float32)
    """
    tensor = _floats("layer_norm", x, eps)
    axes = axes_of("layer_norm", tensor, axis)
    normal = _standardised(wide(tensor), axes, eps)
    return _affine("layer_norm", normal, weight, bias, axes, tensor)


@public
def rms_norm(
    x: TensorLike,
    /,
    weight: TensorLike | None = None,
    *,
    axis: Axes = -1,
    eps: float = 1e-6,
) -> Tensor:
    """Divide by the root of the mean square over axes, then scale.  x: [*A] -> [*A]

    x / sqrt(mean(x²) + eps) * weight.  B. Zhang, R. Sennrich, "Root mean square layer
    normalization", 2019.

    Args:
        x: Floats.
        weight: The scale; it has the dims of x at `axis`.
        axis: Over which axis or axes.
        eps: What is added to the mean square.

    Raises:
        AxisError: There is no such axis.
        ShapeError: The shape of weight is not that of x at `axis`.
        ArgumentError: eps is negative.
    """
    tensor = _floats("rms_norm", x, eps)
    axes = axes_of("rms_norm", tensor, axis)
    values = wide(tensor)
    square = F.mean(values * values, axis=axes, keepdims=True)
    return _affine("rms_norm", values * _over_root(square, eps), weight, None, axes, tensor)


@public
def batch_norm(
    x: TensorLike,
    mean: TensorLike,
    var: TensorLike,
    /,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    *,
    axis: int = 1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel by a mean and a variance that are given, scale and shift it.

    x: [N, C, *S] with the channels at `axis`; mean, var, weight, bias: [C] -> [N, C, *S].
    (x - mean) / sqrt(var + eps) * weight + bias.  S. Ioffe, C. Szegedy, "Batch normalization",
    2015.

    Raises:
        AxisError: There is no such axis.
        ShapeError: mean, var, weight or bias are not of shape [C].
        ArgumentError: eps is negative.
    """
    tensor = _floats("batch_norm", x, eps)
    axes = (ruled("batch_norm", tensor, normalize_axis, axis, tensor.ndim),)
    centre = _laid_along("batch_norm", "mean", mean, axes, tensor)
    scale = _over_root(_laid_along("batch_norm", "var", var, axes, tensor), eps)
    return _affine("batch_norm", (wide(tensor) - centre) * scale, weight, bias, axes, tensor)


@public
def group_norm(
    x: TensorLike,
    groups: int,
    /,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    *,
    axis: int = 1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise groups of channels, each with all positions, in each element of the batch.

    x: [N, C, *S] with the channels at `axis`; weight, bias: [C] -> [N, C, *S].
    Y. Wu, K. He, "Group normalization", 2018.

    Args:
        x: Floats; dim 0 is the batch.
        groups: How many groups of neighbouring channels.
        weight: The scale of each channel.
        bias: The shift of each channel.
        axis: Where the channels are.
        eps: What is added to the variance.

    Raises:
        AxisError: There is no such axis.
        ShapeError: C is not known, or not a multiple of `groups`; weight or bias are not [C].
        ArgumentError: groups is not positive, `axis` is the batch's, or eps is negative.
    """
    tensor = _floats("group_norm", x, eps)
    axis_index = _channel_axis("group_norm", tensor, axis)
    channels = tensor.shape[axis_index]
    demand(groups > 0, f"group_norm: groups={groups} must be positive", fix="use groups=1")
    divides = isinstance(channels, int) and channels % groups == 0
    demand(
        divides,
        f"group_norm: {counted(channels, 'channel')} don't divide into {counted(groups, 'group')}",
        {"x": tensor},
        fix="the number of channels must be known, and a multiple of that of groups",
        error=ShapeError,
    )
    split = (
        *tensor.shape[:axis_index],
        groups,
        channels // groups,
        *tensor.shape[axis_index + 1 :],
    )
    others = tuple(i for i in range(1, len(split)) if i != axis_index)
    normal = _standardised(F.reshape(wide(tensor), split), others, eps)
    normal = F.reshape(normal, tensor.shape)
    return _affine("group_norm", normal, weight, bias, (axis_index,), tensor)


@public
def instance_norm(
    x: TensorLike,
    /,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    *,
    axis: int = 1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel of each element of the batch over its positions.

    x: [N, C, *S] with the channels at `axis`; weight, bias: [C] -> [N, C, *S].
    D. Ulyanov et al., "Instance normalization: the missing ingredient for fast stylization", 2016.

    Raises:
        AxisError: There is no such axis.
        ShapeError: weight or bias are not of shape [C].
        ArgumentError: `axis` is the batch's, or eps is negative.
    """
    tensor = _floats("instance_norm", x, eps)
    axis_index = _channel_axis("instance_norm", tensor, axis)
    positions = tuple(i for i in range(1, tensor.ndim) if i != axis_index)
    normal = _standardised(wide(tensor), positions, eps)
    return _affine("instance_norm", normal, weight, bias, (axis_index,), tensor)


@public
def normalize(x: TensorLike, /, *, axis: Axes = -1, ord: float = 2.0, eps: float = 1e-12) -> Tensor:
    """Divide by the norm over axes: the result has norm 1.  x: [*A] -> [*A]

    Norms below eps count as eps, so zeros stay zeros.

    Raises:
        AxisError: There is no such axis.
        ArgumentError: eps is negative.

    >>> import graphfw as gf
    >>> gf.normalize(gf.asarray([3.0, 4.0]))
    Tensor([0.6, 0.8], dtype=float32)
    """
    tensor = _floats("normalize", x, eps)
    values = wide(tensor)
    norm = F.vector_norm(values, axis=axis, ord=ord, keepdims=True)
    return converted(values / F.maximum(norm, eps), tensor.dtype)


def _floats(name: str, x: TensorLike, eps: float) -> Tensor:
    demand(isinstance(eps, Real), f"{name}: eps={eps!r} is not a number", fix="write eps=1e-5")
    demand(eps >= 0, f"{name}: eps={eps} must not be negative", fix=f"use eps={-eps}")
    return floats(name, x)


def _channel_axis(name: str, x: Tensor, axis: int) -> int:
    axis_index = ruled(name, x, normalize_axis, axis, x.ndim)
    message = f"{name}: axis={axis} is the batch's, where the channels should be"
    demand(axis_index != 0, message, {"x": x}, fix="use axis=1, or axis=-1 where channels are last")
    return axis_index


def _standardised(x: Tensor, axes: Sequence[int], eps: float) -> Tensor:
    mean = F.mean(x, axis=axes, keepdims=True)
    centred = x - mean
    variance = F.mean(centred * centred, axis=axes, keepdims=True)
    return centred * _over_root(variance, eps)


def _over_root(variance: Tensor, eps: float) -> Tensor:
    """The factor that normalises: computed where it is small, for x is multiplied by it."""
    return F.rsqrt(variance + eps)


def _affine(
    name: str,
    normal: Tensor,
    weight: TensorLike | None,
    bias: TensorLike | None,
    axes: tuple[int, ...],
    x: Tensor,
) -> Tensor:
    """Scale and shift along the axes, and return to the dtype of x."""
    if weight is not None:
        normal = normal * _laid_along(name, "weight", weight, axes, x)
    if bias is not None:
        normal = normal + _laid_along(name, "bias", bias, axes, x)
    return converted(normal, x.dtype)


def _laid_along(
    name: str, label: str, value: TensorLike, axes: tuple[int, ...], x: Tensor
) -> Tensor:
    """A parameter that has x's dims at the axes, in a shape that broadcasts with x."""
    tensor = floats(name, value)
    wanted = tuple(x.shape[axis] for axis in axes)
    message = f"{name}: {label} must have shape {shape_text(wanted)}, as x has at axis"
    shown = ", ".join(map(str, axes))
    demand(
        tensor.shape == wanted,
        f"{message} {shown}, not {shape_text(tensor.shape)}",
        {"x": x, label: tensor},
        fix="give one number for each position along the axis",
        error=ShapeError,
    )
    dims = tuple(dim if i in axes else 1 for i, dim in enumerate(x.shape))
    trailing = tuple(range(x.ndim - len(axes), x.ndim))
    laid = tensor if axes == trailing else F.reshape(tensor, dims)
    return converted(laid, wide(x).dtype)
