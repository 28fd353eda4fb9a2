"""Values and gradients against PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphfw as gf

torch: Any = pytest.importorskip("torch")


def check_like_torch(
    ours: Callable[..., Any],
    theirs: Callable[..., Any],
    *xs: np.ndarray,
    gradients: bool = True,
) -> None:
    """Compare a function of float64 arrays, and its gradients with respect to each."""
    mine = [gf.asarray(x) for x in xs]
    leaves = [torch.tensor(x, requires_grad=gradients) for x in xs]
    y, z = ours(*mine), theirs(*leaves)
    value = z.detach().numpy()
    np.testing.assert_allclose(y.numpy(), value, rtol=1e-9, atol=1e-9, strict=True)
    if not gradients:
        return
    ct = np.random.default_rng(value.size).normal(size=value.shape)
    wanted = torch.autograd.grad(z, leaves, torch.tensor(ct))
    for gradient, expected in zip(gf.grad(y, mine, ct), wanted, strict=True):
        np.testing.assert_allclose(gradient.numpy(), expected.numpy(), rtol=1e-8, atol=1e-8)
