"""`Bilinear`: a sum of products of two inputs' features."""

from __future__ import annotations

from graphfw.errors import ShapeError, counted
from graphfw.ir.dim import Dim
from graphfw.ir.dtype import DTypeLike
from graphfw.ir.functions import CALLED as F
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Initializer, Variable
from graphfw.nn import init
from graphfw.nn.checks import checked_size
from graphfw.nn.module import Module
from graphfw.nn.parameters import initial_of, parameter
from graphfw.ops.args import TensorLike, promoted
from graphfw.ops.composed import demand


class Bilinear(Module):
    """x1 weight x2 + bias.  [*B, in1_features], [*B, in2_features] -> [*B, out_features]

    Args:
        in1_features: The size of x1's last dim.
        in2_features: The size of x2's.
        out_features: The size of the result's.
        bias: Whether to add a bias.
        dtype: The weights' dtype, the default dtype when there is none.
        weight_init: Initial weights: an initialiser or an array; uniform in ±1/sqrt(in1_features)
            when there is none.
        bias_init: Initial bias; the same.
        name: See `Module`.

    Attributes:
        weight: [out_features, in1_features, in2_features], as in PyTorch.
        bias: [out_features], or None.

    Raises:
        ArgumentError: A size is no int, or below 1; an initial value is a number or a name.
        ShapeError: In a call: a last dim has another size, or the others don't broadcast.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     layer = gf.nn.Bilinear(8, 6, 4)
    ...     layer(gf.placeholder(("batch", 8)), gf.placeholder(("batch", 6))).shape
    (batch, 4)
    """

    bias: Variable | None

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        dtype: DTypeLike | None = None,
        *,
        weight_init: Initializer | TensorLike | None = None,
        bias_init: Initializer | TensorLike | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.in1_features = checked_size("Bilinear", "in1_features", in1_features)
        self.in2_features = checked_size("Bilinear", "in2_features", in2_features)
        self.out_features = checked_size("Bilinear", "out_features", out_features)
        spread = init.spread(self.in1_features)
        shape = (self.out_features, self.in1_features, self.in2_features)
        self.weight = parameter(
            initial_of("Bilinear", "weight_init", weight_init, spread), shape, dtype
        )
        first = initial_of("Bilinear", "bias_init", bias_init, spread)
        self.bias = parameter(first, shape[:1], dtype) if bias else None

    def forward(self, x1: TensorLike, x2: TensorLike) -> Tensor:
        """Multiply and add.  [*B, in1_features], [*B, in2_features] -> [*B, out_features]"""
        first, second = promoted("Bilinear", x1, x2)
        self._check("x1", first, "in1_features", self.in1_features)
        self._check("x2", second, "in2_features", self.in2_features)
        product = F.einsum("...i,oij,...j->...o", first, self.weight, second)
        return product if self.bias is None else product + self.bias

    def _check(self, label: str, x: Tensor, argument: str, wanted: int) -> None:
        """See that an input has its number of features."""
        message = f"Bilinear: {label} has no dim"
        demand(x.ndim >= 1, message, {label: x}, fix="give it features", error=ShapeError)
        found = x.shape[-1]
        fix = f"use {argument}={found}"
        if isinstance(found, Dim):
            fix = f"say gf.assert_shape({label}, {(*[None] * (x.ndim - 1), wanted)})"
        message = f"Bilinear: {label} has {counted(found, 'feature')}, not {wanted}"
        shown = {label: x, "weight": self.weight}
        demand(found == wanted, message, shown, fix=fix, error=ShapeError)

    def extra_repr(self) -> str:
        """Return the text of the sizes."""
        sizes = f"{self.in1_features}, {self.in2_features} -> {self.out_features}"
        return f"{sizes}, bias={self.bias is not None}"
