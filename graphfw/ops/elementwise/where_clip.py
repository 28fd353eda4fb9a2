"""Choosing between values, elementwise: by a mask, by bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import numpy as np

from graphfw.errors import DTypeError
from graphfw.ir.build import applied, emit
from graphfw.ir.concrete import describe
from graphfw.ir.dim import Dim
from graphfw.ir.dtype import DType
from graphfw.ir.functions import F, public
from graphfw.ir.literal import PYTHON_SCALARS
from graphfw.ir.op import ELEMENTWISE, PURE, Case, Op, bad, ok, op
from graphfw.ir.shape import broadcast, require
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.args import TensorLike, as_tensor, converted, promoted_two, scalar_like
from graphfw.ops.composed import demand
from graphfw.ops.dtypes import require_one_dtype
from graphfw.ops.elementwise.cast import finfo, iinfo, result_type
from graphfw.ops.elementwise.table import Elementwise

__all__ = ["clip", "nan_to_num", "where"]


_INTEGERS = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}

_FEW = 4096


def _select_bits(condition: Any, x1: Any, x2: Any) -> Any:
    """np.where, bit by bit: it branches at each element, 14 times slower on a random condition."""
    if condition.size < _FEW:
        return np.where(condition, x1, x2)
    integer = _INTEGERS[x1.dtype.itemsize]
    chosen = -condition.view(np.int8).astype(integer)  # all bits of the elements to take from x1
    a, b = np.asarray(x1).view(integer), np.asarray(x2).view(integer)
    if b.ndim == 0 and b == 0:
        return (a & chosen).view(x1.dtype)
    return (b ^ ((a ^ b) & chosen)).view(x1.dtype)


@op("where")
class Where(Op):
    """x1 where the condition holds, else x2.  condition, x1, x2: broadcast  ->  [*B]"""

    traits = frozenset({PURE, ELEMENTWISE})
    linear = "jointly"
    mixed_precision = "follows"

    def shape(self, condition: Shape, x1: Shape, x2: Shape) -> Shape:
        return broadcast(condition, x1, x2)

    def dtype(self, condition: DType, x1: DType, x2: DType) -> DType:
        require(
            condition.is_bool,
            f"the condition must be bool, not {condition.name}",
            fix="write mask != 0",
            error=DTypeError,
        )
        require_one_dtype(x1, x2)
        return x1

    def eval(self, xp: Any, condition: Any, x1: Any, x2: Any) -> Any:
        return xp.where(condition, x1, x2)

    def scalar(self, k: Any, condition: Any, x1: Any, x2: Any) -> Any:
        return k.select(condition, x1, x2)

    def kernel(self, xp: Any, *dtypes: DType) -> Callable[..., Any]:
        if xp is not np or dtypes[1].itemsize not in _INTEGERS:
            return super().kernel(xp, *dtypes)
        return _select_bits

    def vjp(
        self, ct: Tensor, y: Tensor, condition: Tensor, x1: Tensor, x2: Tensor
    ) -> tuple[Any, ...]:
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
        yield bad(
            "float32[3]",
            "float32[3]",
            "float32[3]",
            match="must be bool, not float32",
            error=DTypeError,
        )
        yield bad("bool[3]", "float32[3]", "int32[3]", match="wants one dtype", error=DTypeError)
        yield bad("bool[4]", "float32[3]", "float32[]", match="shapes don't broadcast")


_SELECTION = Where()


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
    a, b = promoted_two("where", x1, x2)
    return applied(_SELECTION, (as_tensor(condition), a, b), (condition, x1, x2))[0]


@op("clip")
class Clip(Elementwise):
    """min(max(x, low), high).  x, low, high: real, broadcast  ->  [*B]"""

    accepts = "real"
    labels = ("x", "min", "max")
    mixed_precision = "follows"

    def eval(self, xp: Any, x: Any, low: Any, high: Any) -> Any:
        return xp.minimum(xp.maximum(x, low), high)

    def scalar(self, k: Any, x: Any, low: Any, high: Any) -> Any:
        return k.min(k.max(x, low), high)

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor, low: Tensor, high: Tensor) -> tuple[Any, ...]:
        if not y.dtype.is_inexact:
            return (None, None, None)

        def masked(chosen: Tensor, operand: Tensor) -> Tensor:
            return F.sum_to(where(chosen, ct, 0), operand.shape)

        return (
            lambda: masked((x >= low) & (x <= high), x),
            lambda: masked((x < low) & (low <= high), low),
            lambda: masked((x > high) | (low > high), high),
        )

    @classmethod
    def cases(cls) -> Iterator[Case]:
        yield ok("float32[3, n]", "float32[n]", "float32[3, 1]", smooth=False)
        yield ok("bfloat16[4]", "bfloat16[]", "bfloat16[]", smooth=False)
        yield ok("int32[4]", "int32[]", "int32[4]")
        yield bad(
            "complex64[2]", "complex64[]", "complex64[]", match="wants real", error=DTypeError
        )
        yield bad("float32[2]", "float64[]", "float32[]", match="wants one dtype", error=DTypeError)
        yield bad("float32[2]", "float32[3]", "float32[]", match="shapes don't broadcast")


@public
def clip(x: TensorLike, /, min: TensorLike | None = None, max: TensorLike | None = None) -> Tensor:
    """Keep values between bounds: min(max(x, min), max).  x, min, max: real, broadcast -> [*B]

    The result has x's dtype. The gradient is x's where x is between the bounds or on one, else
    the bound's. Where min > max, the result is max.

    Raises:
        DTypeError: x's dtype can't hold a bound.
        ShapeError: The shapes don't broadcast.

    >>> import graphfw as gf
    >>> gf.clip(gf.asarray([-2, 0, 5]), -1, 3)
    Tensor([-1,  0,  3], dtype=int64)
    """
    tensor = as_tensor(x)
    if min is None and max is None:
        return tensor
    low = _end(tensor.dtype, -1) if min is None else min
    high = _end(tensor.dtype, 1) if max is None else max
    bounds = (_bound(tensor, "min", low), _bound(tensor, "max", high))
    return emit(Clip(), tensor, *bounds, shown=(x, min, max))


def _end(dtype: DType, side: int) -> float:
    """Return the bound that leaves all values of a dtype as they are."""
    if not dtype.is_integer:
        return side * inf
    info = iinfo(dtype)
    return info.max if side > 0 else info.min


def _bound(x: Tensor, label: str, bound: TensorLike) -> Tensor:
    """Return a bound as a tensor of x's dtype."""
    if not isinstance(bound, (*PYTHON_SCALARS, Dim)):
        try:
            bound = as_tensor(bound)
        except DTypeError:
            raise DTypeError(
                f"clip: {label}={bound!r} is no number and no tensor",
                operands=[describe("x", x)],
                fix="give a number, or a tensor that broadcasts with x",
            ) from None
    common = result_type(x, bound)
    if common is not x.dtype:
        raise DTypeError(
            f"clip: {label} needs {common.name}, and the result has x's dtype, {x.dtype.name}",
            operands=[describe("x", x)],
            fix=f"convert one first: gf.astype(x, gf.{common.name})",
        )
    if isinstance(bound, Tensor):
        return converted(bound, x.dtype)
    return scalar_like("clip", bound, x.dtype)


@public
def nan_to_num(
    x: TensorLike,
    /,
    *,
    nan: float = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Tensor:
    """Replace NaN and infinities.  x: real [*A] -> [*A]

    Args:
        x: The tensor; integers are returned as they are.
        nan: What NaN becomes.
        posinf: What inf becomes: the largest number of the dtype by default.
        neginf: What -inf becomes: the smallest number of the dtype by default.

    Raises:
        DTypeError: x is complex.

    >>> import graphfw as gf
    >>> gf.nan_to_num(gf.asarray([1.0, gf.nan, gf.inf]), posinf=9.0)
    Tensor([1., 0., 9.], dtype=float32)
    """
    tensor = as_tensor(x)
    demand(
        not tensor.dtype.is_complex,
        f"nan_to_num: wants real tensors, not {tensor.dtype.name}",
        {"x": tensor},
        fix="treat gf.real(x) and gf.imag(x) one by one",
        error=DTypeError,
    )
    if not tensor.dtype.is_floating:
        return tensor
    limits = finfo(tensor.dtype)
    high = limits.max if posinf is None else posinf
    low = limits.min if neginf is None else neginf
    finite = where(tensor == inf, high, where(tensor == -inf, low, tensor))
    return where(F.isnan(tensor), nan, finite)
