"""`Linear`: a product with a matrix of weights."""

from __future__ import annotations

from typing import Any

from graphfw.errors import ShapeError, counted
from graphfw.ir.dim import Dim
from graphfw.ir.dtype import DTypeLike
from graphfw.ir.shape import shape_text, size_of
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Initializer, Variable
from graphfw.nn import init
from graphfw.nn.checks import checked_size, explained, size_or_none
from graphfw.nn.deferred import make_or_wait
from graphfw.nn.module import Module
from graphfw.nn.parameters import initial_of, parameter
from graphfw.nn.torch_rules import TorchRule, Transposed
from graphfw.ops.args import TensorLike, as_tensor
from graphfw.ops.composed import demand
from graphfw.ops.linalg.products import matmul


class Linear(Module):
    """x @ weight + bias.  x: [*B, in_features] -> [*B, out_features]

    Args:
        in_features: The size of x's last dim; None to find it in the first call, which makes the
            variables.
        out_features: The size of the result's.
        bias: Whether to add a bias.
        dtype: The weights' dtype, the default dtype when there is none.
        weight_init: Initial weights: an initialiser or an array; uniform in ±1/sqrt(in_features)
            when there is none.
        bias_init: Initial bias; the same.
        name: See `Module`.

    Attributes:
        weight: [in_features, out_features]: the transpose of PyTorch's.
        bias: [out_features], or None.

    Raises:
        ArgumentError: A size is no int, or below 1; an initial value is a number or a name.
        ShapeError: An initial value has another shape. In a call: x's last dim is not in_features.
        GraphError: The first call, which finds in_features, is in another graph.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     layer = gf.nn.Linear(64, 10)
    ...     layer(gf.placeholder(("batch", "time", 64))).shape
    (batch, time, 10)
    """

    weight: Variable
    bias: Variable | None

    def __init__(
        self,
        in_features: int | None,
        out_features: int,
        bias: bool = True,
        dtype: DTypeLike | None = None,
        *,
        weight_init: Initializer | TensorLike | None = None,
        bias_init: Initializer | TensorLike | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.in_features = size_or_none("Linear", "in_features", in_features)
        self.out_features = checked_size("Linear", "out_features", out_features)
        options = bias, dtype, weight_init, bias_init
        make_or_wait(self, "in_features", self.in_features, *options)

    def _find_size(self, x: TensorLike) -> None:
        tensor = as_tensor(x)
        message = "Linear: x has no dims, and in_features is the size of its last one"
        demand(tensor.ndim > 0, message, {"x": tensor}, fix="x[None] adds one", error=ShapeError)
        self.in_features = checked_size("Linear", "in_features", tensor.shape[-1])

    def _make(self, bias: bool, dtype: Any, weight_init: Any, bias_init: Any) -> None:
        assert self.in_features is not None
        spread = init.spread(self.in_features)
        shape = (self.in_features, self.out_features)
        first = initial_of("Linear", "weight_init", weight_init, spread)
        self.weight = parameter(first, shape, dtype, is_transposed=True)
        first = initial_of("Linear", "bias_init", bias_init, spread)
        self.bias = parameter(first, shape[1:], dtype) if bias else None

    def forward(self, x: TensorLike) -> Tensor:
        """Multiply and add.  x: [*B, in_features] -> [*B, out_features]"""
        tensor = as_tensor(x)
        with explained(lambda: self._fix(tensor)):
            product = matmul(tensor, self.weight)
        return product if self.bias is None else product + self.bias

    def _fix(self, x: Tensor) -> str:
        """Say what to do about an input that does not fit."""
        me = f"Linear(in_features={self.in_features})"
        if not x.shape or x.shape[-1] == self.in_features:
            return ""
        features = x.shape[-1]
        if x.ndim > 2 and size_of(x.shape[1:]) == self.in_features:
            return f"{me} receives {shape_text(x.shape)}: flatten it first, with gf.nn.Flatten()"
        if isinstance(features, Dim):
            known = (*[None] * (x.ndim - 1), self.in_features)
            return f"{me} receives `{features}` features: say gf.assert_shape(x, {known})"
        return f"{me} receives {counted(features, 'feature')}: use in_features={features}"

    def _torch_rules(self) -> list[TorchRule]:
        return [Transposed("weight")]  # PyTorch's is [out_features, in_features]

    def extra_repr(self) -> str:
        """Return the text of the sizes."""
        return f"{self.in_features} -> {self.out_features}, bias={self.bias is not None}"
