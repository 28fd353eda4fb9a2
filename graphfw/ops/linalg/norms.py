"""Norms of vectors and matrices."""

from __future__ import annotations

import math
from typing import cast

from graphfw.errors import ShapeError
from graphfw.ir.functions import F, public
from graphfw.ir.shape import reduced
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import Axes, TensorLike, axes_in_order, axes_of, converted, inexact
from graphfw.ops.composed import demand, safe_root, wide
from graphfw.ops.elementwise.where_clip import where

__all__ = ["matrix_norm", "norm", "vector_norm"]


@public
def vector_norm(
    x: TensorLike, /, *, axis: Axes = None, keepdims: bool = False, ord: float = 2
) -> Tensor:
    """The norm of vectors, (sum |x|^ord)^(1/ord).  x: [*A] -> [*A without axis], real

    Its gradient is 0 where the norm is 0. float16 and bfloat16 are computed in float32.

    Args:
        x: The vectors; integers become floats.
        axis: The axis or axes of a vector; all by default.
        keepdims: Whether the axes stay, with size 1.
        ord: Any number; 0 counts the elements that are not 0, inf and -inf are the greatest and the
            least |x|.

    Raises:
        AxisError: There is no such axis.

    >>> import graphfw as gf
    >>> float(gf.vector_norm(gf.asarray([3.0, 4.0])))
    5.0
    """
    tensor = inexact(x)
    axes = axes_of("vector_norm", tensor, axis)
    values = wide(tensor)
    if ord == 0:
        norm = F.sum(F.astype(values != 0, values.dtype.real), axis=axes, keepdims=keepdims)
    elif ord == 2:
        norm = safe_root(F.sum(_squared_size(values), axis=axes, keepdims=keepdims))
    elif abs(ord) == math.inf:
        extreme = F.max if ord > 0 else F.min
        norm = extreme(F.abs(values), axis=axes, keepdims=keepdims)
    elif ord == 1:
        norm = F.sum(F.abs(values), axis=axes, keepdims=keepdims)
    else:
        norm = _general_norm(F.abs(values), axes, keepdims, ord)
    return converted(norm, tensor.dtype.real)


def _squared_size(x: Tensor) -> Tensor:
    if not x.dtype.is_complex:
        return x * x
    real, imaginary = F.real(x), F.imag(x)
    squares: Tensor = real * real + imaginary * imaginary
    return squares


def _general_norm(sizes: Tensor, axes: tuple[int, ...], keepdims: bool, ord: float) -> Tensor:
    # Neither power may see a 0: its derivative there is infinite, or no number.
    zero = sizes == 0
    powers = where(zero, 1, sizes) ** ord
    if ord < 0:  # one size of 0 makes the sum infinite and the norm 0
        total = F.sum(powers, axis=axes, keepdims=keepdims)
        return where(F.any(zero, axis=axes, keepdims=keepdims), 0, total ** (1 / ord))
    total = F.sum(where(zero, 0, powers), axis=axes, keepdims=keepdims)
    nothing = total == 0
    return where(nothing, 0, where(nothing, 1, total) ** (1 / ord))


@public
def matrix_norm(x: TensorLike, /, *, keepdims: bool = False, ord: float | str = "fro") -> Tensor:
    """The norm of matrices in the last two dims.  x: [*B, M, N] -> [*B], real

    Args:
        x: The matrices; integers become floats.
        keepdims: Whether the two dims stay, with size 1.
        ord: "fro" (the root of the sum of squares), 1 and -1 (the greatest and the least sum of a
            column's |x|), inf and -inf (of a row's), 2 and -2 (the greatest and the least singular
            value), "nuc" (the sum of the singular values).

    Raises:
        ShapeError: There are fewer than 2 dims.
        ArgumentError: `ord` is something else.
    """
    tensor = inexact(x)
    message = f"matrix_norm: wants 2 dims or more, not {tensor.ndim}"
    demand(tensor.ndim >= 2, message, {"x": tensor}, fix="use gf.vector_norm", error=ShapeError)
    known = ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf)
    message = f'matrix_norm: ord={ord!r} must be "fro", "nuc", 1, -1, 2, -2, inf or -inf'
    demand(ord in known, message, {"x": tensor}, fix='use ord="fro"')
    if ord == "fro":
        return vector_norm(tensor, axis=(-2, -1), keepdims=keepdims)
    if ord in ("nuc", 2, -2):
        sizes = F.expand_dims(F.svdvals(wide(tensor)), axis=-1)
    else:
        sizes = F.sum(F.abs(wide(tensor)), axis=-2 if ord in (1, -1) else -1, keepdims=True)
    reduce = F.sum if ord == "nuc" else F.max if ord in (1, 2, math.inf) else F.min
    norm = reduce(sizes, axis=(-2, -1), keepdims=keepdims)
    return converted(norm, tensor.dtype.real)


@public
def norm(
    x: TensorLike,
    /,
    *,
    ord: float | str | None = None,
    axis: Axes = None,
    keepdims: bool = False,
) -> Tensor:
    """The norm of vectors or matrices, as NumPy's `linalg.norm`.  x: [*A] -> [*A without axis]

    Args:
        x: Numbers; integers become floats.
        ord: None: the root of the sum of squares over the axes. Else one axis means
            `vector_norm`, two mean `matrix_norm`.
        axis: One axis, two, or all by default.
        keepdims: Whether the axes stay, with size 1.

    Raises:
        AxisError: There is no such axis.
        ArgumentError: `ord` is not one of the norms that these axes have.
    """
    tensor = inexact(x)
    axes = axes_of("norm", tensor, axis)
    if ord is None:
        return vector_norm(tensor, axis=axes, keepdims=keepdims)
    message = f"norm: ord={ord!r} is for one axis or two, not {len(axes)}"
    demand(len(axes) in (1, 2), message, {"x": tensor}, fix="pass axis=, or leave out ord")
    if len(axes) == 1:
        message = f"norm: ord={ord!r} is not a norm of vectors"
        demand(not isinstance(ord, str), message, {"x": tensor}, fix="give it two axes")
        return vector_norm(tensor, axis=axes, keepdims=keepdims, ord=cast(float, ord))
    # The caller's order counts: the first is the rows'.
    rows, columns = axes_in_order("norm", tensor, axes if axis is None else axis)
    batch = [i for i in range(tensor.ndim) if i not in axes]
    result = matrix_norm(F.permute_dims(tensor, (*batch, rows, columns)), ord=ord)
    if not keepdims:
        return result
    return F.reshape(result, reduced(tensor.shape, axes, keepdims=True))
