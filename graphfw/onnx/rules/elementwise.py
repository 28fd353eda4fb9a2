"""Operators and ops that work element by element."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import graphfw as gf
from graphfw.ir.constants import fill_value
from graphfw.ir.dtype import DType, bool_, uint64
from graphfw.ir.tensor import Node, Tensor
from graphfw.onnx.builder import Builder, Val
from graphfw.onnx.errors import OnnxError
from graphfw.onnx.fitting import fitted
from graphfw.onnx.node import ModelNode, Strings, Value
from graphfw.onnx.table import Rule, aligned, read_only, reads, two_way, write_only, writes
from graphfw.onnx.types import converted, dtype_of

two_way(
    Rule("Abs", gf.abs),
    Rule("Acos", gf.acos),
    Rule("Acosh", gf.acosh),
    Rule("Add", gf.add),
    Rule("And", gf.bitwise_and, operands="bool"),
    Rule("Asin", gf.asin),
    Rule("Asinh", gf.asinh),
    Rule("Atan", gf.atan),
    Rule("Atanh", gf.atanh),
    Rule("BitwiseAnd", gf.bitwise_and, operands="integer"),
    Rule("BitwiseNot", gf.bitwise_invert, operands="integer"),
    Rule("BitwiseOr", gf.bitwise_or, operands="integer"),
    Rule("BitwiseXor", gf.bitwise_xor, operands="integer"),
    Rule("Ceil", gf.ceil),
    Rule("Cos", gf.cos),
    Rule("Cosh", gf.cosh),
    Rule("Erf", gf.erf),
    Rule("Exp", gf.exp),
    Rule("Floor", gf.floor),
    Rule("Greater", gf.greater, result=gf.bool),
    Rule("GreaterOrEqual", gf.greater_equal, result=gf.bool),
    Rule("Less", gf.less, result=gf.bool),
    Rule("LessOrEqual", gf.less_equal, result=gf.bool),
    Rule("Log", gf.log),
    Rule("Mul", gf.multiply),
    Rule("Neg", gf.negative),
    Rule("Not", gf.bitwise_invert, operands="bool"),
    Rule("Or", gf.bitwise_or, operands="bool"),
    Rule("Relu", gf.relu),
    Rule("Round", gf.round),
    Rule("Sigmoid", gf.sigmoid),
    Rule("Sign", gf.sign),
    Rule("Sin", gf.sin),
    Rule("Sinh", gf.sinh),
    Rule("Sqrt", gf.sqrt),
    Rule("Sub", gf.subtract),
    Rule("Tan", gf.tan),
    Rule("Tanh", gf.tanh),
    Rule("Where", gf.where, moves=True),
    Rule("Xor", gf.bitwise_xor, operands="bool"),
)
read_only(
    Rule("IsNaN", gf.isnan),
    Rule("Reciprocal", gf.reciprocal),
)
write_only(
    Rule("Div", gf.divide),
    Rule("Equal", gf.equal, result=gf.bool),
    Rule("Max", gf.maximum),
    Rule("Min", gf.minimum),
)


# Arithmetic


@reads("Div")
def _read_div(node: ModelNode, a: Tensor, b: Tensor) -> Tensor:
    a, b = aligned(node, a, b)
    return _towards_zero(a, b) if a.dtype.is_integer else gf.divide(a, b)


def _towards_zero(a: Tensor, b: Tensor) -> Tensor:
    quotient = gf.floor_divide(a, b)
    if a.dtype.kind == "uint":
        return quotient
    inexact = gf.not_equal(quotient * b, a)
    return gf.where(gf.logical_and(inexact, gf.less(quotient, 0)), quotient + 1, quotient)


@reads("Pow")
def _read_pow(node: ModelNode, a: Tensor, b: Tensor) -> Tensor:
    """Return a to the power b, in a's dtype."""
    a, b = aligned(node, a, b)
    if a.dtype == b.dtype:
        return gf.pow(a, b)
    wide = gf.result_type(a, b)
    return gf.astype(gf.pow(gf.astype(a, wide), gf.astype(b, wide)), a.dtype)


