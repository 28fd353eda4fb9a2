"""Other sizes: Resize and what came before it, and sampling on a grid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import graphfw as gf
from graphfw.errors import counted
from graphfw.ir.dim import Dim, DimLike
from graphfw.ir.tensor import Tensor
from graphfw.onnx.errors import OnnxError, ValueNeeded
from graphfw.onnx.node import ModelNode
from graphfw.onnx.ratios import Ratio
from graphfw.onnx.table import reads


@reads("Resize")
def _resize(
    node: ModelNode,
    x: Tensor,
    roi: Tensor | None = None,
    scales: Tensor | None = None,
    sizes: Tensor | None = None,
) -> Tensor:
    if node.version < 11:  # x, scales; like Upsample
        return _upsampled(node, x, roi)
    axes = [node.axis(a, x.ndim) for a in node.attr("axes", tuple(range(x.ndim)))]
    factors = _factors(node, scales)
    wanted = None if sizes is None or not sizes.size else list(node.dims(sizes, "the sizes"))
    if wanted is not None:
        wanted, factors = _kept(node, x, axes, wanted)
    elif factors is None:
        raise OnnxError("Resize: it has neither scales nor sizes")
    where = node.choice("coordinate_transformation_mode", "half_pixel", _COORDINATES)
    crops = where == "tf_crop_and_resize"
    pairs = None
    if crops and roi is not None:
        edges = [float(v) for v in node.known(roi, "the region").reshape(-1)]
        node.require(
            len(edges) == 2 * len(axes), f"its region has {counted(len(edges), 'element')}"
        )
        pairs = list(zip(edges[: len(axes)], edges[len(axes) :], strict=True))
    return _resized(
        node,
        x,
        axes,
        wanted,
        factors,
        pairs,
        mode=node.choice("mode", "nearest", ("cubic", "linear", "nearest")),
        coordinate_transformation_mode=_COORDINATES[where],
        nearest_mode=node.attr("nearest_mode", "round_prefer_floor"),
        cubic_coeff_a=node.attr("cubic_coeff_a", -0.75),
        exclude_outside=bool(node.attr("exclude_outside", 0)),
        antialias=bool(node.attr("antialias", 0)),
        extrapolation_value=node.attr("extrapolation_value", 0.0),
    )


_LARGEST = 1 << 24
"""The largest size of a resized dim: its weights are computed when the model is loaded."""


def _resized(
    node: ModelNode,
    x: Tensor,
    axes: Sequence[int],
    sizes: Sequence[DimLike] | None,
    factors: Sequence[float | Ratio] | None,
    regions: Sequence[tuple[float, float]] | None,
    **options: Any,
) -> Tensor:
    """Resize dims by sizes, by factors, or by both."""
    both = (sizes, factors)
    enough = all(v is None or len(axes) <= len(v) for v in both)
    node.require(enough, "it has too few scales or sizes")
    by_size: dict[int, DimLike] = {}
    by_factor: dict[int, float] = {}
    for index, axis in enumerate(axes):
        old, factor = x.shape[axis], None if factors is None else factors[index]
        new: Any = 0 if sizes is None else sizes[index]
        if isinstance(factor, Ratio):
            new = by_size[index] = _whole(node, x, axis, factor)
        elif factor is not None:
            node.require(0 < factor < _LARGEST, f"a scale is {factor}")
            by_factor[index] = factor
            new = old * factor if isinstance(old, int) else 0
        node.require(isinstance(new, Dim) or new <= _LARGEST, f"it would have a dim of {new}")

    def made(x: Tensor, indices: Iterable[int], sizes: Any, scales: Any) -> Tensor:
        chosen = [axes[p] for p in indices]
        roi = None if regions is None else [regions[p] for p in indices]
        return gf.resize(x, sizes, scales=scales, axes=chosen, roi=roi, **options)

    if not by_size:
        return made(x, range(len(axes)), sizes, factors)
    x = made(x, by_size, list(by_size.values()), None)
    return made(x, by_factor, None, list(by_factor.values())) if by_factor else x


def _whole(node: ModelNode, x: Tensor, axis: int, factor: Ratio) -> DimLike:
    """Return a dim's size times a factor.

    Raises:
        ValueNeeded: It is not known to be a whole number: then the factor isn't the sizes' ratio.
    """
    product = factor * Ratio(x.shape[axis], 1)
    if isinstance(product, float) and product.is_integer():
        return int(product)
    if isinstance(product, Ratio) and product.under == 1:
        return product.top
    raise ValueNeeded(
        f"{node.op_type}: dim {axis} of {node.inputs[0]!r}, {x.shape[axis]}, would become "
        f"{product}, and nothing shows that it is a whole number",
        (),
    )


_COORDINATES = {
    "align_corners": "align_corners",
    "asymmetric": "asymmetric",
    "half_pixel": "half_pixel",
    "half_pixel_symmetric": "half_pixel_symmetric",
    "pytorch_half_pixel": "pytorch_half_pixel",
    "tf_crop_and_resize": "tf_crop_and_resize",
}
"""ONNX's names of the rules from positions of the result to positions of x."""


