"""Operators that work element by element."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import graphfw as gf
from graphfw.ir.dtype import DType
from graphfw.ir.tensor import Tensor
from graphfw.onnx.errors import OnnxError
from graphfw.onnx.fitting import fitted
from graphfw.onnx.node import Call, Strings, Value, operator
from graphfw.onnx.types import converted, dtype_of

# ONNX's name -> graphfw's, for operators without attributes that mean the same.
_SAME = {
    "Abs": "abs",
    "Acos": "acos",
    "Acosh": "acosh",
    "And": "logical_and",
    "Asin": "asin",
    "Asinh": "asinh",
    "Atan": "atan",
    "Atanh": "atanh",
    "BitwiseAnd": "bitwise_and",
    "BitwiseNot": "bitwise_invert",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "HardSwish": "hardswish",
    "IsNaN": "isnan",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Log": "log",
    "Mish": "mish",
    "Neg": "negative",
    "Not": "logical_not",
    "Or": "logical_or",
    "Reciprocal": "reciprocal",
    "Relu": "relu",
    "Round": "round",
    "Sigmoid": "sigmoid",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "Sqrt": "sqrt",
    "Tan": "tan",
    "Tanh": "tanh",
    "Xor": "logical_xor",
}


def _laid(node: Call, *xs: Tensor) -> tuple[Tensor, ...]:
    """Return operands with sizes that broadcast.

    Opsets before 7 broadcast where they were told to, the second operand along axes from one on.
    """
    axis = node.attr("axis", None)
    if axis is not None and len(xs) == 2:
        a, b = xs
        behind = a.ndim - node.axis(axis, a.ndim) - b.ndim
        xs = a, gf.reshape(b, (*b.shape, *[1] * behind))
    return fitted(*xs)


def _same(name: str) -> Callable[..., Tensor]:
    def build(node: Call, *inputs: Tensor) -> Tensor:
        made: Tensor = getattr(gf, name)(*_laid(node, *inputs))
        return made

    return build


for _name, _function in _SAME.items():
    operator(_name)(_same(_function))


# Arithmetic


@operator("Add", "Sub", "Mul", "Div", "Pow")
def _arithmetic(node: Call, a: Tensor, b: Tensor) -> Tensor:
    a, b = _laid(node, a, b)
    if node.op_type == "Pow":
        return _power(a, b)
    if node.op_type == "Div" and a.dtype.is_integer:
        return _towards_zero(a, b)
    name = {"Add": "add", "Sub": "subtract", "Mul": "multiply", "Div": "divide"}[node.op_type]
    made: Tensor = getattr(gf, name)(a, b)
    return made


def _power(a: Tensor, b: Tensor) -> Tensor:
    """a to the power b, in a's dtype."""
    if a.dtype == b.dtype:
        return gf.pow(a, b)
    wide = gf.result_type(a, b)
    return gf.astype(gf.pow(gf.astype(a, wide), gf.astype(b, wide)), a.dtype)


def _towards_zero(a: Tensor, b: Tensor) -> Tensor:
    quotient = gf.floor_divide(a, b)
    if a.dtype.kind == "uint":
        return quotient
    inexact = gf.not_equal(quotient * b, a)
    return gf.where(gf.logical_and(inexact, gf.less(quotient, 0)), quotient + 1, quotient)


@operator("Equal")
def _equal(node: Call, a: Value, b: Value) -> Tensor:
    if isinstance(a, Strings) and isinstance(b, Strings):
        number = {text: place for place, text in enumerate([*a.table, *b.table])}
        a, b = _numbered(a, number), _numbered(b, number)
    return gf.equal(*_laid(node, node.tensor(a, "a"), node.tensor(b, "b")))


def _numbered(x: Strings, number: dict[str, int]) -> Tensor:
    return gf.constant(np.asarray([number[text] for text in x.table], np.int64))[x.places]


@operator("Mod")
def _mod(node: Call, a: Tensor, b: Tensor) -> Tensor:
    a, b = fitted(a, b)
    if not node.attr("fmod", 0):
        return gf.remainder(a, b)
    sign = gf.where(gf.less(a, gf.zeros_like(a)), -gf.ones_like(a), gf.ones_like(a))
    if a.dtype.kind == "uint":
        return gf.remainder(a, b)
    return sign * gf.remainder(gf.abs(a), gf.abs(b))