@writes("pow")
def _write_pow(b: Builder, node: Node, x: Val, power: Val) -> Val:
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


@reads("Equal")
def _read_equal(node: ModelNode, a: Value, b: Value) -> Tensor:
    if isinstance(a, Strings) and isinstance(b, Strings):
        number = {text: index for index, text in enumerate([*a.table, *b.table])}
        a, b = _numbered(a, number), _numbered(b, number)
    return gf.equal(*aligned(node, node.tensor(a, "a"), node.tensor(b, "b")))


def _numbered(x: Strings, number: dict[str, int]) -> Tensor:
    return gf.constant(np.asarray([number[text] for text in x.table], np.int64))[x.indices]


@writes("not_equal")
def _write_not_equal(b: Builder, node: Node, x1: Val, x2: Val) -> Val:
    return b("Not", b("Equal", x1, x2, dtype=bool_))


@reads("Mod")
def _read_mod(node: ModelNode, a: Tensor, b: Tensor) -> Tensor:
    a, b = fitted(a, b)
    if not node.attr("fmod", 0):
        return gf.remainder(a, b)
    sign = gf.where(gf.less(a, gf.zeros_like(a)), -gf.ones_like(a), gf.ones_like(a))
    if a.dtype.kind == "uint":
        return gf.remainder(a, b)
    return sign * gf.remainder(gf.abs(a), gf.abs(b))


@writes("remainder")
def _write_remainder(b: Builder, node: Node, x: Val, y: Val) -> Val:
    divisor, is_zero = _divisor(b, node, y)
    rest = _rest(b, x, divisor)
    return rest if is_zero is None else b("Where", is_zero, b.scalar(0, x.dtype), rest)


@writes("floor_divide")
def _write_floor_divide(b: Builder, node: Node, x: Val, y: Val) -> Val:
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
    """Return the remainder of a division, with the sign of y."""
    if x.dtype.is_integer:
        return b("Mod", x, y)
    zero = b.scalar(0, x.dtype)
    rest = b("Mod", x, y, fmod=1)  # with the sign of x
    signs = [b("Less", v, zero, dtype=bool_) for v in (rest, y)]
    is_other = b("And", b("Xor", *signs), b("Not", b("Equal", rest, zero, dtype=bool_)))
    return b("Where", is_other, b("Add", rest, y), rest)


@reads("Sum", "Mean", "Max", "Min")
def _read_variadic(node: ModelNode, *xs: Tensor) -> Tensor:
    name = {"Sum": "add", "Mean": "add", "Max": "maximum", "Min": "minimum"}[node.op_type]
    made: Tensor = functools.reduce(getattr(gf, name), fitted(*xs))
    return made / len(xs) if node.op_type == "Mean" else made


@reads("BitShift")
def _read_bit_shift(node: ModelNode, a: Tensor, b: Tensor) -> Tensor:
    bits = a.dtype.itemsize * 8
    direction = node.choice("direction", "", ("LEFT", "RIGHT"))
    if direction == "RIGHT" and a.dtype.kind == "int":
        return gf.bitwise_right_shift(a, gf.minimum(b, bits - 1))
    shift = gf.bitwise_left_shift if direction == "LEFT" else gf.bitwise_right_shift
    return gf.where(b < bits, shift(a, b), gf.zeros_like(a))


@writes("bitwise_left_shift", "bitwise_right_shift")
def _write_shift(b: Builder, node: Node, x: Val, by: Val) -> Val:
    """Shift in 64 bits, where no bit of a narrower number is lost.

    ONNX shifts what has no sign; a negative x is shifted to the right with its bits inverted.
    """
    bits = 8 * x.dtype.itemsize
    left = node.op.name == "bitwise_left_shift"
    wide, shift = b.cast(x, uint64), b.cast(by, uint64)
    # As a number without a sign, a negative position is large.
    far = b("GreaterOrEqual", shift, b.scalar(bits, uint64), dtype=bool_)
    near = b("Where", far, b.scalar(0, uint64), shift)
    zero = b.scalar(0, x.dtype)
    if left:
        made = b.cast(b("BitShift", wide, near, direction="LEFT"), x.dtype)
        return b("Where", far, zero, made)
    if x.dtype.kind == "uint":
        made = b.cast(b("BitShift", wide, near, direction="RIGHT"), x.dtype)
        return b("Where", far, zero, made)
    is_negative = b("Less", x, zero, dtype=bool_)
    positive = b("Where", is_negative, b("BitwiseNot", x), x)
    shifted = b("BitShift", b.cast(positive, uint64), near, direction="RIGHT")
    size = b("Where", far, zero, b.cast(shifted, x.dtype))
    return b("Where", is_negative, b("BitwiseNot", size), size)


