"""Resizing: one dim after the other, each element a weighted sum of a few elements of that dim.

Coordinates and weights follow the operator Resize of ONNX (version 19 of its operator set), whose
names the arguments have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from graphfw.errors import ShapeError, counted
from graphfw.ir.dim import Dim, DimLike, always_le, dim_max
from graphfw.ir.dtype import float64, int64
from graphfw.ir.functions import F, public
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import Axes, TensorLike, as_tensor, axes_in_order, converted, dims_of
from graphfw.ops.composed import demand, demand_one_of, floats, require_room, wide

__all__ = ["resize"]


class _Axis(NamedTuple):
    """The facts of a dim that is resized.

    Attributes:
        size: Its size.
        new: The size that it gets.
        scale: The factor that was asked for; None: new / size.
        start: Where the region of it that is taken begins, as a fraction of the whole.
        end: Where it ends.
    """

    size: DimLike
    new: DimLike
    scale: float | None
    start: float
    end: float

    def back(self, position: Any) -> Any:
        """Return distances in the result as distances in x."""
        return position * self.size / self.new if self.scale is None else position / self.scale


def _half_pixel(xp: Any, n: Any, axis: _Axis) -> Any:
    return axis.back(n + 0.5) - 0.5


def _half_pixel_symmetric(xp: Any, n: Any, axis: _Axis) -> Any:
    # The middles meet, also where the new size is not exactly size * scale.
    return (axis.back(2 * n + 1 - axis.new) + (axis.size - 1)) / 2


def _pytorch_half_pixel(xp: Any, n: Any, axis: _Axis) -> Any:
    return xp.where(n * 0 + axis.new > 1, _half_pixel(xp, n, axis), 0.0)


def _align_corners(xp: Any, n: Any, axis: _Axis) -> Any:
    if axis.scale is None or not isinstance(axis.size, int):
        return n * (axis.size - 1) / dim_max(axis.new - 1, 1)
    # ONNX takes the last position of the length before it is rounded to a size.
    last = axis.size * axis.scale - 1
    return n * (axis.size - 1) / last if last > 0 and axis.new > 1 else n * 0.0


def _asymmetric(xp: Any, n: Any, axis: _Axis) -> Any:
    return axis.back(n)


def _tf_crop_and_resize(xp: Any, n: Any, axis: _Axis) -> Any:
    steps = n * (axis.end - axis.start) / dim_max(axis.new - 1, 1)
    middle = (axis.start + axis.end) / 2
    return xp.where(n * 0 + axis.new > 1, axis.start + steps, middle) * (axis.size - 1)


_COORDINATES = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
    "tf_crop_and_resize": _tf_crop_and_resize,
}

_ROUNDING = {
    "round_prefer_floor": lambda xp, x: xp.ceil(x - 0.5),
    "round_prefer_ceil": lambda xp, x: xp.floor(x + 0.5),
    "floor": lambda xp, x: xp.floor(x),
    "ceil": lambda xp, x: xp.ceil(x),
}

_REACH = {"nearest": 0, "linear": 1, "cubic": 2}
"""The number of elements on each side that count."""


def _linear_weight(xp: Any, distance: Any, a: float) -> Any:
    return xp.maximum(1 - distance, 0.0)


def _cubic_weight(xp: Any, distance: Any, a: float) -> Any:
    """R. G. Keys, "Cubic convolution interpolation for digital image processing", 1981."""
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return xp.where(distance <= 1, near, xp.where(distance < 2, far, 0.0))


_WEIGHTS = {"linear": _linear_weight, "cubic": _cubic_weight}


class _How(NamedTuple):
    """The arguments that are the same for all dims."""

    mode: str
    coordinates: str
    rounding: str
    cubic_coeff_a: float
    exclude_outside: bool
    antialias: bool


@public
def resize(
    x: TensorLike,
    /,
    sizes: DimLike | Sequence[DimLike] | None = None,
    *,
    scales: float | Sequence[float] | None = None,
    axes: Axes = None,
    mode: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor",
    cubic_coeff_a: float = -0.75,
    exclude_outside: bool = False,
    antialias: bool = False,
    roi: Sequence[tuple[float, float]] | None = None,
    extrapolation_value: float = 0.0,
) -> Tensor:
    """Resize dims by interpolation.  x: [*A] -> [*A with other sizes]

    Floats, and with "nearest" any dtype; otherwise integers become the default dtype. float16 and
    bfloat16 are computed in float32. Arguments are those of ONNX's Resize.

    Args:
        x: What to resize.
        sizes: The new sizes: one for all spatial dims of x [N, C, *S], or one for each axis.
        scales: Factors instead: the new sizes are the products, rounded down. Where both are given
            the factors say where the elements are.
        axes: The dims to resize; by default the last, as many as there are sizes.
        mode: "nearest", "linear", or "cubic".
        coordinate_transformation_mode: Where elements of the result lie in x: "half_pixel" (an
            element is a square, and the outer edges meet), "half_pixel_symmetric" (their middles
            do), "pytorch_half_pixel", "align_corners" (the outer elements meet), "asymmetric" (the
            first ones do), or "tf_crop_and_resize" (the region of x that `roi` says).
        nearest_mode: Which is the nearest: "round_prefer_floor", "round_prefer_ceil" (these differ
            in the midst between two), "floor", or "ceil".
        cubic_coeff_a: The coefficient of "cubic".
        exclude_outside: Whether elements outside of x count nothing; else those at the edge count
            for them.
        antialias: Whether weights spread over all elements that one of the result covers, where it
            becomes smaller.
        roi: For "tf_crop_and_resize", pairs (start, end) for each axis; 0 is the first element and
            1 the last.
        extrapolation_value: What "tf_crop_and_resize" has outside of x.

    Raises:
        ShapeError: A dim is empty or becomes so, or with antialias its sizes aren't known.
        ArgumentError: An argument does not fit the others, or is none that there is.
        AxisError: There is no such axis.
        DTypeError: x is complex.

    >>> import graphfw as gf
    >>> gf.resize(gf.asarray([[[1.0, 2.0]]]), 4)
    Tensor([[[1.  , 1.25, 1.75, 2.  ]]], dtype=float32)
    """
    tensor = as_tensor(x) if mode == "nearest" else floats("resize", x)
    for name, given, known in (
        ("mode", mode, _REACH),
        ("coordinate_transformation_mode", coordinate_transformation_mode, _COORDINATES),
        ("nearest_mode", nearest_mode, _ROUNDING),
    ):
        demand_one_of("resize", name, given, known)
    how = _How(
        mode,
        coordinate_transformation_mode,
        nearest_mode,
        cubic_coeff_a,
        exclude_outside,
        antialias and mode != "nearest",
    )
    crops = coordinate_transformation_mode == "tf_crop_and_resize"
    result = tensor if mode == "nearest" else wide(tensor)
    outside: Any = None
    for axis_index, axis in _axes(tensor, sizes, scales, axes, roi if crops else None):
        if axis.new == axis.size and axis.scale in (None, 1.0) and not crops:
            continue
        # What is known when the graph is built is computed then, by the same functions.
        xp: Any = F
        n: Any = F.positions(axis.new)
        if isinstance(axis.size, int) and isinstance(axis.new, int):
            require_room("resize", axis.new)
            xp, n = np, np.arange(axis.new)
        where = _COORDINATES[how.coordinates](xp, _cast(n, float64), axis)
        result = _resized(xp, result, axis_index, where, axis, how)
        if crops:
            beyond = as_tensor((where < 0) | (where > axis.size - 1))
            beyond = _laid(beyond, tensor.ndim - axis_index - 1)
            outside = beyond if outside is None else outside | beyond
    if outside is not None:
        result = F.where(outside, extrapolation_value, result)
    return converted(result, tensor.dtype)


def _cast(x: Any, dtype: Any) -> Any:
    return F.astype(x, dtype) if isinstance(x, Tensor) else x.astype(dtype.dtype)


def _axes(
    x: Tensor,
    sizes: DimLike | Sequence[DimLike] | None,
    scales: float | Sequence[float] | None,
    axes: Axes,
    roi: Sequence[tuple[float, float]] | None,
) -> list[tuple[int, _Axis]]:
    """Return which dims to resize, and how."""
    given = scales if sizes is None else sizes
    demand(given is not None, "resize: neither sizes nor scales are given", fix="give one of them")
    count = len(given) if isinstance(given, Sequence) else x.ndim - 2
    spatial = axes is not None or 0 < count <= x.ndim
    message = f"resize: x has {counted(x.ndim, 'dim')}, and {max(count, 1)} are to be resized"
    demand(spatial, message, {"x": x}, fix="x is [N, C, *S], or name axes", error=ShapeError)
    axis_indices = axes_in_order(
        "resize", x, range(x.ndim - count, x.ndim) if axes is None else axes
    )
    factors = _each("scales", scales, len(axis_indices))
    asked = (
        [None] * len(axis_indices)
        if sizes is None
        else dims_of("resize", _each("sizes", sizes, len(axis_indices)))
    )
    regions = _each("roi", roi if roi is None else list(roi), len(axis_indices))
    result = []
    for axis_index, size, scale, region in zip(axis_indices, asked, factors, regions, strict=True):
        old = x.shape[axis_index]
        message = f"resize: scale {scale!r} must be a number above 0"
        is_number = isinstance(scale, (int, float, np.floating))
        fits = scale is None or (is_number and 0 < scale < math.inf)
        demand(fits, message, fix="use 1.0 for no change")
        new = _scaled(old, scale) if size is None else size
        for dim in (old, new):
            message = f"resize: dim {axis_index} has {counted(old, 'element')} and is to have {new}"
            fix = "both must be 1 or more"
            demand(not always_le(dim, 0), message, {"x": x}, fix=fix, error=ShapeError)
        start, end = region or (0.0, 1.0)
        result.append((axis_index, _Axis(old, new, scale, float(start), float(end))))
    return result


def scaled_sizes(x: Tensor, scales: float | Sequence[float]) -> list[DimLike]:
    """Return the sizes of x's spatial dims times factors, rounded down."""
    return [axis.new for _, axis in _axes(x, None, scales, None, None)]


