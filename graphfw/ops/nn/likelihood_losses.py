"""Losses that are the negative log-likelihood of a distribution: `gaussian_nll`, `poisson_nll`."""

from __future__ import annotations

import math

from graphfw.ir.functions import F, public
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import TensorLike, converted
from graphfw.ops.composed import demand, floats
from graphfw.ops.elementwise.where_clip import where
from graphfw.ops.nn.losses import paired, reduce_losses, scaled

__all__ = ["gaussian_nll", "poisson_nll"]


@public
def gaussian_nll(
    mean: TensorLike,
    target: TensorLike,
    var: TensorLike,
    /,
    *,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """Minus the log-likelihood of a normal distribution, (log var + (target - mean)² / var) / 2.

    [*A], [*A], var: a shape that broadcasts to theirs -> [] or [*A].  D. Nix, A. Weigend,
    "Estimating the mean and variance of the target probability distribution", 1994.

    Args:
        mean: The predicted means.
        target: The values.
        var: The predicted variances. Those below eps count as eps, but have its gradient, so that
            training raises them.
        full: Whether to add the constant log(2 pi) / 2.
        eps: The least variance.
        reduction: "mean", "sum" or "none".

    Raises:
        ShapeError: The shapes don't fit.
        DTypeError: They are not real.
        ArgumentError: eps is not positive, or `reduction` is unknown.

    >>> import graphfw as gf
    >>> float(gf.nn.gaussian_nll([1.0, 3.0], [1.0, 1.0], [1.0, 1.0]))
    1.0
    """
    name = "gaussian_nll"
    demand(eps > 0, f"{name}: eps={eps} must be positive", fix="use eps=1e-6")
    x, t, dtype = paired(name, mean, target)
    given = converted(floats(name, var), x.dtype)
    variance = where(given < eps, eps + (given - F.stop_gradient(given)), given)
    difference = t - x
    squares = scaled(name, difference * difference, 1 / variance, "var")
    losses = 0.5 * (F.log(variance) + squares)
    if full:
        losses = losses + 0.5 * math.log(2 * math.pi)
    return reduce_losses(name, losses, reduction, dtype)


@public
def poisson_nll(
    prediction: TensorLike,
    target: TensorLike,
    /,
    *,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """Minus the log-likelihood of a Poisson distribution, rate - target log(rate).

    [*A], [*A] -> [] or [*A].

    Args:
        prediction: The logarithms of the predicted rates, or the rates.
        target: The counts.
        log_input: Whether `prediction` is logarithms.
        full: Whether to add log(target!), by Stirling's approximation, where the target is above 1.
        eps: What is added to a rate before its logarithm is taken.
        reduction: "mean", "sum" or "none".

    Raises:
        ShapeError: The shapes differ.
        DTypeError: They are not real.
        ArgumentError: eps is negative, or `reduction` is unknown.

    >>> import graphfw as gf
    >>> float(gf.nn.poisson_nll([0.0, 0.0], [2, 0]))
    1.0
    """
    name = "poisson_nll"
    demand(eps >= 0, f"{name}: eps={eps} must not be negative", fix="use eps=1e-8")
    x, t, dtype = paired(name, prediction, target)
    losses = F.exp(x) - t * x if log_input else x - t * F.log(x + eps)
    if full:
        count = where(t > 1, t, 1)  # the logarithm of no other number
        factorial = count * F.log(count) - count + 0.5 * F.log(2 * math.pi * count)
        losses = losses + where(t > 1, factorial, 0)
    return reduce_losses(name, losses, reduction, dtype)
