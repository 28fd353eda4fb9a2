"""Draws from distributions with heavier tails than the normal one. Public in `gf.random`."""

from __future__ import annotations

import math
from collections.abc import Callable

from graphfw.ir.dtype import DType, DTypeLike
from graphfw.ir.functions import F
from graphfw.ir.modes import interceptable
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.args import TensorLike, dims_of
from graphfw.ops.composed import wide_dtype
from graphfw.ops.random.draws import (
    PRECISION,
    ShapeLike,
    bits,
    demand_scale,
    float_dtype,
    named,
    parameter,
    refuse_bare_dims,
    refuse_lists,
    stream,
    unit,
    waits,
)

__all__ = ["cauchy", "laplace"]


@interceptable
@refuse_bare_dims
def laplace(
    shape: ShapeLike,
    mean: TensorLike = 0.0,
    scale: TensorLike = 1.0,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Draw from the Laplace distribution, exp(-|x - mean| / scale) / (2 scale).  -> shape

    Gradients flow to mean and scale.

    Args:
        shape: Dims, static or symbolic.
        mean: The centre; a number or a tensor that broadcasts to `shape`.
        scale: The mean distance from it; the same.
        dtype: A floating-point dtype; by default that of the parameters, or the default dtype.
        name: What to call the result and its stream.

    Raises:
        ArgumentError: scale is negative (checked for a number); a parameter is a list or tuple.
        DTypeError: The dtype is not a floating-point one.
        ShapeError: `shape` is no shape, or a parameter does not broadcast to it.
    """
    dims, to, spread = _spread("laplace", shape, dtype, scale, mean=mean)
    path = stream("laplace", name)
    side = bits("laplace", dims, 1, path.substream("sign")) & 1
    wait = F.astype(waits("laplace", dims, wide_dtype(to), path.substream("wait")), to)
    return named(spread(F.where(side == 1, wait, -wait)), name)


@interceptable
@refuse_bare_dims
def cauchy(
    shape: ShapeLike,
    median: TensorLike = 0.0,
    scale: TensorLike = 1.0,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Draw from the Cauchy distribution, which has no mean.  -> shape

    Half of the draws are within `scale` of the median. Gradients flow to both.

    Args:
        shape: Dims, static or symbolic.
        median: The centre; a number or a tensor that broadcasts to `shape`.
        scale: Half the width at half the height; the same.
        dtype: A floating-point dtype; by default that of the parameters, or the default dtype.
        name: What to call the result and its stream.

    Raises:
        ArgumentError: scale is negative (checked for a number); a parameter is a list or tuple.
        DTypeError: The dtype is not a floating-point one.
        ShapeError: `shape` is no shape, or a parameter does not broadcast to it.
    """
    dims, to, spread = _spread("cauchy", shape, dtype, scale, median=median)
    wide = wide_dtype(to)
    # Odd multiples of a half step: never -1, 0 or 1.
    centred = 2 * unit("cauchy", dims, wide, name) - (1 - 2.0 ** -PRECISION[wide.name])
    return named(spread(F.astype(F.tan(centred * (math.pi / 2)), to)), name)


def _spread(
    what: str, shape: ShapeLike, dtype: DTypeLike | None, scale: TensorLike, **centre: TensorLike
) -> tuple[Shape, DType, Callable[[Tensor], Tensor]]:
    """Check what a distribution around a centre is drawn with.

    Args:
        what: The public function.
        shape: As given.
        dtype: As given.
        scale: How wide it is, as given.
        centre: Where it is, as given, by the argument's name.

    Returns:
        The dims and the dtype to draw in, and what makes a draw of the standard distribution one
        of this distribution.
    """
    (label, location), *_ = centre.items()
    refuse_lists(what, f"shape, {label}, scale", **centre, scale=scale)
    dims = dims_of(f"random.{what}", shape)
    to = float_dtype(what, dtype, location, scale)
    demand_scale(what, "scale", scale)

    def spread(draw: Tensor) -> Tensor:
        wide = draw * parameter(what, "scale", scale, dims, to)
        return wide + parameter(what, label, location, dims, to)

    return dims, to, spread
