"""Boxes in images: the best of those that overlap, and features sampled in them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from graphfw.errors import ShapeError
from graphfw.ir.dtype import int64
from graphfw.ir.functions import F, public
from graphfw.ir.shape import shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import TensorLike, as_tensor, converted, promoted, ruled
from graphfw.ops.composed import demand, floats, wide
from graphfw.ops.data_dependent.measuring_ops import NonMaxSuppression, measure
from graphfw.ops.dtypes import require_indices
from graphfw.ops.nn.spatial_arguments import each

__all__ = ["nms", "roi_align"]


@public
def nms(
    boxes: TensorLike, scores: TensorLike, /, threshold: float, *, classes: TensorLike | None = None
) -> Tensor:
    """Choose the best boxes of those that overlap (non-maximum suppression).

    boxes: [N, 4] two corners x1, y1, x2, y2, scores: [N] -> [K] int64, the numbers of the boxes
    that are kept, the best first. The best box is kept, those that overlap it too much go, the best
    one of the others is kept, and so on. K is a symbol: it depends on values, so it can't be in the
    body of a loop or of `gf.vmap`. No gradient.

    Args:
        boxes: Floats.
        scores: How good each is; boxes with NaN are not kept.
        threshold: Boxes go whose intersection is more than this fraction of their union.
        classes: [N] integers; boxes of different classes never compete.

    Raises:
        ShapeError: The boxes are not [N, 4], or the scores or classes not [N].
        ArgumentError: The threshold is outside [0, 1].
        ConcreteValueError: It is in a body, or in a vmap.

    >>> import graphfw as gf
    >>> boxes = gf.asarray([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 2.1], [5.0, 5.0, 6.0, 6.0]])
    >>> gf.nms(boxes, gf.asarray([0.5, 0.9, 0.1]), 0.5)
    Tensor([1, 2], dtype=int64)
    """
    coordinates, ranks = [wide(floats("nms", t)) for t in promoted("nms", boxes, scores)]
    shapes = f"{shape_text(coordinates.shape)} and {shape_text(ranks.shape)}"
    demand(
        coordinates.ndim == 2
        and coordinates.shape[1] == 4
        and ranks.shape == coordinates.shape[:1],
        f"nms: boxes and scores are {shapes}, not [N, 4] and [N]",
        {"boxes": coordinates, "scores": ranks},
        fix="take one image at a time, and gf.max(scores, axis=-1) of scores for several classes",
        error=ShapeError,
    )
    message = f"nms: threshold={threshold} is not between 0 and 1"
    demand(0 <= threshold <= 1, message, fix="give a fraction of the union, such as 0.5")
    if classes is not None:
        kinds = as_tensor(classes)
        ruled("nms", kinds, require_indices, kinds.dtype)
        message = f"nms: classes are {shape_text(kinds.shape)}, not {shape_text(ranks.shape)}"
        same = kinds.shape == ranks.shape
        demand(same, message, {"classes": kinds}, fix="one for each box", error=ShapeError)
        # Far apart for each class, no two boxes of different ones have anything in common.
        corners = F.concat([F.reshape(coordinates, (-1,)), F.zeros((1,), dtype=coordinates.dtype)])
        extent = F.max(corners) - F.min(corners) + 1
        coordinates = coordinates + (converted(kinds, coordinates.dtype) * extent)[:, None]
    limits = (
        converted(as_tensor(coordinates.shape[0]), int64),
        as_tensor(float(threshold), coordinates.dtype),
        as_tensor(-math.inf, coordinates.dtype),
    )
    given = (coordinates[None], ranks[None, None], *limits)
    kept = measure(NonMaxSuppression, ["kept"], *given, centred=False)[0]
    return kept[:, 2]


@public
def roi_align(
    x: TensorLike,
    boxes: TensorLike,
    images: TensorLike,
    /,
    output_size: int | Sequence[int],
    *,
    scale: float = 1.0,
    samples: int | Sequence[int] = 2,
    aligned: bool = True,
) -> Tensor:
    """Sample features in boxes on a grid of bins (K. He et al., "Mask R-CNN", 2017).

    x: [N, C, H, W], boxes: [R, 4] two corners x1, y1, x2, y2, images: [R] integers
    -> [R, C, *output_size]. Each bin is the mean of samples, which are interpolated linearly; those
    more than one pixel outside of the image are 0. Gradients flow to x and boxes.

    Args:
        x: The features, floats.
        boxes: Floats.
        images: Which of the N images each box is in.
        output_size: How many bins: (rows, columns), or one number for both.
        scale: What the boxes are multiplied by: of an image with 800 pixels and features with 50,
            1/16.
        samples: How many samples each bin has: (rows, columns), or one number for both.
        aligned: Whether pixel 0 is at 0.5, as where boxes are measured from edge to edge. False
            gives boxes 1 pixel at least, as older models want it.

    Raises:
        ShapeError: A tensor has another number of dims, or there are not as many images as boxes.
        ArgumentError: A size or a number of samples is not positive.
        DTypeError: x or boxes are complex, or images are not integers.

    >>> import graphfw as gf
    >>> x = gf.reshape(gf.arange(16, dtype=gf.float32), (1, 1, 4, 4))
    >>> gf.roi_align(x, gf.asarray([[0.0, 0.0, 4.0, 4.0]]), gf.asarray([0]), 2)
    Tensor([[[[ 2.5,  4.5],
              [10.5, 12.5]]]], dtype=float32)
    """
    features, corners = [floats("roi_align", t) for t in promoted("roi_align", x, boxes)]
    numbers = as_tensor(images)
    ruled("roi_align", numbers, require_indices, numbers.dtype)
    demand(
        features.ndim == 4 and corners.ndim == 2 and corners.shape[1] == 4,
        f"roi_align: x and boxes are {shape_text(features.shape)} and {shape_text(corners.shape)}, "
        "not [N, C, H, W] and [R, 4]",
        {"x": features, "boxes": corners},
        fix="gf.expand_dims adds a dim",
        error=ShapeError,
    )
    demand(
        numbers.shape == corners.shape[:1],
        f"roi_align: images are {shape_text(numbers.shape)}, and boxes {corners.shape[0]}",
        {"images": numbers, "boxes": corners},
        fix="give the number of an image for each box",
        error=ShapeError,
    )
    bins = tuple(each("roi_align", "output_size", output_size, 2))
    counts = tuple(each("roi_align", "samples", samples, 2))
    for label, pair in (("output_size", bins), ("samples", counts)):
        message = f"roi_align: {label}={pair}"
        demand(min(pair) > 0, message, fix="use positive numbers")
    coordinates = wide(corners) * scale - (0.5 if aligned else 0.0)
    low, size = coordinates[:, :2], coordinates[:, 2:] - coordinates[:, :2]
    if not aligned:
        size = F.maximum(size, 1.0)
    made = sampled(wide(features), low, size, numbers, bins, counts, is_max=False)
    return converted(made, features.dtype)


def sampled(
    x: Tensor,
    low: Tensor,
    size: Tensor,
    batches: Tensor,
    bins: Sequence[int],
    counts: Sequence[int],
    is_max: bool,
) -> Tensor:
    """Reduce samples of regions to bins.  low, size: [R, 2], batches: [R] -> [R, C, *bins]"""
    ys, weights_y = _lines(low[:, 1], size[:, 1], bins[0], counts[0], x.shape[2])
    xs, weights_x = _lines(low[:, 0], size[:, 0], bins[1], counts[1], x.shape[3])
    # ys: [2, R, bins * count]; all four corners of each sample
    total: Any = None
    b = F.reshape(batches, (-1, 1, 1))
    planes = F.permute_dims(x, (0, 2, 3, 1))
    samples = []
    for i in range(2):
        for j in range(2):
            at = planes[b, F.expand_dims(ys[i], 2), F.expand_dims(xs[j], 1)]
            w = F.expand_dims(weights_y[i], 2) * F.expand_dims(weights_x[j], 1)
            samples.append((at, F.expand_dims(w, -1)))
    if is_max:
        for at, w in samples:
            total = at * w if total is None else F.maximum(total, at * w)
    else:
        for at, w in samples:
            total = at * w if total is None else total + at * w
    grid = F.reshape(total, (total.shape[0], bins[0], counts[0], bins[1], counts[1], x.shape[1]))
    pooled = (F.max if is_max else F.mean)(grid, axis=(2, 4))
    return F.permute_dims(pooled, (0, 3, 1, 2))


def _lines(
    low: Tensor, size: Tensor, bins: int, count: int, limit: Any
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return where samples lie along one axis: both neighbours, and their weights."""
    fractions = (F.astype(F.arange(bins * count), low.dtype) + 0.5) / count
    at = F.expand_dims(low, -1) + fractions * F.expand_dims(size / bins, -1)
    outside = F.logical_or(at < -1.0, at > F.astype(F.asarray(limit), at.dtype))
    at = F.maximum(at, 0.0)
    last = limit - 1
    first = F.minimum(F.astype(F.floor(at), int64), last)
    second = F.minimum(first + 1, last)
    fraction = F.where(first >= last, F.zeros_like(at), at - F.astype(first, at.dtype))
    zero = F.zeros_like(at)
    weights = F.where(outside, zero, 1 - fraction), F.where(outside, zero, fraction)
    return (first, second), weights
