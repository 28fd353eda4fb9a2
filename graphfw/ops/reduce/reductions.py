"""Reductions: sums, products, extremes and truth over axes."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from graphfw.errors import DTypeError, ExecutionError
from graphfw.ir.build import emit
from graphfw.ir.dtype import DType, DTypeLike, as_dtype, bool_, int64
from graphfw.ir.functions import F, public
from graphfw.ir.op import NONDIFF, Case, Cost, Op, bad, ok, op
from graphfw.ir.shape import normalize_axis, permuted, reduced, require, size_of
from graphfw.ir.shared_ops import shared
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape, TensorType
from graphfw.ops.args import Axes, TensorLike, as_tensor, axes_of, converted, ruled
from graphfw.ops.batching import along_axes
from graphfw.ops.dtypes import (
    accumulator,
    compute_dtype,
    least,
    most,
    require_numeric,
    require_ordered,
)

__all__ = [
    "all",
    "any",
    "argmax",
    "argmin",
    "count_nonzero",
    "max",
    "min",
    "prod",
    "sum",
]


class Reduction(Op):
    """The base of reductions over axes (sorted, counted from the front)."""

    axes: tuple[int, ...]
    keepdims: bool = False
    batch = along_axes

    def shape(self, x: Shape) -> Shape:
        for axis in self.axes:
            normalize_axis(axis, len(x))
        return reduced(x, self.axes, self.keepdims)

    def dtype(self, x: DType) -> DType:
        return x

    def spread(self, value: Tensor, x: Tensor) -> Tensor:
        """Give a reduced tensor its axes back, as size 1, so that it broadcasts with x."""
        return value if self.keepdims else F.reshape(value, reduced(x.shape, self.axes, True))

    def cost(self, outputs: tuple[TensorType, ...], *inputs: TensorType) -> Cost:
        return super().cost(outputs, *inputs)._replace(flops=inputs[0].size)


NO_ELEMENTS = "has size 0, and of no elements none can be chosen"
ONE_ELEMENT = "give it one element or more, such as a least value"
"""The error of choosing among no elements, and its fix."""


def require_elements(x: Shape, axes: Sequence[int]) -> None:
    """Require one element or more along axes; runs check symbolic sizes."""
    for axis in axes:
        require(x[axis] != 0, f"axis {axis} {NO_ELEMENTS}", fix=ONE_ELEMENT)


def check_elements(name: str, x: Any, axes: Sequence[int]) -> None:
    """Check in a run that an array has one element or more along axes.

    Raises:
        ExecutionError: It has none.
    """
    for axis in axes:
        if x.shape[axis] == 0:
            raise ExecutionError(f"{name}: axis {axis} {NO_ELEMENTS}", fix=ONE_ELEMENT)


class Total(Reduction):
    """The base of sum and prod."""

    def dtype(self, x: DType) -> DType:
        return require_numeric(x)

    def eval(self, xp: Any, x: Any) -> Any:
        reduce, dtype = getattr(xp, self.name), compute_dtype(xp, x.dtype)
        total = reduce(x, axis=self.axes, keepdims=self.keepdims, dtype=dtype)
        return total.astype(x.dtype, copy=False)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[3, n]", axes=(1,))
        yield ok("float32[2, 3, 4]", axes=(0, 2), keepdims=True)
        yield ok("float32[0, 3]", axes=(0,))
        yield ok("float32[3]", axes=())
        yield ok("int32[3, 4]", axes=(0, 1))
        yield ok("complex64[3, 2]", axes=(0,))
        yield bad("float32[3]", axes=(1,), match="axis 1 is out of range for 1 dim")
        yield bad("bool[3]", axes=(0,), match="wants numeric tensors", error=DTypeError)


@op("sum")
class Sum(Total):
    """The sum over axes.  x: [*A]  ->  [*A without axes]"""

    combine = "sum"
    linear = "jointly"

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        return (lambda: F.broadcast_to(self.spread(ct, x), x.shape),)


@public
def sum(
    x: TensorLike, /, *, axis: Axes = None, dtype: DTypeLike | None = None, keepdims: bool = False
) -> Tensor:
    """Add up along axes, all by default.  x: [*A] -> [*A without axis]

    Numeric or bool; small integers and bools are summed as int64 (unsigned as uint64), float16 and
    bfloat16 accumulate in float32. The sum of nothing is 0.

    Raises:
        AxisError: There is no such axis.
        DTypeError: `dtype` is bool.

    >>> import graphfw as gf
    >>> gf.sum(gf.asarray([[1, 2], [3, 4]]), axis=0)
    Tensor([4, 6], dtype=int64)
    """
    tensor = as_tensor(x)
    axes = axes_of("sum", tensor, axis)
    return emit(shared(Sum, axes, keepdims), accumulated(tensor, dtype))


def accumulated(x: Tensor, dtype: DTypeLike | None) -> Tensor:
    """Return the tensor in the dtype that it is to be added or multiplied up in."""
    return converted(x, accumulator(x.dtype) if dtype is None else as_dtype(dtype))


@op("prod")
class Prod(Total):
    """The product over axes.  x: [*A]  ->  [*A without axes]"""

    combine = "prod"

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        return (lambda: self.spread(ct, x) * F.conj(self.others(x)),)

    def others(self, x: Tensor) -> Tensor:
        """For each element, return the product of those that it is multiplied with."""
        if len(self.axes) == 1:
            return F.product_of_others(x, self.axes[0])
        # Several axes: lay them side by side as one, and back.
        order = (*(i for i in range(x.ndim) if i not in self.axes), *self.axes)
        kept = reduced(x.shape, self.axes, False)
        lines = F.reshape(F.permute_dims(x, order), (*kept, size_of(permuted(x.shape, self.axes))))
        products = F.reshape(F.product_of_others(lines, len(kept)), permuted(x.shape, order))
        return F.permute_dims(products, sorted(range(x.ndim), key=order.index))


@public
def prod(
    x: TensorLike, /, *, axis: Axes = None, dtype: DTypeLike | None = None, keepdims: bool = False
) -> Tensor:
    """Multiply along axes, all by default.  x: [*A] -> [*A without axis]

    Numeric or bool; small integers and bools are multiplied as int64 (unsigned as uint64), float16
    and bfloat16 accumulate in float32. The product of nothing is 1. Gradients are right where
    elements are 0, too.

    Raises:
        AxisError: There is no such axis.
        DTypeError: `dtype` is bool.

    >>> import graphfw as gf
    >>> gf.prod(gf.asarray([[1, 2], [3, 4]]), axis=1)
    Tensor([ 2, 12], dtype=int64)
    """
    tensor = as_tensor(x)
    axes = axes_of("prod", tensor, axis)
    return emit(shared(Prod, axes, keepdims), accumulated(tensor, dtype))


class Extreme(Reduction):
    """The base of max and min.

    Attributes:
        identity: Whether the result of no elements is the identity, -inf or a dtype's least number
            for max; otherwise it is an error.
    """

    identity: bool = False
    worse: ClassVar[str]
    mixed_precision = "follows"

    def shape(self, x: Shape) -> Shape:
        result = super().shape(x)
        if not self.identity:
            require_elements(x, self.axes)
        return result

    def dtype(self, x: DType) -> DType:
        fix = "use gf.any for the largest and gf.all for the smallest of bools"
        return require_ordered(x, fix)

    @abc.abstractmethod
    def identity_of(self, dtype: DType) -> float | int:
        """Return the result of no elements of a dtype."""

    def eval(self, xp: Any, x: Any) -> Any:
        if self.identity and 0 in [x.shape[axis] for axis in self.axes]:
            value = self.identity_of(as_dtype(x.dtype))
            return xp.full(reduced(x.shape, self.axes, self.keepdims), value, x.dtype)
        check_elements(self.name, x, self.axes)
        return getattr(xp, self.name)(x, axis=self.axes, keepdims=self.keepdims)

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        return (lambda: self.shared(self.spread(ct, x), self.spread(y, x), x),)

    def shared(self, ct: Tensor, y: Tensor, x: Tensor) -> Tensor:
        """Give each of the elements that tie the same share.

        They are found as "not worse", not as "equal": so a NaN, which equals nothing, leaves a
        NaN among the gradients and not zeros that look healthy.
        """
        worse = getattr(F, self.worse)(x, y)
        ties = F.sum(F.where(worse, 0, F.ones((), dtype=x.dtype)), axis=self.axes, keepdims=True)
        return F.where(worse, 0, ct / ties)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[n, 3]", axes=(1,))
        yield ok("float32[2, 3, 4]", axes=(0, 2), keepdims=True)
        yield ok("float32[0, 3]", axes=(1,))
        yield ok("float32[3]", axes=())
        yield ok("uint8[3, 4]", axes=(0, 1))
        yield ok("int32[3, 0]", axes=(1,), keepdims=True, identity=True)
        yield ok("float32[3, n]", axes=(1,), identity=True)
        yield bad("float32[3]", axes=(1,), match="axis 1 is out of range for 1 dim")
        yield bad("float32[3, 0]", axes=(1,), match="axis 1 has size 0")
        yield bad("bool[3]", axes=(0,), match="wants real tensors, not bool", error=DTypeError)
        yield bad("complex64[3]", axes=(0,), match="not complex64", error=DTypeError)


@op("max")
class Max(Extreme):
    """The largest over axes.  x: [*A]  ->  [*A without axes]"""

    worse = "less"
    combine = "max"

    def identity_of(self, dtype: DType) -> float | int:
        return least(dtype)


@public
def max(x: TensorLike, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Take the largest along axes, all by default.  x: [*A] -> [*A without axis]

    Real dtypes. One NaN makes the result NaN. Elements that tie share the gradient equally.

    Raises:
        AxisError: There is no such axis.
        ShapeError: A size along `axis` is 0.
        DTypeError: The tensor is bool or complex.

    >>> import graphfw as gf
    >>> gf.max(gf.asarray([[1, 7], [3, 4]]), axis=1)
    Tensor([7, 4], dtype=int64)
    """
    tensor = as_tensor(x)
    return emit(shared(Max, axes_of("max", tensor, axis), keepdims), tensor)


