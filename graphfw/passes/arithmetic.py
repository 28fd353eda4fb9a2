"""Rules of arithmetic, logic and conversions. Each keeps every value, NaN and -0.0 included."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from graphfw.ir.build import constant, emit
from graphfw.ir.constants import fill_value
from graphfw.ir.dtype import DType, holds_stored
from graphfw.ir.functions import F
from graphfw.ir.literal import Literal
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.elementwise.arithmetic import Negative
from graphfw.ops.elementwise.cast import AsType
from graphfw.ops.elementwise.comparisons import BitwiseInvert
from graphfw.passes.rules import RewriteRule, rule


def spread(tensor: Tensor, node: Node) -> Tensor:
    """Return an operand in the shape of the result."""
    return F.broadcast_to(tensor, node.types[0].shape)


_RIGHT_ONLY = {
    "bitwise_left_shift",
    "bitwise_right_shift",
    "divide",
    "floor_divide",
    "pow",
    "subtract",
}


_ONE = {"divide", "multiply", "pow"}


@lru_cache(maxsize=512)
def _neutral(name: str, dtype: DType) -> bytes | None:
    """Return, as bytes, the operand that the op returns the other operand for, or None."""
    value: complex | None = None
    if name == "add":
        # 0.0 would turn -0.0 into 0.0.
        value = complex(-0.0, -0.0) if dtype.is_complex else -0.0 if dtype.is_floating else 0
    elif name == "subtract":
        value = 0
    elif name in _ONE and not dtype.is_complex:
        value = 1  # not of complex numbers: (inf + 1j) * (1 + 0j) has a part inf * 0
    elif name == "floor_divide" and dtype.is_integer:
        value = 1
    elif name in ("maximum", "minimum") and dtype.is_floating:
        value = -math.inf if name == "maximum" else math.inf
    elif name == "bitwise_and":
        return np.bitwise_not(np.zeros((), dtype.dtype)).tobytes()
    elif name.startswith("bitwise_"):
        value = 0
    return None if value is None else np.asarray(value).astype(dtype.dtype).tobytes()


@rule(
    (
        "add",
        "bitwise_and",
        "bitwise_left_shift",
        "bitwise_or",
        "bitwise_right_shift",
        "bitwise_xor",
        "divide",
        "floor_divide",
        "maximum",
        "minimum",
        "multiply",
        "pow",
        "subtract",
    ),
    before="1 * x",
    after="x",
)
def neutral_operand(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """X * 1, x + -0.0, x - 0.0, x / 1, x ** 1, x & -1, x | 0, max(x, -inf), … -> x."""
    neutral = _neutral(node.op.name, node.types[0].dtype)
    if neutral is None:
        return None
    for this, other in ((1, 0),) if node.op.name in _RIGHT_ONLY else ((1, 0), (0, 1)):
        value = fill_value(inputs[this])
        if value is not None and value.tobytes() == neutral:
            return spread(inputs[other], node)
    return None


@rule("divide", before="x / 8", after="x * 0.125")
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


@rule(("bitwise_invert", "conj", "flip", "negative"), before="-(-x)", after="x")
def involution(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """f(f(x)) -> x, for what undoes itself."""
    inner = inputs[0].node
    return inner.inputs[0] if inner.op == node.op else None


@rule(
    ("abs", "ceil", "floor", "round", "sign", "trunc"), before="floor(floor(x))", after="floor(x)"
)
def idempotent(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """f(f(x)) -> f(x), for what changes nothing the second time."""
    if inputs[0].dtype.is_complex:
        return None  # the sign of a sign is rounded twice
    return inputs[0] if inputs[0].node.op == node.op else None


@rule("add", before="x + (-y)", after="x - y", takes="x: float32[3, n]; y: float32[n]")
def add_negative(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """X + (-y), (-y) + x -> x - y."""
    x, y = inputs
    if isinstance(y.node.op, Negative):
        return F.subtract(x, y.node.inputs[0])
    if isinstance(x.node.op, Negative):
        return F.subtract(y, x.node.inputs[0])
    return None


@rule("subtract", before="x - (-y)", after="x + y", takes="x: float32[3, n]; y: float32[n]")
def subtract_negative(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """X - (-y) -> x + y."""
    x, y = inputs
    return x + y.node.inputs[0] if isinstance(y.node.op, Negative) else None


@rule(("bitwise_and", "bitwise_or", "maximum", "minimum"), before="maximum(x, x)", after="x")
def same_operands(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """max(x, x), min(x, x), x & x, x | x -> x."""
    return inputs[0] if inputs[0] is inputs[1] else None


@rule(
    "where",
    before="where(broadcast_to(asarray([True]), (n,)), x, y)",
    after="broadcast_to(x, (n,))",
    takes="x: float32[]; y: float32[n]",
)
def where_constant(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """where(True, x, y) -> x; where(False, x, y) -> y."""
    value = fill_value(inputs[0])
    return None if value is None else spread(inputs[1 if value else 2], node)


@rule("where", before="where(c, x, x)", after="x", takes="c: bool[n]; x: float32[3, n]")
def where_same(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """where(c, x, x) -> x."""
    return spread(inputs[1], node) if inputs[1] is inputs[2] else None


@rule(
    "where",
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
    """Say whether a real dtype holds every value of another one."""
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
    "astype",
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