@operator("Sum", "Mean", "Max", "Min")
def _variadic(node: Call, *xs: Tensor) -> Tensor:
    name = {"Sum": "add", "Mean": "add", "Max": "maximum", "Min": "minimum"}[node.op_type]
    made: Tensor = functools.reduce(getattr(gf, name), fitted(*xs))
    return made / len(xs) if node.op_type == "Mean" else made


@operator("BitShift")
def _bit_shift(node: Call, a: Tensor, b: Tensor) -> Tensor:
    bits = a.dtype.itemsize * 8
    direction = node.choice("direction", "", ("LEFT", "RIGHT"))
    if direction == "RIGHT" and a.dtype.kind == "int":
        return gf.bitwise_right_shift(a, gf.minimum(b, bits - 1))
    shift = gf.bitwise_left_shift if direction == "LEFT" else gf.bitwise_right_shift
    return gf.where(b < bits, shift(a, b), gf.zeros_like(a))


@operator("Clip")
def _clip(node: Call, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    if node.version < 11:
        return gf.clip(x, node.attr("min", -gf.inf), node.attr("max", gf.inf))
    if low is not None:
        x = gf.maximum(x, low)
    return x if high is None else gf.minimum(x, high)


@operator("IsInf")
def _is_inf(node: Call, x: Tensor) -> Tensor:
    infinite = gf.isinf(x)
    if not node.attr("detect_positive", 1):
        infinite = gf.logical_and(infinite, gf.less(x, 0))
    if not node.attr("detect_negative", 1):
        infinite = gf.logical_and(infinite, gf.greater(x, 0))
    return infinite


@operator("Where", moves=True)
def _where(node: Call, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return gf.where(*fitted(condition, x, y))


# Casts


@operator("Cast", "CastLike")
def _cast(node: Call, x: Value, like: Value = None) -> Value:
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


def _as_text(node: Call, x: Value) -> Strings:
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


@operator("BitCast")
def _bit_cast(node: Call, x: Tensor) -> Tensor:
    wanted = dtype_of(node.attr("to"))
    kind = gf.TensorType(wanted, x.shape)
    made: Tensor = gf.host_call(
        lambda a: a.reshape(-1).view(wanted.dtype).reshape(a.shape), kind, x
    )
    return made


# Activations


@operator("Celu")
def _celu(node: Call, x: Tensor) -> Tensor:
    return gf.celu(x, alpha=node.attr("alpha", 1.0))


@operator("Elu")
def _elu(node: Call, x: Tensor) -> Tensor:
    return gf.elu(x, alpha=node.attr("alpha", 1.0))


@operator("Gelu")
def _gelu(node: Call, x: Tensor) -> Tensor:
    return gf.gelu(x, approximate=node.attr("approximate", "none"))


@operator("HardSigmoid")
def _hard_sigmoid(node: Call, x: Tensor) -> Tensor:
    return gf.clip(x * node.attr("alpha", 0.2) + node.attr("beta", 0.5), 0, 1)


@operator("LeakyRelu")
def _leaky_relu(node: Call, x: Tensor) -> Tensor:
    return gf.leaky_relu(x, negative_slope=node.attr("alpha", 0.01))


@operator("PRelu")
def _prelu(node: Call, x: Tensor, slope: Tensor) -> Tensor:
    if node.version < 7 and slope.ndim == 1:
        slope = gf.reshape(slope, (-1, *[1] * (x.ndim - 2)))
    x, slope = fitted(x, slope)
    return gf.where(gf.less(x, gf.zeros_like(x)), x * slope, x)


@operator("Selu")
def _selu(node: Call, x: Tensor) -> Tensor:
    alpha = node.attr("alpha", 1.67326319217681884765625)
    gamma = node.attr("gamma", 1.05070102214813232421875)
    return gf.multiply(gf.elu(x, alpha=alpha), gamma)


@operator("Shrink")
def _shrink(node: Call, x: Tensor) -> Tensor:
    bias, bound = node.attr("bias", 0.0), node.attr("lambd", 0.5)
    low, high = gf.less(x, -bound), gf.greater(x, bound)
    zero = gf.zeros_like(x)
    moved = gf.where(
        low, x + gf.full_like(x, bias), gf.where(high, x - gf.full_like(x, bias), zero)
    )
    return moved


@operator("Swish")
def _swish(node: Call, x: Tensor) -> Tensor:
    return x * gf.sigmoid(x * node.attr("alpha", 1.0))


@operator("ThresholdedRelu")
def _thresholded_relu(node: Call, x: Tensor) -> Tensor:
    return gf.where(gf.greater(x, node.attr("alpha", 1.0)), x, gf.zeros_like(x))
