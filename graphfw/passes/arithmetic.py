"""Rules of arithmetic, logic and conversions. Each keeps every value, NaN and -0.0 included."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from graphfw.ir.build import constant, emit
from graphfw.ir.constants import fill_value
from graphfw.ir.dtype import DType, holds_stored
from graphfw.ir.functions import F
from graphfw.ir.literal import Literal
from graphfw.ir.op import IDEMPOTENT, INVOLUTION, Op
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.elementwise.arithmetic import (
    Add,
    Divide,
    FloorDivide,
    Maximum,
    Minimum,
    Multiply,
    Negative,
    Pow,
    Subtract,
)
from graphfw.ops.elementwise.cast import AsType
from graphfw.ops.elementwise.comparisons import (
    BitwiseAnd,
    BitwiseInvert,
    BitwiseLeftShift,
    BitwiseOr,
    BitwiseRightShift,
    BitwiseXor,
)
from graphfw.ops.elementwise.where_clip import Where
from graphfw.passes.rules import RewriteRule, rule


def spread(tensor: Tensor, node: Node) -> Tensor:
    """Return an operand in the shape of the result."""
    return F.broadcast_to(tensor, node.types[0].shape)


Identity: TypeAlias = Callable[[DType], complex | None]
"""A function that returns the identity of a dtype: the op returns the other operand for it."""


def _zero(dtype: DType) -> complex:
    return 0


def _one(dtype: DType) -> complex | None:
    # Not of complex numbers: (inf + 1j) * (1 + 0j) has a component inf * 0.
    return None if dtype.is_complex else 1


def _negative_zero(dtype: DType) -> complex:
    # 0.0 would turn -0.0 into 0.0.
    return complex(-0.0, -0.0) if dtype.is_complex else -0.0 if dtype.is_floating else 0


_RIGHT_IDENTITY: Mapping[type[Op], Identity] = {
    BitwiseLeftShift: _zero,
    BitwiseRightShift: _zero,
    Divide: _one,
    FloorDivide: lambda dtype: 1 if dtype.is_integer else None,
    Pow: _one,
    Subtract: _zero,
}
"""The identities of ops that have one on the right only."""

_IDENTITY: Mapping[type[Op], Identity] = {
    Add: _negative_zero,
    BitwiseAnd: lambda dtype: -1,  # all bits
    BitwiseOr: _zero,
    BitwiseXor: _zero,
    Maximum: lambda dtype: -math.inf if dtype.is_floating else None,
    Minimum: lambda dtype: math.inf if dtype.is_floating else None,
    Multiply: _one,
}
"""The identities of ops that have one on either side."""

_IDENTITIES = {**_RIGHT_IDENTITY, **_IDENTITY}


@lru_cache(maxsize=512)
def _neutral(identity: Identity, dtype: DType) -> bytes | None:
    """Return, as bytes, the operand that the op returns the other operand for, or None."""
    value = identity(dtype)
    return None if value is None else np.asarray(value).astype(dtype.dtype).tobytes()


@rule(tuple(_IDENTITIES), before="1 * x", after="x")
def neutral_operand(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """X * 1, x + -0.0, x - 0.0, x / 1, x ** 1, x & -1, x | 0, max(x, -inf), … -> x."""
    identity = _IDENTITIES.get(type(node.op))  # those of derived classes are not known
    neutral = identity and _neutral(identity, node.types[0].dtype)
    if neutral is None:
        return None
    for this, other in ((1, 0), (0, 1)) if type(node.op) in _IDENTITY else ((1, 0),):
        value = fill_value(inputs[this])
        if value is not None and value.tobytes() == neutral:
            return spread(inputs[other], node)
    return None


@rule(Divide, before="x / 8", after="x * 0.125")
def divide_by_power_of_two(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """X / 2**k -> x * 2**-k: both round the same real number, and a product is quicker."""
    x, by = inputs
    value = fill_value(by)
    if value is None or not by.dtype.is_floating:
        return None
    divisor = float(value)
    limits = F.finfo(by.dtype)
    normal = limits.smallest_normal <= abs(divisor) <= limits.max
    if not normal or abs(math.frexp(divisor)[0]) != 0.5:
        return None
    factor = 1 / divisor
    if not limits.smallest_normal <= abs(factor) <= limits.max:
        return None
    return spread(x * constant(Literal(np.asarray(factor).astype(by.dtype.dtype))), node)


@rule(INVOLUTION, before="-(-x)", after="x")
def involution(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """f(f(x)) -> x, for what undoes itself."""
    inner = inputs[0].node
    return inner.inputs[0] if inner.op == node.op else None


@rule(IDEMPOTENT, before="floor(floor(x))", after="floor(x)")
def idempotent(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """f(f(x)) -> f(x), for what changes nothing the second time."""
    return inputs[0] if len(inputs) == 1 and inputs[0].node.op == node.op else None


@rule(Add, before="x + (-y)", after="x - y", takes="x: float32[3, n]; y: float32[n]")
def add_negative(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """X + (-y), (-y) + x -> x - y."""
    x, y = inputs
    if isinstance(y.node.op, Negative):
        return F.subtract(x, y.node.inputs[0])
    if isinstance(x.node.op, Negative):
        return F.subtract(y, x.node.inputs[0])
    return None


@rule(Subtract, before="x - (-y)", after="x + y", takes="x: float32[3, n]; y: float32[n]")
def subtract_negative(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """X - (-y) -> x + y."""
    x, y = inputs
    return x + y.node.inputs[0] if isinstance(y.node.op, Negative) else None


@rule(IDEMPOTENT, before="maximum(x, x)", after="x")
def same_operands(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """max(x, x), min(x, x), x & x, x | x -> x."""
    return inputs[0] if len(inputs) == 2 and inputs[0] is inputs[1] else None


@rule(
    Where,
    before="where(broadcast_to(asarray([True]), (n,)), x, y)",
    after="broadcast_to(x, (n,))",
    takes="x: float32[]; y: float32[n]",
)
def where_constant(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """where(True, x, y) -> x; where(False, x, y) -> y."""
    value = fill_value(inputs[0])
    return None if value is None else spread(inputs[1 if value else 2], node)


@rule(Where, before="where(c, x, x)", after="x", takes="c: bool[n]; x: float32[3, n]")
def where_same(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """where(c, x, x) -> x."""
    return spread(inputs[1], node) if inputs[1] is inputs[2] else None


@rule(
    Where,
    before="where(~c, x, y)",
    after="where(c, y, x)",
    takes="c: bool[n]; x: float32[n]; y: float32[3, 1]",
)
def where_inverted(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """where(not c, x, y) -> where(c, y, x)."""
    condition, x, y = inputs
    if not isinstance(condition.node.op, BitwiseInvert):
        return None
    source = condition.node.inputs[0]
    return emit(node.op, source, y, x) if source.dtype.is_bool else None


_PRECISION = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}
"""The bits of a float's significand: integers of no more bits are held exactly."""


