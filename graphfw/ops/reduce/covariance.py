"""Covariances and correlations of variables."""

from __future__ import annotations

from graphfw.errors import ShapeError
from graphfw.ir.dtype import DType
from graphfw.ir.functions import F, public
from graphfw.ir.shape import shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import TensorLike, converted, inexact, promoted
from graphfw.ops.composed import demand, floats, wide
from graphfw.ops.reduce.statistics import degrees, require_correction

__all__ = ["corrcoef", "cov"]


@public
def cov(
    x: TensorLike,
    y: TensorLike | None = None,
    /,
    *,
    rowvar: bool = True,
    correction: float = 1.0,
    fweights: TensorLike | None = None,
    aweights: TensorLike | None = None,
) -> Tensor:
    """Estimate the covariances of variables.  x: [V, N] -> [V, V]; x: [N] -> []

    Floating-point or complex; integers become the default dtype. The means are subtracted first.

    Args:
        x: The variables in rows, their N samples in columns; or the samples of one.
        y: Further variables, with as many samples.
        rowvar: False where the variables stand in columns.  [N, V]
        correction: What to subtract from the number of samples before dividing by it.
        fweights: How often each sample was seen.  [N] integers
        aweights: How much each sample counts.  [N]

    Raises:
        ShapeError: A tensor has three dims or more, or the shapes don't fit.
        ArgumentError: `correction` is no finite number.

    >>> import graphfw as gf
    >>> gf.cov(gf.asarray([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    Tensor([[ 1., -1.],
            [-1.,  1.]], dtype=float32)
    """
    result, dtype = _covariances("cov", x, y, rowvar, correction, fweights, aweights)
    return converted(result, dtype)


@public
def corrcoef(x: TensorLike, y: TensorLike | None = None, /, *, rowvar: bool = True) -> Tensor:
    """Estimate the correlations of variables.  x: [V, N] -> [V, V], from -1 to 1; x: [N] -> []

    Floating-point or complex; integers become the default dtype. The correlations of a
    variable that does not vary are NaN.

    Args:
        x: The variables in rows, their N samples in columns; or the samples of one.
        y: Further variables, with as many samples.
        rowvar: False where the variables stand in columns.  [N, V]

    Raises:
        ShapeError: A tensor has three dims or more, or the shapes don't fit.

    >>> import graphfw as gf
    >>> gf.corrcoef(gf.asarray([[1.0, 2.0], [3.0, 2.0]]))
    Tensor([[ 1., -1.],
            [-1.,  1.]], dtype=float32)
    """
    together, dtype = _covariances("corrcoef", x, y, rowvar, 0, None, None)
    own = together if together.ndim == 0 else F.diagonal(together)
    deviation = F.sqrt(F.real(own) if own.dtype.is_complex else own)
    if together.ndim:
        together = together / F.expand_dims(deviation, axis=1)
    ratios = together / deviation if together.ndim else together / deviation / deviation
    if not ratios.dtype.is_complex:  # rounding may lead beyond
        ratios = F.clip(ratios, -1, 1)
    return converted(ratios, dtype)


def _covariances(
    name: str,
    x: TensorLike,
    y: TensorLike | None,
    rowvar: bool,
    correction: float,
    fweights: TensorLike | None,
    aweights: TensorLike | None,
) -> tuple[Tensor, DType]:
    """Return the covariances in the dtype of sums, and the dtype that the result is to have."""
    require_correction(name, correction)
    tensors = [_in_rows(name, operand, rowvar) for operand in ((x,) if y is None else (x, y))]
    tensors = list(promoted(name, *tensors))
    dtype = tensors[0].dtype
    rows = wide(F.concat(tensors, axis=0))
    size = rows.shape[1]
    weights, divisor = _weighted(name, rows, fweights, aweights, correction)
    if weights is None:
        distance = rows - F.mean(rows, axis=1, keepdims=True)
        result = distance @ F.conj(F.matrix_transpose(distance)) / degrees(size, correction, rows)
    else:
        means = F.sum(rows * weights, axis=1, keepdims=True) / F.sum(weights)
        distance = rows - means
        result = (distance * weights) @ F.conj(F.matrix_transpose(distance)) / divisor
    is_one = y is None and inexact(x).ndim < 2
    return (F.reshape(result, ()) if is_one else result), dtype


def _in_rows(name: str, x: TensorLike, rowvar: bool) -> Tensor:
    """Return variables in rows.  [N] or [V, N] or [N, V] -> [V, N]"""
    tensor = inexact(x)
    demand(
        tensor.ndim <= 2,
        f"{name}: wants 1 or 2 dims, not {tensor.ndim}",
        {"x": tensor},
        fix=f"use gf.vmap(gf.{name}) for a batch of them",
        error=ShapeError,
    )
    if tensor.ndim < 2:
        return F.reshape(tensor, (1, tensor.size))
    return tensor if rowvar else F.matrix_transpose(tensor)


def _weighted(
    name: str,
    rows: Tensor,
    fweights: TensorLike | None,
    aweights: TensorLike | None,
    correction: float,
) -> tuple[Tensor | None, Tensor | None]:
    """Return the samples' weights, and what to divide by: as `np.cov`."""
    counts, shares = (
        None if given is None else _sample_weights(name, label, rows, given)
        for label, given in (("fweights", fweights), ("aweights", aweights))
    )
    if counts is None and shares is None:
        return None, None
    if counts is None or shares is None:
        weights = counts if shares is None else shares
    else:
        weights = counts * shares
    total = F.sum(weights)
    lost = correction if shares is None else correction * F.sum(weights * shares) / total
    return weights, F.maximum(total - lost, 0)


def _sample_weights(name: str, label: str, rows: Tensor, given: TensorLike) -> Tensor:
    weights = converted(floats(name, given), rows.dtype.real)
    shapes = f"{shape_text(weights.shape)} for {rows.shape[1]} samples"
    demand(
        weights.shape == (rows.shape[1],),
        f"{name}: {label} {shapes}",
        {label: weights},
        fix="give one weight for each sample",
        error=ShapeError,
    )
    return weights
