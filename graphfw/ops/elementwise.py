"""Arithmetic, elementwise: one row an op."""

from __future__ import annotations

from graphfw.ir.functions import F
from graphfw.ops.table import binary, unary

__all__ = ["add", "conj", "divide", "exp", "multiply", "negative", "subtract", "tanh"]

add = binary(
    "add",
    doc="""Add elementwise.  x1, x2: numeric, broadcast -> [*B]

    >>> import graphfw as gf
    >>> gf.add(gf.asarray([1, 2]), 3)
    Tensor([4, 5], dtype=int64)
    """,
    vjp=(lambda ct, y, a, b: ct, lambda ct, y, a, b: ct),
    commutative=True,
)
subtract = binary(
    "subtract",
    doc="Subtract elementwise.  x1, x2: numeric, broadcast -> [*B]",
    vjp=(lambda ct, y, a, b: ct, lambda ct, y, a, b: -ct),
)
multiply = binary(
    "multiply",
    doc="Multiply elementwise.  x1, x2: numeric, broadcast -> [*B]",
    vjp=(lambda ct, y, a, b: ct * F.conj(b), lambda ct, y, a, b: ct * F.conj(a)),
    commutative=True,
)
divide = binary(
    "divide",
    doc="Divide elementwise; integers become floats.  x1, x2: numeric, broadcast -> [*B]",
    vjp=(lambda ct, y, a, b: ct / F.conj(b), lambda ct, y, a, b: -ct * F.conj(y / b)),
    accepts="floating-point or complex",
    domain=(0.5, 2.0),
)
conj = unary(
    "conj",
    doc="The complex conjugate; a real tensor is its own.  x: numeric [*A] -> [*A]",
    vjp=lambda ct, y, x: F.conj(ct),
    accepts="complex",
    shortcut=lambda x: None if x.dtype.is_complex or x.dtype.is_bool else x,
)
negative = unary("negative", doc="Negate elementwise.", accepts="numeric", vjp=lambda ct, y, x: -ct)
exp = unary("exp", doc="The exponential, elementwise.", vjp=lambda ct, y, x: ct * F.conj(y))
tanh = unary(
    "tanh", doc="The hyperbolic tangent, elementwise.", vjp=lambda ct, y, x: ct * F.conj(1 - y * y)
)