def _holds(wide: DType, narrow: DType) -> bool:
    """Return whether a real dtype holds every value of another one."""
    if wide.is_complex or narrow.is_complex:
        return wide is narrow
    if wide is narrow or narrow.is_bool:
        return True
    if wide.is_storage or narrow.is_storage:
        return holds_stored(wide, narrow)
    if narrow.is_floating:
        return wide.is_floating and wide.itemsize > narrow.itemsize
    if wide.is_floating:
        return narrow.itemsize * 8 <= _PRECISION[wide.name]
    if wide.kind == narrow.kind:
        return wide.itemsize > narrow.itemsize
    return wide.kind == "int" and wide.itemsize > narrow.itemsize


@rule(
    AsType,
    before="astype(astype(x, float32), float16)",
    after="x",
    takes="x: float16[3, n]",
)
def astype_of_astype(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """astype(astype(x, b), c) -> astype(x, c), if b holds x and c is reached in the same way.

    From floats to integers it is not: what an integer can't hold depends on the float's width.
    """
    inner = inputs[0].node
    if not isinstance(inner.op, AsType):
        return None
    x = inner.inputs[0]
    first, middle, last = x.dtype, inputs[0].dtype, node.types[0].dtype
    if not _holds(middle, first):
        return None
    all_floats = first.is_floating and last.is_floating
    all_integers = first.is_integer and middle.is_integer and last.is_integer
    if not (all_floats or all_integers or _holds(last, first)):
        return None
    return F.astype(x, last)


RULES: tuple[RewriteRule, ...] = (
    neutral_operand,
    divide_by_power_of_two,
    involution,
    idempotent,
    add_negative,
    subtract_negative,
    same_operands,
    where_constant,
    where_same,
    where_inverted,
    astype_of_astype,
)
