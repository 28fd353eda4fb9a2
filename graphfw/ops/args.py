"""Arguments of public functions: tensors of any values, weak scalars, axes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np

from graphfw.errors import ArgumentError, ConcreteValueError, DTypeError
from graphfw.ir import ambient, overrides
from graphfw.ir.arrays import number, to_array
from graphfw.ir.build import applied, constant, emit
from graphfw.ir.concrete import describe, is_concrete
from graphfw.ir.dim import Dim, DimLike, always_le
from graphfw.ir.dtype import DType, DTypeLike, as_dtype, int64, promote_all, promote_scalar
from graphfw.ir.functions import F
from graphfw.ir.literal import PYTHON_SCALARS
from graphfw.ir.shape import (
    Requirement,
    int_or_none,
    listed_axes,
    normalize_axes,
    require,
    shape_text,
)
from graphfw.ir.sources import DimValue
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape

TensorLike: TypeAlias = Any
"""A tensor, or what becomes a constant: a scalar, a nested list, an array."""

Axes: TypeAlias = int | Sequence[int] | None

T = TypeVar("T")

_REAL = frozenset({bool, int, float})
_NUMBERS = frozenset(PYTHON_SCALARS)

_WEAK = (*PYTHON_SCALARS, Dim)
"""The types of values that take the dtype of the tensors beside them."""


def as_tensor(x: TensorLike, dtype: DType | None = None) -> Tensor:
    """Return `x` itself if it is a tensor, else a constant; a dim becomes its size as a tensor.

    `dtype` is what Python scalars and dims take; arrays keep their own.
    """
    if isinstance(x, Tensor):
        return x
    if type(x) in _NUMBERS:  # quickly, what is most common
        return applied(number(x, dtype), ())[0]
    if isinstance(x, Dim):
        return emit(DimValue(x, dtype or int64))
    overrides.check(x)
    if isinstance(x, PYTHON_SCALARS):
        return emit(number(x, dtype))
    return constant(to_array(x))


def promoted_two(name: str, x1: TensorLike, x2: TensorLike) -> tuple[Tensor, ...]:
    """Return two arguments as `promoted` does; sooner where one is of the other's dtype."""
    if isinstance(x1, Tensor):
        dtype = x1._type.dtype
        if isinstance(x2, Tensor):
            if x2._type.dtype is dtype:
                return x1, x2
        elif dtype.kind == "float" and type(x2) in _REAL:
            return x1, scalar_like(name, x2, dtype)
    elif isinstance(x2, Tensor) and type(x1) in _REAL and x2._type.dtype.kind == "float":
        return scalar_like(name, x1, x2._type.dtype), x2
    return promoted(name, x1, x2)


def promoted(name: str, *xs: TensorLike) -> tuple[Tensor, ...]:
    """Return the arguments as tensors of one dtype: arrays promote, Python scalars are weak."""
    if _are_of_one_dtype(xs):
        return xs
    strong = [x if isinstance(x, Tensor) else _strong(x) for x in xs]
    dtypes = tuple(s.dtype for s in strong if s is not None)
    if not dtypes:
        return promoted(name, *(as_tensor(x) for x in xs))
    try:
        common = promote_all(dtypes)
    except DTypeError as error:
        tensors = [s for s in strong if s is not None]
        operands = [describe(f"x{i}", t) for i, t in enumerate(tensors, 1)]
        message = f"{name}: {error.summary}"
        raise DTypeError(message, operands=operands, fix=error.fix) from None
    for x, tensor in zip(xs, strong, strict=True):
        if tensor is None:
            scalar = 0 if isinstance(x, Dim) else x
            common = promote_scalar(common, scalar, ambient.get_default_dtype())
    return tuple(
        scalar_like(name, x, common) if tensor is None else converted(tensor, common)
        for x, tensor in zip(xs, strong, strict=True)
    )


def _are_of_one_dtype(xs: Sequence[TensorLike]) -> bool:
    first = xs[0].dtype if isinstance(xs[0], Tensor) else None
    for x in xs:
        if not isinstance(x, Tensor) or x.dtype is not first:
            return False
    return True


def _strong(x: TensorLike) -> Tensor | None:
    """Return an array as a tensor; None for what is weak."""
    return None if isinstance(x, _WEAK) else as_tensor(x)


def scalar_like(name: str, x: Any, dtype: DType) -> Tensor:
    """Return a Python scalar or a dim as a tensor of `dtype`, which must be able to hold it."""
    try:
        if type(x) in _NUMBERS:  # quickly, what is most common
            return applied(number(x, dtype), ())[0]
        return as_tensor(x, dtype)
    except DTypeError as error:
        error.summary = f"{name}: {error.summary}"
        raise


