"""`custom_gradient`: a gradient rule of the user's own around a part of the graph."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from graphfw.errors import GradientError
from graphfw.ir.build import emit_all
from graphfw.ir.dtype import DType
from graphfw.ir.op import ALIAS, PURE, Op, op
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape


@op("custom_gradient")
class CustomGradient(Op):
    """The first `count` inputs, whose gradient is that of a rule instead.

    ys: count tensors, xs: any number -> the ys
    """

    count: int
    rule: Callable[..., Any]
    traits = frozenset({PURE, ALIAS})
    multiple = True

    def shape(self, *inputs: Shape) -> tuple[Shape, ...]:
        return inputs[: self.count]

    def dtype(self, *inputs: DType) -> tuple[DType, ...]:
        return inputs[: self.count]

    def eval(self, xp: Any, *inputs: Any) -> tuple[Any, ...]:
        return inputs[: self.count]

    def vjp(self, ct: tuple[Any, ...], y: tuple[Tensor, ...], *inputs: Tensor) -> tuple[Any, ...]:
        gradients = self.rule(*ct)
        given = gradients if isinstance(gradients, (tuple, list)) else (gradients,)
        wanted = len(inputs) - self.count
        if len(given) != wanted:
            raise GradientError(
                f"custom_gradient: the rule returns {len(given)} gradients for {wanted} tensors",
                fix="return one gradient, or None, for each tensor that the function takes",
            )
        for gradient in given:
            if not isinstance(gradient, Tensor) and gradient is not None:
                raise GradientError(
                    f"custom_gradient: the rule returns a {type(gradient).__name__}, not a tensor",
                    fix="make it of the cotangent, with graphfw's functions, or by gf.asarray",
                )
        return (*[None] * self.count, *given)


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a function of tensors a gradient rule of its own.

    The function returns its result and the rule: a function that takes the result's cotangent (one
    for each tensor of a tuple) and returns the cotangents of the tensors that the function was
    called with, in order. Tensors that the function takes from around it get no gradient: pass them
    as arguments.

    Raises:
        GradientError: The function returns no such pair, or the rule a wrong number of gradients.

    >>> import graphfw as gf
    >>> @gf.custom_gradient
    ... def clipped(x):
    ...     return x, lambda ct: gf.clip(ct, -1.0, 1.0)
    >>> x = gf.asarray([1.0, 2.0])
    >>> gf.grad(gf.sum(clipped(x) * 5.0), x)
    Tensor([1., 1.], dtype=float32)
    """

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        returned = function(*args, **kwargs)
        if not (isinstance(returned, tuple) and len(returned) == 2 and callable(returned[1])):
            raise GradientError(
                f"custom_gradient: {function.__name__} must return its result and a gradient rule",
                fix="return y, rule  with  def rule(ct): …",
            )
        result, rule = returned
        ys = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        if not all(isinstance(y, Tensor) for y in ys):
            raise GradientError(
                f"custom_gradient: {function.__name__} returns a result that is not a tensor, "
                "nor several",
                fix="return y, rule  with y a tensor or a tuple of tensors",
            )
        xs = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
        outputs = emit_all(CustomGradient(len(ys), rule), *ys, *xs)
        return outputs[0] if isinstance(result, Tensor) else outputs

    return wrapped
