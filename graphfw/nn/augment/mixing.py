"""Mixtures of two images of a batch, and of their targets."""

from __future__ import annotations

import math

from graphfw.errors import DTypeError, ShapeError, counted
from graphfw.hints.calls import explained
from graphfw.ir import ambient
from graphfw.ir.dtype import float32
from graphfw.ir.functions import CALLED as F
from graphfw.ir.shape import shape_text
from graphfw.ir.tensor import Tensor
from graphfw.nn.augment.common import demand_floats, draws
from graphfw.nn.augment.windows import rectangle
from graphfw.ops.args import TensorLike, as_tensor, converted
from graphfw.ops.composed import demand
from graphfw.ops.random.distributions import permutation
from graphfw.ops.random.draws import is_number
from graphfw.ops.random.gammas import beta


@explained
def mixup(
    x: TensorLike, y: TensorLike, /, *, alpha: float = 0.2, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Blend each example with another one of the batch, and their targets in the same proportion.

    x: [N, *A], y: [N, *T] -> [N, *A], [N, *T].  H. Zhang et al., "mixup: beyond empirical risk
    minimization", 2017. An example's share is drawn from the beta distribution with a = b = alpha,
    and the other one is that of its place in a random order, which may be itself. Not in evaluation
    (`gf.training(False)`), where x and y are returned.

    Args:
        x: Floats: images, or whatever else can be blended.
        y: Floats: of classes take `gf.one_hot(classes, count, dtype=x.dtype)`; the loss is
            `gf.nn.cross_entropy`, which takes probabilities.
        alpha: How much is blended, above 0: shares are near 0 and 1 for small numbers, equally
            likely for 1, and near 1/2 for large ones.
        name: The name of the random streams; see `graphfw.random`.

    Raises:
        ShapeError: x and y are not as many.
        DTypeError: x or y has no real floats.
        ArgumentError: alpha is not above 0.

    >>> import graphfw as gf
    >>> y = gf.one_hot([0, 1, 2, 1], 3, dtype=gf.float32)
    >>> x, y = gf.nn.augment.mixup(gf.ones((4, 3, 8, 8)), y)
    >>> x.shape, y.shape
    ((4, 3, 8, 8), (4, 3))
    """
    tensor, target = _pair("mixup", x, y, alpha)
    if not ambient.asks_for_training():
        return tensor, target
    share, order = _shares(tensor, alpha, name)
    return _blend(tensor, order, share), _blend(target, order, share)


@explained
def cutmix(
    x: TensorLike, y: TensorLike, /, *, alpha: float = 1.0, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Replace a rectangle of each image by that of another one, and blend the targets by its area.

    x: [N, C, H, W], y: [N, *T] -> [N, C, H, W], [N, *T].  S. Yun et al., "CutMix: regularization
    strategy to train strong classifiers with localizable features", 2019. The rectangle has the
    image's ratio of sides, and an area whose share is drawn from the beta distribution with
    a = b = alpha; its centre is anywhere, and what is outside of the image is cut off. The other
    image is that of its place in a random order, which may be itself. Not in evaluation
    (`gf.training(False)`), where x and y are returned.

    Args:
        x: Floats: the images.
        y: Floats: of classes take `gf.one_hot(classes, count, dtype=x.dtype)`; the loss is
            `gf.nn.cross_entropy`, which takes probabilities.
        alpha: Above 0: areas are nearly none and nearly all for small numbers, equally likely for
            1, and near 1/2 for large ones.
        name: The name of the random streams; see `graphfw.random`.

    Raises:
        ShapeError: x has not four dims, or x and y are not as many.
        DTypeError: x or y has no real floats.
        ArgumentError: alpha is not above 0.
    """
    tensor, target = _pair("cutmix", x, y, alpha)
    message = f"cutmix: images must be [N, C, H, W]; x has {counted(tensor.ndim, 'dim')}"
    fix = "flatten the dims of the batch: gf.reshape"
    demand(tensor.ndim == 4, message, {"x": tensor}, fix=fix, error=ShapeError)
    if not ambient.asks_for_training():
        return tensor, target
    share, order = _shares(tensor, alpha, name)
    count, _, *size = tensor.shape
    fractions = draws((count,), 2, name and f"{name}.centre")
    half = F.sqrt(1 - share) / 2
    corner, sides = [], []
    for fraction, dim in zip(fractions, size, strict=True):
        whole = converted(as_tensor(dim), float32)
        middle, reach = F.floor(fraction * whole), F.floor(half * whole)
        first = F.maximum(middle - reach, 0)
        corner.append(first)
        sides.append(F.minimum(middle + reach, whole) - first)
    inside = rectangle(corner, sides, size)
    mixed = F.where(inside, F.take(tensor, order, axis=0), tensor)
    height, width = [converted(as_tensor(dim), float32) for dim in size]
    kept = 1 - sides[0] * sides[1] / (height * width)
    return mixed, _blend(target, order, kept)


def _pair(what: str, x: TensorLike, y: TensorLike, alpha: float) -> tuple[Tensor, Tensor]:
    """Return the examples and their targets as tensors of floats."""
    tensor, target = as_tensor(x), as_tensor(y)
    shown = {"x": tensor, "y": target}
    text = f"{what}: x is {shape_text(tensor.shape)} and y is {shape_text(target.shape)}"
    fits = tensor.ndim and target.ndim and tensor.shape[0] == target.shape[0]
    fix = "give a target for each example, along the first dim of both"
    demand(bool(fits), text, shown, fix=fix, error=ShapeError)
    demand_floats(what, tensor)
    is_classes = not target.dtype.is_inexact
    fix = f"blend probabilities: gf.one_hot(y, count, dtype=gf.{tensor.dtype.name})"
    message = f"{what}: targets must be floats, not {target.dtype.name}"
    fits = target.dtype.is_floating
    demand(fits, message, shown, fix=fix if is_classes else "take gf.real(y)", error=DTypeError)
    message = f"{what}: alpha={alpha!r} must be a number above 0"
    fits = is_number(alpha) and 0 < alpha < math.inf
    demand(fits, message, fix="use alpha=0.2, or leave the mixture out")
    return tensor, target


def _shares(x: Tensor, alpha: float, name: str | None) -> tuple[Tensor, Tensor]:
    """Draw which share of itself each example keeps, and with which other one it is mixed."""
    count = x.shape[0]
    share = beta((count,), alpha, alpha, dtype=float32, name=name and f"{name}.share")
    return share, permutation(F.positions(count), name=name and f"{name}.order")


def _blend(x: Tensor, order: Tensor, share: Tensor) -> Tensor:
    own = converted(F.expand_dims(share, axis=tuple(range(1, x.ndim))), x.dtype)
    return own * x + (1 - own) * F.take(x, order, axis=0)
