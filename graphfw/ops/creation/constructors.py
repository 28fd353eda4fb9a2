"""Making tensors: of values, and filled with one number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphfw.errors import ArgumentError, GraphfwError, ShapeError, a_type
from graphfw.hints.devices import executor_for
from graphfw.ir import ambient, overrides
from graphfw.ir.arrays import to_array
from graphfw.ir.build import constant
from graphfw.ir.dim import Dim, DimLike
from graphfw.ir.dtype import DType, DTypeLike, as_dtype, promote_scalar
from graphfw.ir.functions import F, public
from graphfw.ir.literal import PYTHON_SCALARS
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import TensorLike, as_tensor, converted, dims_of, dtype_or, scalar_like
from graphfw.ops.composed import demand
from graphfw.ops.shape.movement import broadcast_to

__all__ = [
    "asarray",
    "empty",
    "empty_like",
    "from_dlpack",
    "full",
    "full_like",
    "ones",
    "ones_like",
    "zeros",
    "zeros_like",
]


@public
def asarray(
    obj: TensorLike,
    /,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    copy: bool | None = None,
    like: Tensor | None = None,
) -> Tensor:
    """Return a tensor: of a scalar, a nested list, an array, what has `__dlpack__`, or a tensor.

    A nested list may hold tensors, which are stacked. Arrays keep their dtype; Python's floats
    become the default dtype, its ints int64. A tensor is returned as it is.

    Args:
        obj: The values.
        dtype: The result's dtype, converted to if need be.
        device: None or "graph".
        copy: Tensors don't change, so only False means anything: an error where an array or a list
            would be copied, or a tensor converted.
        like: A tensor whose dtype Python scalars and dims take.

    Raises:
        DTypeError: The values are no numbers (strings, objects), or don't fit the dtype.
        ArgumentError: A nested list is ragged, or `copy=False` can't be kept.

    >>> import graphfw as gf
    >>> gf.asarray([1.5, 2.0])
    Tensor([1.5, 2. ], dtype=float32)
    """
    check_device("asarray", device)
    wanted = None if dtype is None else as_dtype(dtype)
    if copy is False:
        _check_uncopied("asarray", obj, wanted)
    if isinstance(obj, Tensor):
        return obj if wanted is None else converted(obj, wanted)
    if like is not None and isinstance(obj, (*PYTHON_SCALARS, Dim)):
        scalar = 0 if isinstance(obj, Dim) else obj
        like_dtype = promote_scalar(like.dtype, scalar, ambient.get_default_dtype())
        return scalar_like("asarray", obj, wanted or like_dtype)
    if isinstance(obj, Dim):
        return as_tensor(obj, wanted)
    overrides.check(obj)
    if isinstance(obj, (list, tuple)) and _holds_symbols(obj):
        rows = [asarray(item, dtype=wanted) for item in obj]
        return F.stack(rows)
    return constant(_values(obj, wanted))


def check_device(name: str, device: str | None) -> None:
    """See that a `device` argument is the only one there is.

    Raises:
        ArgumentError: It is another.
    """
    if device not in (None, "graph"):
        raise ArgumentError(
            f"{name}: device={device!r}: a tensor is on no device",
            fix=executor_for(str(device)) or "choose the executor: gf.Session(g, executor=…)",
        )


def _check_uncopied(name: str, obj: TensorLike, wanted: DType | None) -> None:
    kept = isinstance(obj, Tensor) and wanted in (None, obj.dtype)
    message = f"{name}: copy=False, and this can't become a tensor without a copy"
    demand(kept, message, fix="leave copy out")


def _holds_symbols(items: Sequence[Any]) -> bool:
    """Return whether a nested list holds tensors or dims, whose values may not be known."""
    return any(
        _holds_symbols(item) if isinstance(item, (list, tuple)) else isinstance(item, (Tensor, Dim))
        for item in items
    )


def _values(obj: Any, wanted: DType | None) -> np.ndarray[Any, Any]:
    """Return an array of what the user passed, in the dtype that was asked for."""
    try:
        return to_array(obj, wanted)
    except GraphfwError as error:
        raise type(error)(f"asarray: {error.summary}", fix=error.fix) from None


@public
def from_dlpack(x: Any, /, *, device: str | None = None, copy: bool | None = None) -> Tensor:
    """Return a tensor of an array that has `__dlpack__`, of any library.  x: [*A] -> [*A]

    Raises:
        ArgumentError: It has no `__dlpack__`, or lies on a device that NumPy can't read.
    """
    check_device("from_dlpack", device)
    if not hasattr(x, "__dlpack__"):
        raise ArgumentError(f"from_dlpack: {a_type(x)} has no __dlpack__", fix="use gf.asarray")
    if isinstance(x, Tensor):
        return x
    if copy is False:
        _check_uncopied("from_dlpack", x, None)
    try:
        array = np.from_dlpack(x)
    except (BufferError, RuntimeError, TypeError) as error:
        raise ArgumentError(
            f"from_dlpack: NumPy can't read it: {error}", fix="copy it to the CPU first"
        ) from None
    return asarray(array)


@public
def full(
    shape: DimLike | Sequence[DimLike],
    fill_value: TensorLike,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
) -> Tensor:
    """Return a tensor with one value everywhere.  -> shape

    Args:
        shape: The dims, which may be symbolic, or a single one.
        fill_value: A scalar or a 0-d tensor.
        dtype: The elements' type; without it that of the value: a Python float gives the default
            dtype, an int int64.
        device: None or "graph".

    Raises:
        ShapeError: A dim is negative, or the value is not 0-d.
        DTypeError: The value does not fit the dtype.

    >>> import graphfw as gf
    >>> gf.full((2, 2), 7)
    Tensor([[7, 7],
            [7, 7]], dtype=int64)
    """
    return _filled("full", shape, fill_value, dtype, device)


def _filled(
    name: str,
    shape: DimLike | Sequence[DimLike],
    value: TensorLike,
    dtype: DTypeLike | None,
    device: str | None,
) -> Tensor:
    check_device(name, device)
    dims = dims_of(name, shape)
    scalar = asarray(value, dtype=dtype)
    demand(
        scalar.ndim == 0,
        f"{name}: the value to fill with must be 0-d, not {scalar.type}",
        {"value": scalar},
        fix="use gf.broadcast_to",
        error=ShapeError,
    )
    return broadcast_to(scalar, dims)


@public
def zeros(
    shape: DimLike | Sequence[DimLike],
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
) -> Tensor:
    """Return a tensor of zeros, of the default dtype unless `dtype` is passed.  -> shape

    Raises:
        ShapeError: A dim is negative or no size.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     x = gf.placeholder(("batch", 8), name="x")
    ...     gf.zeros((x.shape[0], 3)).shape
    (batch, 3)
    """
    return _filled("zeros", shape, 0, dtype_or(dtype, ambient.get_default_dtype()), device)


@public
def ones(
    shape: DimLike | Sequence[DimLike],
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
) -> Tensor:
    """Return a tensor of ones, of the default dtype unless `dtype` is passed.  -> shape

    Raises:
        ShapeError: A dim is negative or no size.
    """
    return _filled("ones", shape, 1, dtype_or(dtype, ambient.get_default_dtype()), device)


@public
def empty(
    shape: DimLike | Sequence[DimLike],
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
) -> Tensor:
    """Return a tensor of zeros: graphfw has no memory that is not initialised.  -> shape

    Raises:
        ShapeError: A dim is negative or no size.
    """
    return _filled("empty", shape, 0, dtype_or(dtype, ambient.get_default_dtype()), device)


@public
def full_like(
    x: TensorLike,
    /,
    fill_value: TensorLike,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
) -> Tensor:
    """Return a tensor with one value everywhere, of x's shape and dtype.  x: [*A] -> [*A]

    Raises:
        ShapeError: The value is not 0-d.
        DTypeError: The value does not fit the dtype.
    """
    tensor = as_tensor(x)
    return _filled("full_like", tensor.shape, fill_value, dtype_or(dtype, tensor.dtype), device)


@public
def zeros_like(
    x: TensorLike, /, *, dtype: DTypeLike | None = None, device: str | None = None
) -> Tensor:
    """Return zeros of x's shape and dtype.  x: [*A] -> [*A]"""
    tensor = as_tensor(x)
    return _filled("zeros_like", tensor.shape, 0, dtype_or(dtype, tensor.dtype), device)


@public
def ones_like(
    x: TensorLike, /, *, dtype: DTypeLike | None = None, device: str | None = None
) -> Tensor:
    """Return ones of x's shape and dtype.  x: [*A] -> [*A]"""
    tensor = as_tensor(x)
    return _filled("ones_like", tensor.shape, 1, dtype_or(dtype, tensor.dtype), device)


@public
def empty_like(
    x: TensorLike, /, *, dtype: DTypeLike | None = None, device: str | None = None
) -> Tensor:
    """Return zeros of x's shape and dtype: see `empty`.  x: [*A] -> [*A]"""
    tensor = as_tensor(x)
    return _filled("empty_like", tensor.shape, 0, dtype_or(dtype, tensor.dtype), device)