def _factors(node: ModelNode, scales: Tensor | None) -> list[float | Ratio] | None:
    if scales is None or not scales.size:
        return None
    values = node.facts.value(scales)
    if values is None:
        values = node.known(scales, "the scales")
    # A float32 is taken for what it is written as: with 1.2 and not a bit more, position 6 is 5.
    return [v if isinstance(v, Ratio) else float(str(v)) for v in values.reshape(-1)]


def _kept(
    node: ModelNode, x: Tensor, axes: Sequence[int], sizes: list[DimLike]
) -> tuple[list[DimLike], list[float | Ratio] | None]:
    """Return sizes of x's proportions that are not larger, or not smaller, than the wanted ones."""
    policies = ("not_larger", "not_smaller", "stretch")
    policy = node.choice("keep_aspect_ratio_policy", "stretch", policies)
    if policy == "stretch":
        return sizes, None
    old = [n for a in axes if isinstance(n := x.shape[a], int)]
    wanted = [n for n in sizes if isinstance(n, int)]
    if len(old) != len(axes) or len(wanted) != len(sizes):
        raise OnnxError("Resize: keep_aspect_ratio_policy wants sizes that are known")
    choose = min if policy == "not_larger" else max
    factor = choose([new / n for new, n in zip(wanted, old, strict=True)])
    return [int(factor * n + 0.5) for n in old], [factor] * len(old)


@reads("Upsample")
def _upsample(node: ModelNode, x: Tensor, scales: Tensor | None = None) -> Tensor:
    return _upsampled(node, x, scales)


def _upsampled(node: ModelNode, x: Tensor, scales: Tensor | None) -> Tensor:
    factors = _factors(node, scales) or list(node.attr("scales", ()))
    if not factors:
        raise OnnxError(f"{node.op_type}: it has no scales")
    node.require(
        len(factors) == x.ndim,
        f"it has {counted(len(factors), 'scale')} for {counted(x.ndim, 'dim')}",
    )
    mode = node.choice("mode", "nearest", ("bilinear", "linear", "nearest"))
    return _resized(
        node,
        x,
        range(x.ndim),
        None,
        factors,
        None,
        mode="nearest" if mode == "nearest" else "linear",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


@reads("GridSample")
def _grid_sample(node: ModelNode, x: Tensor, grid: Tensor) -> Tensor:
    modes = {"bilinear": "linear", "bicubic": "cubic"}
    mode = node.attr("mode", "linear")
    return gf.grid_sample(
        x,
        grid,
        mode=modes.get(mode, mode),
        padding_mode=node.attr("padding_mode", "zeros"),
        align_corners=bool(node.attr("align_corners", 0)),
    )
