"""`Dropout`."""

from __future__ import annotations

from graphfw.ir.tensor import Tensor
from graphfw.nn.module import Module
from graphfw.ops.args import TensorLike
from graphfw.ops.composed import demand_probability
from graphfw.ops.nn.activations import dropout


class Dropout(Module):
    """In training, zero elements at random and scale up the others.  [*A] -> [*A]

    Args:
        p: The probability of being dropped, in [0, 1).
        name: See `Module`.

    Raises:
        ArgumentError: p is outside [0, 1).
    """

    def __init__(self, p: float = 0.5, *, name: str | None = None) -> None:
        super().__init__(name=name)
        demand_probability("Dropout", "p", p)
        self.p = p

    def forward(self, x: TensorLike) -> Tensor:
        """Drop.  x: [*A] -> [*A]"""
        return dropout(x, self.p, training=self.p > 0 and self.is_training)

    def extra_repr(self) -> str:
        """Return the text of the probability."""
        return f"p={self.p}"