def converted(x: Tensor, dtype: DType) -> Tensor:
    """Return the tensor in another dtype; itself if it has it already."""
    result: Tensor = x if x._type.dtype is dtype else F.astype(x, dtype)
    return result


def inexact(x: TensorLike) -> Tensor:
    """Return a tensor of floats: integers and bools become the default dtype."""
    tensor = as_tensor(x)
    return tensor if tensor.dtype.is_inexact else converted(tensor, ambient.get_default_dtype())


def dtype_or(dtype: DTypeLike | None, default: DType) -> DType:
    """Return the dtype meant by an optional argument."""
    return default if dtype is None else as_dtype(dtype)


def ruled(name: str, x: Tensor | None, rule: Callable[..., T], *args: Any) -> T:
    """Apply a type rule's function on behalf of a public function: its failures become errors."""
    try:
        return rule(*args)
    except Requirement as failed:
        operands = [] if x is None else [describe("x", x)]
        shown = " and ".join([f"dim {axis} of {shape_text(args[i])}" for i, axis in failed.at])
        message = f"{name}: {failed.message}" + (f": {shown}" if shown else "")
        raise failed.error(message, operands=operands, fix=failed.fix) from None


def axes_of(name: str, x: Tensor, axis: Axes) -> tuple[int, ...]:
    """Return an `axis` argument as sorted axes counted from the front.

    Raises:
        AxisError: There is no such axis, or one stands twice.
    """
    ndim = x.ndim
    if type(axis) is int and -ndim <= axis < ndim:  # quickly, what is most common
        return (axis % ndim,)
    if type(axis) is tuple and _are_in_order(axis, ndim):
        return axis
    return ruled(name, x, normalize_axes, axis, x.ndim)


def _are_in_order(axes: tuple[Any, ...], ndim: int) -> bool:
    """Return whether axes are counted from the front, and sorted."""
    before = -1
    for axis in axes:
        if type(axis) is not int or not before < axis < ndim:
            return False
        before = axis
    return True


def axes_in_order(name: str, x: Tensor, axes: int | Sequence[int]) -> tuple[int, ...]:
    """Return axes counted from the front, in the order in which they were given.

    Raises:
        AxisError: There is no such axis, or one stands twice.
    """
    return ruled(name, x, listed_axes, axes, x.ndim)


def dims_of(name: str, shape: Any, *, hole: bool = False) -> Shape:
    """Return a `shape` argument, one dim or a sequence, as a tuple of ints and dims.

    Args:
        name: The function that was given it.
        shape: What it was given: a dim, or a sequence or array of dims.
        hole: Whether -1 is allowed.

    Raises:
        ShapeError: A dim is negative or no size at all.
    """
    is_many = type(shape) is tuple or (isinstance(shape, Sequence) and not isinstance(shape, str))
    is_many = is_many or (isinstance(shape, np.ndarray) and shape.ndim == 1)
    dims = tuple(shape) if is_many else (shape,)
    return tuple(
        [
            dim if type(dim) is int and dim >= 0 else ruled(name, None, _dim, dim, hole)
            for dim in dims
        ]
    )


def _dim(dim: Any, hole: bool) -> DimLike:
    if isinstance(dim, Dim):
        require(
            not always_le(dim, -1), f"a dim can't be {dim}", (), "it is negative for every size"
        )
        return dim
    if isinstance(dim, Tensor) and not (dim.dtype.is_integer and is_concrete(dim)):
        message = f"a dim can't be a tensor that a run computes: {dim.type}"
        fix = "use a symbolic dim: that of a placeholder's shape, or x.shape[0] of another tensor"
        raise Requirement(message, fix=fix, error=ConcreteValueError)
    require(is_whole(dim), f"{dim!r} is no dim", fix="use ints, or dims such as x.shape[0]")
    size = operator.index(dim)
    require(size >= (-1 if hole else 0), f"a dim can't be {size}", (), "use 0 or more")
    return size


def is_whole(number: object) -> bool:
    """Return whether a number is an int in any form, such as `np.int64`, and no bool."""
    return int_or_none(number) is not None


def whole(name: str, what: str, number: Any) -> DimLike:
    """Return an argument as an int or a dim; `what` is what to call it.

    Raises:
        ArgumentError: It is neither.
    """
    if isinstance(number, Dim):
        return number
    if not is_whole(number):
        message = f"{name}: {what} {number!r} is no int"
        raise ArgumentError(message, fix="use an int, or a dim: x.shape[0]")
    return operator.index(number)
