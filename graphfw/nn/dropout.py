"""`Dropout`, and `DropPath` of whole examples."""

from __future__ import annotations

from graphfw.errors import ShapeError
from graphfw.ir.functions import CALLED as F
from graphfw.ir.tensor import Tensor
from graphfw.nn.module import Module
from graphfw.ops.args import TensorLike
from graphfw.ops.composed import demand, demand_probability, floats
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
        return dropout(x, self.p)

    def extra_repr(self) -> str:
        """Return the text of the probability."""
        return f"p={self.p}"


class DropPath(Dropout):
    """In training, zero whole examples at random and scale up the others.  [N, *A] -> [N, *A]

    Around a branch of a residual network, as in `x + drop(branch(x))`: examples skip it. G. Huang
    et al., "Deep networks with stochastic depth", 2016.

    Args:
        p: The probability of being dropped, in [0, 1).
        name: See `Module`.

    Raises:
        ArgumentError: p is outside [0, 1).
        ShapeError: In a call: x has no dim.
    """

    def forward(self, x: TensorLike) -> Tensor:
        """Drop.  x: [N, *A] -> [N, *A]"""
        tensor = floats("DropPath", x)
        message, fix = "DropPath: x has no dim for the batch", "x[None] is a batch of one"
        demand(tensor.ndim >= 1, message, {"x": tensor}, fix=fix, error=ShapeError)
        if self.p == 0 or not self.training:
            return tensor
        ones = F.ones((tensor.shape[0], *[1] * (tensor.ndim - 1)), dtype=tensor.dtype)
        return tensor * dropout(ones, self.p)
