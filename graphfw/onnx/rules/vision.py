"""Boxes, regions and images."""

from __future__ import annotations

import io
import math

import numpy as np

import graphfw as gf
from graphfw.ir.dim import DimLike
from graphfw.ir.dtype import float32, int64
from graphfw.ir.tensor import Node, Tensor
from graphfw.onnx.builder import Builder, Val, fields
from graphfw.onnx.errors import OnnxError, Unsupported
from graphfw.onnx.fitting import matched
from graphfw.onnx.measuring import is_measured
from graphfw.onnx.node import ModelNode
from graphfw.onnx.table import reads, writes
from graphfw.ops.data_dependent.measuring_ops import NonMaxSuppression, measure
from graphfw.ops.nn.boxes import sampled


@reads("NonMaxSuppression")
def _non_max_suppression(
    node: ModelNode,
    boxes: Tensor,
    scores: Tensor,
    most: Tensor | None = None,
    overlap: Tensor | None = None,
    least: Tensor | None = None,
) -> Tensor:
    """Choose boxes.  boxes: [B, N, 4], scores: [B, C, N] -> [chosen, 3] image, class, box"""

    def number(x: Tensor | None, default: float, dtype: gf.DType) -> Tensor:
        node.require(x is None or x.size == 1, "a limit is no number")
        return gf.astype(gf.asarray(default) if x is None else gf.reshape(x, ()), dtype)

    operands = (
        *matched((boxes, scores), (("image", "box", None), ("image", "class", "box"))),
        number(most, 0, gf.int64),
        number(overlap, 0.0, boxes.dtype),
        number(least, -math.inf, boxes.dtype),
    )
    tensors = [x for x in operands if x is not None]
    if not is_measured(node, *tensors):
        tensors = [gf.constant(node.known(x, "what it chooses from")) for x in tensors]
    centred = bool(node.attr("center_point_box", 0))
    return measure(NonMaxSuppression, ["boxes"], *tensors, centred=centred)[0]


@writes("non_max_suppression")
def _write_non_max_suppression(
    b: Builder, node: Node, boxes: Val, scores: Val, *limits: Val
) -> Val:
    if boxes.dtype.name == "float64":
        raise Unsupported("float64")
    most, overlap, lowest = limits
    operands = [
        b.cast(boxes, float32),
        b.cast(scores, float32),
        b.reshape(b.cast(most, int64), (1,)),
        b.reshape(b.cast(overlap, float32), (1,)),
        b.reshape(b.cast(lowest, float32), (1,)),
    ]
    centred = int(fields(node).centred)
    (made,) = b.many("NonMaxSuppression", operands, [int64], center_point_box=centred)
    b.measure(fields(node).dims[0], made, 0)
    return made


@reads("RoiAlign")
def _roi_align(node: ModelNode, x: Tensor, rois: Tensor, batches: Tensor) -> Tensor:
    """Sample regions on a grid.  x: [N, C, H, W], rois: [R, 4] -> [R, C, height, width]"""
    bins = node.attr("output_height", 1), node.attr("output_width", 1)
    ratio, scale = node.attr("sampling_ratio", 0), node.attr("spatial_scale", 1.0)
    usual = "half_pixel" if node.version >= 16 else "output_half_pixel"
    convention = node.choice(
        "coordinate_transformation_mode", usual, ("half_pixel", "output_half_pixel")
    )
    is_max = node.choice("mode", "avg", ("avg", "max")) == "max"
    node.require(min(bins) > 0, f"the output has {bins[0]}×{bins[1]} positions")
    node.require(x.ndim == 4 and rois.ndim == 2, f"x and rois are {x.shape} and {rois.shape}")
    shift = 0.5 if convention == "half_pixel" else 0.0
    low = rois[:, :2] * scale - shift  # x1, y1
    size = rois[:, 2:] * scale - shift - low
    if not shift:
        size = gf.maximum(size, 1.0)
    # A region is (x, y), bins and counts of samples are (y, x).
    if ratio > 0:
        return sampled(x, low, size, batches, bins, (ratio, ratio), is_max)
    # As many samples as a bin has pixels: regions with the same number go together.
    known = node.known(size, "the regions, of which the number of samples depends")
    samples = np.nan_to_num(np.ceil(known[:, ::-1] / bins))
    node.require(samples.max(initial=0) <= _MOST_SAMPLES, "a region is too large")
    counts = np.maximum(samples, 1).astype(int)
    kinds, kind_of = np.unique(counts, axis=0, return_inverse=True)
    if len(kinds) < 2:
        count = kinds.ravel().tolist() or (1, 1)
        return sampled(x, low, size, batches, bins, count, is_max)
    results = []
    for kind, count in enumerate(kinds.tolist()):
        own = gf.constant(np.flatnonzero(kind_of == kind))
        a, b, c = (gf.take(each, own, axis=0) for each in (low, size, batches))
        results.append(sampled(x, a, b, c, bins, count, is_max))
    order = np.argsort(np.argsort(kind_of, kind="stable"))
    return gf.take(gf.concat(results), gf.constant(order), axis=0)


