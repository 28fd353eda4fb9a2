"""Choosing between values, elementwise: by a mask, by bounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from graphfw.errors import DTypeError
from graphfw.ir.build import emit
from graphfw.ir.dtype import DType
from graphfw.ir.functions import F, public
from graphfw.ir.op import ELEMENTWISE, PURE, Case, Op, bad, ok, op
from graphfw.ir.shape import broadcast, require
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.args import TensorLike, as_tensor, promoted

__all__ = ["where"]


@op("where")
class Where(Op):
    """x1 where the condition holds, else x2.  condition, x1, x2: broadcast  ->  [*B]"""

    traits = frozenset({PURE, ELEMENTWISE})

    def shape(self, condition: Shape, x1: Shape, x2: Shape) -> Shape:
        return broadcast(condition, x1, x2)

    def dtype(self, condition: DType, x1: DType, x2: DType) -> DType:
        require(condition.is_bool, f"the condition must be bool, not {condition.name}",
                fix="write mask != 0", error=DTypeError)
        require(x1 is x2, f"wants one dtype, not {x1.name} and {x2.name}", error=DTypeError)
        return x1

    def eval(self, xp: Any, condition: Any, x1: Any, x2: Any) -> Any:
        return xp.where(condition, x1, x2)

    def vjp(self, ct: Tensor, y: Tensor, condition: Tensor, x1: Tensor, x2: Tensor) -> tuple[Any, ...]:
        if not y.dtype.is_inexact:
            return (None, None, None)
        return (
            None,
            lambda: F.sum_to(where(condition, ct, 0), x1.shape),
            lambda: F.sum_to(where(condition, 0, ct), x2.shape),
        )

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("bool[3, n]", "float32[3, n]", "float32[3, n]")
        yield ok("bool[3, 1]", "float32[]", "float32[n]")
        yield ok("bool[]", "complex64[2]", "complex64[2]")
        yield ok("bool[0]", "int32[0]", "int32[1]")
        yield bad("float32[3]", "float32[3]", "float32[3]", match="must be bool, not float32",
                  error=DTypeError)
        yield bad("bool[3]", "float32[3]", "int32[3]", match="wants one dtype", error=DTypeError)
        yield bad("bool[4]", "float32[3]", "float32[]", match="shapes don't broadcast")


@public
def where(condition: TensorLike, x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """Choose x1 where the condition holds, else x2.  bool, any, any: broadcast -> [*B]

    x1 and x2 promote. The one not chosen gets a gradient of exactly 0.

    Raises:
        DTypeError: The condition is not bool.
        ShapeError: The shapes don't broadcast.

    >>> import graphfw as gf
    >>> x = gf.asarray([-1.0, 2.0])
    >>> gf.where(x > 0, x, 0)
    Tensor([0., 2.], dtype=float32)
    """
    a, b = promoted("where", x1, x2)
    return emit(Where(), as_tensor(condition), a, b, shown=(condition, x1, x2))
