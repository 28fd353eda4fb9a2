"""Draws from distributions with heavier tails than the normal one. Public in `gf.random`."""

from __future__ import annotations

import math

from graphfw.ir.dtype import DTypeLike
from graphfw.ir.functions import F
from graphfw.ir.modes import interceptable
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import TensorLike, dims_of
from graphfw.ops.composed import wide_dtype
from graphfw.ops.draws import (
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
    refuse_lists("laplace", "shape, mean, scale", mean=mean, scale=scale)
    dims = dims_of("random.laplace", shape)
    to = float_dtype("laplace", dtype, mean, scale)
    demand_scale("laplace", "scale", scale)
    path = stream("laplace", name)
    side = bits("laplace", dims, 1, path.part("sign")) & 1
    wait = F.astype(waits("laplace", dims, wide_dtype(to), path.part("wait")), to)
    draw = F.where(side == 1, wait, -wait) * parameter("laplace", "scale", scale, dims, to)
    return named(draw + parameter("laplace", "mean", mean, dims, to), name)


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
    refuse_lists("cauchy", "shape, median, scale", median=median, scale=scale)
    dims = dims_of("random.cauchy", shape)
    to = float_dtype("cauchy", dtype, median, scale)
    demand_scale("cauchy", "scale", scale)
    wide = wide_dtype(to)
    # Odd multiples of a half step: never -1, 0 or 1.
    centred = 2 * unit("cauchy", dims, wide, name) - (1 - 2.0 ** -PRECISION[wide.name])
    draw = F.astype(F.tan(centred * (math.pi / 2)), to)
    draw = draw * parameter("cauchy", "scale", scale, dims, to)
    return named(draw + parameter("cauchy", "median", median, dims, to), name)