_MOST_SAMPLES = 1 << 14
"""The largest bin along one axis: its elements are found when the model is loaded."""


@reads("MaxRoiPool")
def _max_roi_pool(node: ModelNode, x: Tensor, rois: Tensor) -> Tensor:
    """Take the largest of each bin of a region.

    x: [N, C, H, W], rois: [R, 5] batch, x1, y1, x2, y2 -> [R, C, height, width]; 0 for bins that
    are empty.
    """
    bins = node.numbers("pooled_shape", (0, 0))
    node.require(min(bins) > 0, f"pooled_shape {bins} must be positive")
    node.require(x.ndim == 4 and rois.ndim == 2, f"x and rois are {x.shape} and {rois.shape}")
    made = gf.take(x, gf.astype(rois[:, 0], gf.int64), axis=0)
    corners = gf.astype(rois[:, 1:], gf.result_type(x.dtype, gf.float32))
    corners = corners * node.attr("spatial_scale", 1.0)
    corners = gf.sign(corners) * gf.floor(gf.abs(corners) + 0.5)  # halves go away from zero
    rows = _bin_masks(corners[:, 1], corners[:, 3], bins[0], x.shape[2])  # [R, height, H]
    columns = _bin_masks(corners[:, 0], corners[:, 2], bins[1], x.shape[3])  # [R, width, W]
    in_rows = gf.reshape(rows, (rows.shape[0], 1, bins[0], x.shape[2], 1))
    made = gf.max(gf.where(in_rows, gf.expand_dims(made, 2), -math.inf), axis=3)
    in_columns = gf.reshape(columns, (columns.shape[0], 1, 1, bins[1], x.shape[3]))
    made = gf.max(gf.where(in_columns, gf.expand_dims(made, 3), -math.inf), axis=4)
    some = gf.logical_and(gf.any(in_rows, axis=3), gf.any(in_columns, axis=4))
    return gf.where(some, made, 0.0)


def _bin_masks(low: Tensor, high: Tensor, bins: int, limit: DimLike) -> Tensor:
    """Return the positions in each bin of a region along one axis.  -> [R, bins, limit]"""
    step = gf.expand_dims(gf.maximum(high - low + 1, 1.0) / bins, -1)
    number = gf.astype(gf.arange(bins), low.dtype)
    first = gf.expand_dims(gf.floor(number * step) + gf.expand_dims(low, -1), -1)
    end = gf.expand_dims(gf.ceil((number + 1) * step) + gf.expand_dims(low, -1), -1)
    position = gf.astype(gf.arange(limit), low.dtype)
    return gf.logical_and(position >= first, position < end)


@reads("ImageDecoder")
def _image_decoder(node: ModelNode, data: Tensor) -> Tensor:
    """Decode an image's file, with Pillow.  data: [bytes] uint8 -> [height, width, channels]"""
    from PIL import Image, UnidentifiedImageError

    wanted = node.choice("pixel_format", "RGB", ("BGR", "Grayscale", "RGB"))
    try:
        image = Image.open(io.BytesIO(node.known(data, "the image").tobytes()))
        pixels = np.asarray(image.convert("L" if wanted == "Grayscale" else "RGB"))
    except (UnidentifiedImageError, OSError) as error:
        raise OnnxError(f"ImageDecoder: the image can't be decoded: {error}") from None
    if wanted == "Grayscale":
        return gf.constant(pixels[..., None])
    return gf.constant(np.ascontiguousarray(pixels[..., ::-1] if wanted == "BGR" else pixels))
