"""Conversions between dtypes, and questions about dtypes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from graphfw.errors import ArgumentError, DTypeError
from graphfw.ir import ambient, overrides
from graphfw.ir.arrays import to_array
from graphfw.ir.build import emit
from graphfw.ir.dim import Dim
from graphfw.ir.dtype import (
    BY_NAME,
    DType,
    DTypeLike,
    as_dtype,
    bfloat16,
    bool_,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int32,
    int64,
    limits_of,
    promote,
    promote_all,
    promote_scalar,
)
from graphfw.ir.functions import F, public
from graphfw.ir.literal import PYTHON_SCALARS
from graphfw.ir.op import ELEMENTWISE, PURE, Case, Op, bad, ok, op
from graphfw.ir.shape import require
from graphfw.ir.shared_ops import shared
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.args import TensorLike, as_tensor
from graphfw.ops.composed import demand
from graphfw.utils.records import record

__all__ = ["astype", "can_cast", "finfo", "iinfo", "isdtype", "result_type"]


@op("astype")
class AsType(Op):
    """The elements in another dtype.  x: [*A]  ->  [*A]"""

    to: DType
    traits = frozenset({PURE, ELEMENTWISE})
    linear = "jointly"

    def shape(self, x: Shape) -> Shape:
        return x

    def dtype(self, x: DType) -> DType:
        fits = not x.is_complex or self.to.is_complex or self.to.is_bool
        message = f"{x.name} does not become {self.to.name}: that would drop the imaginary part"
        require(fits, message, fix="take gf.real(x), gf.imag(x) or gf.abs(x)", error=DTypeError)
        is_direct = not _needs_float32(x, self.to)
        message = f"{x.name} becomes {self.to.name} by way of float32"
        require(is_direct, message, fix="call gf.astype, which goes there", error=DTypeError)
        return self.to

    def eval(self, xp: Any, x: Any) -> Any:
        return x.astype(self.to.dtype)

    def scalar(self, k: Any, x: Any) -> Any:
        return k.cast(x, self.to)

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        if not x.dtype.is_inexact or not self.to.is_inexact:
            return (None,)
        return (lambda: astype(ct if x.dtype.is_complex else F.real(ct), x.dtype),)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[3, n]", to=float64)
        yield ok("float64[0, 3]", to=bfloat16, smooth=False)
        yield ok("bfloat16[4]", to=float32, smooth=False)
        yield ok("float32[3]", to=complex64)
        yield ok("complex64[3]", to=complex128)
        yield ok("float32[n]", to=int32)
        yield ok("int64[]", to=float16)
        yield ok("complex64[3]", to=bool_)
        yield ok("float8_e4m3fn[n]", to=float16)
        yield ok("float64[3, n]", to=BY_NAME["float8_e5m2"])
        yield ok("int4[n]", to=int64)
        yield ok("int32[n]", to=BY_NAME["uint4"])
        yield bad("complex64[3]", to=float32, match="the imaginary part", error=DTypeError)
        yield bad("int4[3]", to=complex64, match="by way of float32", error=DTypeError)


@public
def astype(
    x: TensorLike, dtype: DTypeLike, /, *, copy: bool = True, device: str | None = None
) -> Tensor:
    """Convert the elements to another dtype.  x: [*A] -> [*A]

    The tensor itself where it has the dtype already; `copy` is for compatibility, as tensors never
    change. Floats become integers by dropping the fraction; what an integer can't hold (NaN, too
    large) becomes some value that depends on the machine. Non-zero becomes True.

    Gradients are converted back; none flows through a conversion to integers, bools, or dtypes
    that numbers are only kept in (`float8_e4m3fn`, `int4` and their like).

    Raises:
        DTypeError: A complex tensor would become real.

    >>> import graphfw as gf
    >>> gf.astype(gf.asarray([1.5, -1.5]), gf.int32)
    Tensor([ 1, -1], dtype=int32)
    """
    tensor = as_tensor(x)
    if device is not None:
        tensor = tensor.to_device(device)
    wanted = as_dtype(dtype)
    if _needs_float32(tensor.dtype, wanted):
        tensor = emit(shared(AsType, float32), tensor)
    return tensor if tensor.dtype is wanted else emit(shared(AsType, wanted), tensor)


def _needs_float32(source: DType, to: DType) -> bool:
    """Return whether no conversion leads from one to the other, as between two for storage."""
    other = source is not to and (to.is_storage or to.is_complex)
    return source.is_storage and other


@public
def can_cast(from_: Tensor | DTypeLike, to: DTypeLike, /) -> bool:
    """Return whether promotion may change one dtype to the other: it loses no kind of value.

    >>> import graphfw as gf
    >>> gf.can_cast(gf.int32, gf.int64), gf.can_cast(gf.float64, gf.float32)
    (True, False)
    """
    target = as_dtype(to)
    try:
        return promote(_dtype_of(from_), target) is target
    except DTypeError:
        return False


_KINDS: dict[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "signed integer": ("int",),
    "unsigned integer": ("uint",),
    "integral": ("int", "uint"),
    "real floating": ("float",),
    "complex floating": ("complex",),
    "numeric": ("int", "uint", "float", "complex"),
}


@public
def isdtype(dtype: DTypeLike, kind: DTypeLike | tuple[DTypeLike, ...]) -> bool:
    """Return whether a dtype is of a kind, of one of several, or is a certain dtype.

    Args:
        dtype: The dtype in question.
        kind: "bool", "signed integer", "unsigned integer", "integral", "real floating",
            "complex floating", "numeric", a dtype, or a tuple of these.

    Raises:
        ArgumentError: There is no such kind.

    >>> import graphfw as gf
    >>> gf.isdtype(gf.int8, "integral"), gf.isdtype(gf.int8, (gf.float32, "bool"))
    (True, False)
    """
    if isinstance(kind, tuple):
        return any([isdtype(dtype, one) for one in kind])
    if not isinstance(kind, str):
        return as_dtype(dtype) is as_dtype(kind)
    if kind not in _KINDS:
        names = ", ".join(f'"{name}"' for name in _KINDS)
        raise ArgumentError(f'isdtype: there is no kind "{kind}"', fix=f"use a dtype, or {names}")
    return as_dtype(dtype).kind in _KINDS[kind]


@public
def result_type(*arrays_and_dtypes: TensorLike | DTypeLike) -> DType:
    """Return the dtype that arithmetic with these operands has; Python scalars are weak.

    Raises:
        ArgumentError: There are no operands.
        DTypeError: No dtype holds all (uint64 with a signed integer).

    >>> import graphfw as gf
    >>> gf.result_type(gf.float16, gf.asarray([1, 2]), 0.5)
    graphfw.float16
    """
    message = "result_type: wants one operand or more"
    demand(bool(arrays_and_dtypes), message, fix="pass tensors, dtypes or scalars")
    operands = [0 if isinstance(x, Dim) else x for x in arrays_and_dtypes]
    scalars = [x for x in operands if isinstance(x, PYTHON_SCALARS)]
    strong = [_dtype_of(x) for x in operands if not isinstance(x, PYTHON_SCALARS)]
    try:
        dtype = promote_all(tuple(strong or [as_dtype(to_array(x).dtype) for x in scalars]))
    except DTypeError as error:
        raise DTypeError(f"result_type: {error.summary}", fix=error.fix) from None
    for scalar in scalars:
        dtype = promote_scalar(dtype, scalar, ambient.get_default_dtype())
    return dtype


def _dtype_of(x: Any) -> DType:
    """Return the dtype of a tensor, an array or a list; or the dtype that `x` names."""
    if isinstance(x, Tensor):
        return x.dtype
    if isinstance(x, (np.ndarray, np.generic, list, tuple)):
        return as_dtype(to_array(x).dtype)
    overrides.check(x)
    return as_dtype(x)


@record
class FloatInfo:
    """The limits of a floating-point dtype, as Python floats.

    Attributes:
        bits: The size of a number (of a complex dtype: of one component).
        eps: The distance from 1 to the next larger number.
        max: The largest finite number.
        min: The smallest finite number, -max; of float8_e8m0fnu, which has no sign, 2^-127.
        smallest_normal: The smallest positive number of full precision.
        dtype: The dtype; of a complex dtype: that of its components.
    """

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@public
def finfo(type: Tensor | DTypeLike, /) -> FloatInfo:
    """Return the limits of a floating-point or complex dtype, or of a tensor's.

    Raises:
        DTypeError: The dtype is neither.

    >>> import graphfw as gf
    >>> gf.finfo(gf.bfloat16).eps, gf.finfo("float8_e4m3fn").max
    (0.0078125, 448.0)
    """
    dtype = _dtype_of(type)
    demand(
        dtype.is_complex or dtype.holds_floats,
        f"finfo: wants a floating-point or complex dtype, not {dtype.name}",
        fix="bools have no limits" if dtype.is_bool else f'use gf.iinfo("{dtype.name}")',
        error=DTypeError,
    )
    component = dtype.real
    info = limits_of(component)
    eps, largest, least, normal = map(float, (info.eps, info.max, info.min, info.smallest_normal))
    return FloatInfo(info.bits, eps, largest, least, normal, component)


@record
class IntInfo:
    """The limits of an integer dtype.

    Attributes:
        bits: The size of a number.
        max: The largest number.
        min: The smallest number.
        dtype: The dtype.
    """

    bits: int
    max: int
    min: int
    dtype: DType


@public
def iinfo(type: Tensor | DTypeLike, /) -> IntInfo:
    """Return the limits of an integer dtype, or of a tensor's.

    Raises:
        DTypeError: The dtype is no integer dtype.

    >>> import graphfw as gf
    >>> gf.iinfo(gf.uint8).max, gf.iinfo("int4").min
    (255, -8)
    """
    dtype = _dtype_of(type)
    demand(
        dtype.is_integer or (dtype.is_storage and not dtype.holds_floats),
        f"iinfo: wants an integer dtype, not {dtype.name}",
        fix="bools have no limits" if dtype.is_bool else f'use gf.finfo("{dtype.name}")',
        error=DTypeError,
    )
    info = limits_of(dtype)
    return IntInfo(info.bits, int(info.max), int(info.min), dtype)
