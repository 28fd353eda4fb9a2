"""Ops that ONNX has element by element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphfw.ir.constants import fill_value
from graphfw.ir.dtype import DType, bool_, uint64
from graphfw.ir.shape import broadcast
from graphfw.ir.tensor import Node, Tensor
from graphfw.onnx.builder import Builder, Val, exporter
from graphfw.onnx.errors import needs_opset

_SAME = {
    "abs": "Abs",
    "acos": "Acos",
    "acosh": "Acosh",
    "add": "Add",
    "asin": "Asin",
    "asinh": "Asinh",
    "atan": "Atan",
    "atanh": "Atanh",
    "ceil": "Ceil",
    "cos": "Cos",
    "cosh": "Cosh",
    "divide": "Div",
    "erf": "Erf",
    "exp": "Exp",
    "floor": "Floor",
    "log": "Log",
    "maximum": "Max",
    "minimum": "Min",
    "multiply": "Mul",
    "negative": "Neg",
    "relu": "Relu",
    "round": "Round",
    "sigmoid": "Sigmoid",
    "sign": "Sign",
    "sin": "Sin",
    "sinh": "Sinh",
    "sqrt": "Sqrt",
    "subtract": "Sub",
    "tan": "Tan",
    "tanh": "Tanh",
    "where": "Where",
}
_COMPARISONS = {
    "equal": "Equal",
    "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
    "less": "Less",
    "less_equal": "LessOrEqual",
}
_BITS = {
    "bitwise_and": ("And", "BitwiseAnd"),
    "bitwise_or": ("Or", "BitwiseOr"),
    "bitwise_xor": ("Xor", "BitwiseXor"),
    "bitwise_invert": ("Not", "BitwiseNot"),
}


@exporter(*_SAME)
def _same(b: Builder, node: Node, *xs: Val) -> Val:
    return b(_SAME[node.op.name], *_unspread(b, node, xs))


@exporter(*_COMPARISONS)
def _comparison(b: Builder, node: Node, *xs: Val) -> Val:
    return b(_COMPARISONS[node.op.name], *_unspread(b, node, xs), dtype=bool_)


def _unspread(b: Builder, node: Node, xs: Sequence[Val]) -> list[Val]:
    """Return operands as they were before they were broadcast, where the op broadcasts anyway."""
    shapes, made = [t.shape for t in node.inputs], list(xs)
    for place, tensor in enumerate(node.inputs):
        if tensor.node.op.name == "broadcast_to":
            source = tensor.node.inputs[0]
            others = [*shapes[:place], source.shape, *shapes[place + 1 :]]
            if broadcast(*others) == node.types[0].shape:
                shapes, made[place] = others, b.value(source)
    return made


@exporter("not_equal")
def _not_equal(b: Builder, node: Node, x1: Val, x2: Val) -> Val:
    return b("Not", b("Equal", x1, x2, dtype=bool_))


@exporter("isnan", "isinf", "isfinite")
def _question(b: Builder, node: Node, x: Val) -> Val:
    name = node.op.name
    if not x.dtype.is_floating:  # integers are always finite
        like = b("Equal", x, x, dtype=bool_)
        return like if name == "isfinite" else b("Not", like)
    if name != "isfinite":
        return b("IsNaN" if name == "isnan" else "IsInf", x, dtype=bool_)
    return b("Not", b("Or", b("IsNaN", x, dtype=bool_), b("IsInf", x, dtype=bool_)))


@exporter("rsqrt")
def _rsqrt(b: Builder, node: Node, x: Val) -> Val:
    return b("Reciprocal", b("Sqrt", x))


@exporter(*_BITS)
def _bits(b: Builder, node: Node, *xs: Val) -> Val:
    of_bools, of_integers = _BITS[node.op.name]
    if xs[0].dtype.is_bool:
        return b(of_bools, *xs)
    if b.opset < 18:
        raise needs_opset("what is done to bits of integers", 18)
    return b(of_integers, *xs)


@exporter("bitwise_left_shift", "bitwise_right_shift")
def _shift(b: Builder, node: Node, x: Val, by: Val) -> Val:
    """Shift in 64 bits, where no bit of a narrower number is lost.

    ONNX shifts what has no sign; a negative x is shifted to the right with its bits inverted.
    """
    bits = 8 * x.dtype.itemsize
    left = node.op.name == "bitwise_left_shift"
    wide, places = b.cast(x, uint64), b.cast(by, uint64)
    # As a number without a sign, a negative place is large.
    far = b("GreaterOrEqual", places, b.scalar(bits, uint64), dtype=bool_)
    near = b("Where", far, b.scalar(0, uint64), places)
    zero = b.scalar(0, x.dtype)
    if left:
        made = b.cast(b("BitShift", wide, near, direction="LEFT"), x.dtype)
        return b("Where", far, zero, made)
    if x.dtype.kind == "uint":
        made = b.cast(b("BitShift", wide, near, direction="RIGHT"), x.dtype)
        return b("Where", far, zero, made)
    if b.opset < 18:
        raise needs_opset("what is done to bits of integers", 18)
    is_negative = b("Less", x, zero, dtype=bool_)
    positive = b("Where", is_negative, b("BitwiseNot", x), x)
    shifted = b("BitShift", b.cast(positive, uint64), near, direction="RIGHT")
    size = b("Where", far, zero, b.cast(shifted, x.dtype))
    return b("Where", is_negative, b("BitwiseNot", size), size)


@exporter("clip")
def _clip(b: Builder, node: Node, x: Val, low: Val, high: Val) -> Val:
    """Clip takes scalars; a bound that leaves everything as it is is left out."""
    bounds = [fill_value(t) for t in node.inputs[1:]]
    if all(bound is not None for bound in bounds) and node.inputs[0].shape == node.types[0].shape:
        least, most = (
            None if _is_end(bound, x.dtype, side) else b.constant(bound)
            for bound, side in zip(bounds, (-1, 1), strict=True)
        )
        return b("Clip", x, *([least] if most is None else [least, most]))
    return b("Min", b("Max", x, low), high)


def _is_end(bound: Any, dtype: DType, side: int) -> bool:
    if dtype.is_floating:
        return bool(bound == side * np.inf)
    info = np.iinfo(dtype.dtype)
    return bool(bound == (info.max if side > 0 else info.min))


@exporter("remainder")
def _remainder(b: Builder, node: Node, x: Val, y: Val) -> Val:
    divisor, is_zero = _divisor(b, node, y)
    rest = _rest(b, x, divisor)
    return rest if is_zero is None else b("Where", is_zero, b.scalar(0, x.dtype), rest)


@exporter("floor_divide")
def _floor_divide(b: Builder, node: Node, x: Val, y: Val) -> Val:
    divisor, is_zero = _divisor(b, node, y)
    whole = b("Sub", x, _rest(b, x, divisor))
    quotient = b("Div", whole, divisor)  # of integers, with no fraction to be dropped
    if x.dtype.is_integer:
        return quotient if is_zero is None else b("Where", is_zero, b.scalar(0, x.dtype), quotient)
    special = b("Or", b("Equal", y, b.scalar(0, x.dtype), dtype=bool_), b("IsInf", x, dtype=bool_))
    return b("Where", special, b("Div", x, y), b("Round", quotient))


def _divisor(b: Builder, node: Node, y: Val) -> tuple[Val, Val | None]:
    """Return a divisor with 1 in the place of 0, and where it is 0: of integers, and if it may."""
    value = fill_value(node.inputs[1])
    if not y.dtype.is_integer or (value is not None and value != 0):
        return y, None
    is_zero = b("Equal", y, b.scalar(0, y.dtype), dtype=bool_)
    return b("Where", is_zero, b.scalar(1, y.dtype), y), is_zero


def _rest(b: Builder, x: Val, y: Val) -> Val:
    """Return what a division leaves, with the sign of y."""
    if x.dtype.is_integer:
        return b("Mod", x, y)
    zero = b.scalar(0, x.dtype)
    rest = b("Mod", x, y, fmod=1)  # with the sign of x
    signs = [b("Less", v, zero, dtype=bool_) for v in (rest, y)]
    is_other = b("And", b("Xor", *signs), b("Not", b("Equal", rest, zero, dtype=bool_)))
    return b("Where", is_other, b("Add", rest, y), rest)


@exporter("pow")
def _pow(b: Builder, node: Node, x: Val, power: Val) -> Val:
    if not x.dtype.is_integer or _is_not_negative(node.inputs[1]):
        return b("Pow", x, power)
    # An integer to a negative power is 0, but for 1 and -1.
    zero, one = b.scalar(0, x.dtype), b.scalar(1, x.dtype)
    usual = b("Pow", x, b("Max", power, zero))
    is_odd = b("Equal", b("Mod", power, b.scalar(2, x.dtype)), one, dtype=bool_)
    of_minus = b("Where", is_odd, b.scalar(-1, x.dtype), one)
    is_minus = b("Equal", x, b.scalar(-1, x.dtype), dtype=bool_)
    inverse = b("Where", is_minus, of_minus, zero)
    inverse = b("Where", b("Equal", x, one, dtype=bool_), one, inverse)
    return b("Where", b("Less", power, zero, dtype=bool_), inverse, usual)


def _is_not_negative(x: Tensor) -> bool:
    value = fill_value(x)
    return x.dtype.kind == "uint" or (value is not None and bool(value >= 0))


@exporter("astype")
def _cast(b: Builder, node: Node, x: Val) -> Val:
    return b.cast(x, node.types[0].dtype)
