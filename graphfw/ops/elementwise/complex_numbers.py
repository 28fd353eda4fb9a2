"""Complex numbers and their components."""

from __future__ import annotations

from typing import Any

from graphfw.ir.functions import F
from graphfw.ir.op import INVOLUTION
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import as_tensor
from graphfw.ops.dtypes import complex_of
from graphfw.ops.elementwise.table import binary_function, binary_op, unary

__all__ = ["complex", "conj", "imag", "real"]


def _itself_if_real(x: Tensor) -> Tensor | None:
    return None if x.dtype.is_complex or x.dtype.is_bool else x


def _zeros_if_real(x: Tensor) -> Tensor | None:
    if _itself_if_real(x) is None:
        return None
    return F.broadcast_to(as_tensor(0, x.dtype), x.shape)


conj = unary(
    "conj",
    doc="The complex conjugate; a real tensor is its own.  x: numeric [*A] -> [*A]",
    vjp=lambda ct, y, x: F.conj(ct),
    accepts="complex",
    shortcut=_itself_if_real,
    scalar=lambda k, x: k.complex(k.real(x), k.neg(k.imag(x)), x.dtype),
    traits=(INVOLUTION,),
)
real = unary(
    "real",
    doc="The real part; a real tensor is its own.  x: numeric [*A] -> real [*A]",
    vjp=lambda ct, y, x: F.astype(ct, x.dtype),
    accepts="complex",
    result="real",
    xp=lambda xp, x: x.real.copy(),
    scalar=lambda k, x: k.real(x),
    shortcut=_itself_if_real,
)
imag = unary(
    "imag",
    doc="The imaginary part; zeros of a real tensor.  x: numeric [*A] -> real [*A]",
    vjp=lambda ct, y, x: ct * 1j,
    accepts="complex",
    result="real",
    xp=lambda xp, x: x.imag.copy(),
    scalar=lambda k, x: k.imag(x),
    shortcut=_zeros_if_real,
)


def _joined(xp: Any, x1: Any, x2: Any) -> Any:
    components = xp.broadcast_arrays(x1, x2)
    result = xp.empty(
        components[0].shape, xp.complex128 if x1.dtype == xp.float64 else xp.complex64
    )
    result.real, result.imag = components
    return result


Complex = binary_op(
    "complex",
    doc="""The complex number of a real and an imaginary part.

    x1, x2: floating-point, broadcast -> complex128 of float64, else complex64 [*B].  Unlike
    x1 + 1j * x2 it has both components as they are, where one is infinite, too.
    """,
    vjp=(lambda ct, y, a, b: F.real(ct), lambda ct, y, a, b: F.imag(ct)),
    xp=_joined,
    scalar=lambda k, a, b: k.complex(a, b, complex_of(a.dtype)),
    accepts="floating-point",
    result="complex",
)
Complex.linear = "jointly"
complex = binary_function(Complex)
