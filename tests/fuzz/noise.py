"""Noise in what a program computes, to see how far rounding moves its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


class Noise:
    """Moves values as if these, and the gradients that reach them, had been rounded otherwise.

    A gradient may be small where what it is computed from is not: of `tanh` near 1, of a softmax
    of one number. What is rounded there is as large as the gradient that enters the function.
    Noise of that size is added to what leaves it.
    """

    def __init__(self, size: float, rng: np.random.Generator) -> None:
        self._size, self._rng = size, rng
        self._gradients = np.random.default_rng(0)

    def moved(self, x: Any) -> Any:
        """Return a value of NumPy's or PyTorch's, moved."""
        factor = 1 + self._size * self._rng.standard_normal(tuple(x.shape))
        return x * (factor if isinstance(x, np.ndarray | np.generic) else x.new_tensor(factor))

    def called(self, function: Callable[..., Any], operands: Sequence[Any]) -> Any:
        """Return a function's result, moved; of PyTorch's tensors, with moved gradients too."""
        if not any([getattr(x, "requires_grad", False) for x in operands]):
            return self.moved(function(*operands))
        entered = 0.0

        def enters(gradient: Any) -> None:
            nonlocal entered
            entered = float(abs(gradient.detach()).max()) if gradient.numel() else 0.0

        def leaves(gradient: Any) -> Any:
            noise = self._gradients.standard_normal(tuple(gradient.shape))
            return gradient + gradient.new_tensor(self._size * entered * noise)

        def watched(x: Any) -> Any:
            if getattr(x, "requires_grad", False):
                x = x.view_as(x)
                x.register_hook(leaves)
            return x

        result = self.moved(function(*map(watched, operands)))
        if result.requires_grad:
            result.register_hook(enters)
        return result
