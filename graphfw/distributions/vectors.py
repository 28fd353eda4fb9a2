"""Distributions of vectors of floats: Dirichlet, multivariate normal."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphfw.distributions.base import (
    NAN,
    POSITIVE,
    Distribution,
    Range,
    demand_range,
    one_of,
    parameters,
)
from graphfw.errors import ShapeError
from graphfw.ir import concrete
from graphfw.ir.functions import CALLED as F
from graphfw.ir.shape import Requirement, broadcast, shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops import random
from graphfw.ops.args import TensorLike, as_tensor, converted
from graphfw.ops.composed import demand, wide
from graphfw.ops.random.draws import Stream

__all__ = ["Dirichlet", "MultivariateNormal"]


class Dirichlet(Distribution):
    """The Dirichlet distribution of K probabilities: the product of x^(concentration - 1).

    `log_prob` takes it that values add up to 1.

    Args:
        concentration: The weight of each class, above 0: [*batch_shape, K].

    Raises:
        ArgumentError: It is known and not above 0.
        DTypeError: It is complex.
        ShapeError: It has no dim.

    >>> import graphfw as gf
    >>> gf.distributions.Dirichlet([1.0, 3.0]).mean
    Tensor([0.25, 0.75], dtype=float32)
    """

    _is_reparameterised = True
    _cancels = True

    concentration: Tensor
    """The weight of each class."""

    def __init__(self, concentration: TensorLike) -> None:
        tensors = parameters("Dirichlet", concentration=concentration)
        (tensor,) = tensors.values()
        message = "Dirichlet: the concentration is a number, not one for each class"
        demand(tensor.ndim > 0, message, tensors, fix="pass [K]", error=ShapeError)
        demand_range("Dirichlet", "concentration", concentration, tensor, POSITIVE)
        super().__init__(tensors, tensor.shape[:-1], tensor.shape[-1:])

    @property
    def _whole(self) -> Tensor:
        return F.sum(self.concentration, axis=-1, keepdims=True)

    def _draw(self, dims: Shape, path: Stream) -> Tensor:
        return random.dirichlet(self.concentration, dims, name=path)

    def _outside(self, x: Tensor) -> Tensor:
        return F.any(x < 0, axis=-1)

    def _log_prob(self, x: Tensor) -> Tensor:
        a = self.concentration
        log_factor = F.lgamma(F.sum(a, axis=-1)) - F.sum(F.lgamma(a), axis=-1)
        return F.sum(F.xlogy(a - 1, x), axis=-1) + log_factor

    def _entropy(self) -> Tensor:
        a, whole = self.concentration, self._whole
        log_factor = F.sum(F.lgamma(a), axis=-1) - F.lgamma(whole[..., 0])
        # The digamma of the sum is taken away in each term, so that none is large.
        return log_factor - F.sum((a - 1) * (F.digamma(a) - F.digamma(whole)), axis=-1)

    def _mean(self) -> Tensor:
        return self.concentration / self._whole

    def _variance(self) -> Tensor:
        mean = self._mean()
        return mean * (1 - mean) / (self._whole + 1)

    def _mode(self) -> Tensor:
        less = self.concentration - 1
        is_inside = F.all(less > 0, axis=-1, keepdims=True)
        safe = F.where(is_inside, less, 1.0)
        return F.where(is_inside, safe / F.sum(safe, axis=-1, keepdims=True), NAN)


_TRIANGLE = Range(
    "above 0 on the diagonal",
    lambda v: (v > 0) | ~np.eye(v.shape[-1], dtype=bool),
    "gf.linalg.cholesky makes such a matrix of a covariance: write covariance=…",
)
_COVARIANCE = Range(
    "the elements of a symmetric, positive definite matrix",
    lambda v: np.broadcast_to(_is_covariance(v), v.shape),
    "write scale_tril=L for a covariance of L @ L.mT",
)


def _is_covariance(matrices: Any) -> Any:
    """Return where matrices are symmetric and positive definite.  -> [*B, 1, 1]"""
    wide = matrices.astype(np.float64)
    mirrored = wide.swapaxes(-1, -2)
    size = np.abs(wide).max(axis=(-1, -2), initial=0.0, keepdims=True)
    is_symmetric = (np.abs(wide - mirrored) <= 1e-3 * size).all(axis=(-1, -2), keepdims=True)
    is_finite = np.isfinite(wide).all(axis=(-1, -2), keepdims=True)
    least = np.linalg.eigvalsh(np.where(is_finite, (wide + mirrored) / 2, 0.0))[..., :1, None]
    return is_symmetric & is_finite & (least > 0)


class MultivariateNormal(Distribution):
    """Normal vectors: loc + scale_tril @ z, where the elements of z are independent.

    Args:
        loc: The mean, [*B, D]; a tensor or an array.
        scale_tril: A lower triangular matrix with a diagonal above 0, [*B, D, D], whose product
            with its transpose is the covariance. Its upper triangle is not read.
        covariance: The covariance, [*B, D, D], instead.

    Raises:
        ArgumentError: The matrix is known, and has no such diagonal, or is no covariance; none of
            both is given, or both.
        DTypeError: A parameter is complex.
        ShapeError: The shapes are others.

    >>> import graphfw as gf
    >>> d = gf.distributions.MultivariateNormal([1.0, 2.0], covariance=[[4.0, 0.0], [0.0, 9.0]])
    >>> d.std
    Tensor([2., 3.], dtype=float32)
    """

    _is_reparameterised = True

    loc: Tensor
    """The mean."""
    scale_tril: Tensor
    """The lower triangular matrix."""

    def __init__(
        self,
        loc: TensorLike,
        *,
        scale_tril: TensorLike = None,
        covariance: TensorLike = None,
    ) -> None:
        what = "MultivariateNormal"
        label, given = one_of(what, scale_tril=scale_tril, covariance=covariance)
        tensors = parameters(what, **{"loc": loc, label: given})
        centre, matrix = tensors.values()
        wanted = "[*B, D] and [*B, D, D]"
        shapes = f"{shape_text(centre.shape)} and {shape_text(matrix.shape)}"
        demand(
            centre.ndim >= 1 and matrix.ndim >= 2 and matrix.shape[-2:] == (centre.shape[-1],) * 2,
            f"{what}: loc and {label} are {shapes}, not {wanted}",
            tensors,
            fix="pass a vector and a square matrix; Independent(Normal(…), 1) takes two vectors",
            error=ShapeError,
        )
        try:
            batch = broadcast(centre.shape[:-1], matrix.shape[:-2])
        except Requirement as failed:
            raise ShapeError(
                f"{what}: the batch dims of loc and {label}, {shapes}, don't broadcast",
                operands=[concrete.describe(name, t) for name, t in tensors.items()],
                fix=failed.fix,
            ) from None
        demand_range(what, label, given, matrix, _TRIANGLE if covariance is None else _COVARIANCE)
        if covariance is None:
            lower = F.tril(matrix)
        else:
            lower = converted(F.cholesky(wide(matrix)), matrix.dtype)
        super().__init__({"loc": centre, "scale_tril": lower}, batch, centre.shape[-1:])

    @property
    def covariance(self) -> Tensor:
        """The covariance, [*batch_shape, D, D]."""
        shape = (*self.batch_shape, *self.event_shape, *self.event_shape)
        lower = self._wide().scale_tril
        return self._spread(lower @ lower.mT, shape)

    def _draw(self, dims: Shape, path: Stream) -> Tensor:
        z = random.normal((*dims, *self.event_shape, 1), dtype=self._float, name=path)
        return self.loc + (self.scale_tril @ z)[..., 0]

    def _log_prob(self, x: Tensor) -> Tensor:
        lower = self.scale_tril
        z = F.solve_triangular(lower, F.expand_dims(x - self.loc, axis=-1))[..., 0]
        return -0.5 * F.sum(z * z, axis=-1) - self._log_factor()

    def _log_factor(self) -> Tensor:
        size = as_tensor(self.event_shape[0], self._float)
        return 0.5 * math.log(2 * math.pi) * size + self._log_det()

    def _log_det(self) -> Tensor:
        return F.sum(F.log(F.diagonal(self.scale_tril)), axis=-1)

    def _entropy(self) -> Tensor:
        return 0.5 * as_tensor(self.event_shape[0], self._float) + self._log_factor()

    def _mean(self) -> Tensor:
        return self.loc

    def _mode(self) -> Tensor:
        return self.loc

    def _variance(self) -> Tensor:
        return F.sum(self.scale_tril * self.scale_tril, axis=-1)
