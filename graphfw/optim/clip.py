"""Gradients kept within bounds."""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.ir.functions import CALLED as F
from graphfw.ir.modes import interceptable
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import converted
from graphfw.ops.composed import demand, wide_dtype


@interceptable
def clip_by_value(grads: Sequence[Tensor], limit: float) -> list[Tensor]:
    """Cut off each element at -limit and limit.

    Raises:
        ArgumentError: limit is not positive.

    >>> import graphfw as gf
    >>> gf.optim.clip_by_value([gf.asarray([-3.0, 0.5])], 1.0)
    [Tensor([-1. ,  0.5], dtype=float32)]
    """
    demand(limit > 0, f"clip_by_value: limit={limit} must be above 0", fix="use limit=1.0")
    return [F.minimum(F.maximum(g, -limit), limit) for g in grads]


@interceptable
def clip_by_global_norm(grads: Sequence[Tensor], max_norm: float) -> tuple[list[Tensor], Tensor]:
    """Scale all gradients by one factor, so that their norm together is at most max_norm.

    The norm is the root of the sum of the squares of all elements. R. Pascanu et al., "On the
    difficulty of training recurrent neural networks", 2013.

    Args:
        grads: The gradients.
        max_norm: The largest norm.

    Returns:
        The scaled gradients, and the norm before scaling: a scalar.

    Raises:
        ArgumentError: max_norm is not positive, or there are no gradients.

    >>> import graphfw as gf
    >>> gf.optim.clip_by_global_norm([gf.asarray([3.0, 4.0])], 1.0)
    ([Tensor([0.6, 0.8], dtype=float32)], Tensor(5., dtype=float32))
    """
    message = f"clip_by_global_norm: max_norm={max_norm} must be above 0"
    demand(max_norm > 0, message, fix="use max_norm=1.0")
    message = "clip_by_global_norm: there are no gradients"
    demand(len(grads) > 0, message, fix="pass what gf.grad returns")
    norm = global_norm(grads)
    factor = max_norm / F.maximum(norm, max_norm)
    return [_scaled(g, factor) for g in grads], norm


@interceptable
def global_norm(grads: Sequence[Tensor]) -> Tensor:
    """Return the norm of all elements of all gradients, in float32 or wider."""
    total: Tensor | None = None
    for g in grads:
        size = F.abs(g) if g.dtype.is_complex else converted(g, wide_dtype(g.dtype))
        square = F.sum(size * size)
        total = square if total is None else total + square
    return F.sqrt(total)


def _scaled(g: Tensor, factor: Tensor) -> Tensor:
    """Multiply in the factor's precision where that is the wider one."""
    wide = wide_dtype(g.dtype)
    return converted(converted(g, wide) * converted(factor, wide), g.dtype)