@reads("Clip")
def _read_clip(
    node: ModelNode, x: Tensor, low: Tensor | None = None, high: Tensor | None = None
) -> Tensor:
    if node.version < 11:
        return gf.clip(x, node.attr("min", -gf.inf), node.attr("max", gf.inf))
    if low is not None:
        x = gf.maximum(x, low)
    return x if high is None else gf.minimum(x, high)


@writes("clip")
def _write_clip(b: Builder, node: Node, x: Val, low: Val, high: Val) -> Val:
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


@reads("IsInf")
def _read_is_inf(node: ModelNode, x: Tensor) -> Tensor:
    infinite = gf.isinf(x)
    if not node.attr("detect_positive", 1):
        infinite = gf.logical_and(infinite, gf.less(x, 0))
    if not node.attr("detect_negative", 1):
        infinite = gf.logical_and(infinite, gf.greater(x, 0))
    return infinite


@writes("isnan", "isinf", "isfinite")
def _write_question(b: Builder, node: Node, x: Val) -> Val:
    name = node.op.name
    if not x.dtype.is_floating:  # integers are always finite
        like = b("Equal", x, x, dtype=bool_)
        return like if name == "isfinite" else b("Not", like)
    if name != "isfinite":
        return b("IsNaN" if name == "isnan" else "IsInf", x, dtype=bool_)
    return b("Not", b("Or", b("IsNaN", x, dtype=bool_), b("IsInf", x, dtype=bool_)))


@writes("rsqrt")
def _write_rsqrt(b: Builder, node: Node, x: Val) -> Val:
    return b("Reciprocal", b("Sqrt", x))


# Casts


@reads("Cast", "CastLike")
def _read_cast(node: ModelNode, x: Value, like: Value = None) -> Value:
    to = node.attr("to", 0) if like is None else _STRINGS
    if isinstance(like, Tensor):
        wanted = like.dtype
    elif to == _STRINGS:
        return _as_text(node, x)
    else:
        wanted = dtype_of(to)
    if isinstance(x, Strings):
        return gf.constant(_as_numbers(x, wanted))
    mode, saturate = node.attr("round_mode", "up"), bool(node.attr("saturate", 1))
    return converted(node.tensor(x, "x"), wanted, saturate=saturate, round_mode=mode)


_STRINGS = 8
"""ONNX's number for the type of strings."""


def _as_text(node: ModelNode, x: Value) -> Strings:
    if isinstance(x, Strings):
        return x
    value = node.known(node.tensor(x, "x"), "x")
    texts = np.asarray([str(v) for v in value.ravel()], object)
    return Strings(texts.reshape(value.shape))


def _as_numbers(x: Strings, wanted: DType) -> Any:
    number = int if wanted.is_integer else float
    try:
        made = [number(v) for v in x.array.ravel()]
    except ValueError as error:
        raise OnnxError(f"Cast: {error}") from None
    return np.asarray(made, wanted.dtype).reshape(x.array.shape)


@writes("astype")
def _write_cast(b: Builder, node: Node, x: Val) -> Val:
    return b.cast(x, node.types[0].dtype)


@reads("BitCast")
def _bit_cast(node: ModelNode, x: Tensor) -> Tensor:
    wanted = dtype_of(node.attr("to"))
    kind = gf.TensorType(wanted, x.shape)
    made: Tensor = gf.host_call(
        lambda a: a.reshape(-1).view(wanted.dtype).reshape(a.shape), kind, x
    )
    return made
