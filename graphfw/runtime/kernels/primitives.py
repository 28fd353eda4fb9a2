"""The primitive functions of kernels: `PRIMITIVES` says what each means on NumPy arrays.

Both operands of a function have one dtype, and so has the result, except where the table says
otherwise. Complex dtypes have no primitives.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from graphfw.ir.dtype import DType, bool_, float16, float32, float64
from graphfw.ops import numerics
from graphfw.ops.numerics import normal
from graphfw.ops.numerics.library import FUNCTIONS
from graphfw.ops.numerics.wide import in_pieces, rounded
from graphfw.runtime.kernels.ir import Call, Const, Expr

Operand: TypeAlias = "Expr | bool | complex"
"""An operand of the functions; at least one operand of a call is an Expr."""


class Primitive(NamedTuple):
    """The meaning of a function of kernels.

    Attributes:
        arity: How many operands it has.
        source: "instruction": one to a few machine instructions, which the generator of code writes
            itself; "library": a function of the vector math library.
        accepts: The dtypes of its operands; "float": float32 and float64.
        result: "same": the operands' dtype (of `select`: of the last two); "bool"; "cast": any.
        reference: The meaning, on NumPy arrays. Of the library's functions of floats the result is
            within the bound that the library states, of all others exactly this. A `cast` has the
            dtype wanted as its second argument.
    """

    arity: int
    source: Literal["instruction", "library"]
    accepts: Literal["any", "real", "float", "integer", "integer or bool"]
    result: Literal["same", "bool", "cast"]
    reference: Callable[..., Any]


def _extreme(better: Callable[..., Any]) -> Callable[..., Any]:
    """The first where it is better or NaN, else the second: also where both are zeros."""
    return lambda a, b: np.where(better(a, b) | (a != a), a, b)


def _pow(a: Any, b: Any) -> Any:
    """Integers to negative powers are 1 / a^-b, rounded towards 0, and 0 for a = 0."""
    if b.dtype.kind != "i":
        return np.power(a, b)
    inverse = np.where(a == 1, 1, np.where(a == -1, 1 - 2 * (b & 1), 0)).astype(a.dtype)
    return np.where(b < 0, inverse, np.power(a, np.maximum(b, 0)))


def _instruction(
    arity: int,
    accepts: Literal["any", "real", "float", "integer", "integer or bool"],
    result: Literal["same", "bool", "cast"],
    reference: Callable[..., Any],
) -> Primitive:
    return Primitive(arity, "instruction", accepts, result, reference)


def _library(arity: int, reference: Callable[..., Any]) -> Primitive:
    return Primitive(arity, "library", "float", "same", reference)


PRIMITIVES: dict[str, Primitive] = {
    # Arithmetic; integers wrap. Of booleans there is none.
    "add": _instruction(2, "real", "same", np.add),
    "sub": _instruction(2, "real", "same", np.subtract),
    "mul": _instruction(2, "real", "same", np.multiply),
    "div": _instruction(2, "float", "same", np.divide),
    "neg": _instruction(1, "real", "same", np.negative),  # flips the sign of 0.0 and NaN too
    "abs": _instruction(1, "real", "same", np.abs),  # the least integer is its own
    "sqrt": _instruction(1, "float", "same", np.sqrt),
    # NaN where an operand is NaN; of two zeros the second.
    "max": _instruction(2, "real", "same", _extreme(np.greater)),
    "min": _instruction(2, "real", "same", _extreme(np.less)),
    "copysign": _instruction(2, "float", "same", np.copysign),
    # To whole numbers: down, up, towards 0, to the nearest (halves to even).
    "floor": _instruction(1, "float", "same", np.floor),
    "ceil": _instruction(1, "float", "same", np.ceil),
    "trunc": _instruction(1, "float", "same", np.trunc),
    "round": _instruction(1, "float", "same", np.rint),
    # Comparisons: with NaN all are false but `ne`. False < True.
    "eq": _instruction(2, "any", "bool", np.equal),
    "ne": _instruction(2, "any", "bool", np.not_equal),
    "lt": _instruction(2, "any", "bool", np.less),
    "le": _instruction(2, "any", "bool", np.less_equal),
    "gt": _instruction(2, "any", "bool", np.greater),
    "ge": _instruction(2, "any", "bool", np.greater_equal),
    # Bits. A shift by the number of bits or more, or by a negative number, gives 0; `shr` of
    # negative numbers -1.
    "and": _instruction(2, "integer or bool", "same", np.bitwise_and),
    "or": _instruction(2, "integer or bool", "same", np.bitwise_or),
    "xor": _instruction(2, "integer or bool", "same", np.bitwise_xor),
    "not": _instruction(1, "integer or bool", "same", np.invert),
    "shl": _instruction(2, "integer", "same", np.left_shift),
    "shr": _instruction(2, "integer", "same", np.right_shift),
    # A bool and two of any dtype. Which of both is evaluated does not show: nothing traps.
    "select": _instruction(3, "any", "same", np.where),
    # Between all dtypes that are not complex. To bool: whether it is not 0 (NaN is not). Integers
    # to narrower ones: the low bits. To floats: rounded to nearest, halves to even. Floats to
    # integers: towards 0; what the dtype can't hold becomes, without a trap, what the processor
    # makes of a conversion to int32 (of which integers of 8 and 16 bits take the low bits), or to
    # int64 (uint32: its low bits; uint64: so below 2^63, and 2^63 more of x - 2^63 from there on).
    # float16 is cast to and from float32 only, bfloat16 too: `Scalars.cast` takes the detours.
    "cast": _instruction(1, "any", "cast", lambda x, to: x.astype(to)),
    # The same bits as another dtype of the same size.
    "bits": _instruction(1, "any", "cast", lambda x, to: x.view(to)),
    # float64 to float32, towards 0, and the last bit set where that was not exact: so that rounding
    # to 16 bits afterwards is as if there had been one rounding.
    "narrow": Primitive(1, "library", "float", "cast", lambda x, to: _narrow(x)),
    # Whole quotients. Of integers by 0: 0; the least integer by -1: itself, remainder 0. Of an
    # infinity: x / y.
    "floor_divide": Primitive(2, "library", "real", "same", partial(numerics.floor_divide, np)),
    "remainder": Primitive(2, "library", "real", "same", np.remainder),
    "pow": Primitive(2, "library", "real", "same", _pow),
    "exp": _library(1, np.exp),
    "expm1": _library(1, np.expm1),
    "log": _library(1, np.log),
    "log1p": _library(1, np.log1p),
    "log2": _library(1, np.log2),
    "log10": _library(1, np.log10),
    "hypot": _library(2, np.hypot),
    "sin": _library(1, np.sin),
    "cos": _library(1, np.cos),
    "tan": _library(1, np.tan),
    "asin": _library(1, np.arcsin),
    "acos": _library(1, np.arccos),
    "atan": _library(1, np.arctan),
    "atan2": _library(2, np.arctan2),
    "sinh": _library(1, np.sinh),
    "cosh": _library(1, np.cosh),
    "tanh": _library(1, np.tanh),
    "asinh": _library(1, np.arcsinh),
    "acosh": _library(1, np.arccosh),
    "atanh": _library(1, np.arctanh),
    "erf": _library(1, lambda x: numerics.erf(np, x)),
    "erfc": _library(1, lambda x: numerics.erfc(np, x)),
    "erfinv": _library(1, lambda x: numerics.erfinv(np, x)),
    "ndtr": _library(1, partial(rounded(normal.ndtr), np)),
} | {
    # Of float64 only.
    name: _library(arity, partial(rounded(in_pieces(compute)), np))
    for name, (arity, compute) in FUNCTIONS.items()
}


def _narrow(x: Any) -> Any:
    near = x.astype(np.float32)
    low = np.where(np.abs(near) > np.abs(x), np.nextafter(near, np.float32(0)), near)
    odd = (low.view(np.int32) | 1).view(np.float32)
    return np.where((low == x) | np.isnan(x), low, odd)


class PrimitiveCalls:
    """Makes calls of the primitives, on dtypes that are computed in; see `Scalars`."""

    def const(self, value: bool | int | float, dtype: DType) -> Expr:
        """A literal: a value that the dtype holds."""
        return Const(dtype, value)

    def cast(self, x: Expr, dtype: DType) -> Expr:
        """The value in another dtype, as `astype` makes it."""
        if x.dtype is dtype:
            return x
        if not _needs_detour(x.dtype, dtype):
            return Call(dtype, "cast", (x,))
        if x.dtype is float64 and dtype is float16:
            return self.cast(Call(float32, "narrow", (x,)), dtype)
        return self.cast(self.cast(x, float32), dtype)

    def bits(self, x: Expr, dtype: DType) -> Expr:
        """The same bits as another dtype of the same size."""
        return x if x.dtype is dtype else Call(dtype, "bits", (x,))

    def select(self, condition: Operand, x: Operand, y: Operand) -> Expr:
        """The value of x where the condition holds, else y's."""
        chosen = _same_dtype(x, y)
        return Call(chosen[0].dtype, "select", (_typed(condition, bool_), *chosen))

    def isnan(self, x: Expr) -> Expr:
        """Return whether it is NaN."""
        return self.call("ne", x, x)

    def call(self, function: str, *operands: Operand) -> Expr:
        """A call of a primitive whose operands have one dtype."""
        args = _same_dtype(*operands)
        if function == "pow" and isinstance(args[1], Const) and args[1].value == 2:
            return self.call("mul", args[0], args[0])  # as NumPy does
        dtype = bool_ if PRIMITIVES[function].result == "bool" else args[0].dtype
        return Call(dtype, function, args)

    def __getattr__(self, name: str) -> Callable[..., Expr]:
        """Return the method of a primitive."""
        function = name.rstrip("_")
        if PRIMITIVES.get(function) is None:
            raise AttributeError(f"there is no primitive function {name!r}")
        return partial(self.call, function)


def _same_dtype(*operands: Operand) -> tuple[Expr, ...]:
    """Return operands as expressions, Python numbers in the dtype of the first expression."""
    dtype = next(x.dtype for x in operands if isinstance(x, Expr))
    return tuple(_typed(x, dtype) for x in operands)


def _typed(x: Operand, dtype: DType) -> Expr:
    if not isinstance(x, Expr):
        assert not isinstance(x, complex)
        return Const(dtype, x)
    if x.dtype is not dtype:
        raise TypeError(f"operands of {x.dtype} and {dtype}")
    return x


def _needs_detour(source: DType, to: DType) -> bool:
    """Return whether a cast goes through float32: 16-bit floats become nothing else directly."""
    return (source.is_low_precision and to is not float32) or (
        to.is_low_precision and source is not float32
    )
