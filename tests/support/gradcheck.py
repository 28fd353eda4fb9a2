"""The gradients of a tensor that is described already, by `gf.testing` and the ops' references."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphfw.ir import concrete
from graphfw.ir.body import all_rewired
from graphfw.ir.build import constant
from graphfw.ir.tensor import Tensor
from graphfw.testing import Limits, RealVector, compare
from graphfw.utils import nest


def check_gradients(
    y: Tensor,
    leaves: Sequence[Tensor],
    rng: np.random.Generator,
    *,
    order: int = 2,
    tolerance: float = 1e-6,
) -> None:
    """Check the gradients of `y` with respect to `leaves`, and theirs, up to an order.

    Args:
        y: A float64 or complex128 tensor that depends on constants alone.
        leaves: Constants, float64 or complex128.
        rng: Where cotangents and directions come from.
        order: How often to differentiate; from the second time on the cotangent is a leaf too.
        tolerance: The relative error that is let pass.
    """
    compare(
        lambda *xs: all_rewired([y], dict(zip(leaves, xs, strict=True))),
        RealVector((f"leaves[{i}]", leaf.numpy()) for i, leaf in enumerate(leaves)),
        Limits(order, rtol=tolerance, atol=tolerance),
        rng,
        _by_reference,
    )


def _by_reference(fn: Callable[..., Any]) -> Callable[..., Any]:
    def called(*arrays: Any) -> list[Any]:
        return concrete.evaluate([*nest.leaves(fn(*map(constant, arrays)))])

    return called
