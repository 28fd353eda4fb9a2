"""The types and primitive functions of each dtype in CUDA C++."""

from __future__ import annotations

import math

import numpy as np

from graphfw.ir.dtype import DType
from graphfw.ops.numerics.library import FUNCTIONS
from graphfw.runtime.kernels.handwritten_cuda import memory
from graphfw.runtime.kernels.ir import ReduceKind

_OPERATORS = {
    "div": "/",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "and": "&",
    "or": "|",
    "xor": "^",
}
_OF_PRELUDE = frozenset(
    "add sub mul neg abs max min shl shr narrow floor_divide remainder pow".split()
)
_OF_CUDA = {
    "round": "rint",
    "trunc": "trunc",
    "floor": "floor",
    "ceil": "ceil",
    "sqrt": "sqrt",
    "copysign": "copysign",
    "ndtr": "normcdf",
} | {
    name: name
    for name in (
        "exp expm1 log log1p log2 log10 hypot sin cos tan asin acos atan atan2 sinh cosh tanh "
        "asinh acosh atanh erf erfc erfinv"
    ).split()
}

REDUCTIONS: dict[ReduceKind, str] = {
    "sum": "gf_sum",
    "prod": "gf_prod",
    "max": "gf_largest",
    "min": "gf_smallest",
    "all": "gf_all",
    "any": "gf_any",
    "argmax": "gf_argmax",
    "argmin": "gf_argmin",
}
"""The struct of the prelude that says how a reduction joins values."""


def register(dtype: DType) -> str:
    """Return the type of a value."""
    if dtype.is_bool:
        return "bool"
    return "float" if dtype.is_low_precision else memory(dtype)


def literal(value: bool | int | float, dtype: DType) -> str:
    """Return a constant.

    >>> from graphfw.ir.dtype import float32, int64
    >>> literal(0.1, float32), literal(-1, int64)
    ('0.10000000149011612f', '((gf_i64)-1)')
    """
    if dtype.is_bool:
        return "true" if value else "false"
    kind = register(dtype)
    if dtype.is_integer:
        number = int(value)
        # The least integer has no literal of its own.
        text = f"{number}" if number >= -(2**31) else f"{number % 2**64}ull"
        suffix = "ull" if number >= 2**31 else ""
        return f"(({kind}){text}{suffix})"
    with np.errstate(over="ignore"):
        real = float(np.asarray(value, dtype=dtype.dtype).astype(np.float64))
    letter = "f" if kind == "float" else ""
    if math.isnan(real):
        return f"gf_nan{letter}()"
    if math.isinf(real):
        return f"{'-' if real < 0 else ''}gf_inf{letter}()"
    text = f"{real!r}{letter}"
    return f"({text})" if text.startswith("-") else text


def called(function: str, dtype: DType, args: list[str]) -> str:
    """Return a call of a primitive function that is no cast, of operands of a dtype."""
    if function == "select":
        return f"{args[0]} ? {args[1]} : {args[2]}"
    if function == "not":
        return f"!{args[0]}" if dtype.is_bool else f"({register(dtype)})~{args[0]}"
    if function in ("and", "or", "xor"):
        return f"({register(dtype)})({args[0]} {_OPERATORS[function]} {args[1]})"
    if function in _OPERATORS:
        return f"{args[0]} {_OPERATORS[function]} {args[1]}"
    operands = ", ".join(args)
    if function in _OF_PRELUDE or function in FUNCTIONS:
        return f"gf_{function}({operands})"
    return f"{_OF_CUDA[function]}{'' if register(dtype) == 'double' else 'f'}({operands})"


def converted(source: DType, to: DType, value: str) -> str:
    """Return a cast."""
    if to.is_low_precision:
        return f"gf_round_{'half' if to.name == 'float16' else 'bf16'}({value})"
    if to.is_bool:
        return value if source.is_bool else f"{value} != {literal(0, source)}"
    kind = register(to)
    if source.is_floating and to.is_integer:
        if to.name == "uint64":
            return f"gf_to_uint64({value})"
        wide = to.itemsize == 8 or to.name == "uint32"
        return f"({kind})gf_to_int{64 if wide else 32}({value})"
    return f"({kind}){value}"