def _each(what: str, given: Any, count: int) -> list[Any]:
    values = list(given) if isinstance(given, Sequence) else [given] * count
    message = f"resize: {len(values)} {what} for {counted(count, 'axis', 'axes')}"
    demand(len(values) == count, message, fix=f"give one of the {what} for each axis")
    return values


def _scaled(size: DimLike, scale: float) -> DimLike:
    if not isinstance(size, Dim):
        return math.floor(size * scale)
    from fractions import Fraction  # which takes a millisecond, and `decimal`, to import

    ratio = Fraction(scale).limit_denominator(2**16)  # 1.2 is 6/5, and not a bit less
    return size * ratio.numerator // ratio.denominator


def _resized(xp: Any, x: Tensor, axis_index: int, where: Any, axis: _Axis, how: _How) -> Tensor:
    """Resize one dim; `where` says for each position of the result where in x it lies."""
    if how.mode == "nearest":
        return _taken(x, axis_index, _ROUNDING[how.rounding](xp, where), axis)
    reach, spread = _REACH[how.mode], 1.0
    if how.antialias:
        demand(
            axis.scale is not None or (isinstance(axis.size, int) and isinstance(axis.new, int)),
            f"resize: how far antialias reaches in dim {axis_index} depends on sizes not known yet",
            {"x": x},
            fix="give scales, or assert x's shape with gf.assert_shape",
            error=ShapeError,
        )
        spread = min(axis.scale or cast(int, axis.new) / cast(int, axis.size), 1.0)
    base = xp.floor(where)
    first = math.floor(-reach / spread) + 1
    positions = [base + offset for offset in range(first, 2 - first)]
    weight = _WEIGHTS[how.mode]
    weights = [weight(xp, xp.abs(p - where) * spread, how.cubic_coeff_a) for p in positions]
    if how.exclude_outside:
        inside = [(p >= 0) & (p <= axis.size - 1) for p in positions]
        weights = [xp.where(i, w, 0.0) for i, w in zip(inside, weights, strict=True)]
    if how.exclude_outside or how.antialias:
        total = sum(weights[1:], weights[0])
        total = xp.where(total == 0, 1.0, total)  # none is inside: there nothing counts
        weights = [w / total for w in weights]
    trailing = x.ndim - axis_index - 1
    terms = [
        _taken(x, axis_index, p, axis) * _laid(as_tensor(_cast(w, x.dtype)), trailing)
        for p, w in zip(positions, weights, strict=True)
    ]
    return sum(terms[1:], terms[0])


def _taken(x: Tensor, axis_index: int, where: Any, axis: _Axis) -> Tensor:
    """Return elements of a dim; what lies outside is the one at the edge."""
    xp: Any = F if isinstance(where, Tensor) else np
    index = xp.minimum(xp.maximum(where, 0.0), axis.size - 1)
    return F.take(x, as_tensor(_cast(index, int64)), axis=axis_index)


def _laid(x: Tensor, trailing: int) -> Tensor:
    """Give a tensor of one dim dims of size 1 after it."""
    return F.reshape(x, (*x.shape, *[1] * trailing))
