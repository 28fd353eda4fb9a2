"""The rules of dtypes: which ops require, and which they compute in."""

from __future__ import annotations

import math
from typing import Any

from graphfw.errors import DTypeError
from graphfw.ir.dtype import DType, complex64, complex128, float64, int64, limits_of, uint64
from graphfw.ir.shape import Requirement, require

INDICES_FIX = "use ints, or convert with gf.astype(index, gf.int64)"
BOOL_FIX = "convert it first: gf.astype(x, gf.uint8)"


def require_one_dtype(first: DType, *others: DType) -> None:
    """Require that all inputs have the dtype of the first."""
    for other in others:
        if other is not first:
            raise Requirement(
                f"wants one dtype, not {first.name} and {other.name}",
                fix=f"convert one of them: gf.astype(x, gf.{first.name})",
                error=DTypeError,
            )


def require_computable(dtype: DType) -> DType:
    """Require what numbers are not only kept in."""
    fix = "convert it first: gf.astype(x, gf.float32)"
    require(not dtype.is_storage, f"{dtype.name} is for storage alone", fix=fix, error=DTypeError)
    return dtype


def require_numeric(dtype: DType) -> DType:
    """Require what can be added up."""
    require_computable(dtype)
    fix = "convert it first, for example with gf.astype(x, gf.int64)"
    require(not dtype.is_bool, "wants numeric tensors, not bool", fix=fix, error=DTypeError)
    return dtype


def require_ordered(dtype: DType, instead_of_bool: str = BOOL_FIX) -> DType:
    """Require what has an order."""
    require_computable(dtype)
    message = f"wants real tensors, not {dtype.name}"
    require(not dtype.is_bool, message, fix=instead_of_bool, error=DTypeError)
    fix = "complex numbers have no order: use gf.abs or gf.real"
    require(not dtype.is_complex, message, fix=fix, error=DTypeError)
    return dtype


def require_indices(*dtypes: DType) -> None:
    """Require what can say where elements are."""
    for dtype in dtypes:
        message = f"indices must be integers, not {dtype.name}"
        require(dtype.is_integer, message, fix=INDICES_FIX, error=DTypeError)


def accumulator(dtype: DType) -> DType:
    """Return the dtype that sums and products of integers are made in."""
    if dtype.kind == "uint":
        return uint64
    return int64 if dtype.is_bool or dtype.is_integer else dtype


def least(dtype: DType) -> float | int:
    """Return the least number of a real dtype, the identity of max."""
    return -math.inf if dtype.is_floating else int(limits_of(dtype).min)


def most(dtype: DType) -> float | int:
    """Return the greatest number of a real dtype, the identity of min."""
    return math.inf if dtype.is_floating else int(limits_of(dtype).max)


def complex_of(dtype: DType) -> DType:
    """Return the complex dtype of a floating-point dtype's precision."""
    return complex128 if dtype.real is float64 else complex64


def compute_dtype(xp: Any, dtype: Any) -> Any:
    """Return the array dtype to compute in: float32 for the floats of two bytes."""
    return xp.float32 if dtype.itemsize == 2 and dtype.kind not in "iu" else dtype
