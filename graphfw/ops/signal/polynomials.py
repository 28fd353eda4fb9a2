"""Polynomials by their coefficients, the highest power first, and convolution of vectors."""

from __future__ import annotations

from typing import Literal

from graphfw.errors import ShapeError
from graphfw.ir.dim import Dim, DimLike, always_ge, dim_max, dim_min
from graphfw.ir.functions import F, public
from graphfw.ir.shape import shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import (
    TensorLike,
    as_tensor,
    converted,
    dims_of,
    inexact,
    is_whole,
    promoted,
    ruled,
)
from graphfw.ops.composed import demand, demand_one_of, wide
from graphfw.ops.dtypes import require_numeric
from graphfw.ops.linalg.solve import lstsq
from graphfw.ops.nn.convolution import conv

__all__ = ["convolve", "polyfit", "polyval", "vander"]


@public
def convolve(
    x1: TensorLike, x2: TensorLike, /, *, mode: Literal["full", "valid", "same"] = "full"
) -> Tensor:
    """Convolve two vectors: result[k] = sum over i of x1[i] x2[k - i].  [N], [M] -> [N + M - 1]

    That multiplies polynomials. Numeric dtypes, promoted; float16 and bfloat16 accumulate in
    float32. `gf.conv` is that of deep learning: many channels, and kernels that are not reversed.

    Args:
        x1: A vector.
        x2: Another one.
        mode: "full" for all positions where they overlap, "valid" for those where one is within
            the other, max(N, M) - min(N, M) + 1, "same" for the middle max(N, M).

    Raises:
        ShapeError: A tensor is no vector, or is empty.
        ArgumentError: There is no such mode.
        DTypeError: The tensors are bool.

    >>> import graphfw as gf
    >>> gf.convolve(gf.asarray([1, 2, 3]), gf.asarray([0, 1]))
    Tensor([0, 1, 2, 3], dtype=int64)
    """
    a, b = promoted("convolve", x1, x2)
    ruled("convolve", a, require_numeric, a.dtype)
    demand_one_of("convolve", "mode", mode, ("full", "valid", "same"))
    for label, tensor in (("x1", a), ("x2", b)):
        demand(
            tensor.ndim == 1 and tensor.shape != (0,),
            f"convolve: {label} is {shape_text(tensor.shape)}, and no vector with elements",
            {label: tensor},
            fix="pass vectors; gf.conv convolves images, sequences and volumes",
            error=ShapeError,
        )
    if always_ge(b.shape[0], a.shape[0] + 1):
        a, b = b, a
    n, m = a.shape[0], b.shape[0]
    image, kernel = F.reshape(a, (1, 1, n)), F.reshape(F.flip(b), (1, 1, m))
    full = conv(image, kernel, padding=[(m - 1, m - 1)])
    result: Tensor = F.reshape(full, (full.shape[2],))
    if mode == "full":
        return result
    shorter, longer = dim_min(n, m), dim_max(n, m)
    if mode == "valid":
        return result[shorter - 1 : longer]
    start = (shorter - 1) // 2
    return result[start : start + longer]


@public
def polyval(p: TensorLike, x: TensorLike, /) -> Tensor:
    """Evaluate polynomials, by Horner's rule.  p: [K, *A], x: [*B] -> [*A broadcast with *B]

    Numeric dtypes, promoted.

    Args:
        p: The coefficients, that of the highest power first.
        x: Where.

    Raises:
        ShapeError: How many coefficients there are is not known; the shapes don't broadcast.
        DTypeError: The tensors are bool.

    >>> import graphfw as gf
    >>> gf.polyval([3, 0, 1], gf.asarray([0, 1, 5]))
    Tensor([ 1,  4, 76], dtype=int64)
    """
    coefficients, points = promoted("polyval", p, x)
    ruled("polyval", coefficients, require_numeric, coefficients.dtype)
    demand(
        coefficients.ndim > 0 and not isinstance(coefficients.shape[0], Dim),
        f"polyval: coefficients {shape_text(coefficients.shape)}: how many is not known",
        {"p": coefficients},
        fix="give p one dim or more, and its first dim a number",
        error=ShapeError,
    )
    result = F.zeros_like(points)
    for coefficient in F.unstack(coefficients):
        result = result * points + coefficient
    return result


@public
def vander(x: TensorLike, n: DimLike | None = None, /, *, increasing: bool = False) -> Tensor:
    """Return the powers of x, N - 1 to 0, in columns: Vandermonde's matrix.  x: [M] -> [M, N]

    Numeric dtypes; small integers become int64.

    Args:
        x: The numbers.
        n: How many powers: as many as there are numbers by default.
        increasing: Whether to begin with the power 0.

    Raises:
        ShapeError: x has not one dim; n is negative.

    >>> import graphfw as gf
    >>> gf.vander(gf.asarray([2, 3]), 3)
    Tensor([[4, 2, 1],
            [9, 3, 1]], dtype=int64)
    """
    tensor = as_tensor(x)
    message = f"vander: wants 1 dim, not {tensor.ndim}"
    fix = "use gf.vmap(gf.vander) for a batch of vectors"
    demand(tensor.ndim == 1, message, {"x": tensor}, fix=fix, error=ShapeError)
    (count,) = dims_of("vander", tensor.shape[0] if n is None else n)
    spread = F.broadcast_to(F.expand_dims(tensor, axis=1), (tensor.shape[0], dim_max(count - 1, 0)))
    powers = F.cumulative_prod(spread, axis=1, include_initial=True)
    powers = powers[:, :count]
    return powers if increasing else F.flip(powers, axis=1)


@public
def polyfit(x: TensorLike, y: TensorLike, degree: int, /) -> Tensor:
    """Find the polynomial whose squared distances from points add up to the least.

    x: [M], y: [M] or [M, K] -> [degree + 1] or [degree + 1, K], the highest power first. Floats;
    integers become the default dtype. The powers are scaled to one size first, as NumPy does.

    Args:
        x: Where the points are.
        y: Their values; of several polynomials in columns.
        degree: The highest power.

    Raises:
        ShapeError: The shapes don't fit, or the degree is negative.

    >>> import graphfw as gf
    >>> c = gf.polyfit(gf.asarray([0.0, 1.0, 2.0]), gf.asarray([1.0, 2.0, 5.0]), 2)
    >>> bool(gf.allclose(c, [1.0, 0.0, 1.0], atol=1e-4))
    True
    """
    points, values = promoted("polyfit", inexact(x), inexact(y))
    is_int = is_whole(degree) and degree >= 0
    fix = "use the highest power, an int: 1 for a line"
    demand(is_int, f"polyfit: degree={degree!r}", {"x": points}, fix=fix, error=ShapeError)
    demand(
        points.ndim == 1 and values.ndim in (1, 2) and values.shape[0] == points.shape[0],
        f"polyfit: x {shape_text(points.shape)} and y {shape_text(values.shape)} are no points",
        {"x": points, "y": values},
        fix="give x as a vector, and as many rows of y",
        error=ShapeError,
    )
    powers = vander(wide(points), degree + 1)
    size = F.vector_norm(powers, axis=0)
    size = F.where(size == 0, 1, size)
    found = lstsq(powers / size, wide(values))
    return converted(
        found / (F.expand_dims(size, axis=1) if values.ndim == 2 else size), values.dtype
    )
