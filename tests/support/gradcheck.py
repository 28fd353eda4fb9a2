"""Gradients against central differences, by random projection, in float64 and complex128."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphfw.ir import concrete
from graphfw.ir.build import constant
from graphfw.ir.tensor import Tensor
from graphfw.transforms.grad import grad

STEP = 1e-5


def check_gradients(
    y: Tensor,
    leaves: Sequence[Tensor],
    rng: np.random.Generator,
    *,
    order: int = 2,
    tolerance: float = 1e-6,
) -> None:
    """Check the gradients of `y` with respect to `leaves`, and theirs, up to an order.

    With L = Re Σ conj(ct)·y for a random ct, the slope of L along a random direction v is
    Re Σ conj(g)·v: that defines the gradient g, for complex tensors as PyTorch has it.

    Args:
        y: A float64 or complex128 tensor that depends on constants alone.
        leaves: Constants, float64 or complex128.
        rng: Where cotangents and directions come from.
        order: How often to differentiate; from the second time on the cotangent is a leaf too.
        tolerance: The relative error that is let pass.
    """
    ct = constant(_normal(y, rng))
    gradients = grad(y, list(leaves), ct, missing="zeros")
    for leaf, gradient in zip(leaves, gradients, strict=True):
        assert gradient.type == leaf.type
    directions = [_normal(leaf, rng) for leaf in leaves]
    points = [leaf.numpy() for leaf in leaves]

    def projected(step: float) -> float:
        moved = [p + step * v for p, v in zip(points, directions, strict=True)]
        (value,) = concrete.evaluate([y], given=dict(zip(leaves, moved, strict=True)))
        return _inner(ct.numpy(), value)

    numeric = (projected(STEP) - projected(-STEP)) / (2 * STEP)
    values = concrete.evaluate(gradients)
    terms = [_inner(g, v) for g, v in zip(values, directions, strict=True)]
    scale = max(1.0, sum(map(abs, terms)))
    error = abs(numeric - sum(terms))
    assert error <= tolerance * scale, f"slope {numeric:.9g}, by gradient {sum(terms):.9g}"
    if order > 1:
        for gradient in gradients:
            if gradient.size:
                check_gradients(gradient, [*leaves, ct], rng, order=order - 1, tolerance=tolerance)


def _normal(like: Tensor, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    values = rng.normal(size=like.shape)
    if like.dtype.is_complex:
        values = values + 1j * rng.normal(size=like.shape)
    return np.asarray(values, like.dtype.dtype)


def _inner(a: Any, b: Any) -> float:
    return float(np.real(np.vdot(a, b)))