@op("min")
class Min(Extreme):
    """The smallest over axes.  x: [*A]  ->  [*A without axes]"""

    worse = "greater"
    combine = "min"

    def identity_of(self, dtype: DType) -> float | int:
        return most(dtype)


@public
def min(x: TensorLike, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Take the smallest along axes, all by default.  x: [*A] -> [*A without axis]

    Otherwise as `max`.

    Raises:
        AxisError, ShapeError, DTypeError: As `max`.

    >>> import graphfw as gf
    >>> gf.min(gf.asarray([[1, 7], [3, 4]]), axis=1)
    Tensor([1, 3], dtype=int64)
    """
    tensor = as_tensor(x)
    return emit(shared(Min, axes_of("min", tensor, axis), keepdims), tensor)


class ArgExtreme(Op):
    """The base of argmax and argmin.  x: [*A]  ->  [*A without axis]"""

    axis: int
    keepdims: bool = False
    vjp = NONDIFF
    batch = along_axes
    mixed_precision = "follows"

    def shape(self, x: Shape) -> Shape:
        axes = (normalize_axis(self.axis, len(x)),)
        require_elements(x, axes)
        return reduced(x, axes, self.keepdims)

    def dtype(self, x: DType) -> DType:
        require_ordered(x)
        return int64

    def eval(self, xp: Any, x: Any) -> Any:
        check_elements(self.name, x, (self.axis,))
        values = x.astype(compute_dtype(xp, x.dtype), copy=False)
        indices = getattr(xp, self.name)(values, axis=self.axis, keepdims=self.keepdims)
        return indices.astype(xp.int64)

    def cost(self, outputs: tuple[TensorType, ...], *inputs: TensorType) -> Cost:
        return super().cost(outputs, *inputs)._replace(flops=inputs[0].size)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[n, 3]", axis=1)
        yield ok("float32[2, 3, 4]", axis=0, keepdims=True)
        yield ok("float32[0, 3]", axis=1)
        yield ok("int32[5]", axis=0)
        yield bad("float32[3]", axis=1, match="axis 1 is out of range for 1 dim")
        yield bad("float32[3, 0]", axis=1, match="axis 1 has size 0")
        yield bad("bool[3]", axis=0, match="wants real tensors, not bool", error=DTypeError)
        yield bad("complex64[3]", axis=0, match="not complex64", error=DTypeError)


@op("argmax")
class ArgMax(ArgExtreme):
    """The index of the largest along an axis."""

    combine = "argmax"


@op("argmin")
class ArgMin(ArgExtreme):
    """The index of the smallest along an axis."""

    combine = "argmin"


@public
def argmax(x: TensorLike, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Find the index of the largest along an axis, the first of those that tie.

    x: [*A] real -> [*A without axis] int64. Without an axis, the index in the flattened tensor.
    NaN counts as the largest.

    Raises:
        AxisError: There is no such axis.
        ShapeError: The size along `axis` is 0.
        DTypeError: The tensor is bool or complex.

    >>> import graphfw as gf
    >>> gf.argmax(gf.asarray([[1, 7], [4, 4]]), axis=1)
    Tensor([1, 0], dtype=int64)
    """
    return _arg_extreme(ArgMax, x, axis, keepdims)


@public
def argmin(x: TensorLike, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Find the index of the smallest along an axis, the first of those that tie.

    x: [*A] real -> [*A without axis] int64. Otherwise as `argmax`; NaN counts as the smallest here.

    Raises:
        AxisError, ShapeError, DTypeError: As `argmax`.

    >>> import graphfw as gf
    >>> gf.argmin(gf.asarray([[1, 7], [4, 4]]), axis=1)
    Tensor([0, 0], dtype=int64)
    """
    return _arg_extreme(ArgMin, x, axis, keepdims)


def _arg_extreme(cls: type[ArgExtreme], x: TensorLike, axis: int | None, keepdims: bool) -> Tensor:
    tensor = as_tensor(x)
    if axis is not None:
        axis_index = ruled(cls.name, tensor, normalize_axis, axis, tensor.ndim)
        return emit(cls(axis_index, keepdims), tensor)
    found = emit(cls(0), F.reshape(tensor, (tensor.size,)))
    return F.reshape(found, (1,) * tensor.ndim) if keepdims else found


class Truth(Reduction):
    """The base of all and any."""

    vjp = NONDIFF

    def dtype(self, x: DType) -> DType:
        message = f"wants bool tensors, not {x.name}"
        require(x.is_bool, message, fix="write x != 0", error=DTypeError)
        return bool_

    def eval(self, xp: Any, x: Any) -> Any:
        return getattr(xp, self.name)(x, axis=self.axes, keepdims=self.keepdims)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("bool[3, n]", axes=(1,))
        yield ok("bool[2, 3, 4]", axes=(0, 2), keepdims=True)
        yield ok("bool[0, 3]", axes=(0,))
        yield ok("bool[3]", axes=())
        yield bad("bool[3]", axes=(1,), match="axis 1 is out of range for 1 dim")
        yield bad("int32[3]", axes=(0,), match="wants bool tensors", error=DTypeError)


@op("all")
class All(Truth):
    """Whether all are true, over axes.  x: [*A]  ->  [*A without axes]"""

    combine = "all"


@op("any")
class AnyOf(Truth):
    """Whether any is true, over axes.  x: [*A]  ->  [*A without axes]"""

    combine = "any"


@public
def all(x: TensorLike, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return whether all elements along axes are true.  x: [*A] -> [*A without axis] bool

    Numbers are true unless they are 0; so NaN is. All of nothing are true.

    Raises:
        AxisError: There is no such axis.

    >>> import graphfw as gf
    >>> gf.all(gf.asarray([[1, 0], [3, 4]]), axis=1)
    Tensor([False,  True], dtype=bool)
    """
    tensor = as_tensor(x)
    return emit(All(axes_of("all", tensor, axis), keepdims), converted(tensor, bool_))


@public
def any(x: TensorLike, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return whether any element along axes is true.  x: [*A] -> [*A without axis] bool

    Numbers are true unless they are 0; so NaN is. Of nothing, none is true.

    Raises:
        AxisError: There is no such axis.

    >>> import graphfw as gf
    >>> gf.any(gf.asarray([[1, 0], [0, 0]]), axis=1)
    Tensor([ True, False], dtype=bool)
    """
    tensor = as_tensor(x)
    return emit(AnyOf(axes_of("any", tensor, axis), keepdims), converted(tensor, bool_))


@public
def count_nonzero(x: TensorLike, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Count the elements along axes that are not 0.  x: [*A] -> [*A without axis] int64

    Raises:
        AxisError: There is no such axis.

    >>> import graphfw as gf
    >>> gf.count_nonzero(gf.asarray([[1, 0], [3, 4]]), axis=1)
    Tensor([1, 2], dtype=int64)
    """
    tensor = as_tensor(x)
    axes = axes_of("count_nonzero", tensor, axis)
    return sum(converted(tensor, bool_), axis=axes, keepdims=keepdims)
