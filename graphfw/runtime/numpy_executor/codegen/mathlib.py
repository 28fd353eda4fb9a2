"""The vector math library: functions of kernels that take more than a few instructions.

A function is defined on vectors of some number of lanes (of one lane: on scalars) as LLVM text,
`internal` and `alwaysinline`, and named by `symbol`. What it means is said by
`kernels.primitives.PRIMITIVES`; what it makes of NaN, infinities, zeros and denormal numbers is
what C's function of the name makes of it. Small results are rounded to denormal numbers, not
dropped. The result in a lane depends on the operands in this lane only.

Formulas use `llvm.fma`, which a processor without such an instruction carries out correctly, and
slowly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

from graphfw.ir.dtype import DType
from graphfw.runtime.numpy_executor.codegen import (
    mathlib_divide,
    mathlib_erf,
    mathlib_exp,
    mathlib_numerics,
    mathlib_pow,
    mathlib_trig,
    philox,
)
from graphfw.runtime.numpy_executor.codegen.mathlib_writer import MathBody

Use: TypeAlias = tuple[str, DType, int]
"""A function's name, its operands' dtype, the number of lanes."""

ULP: dict[str, tuple[float, float]] = {
    "exp": (1.25, 1.25),
    "expm1": (1.75, 2.25),
    "log": (1, 1),
    "log1p": (1.75, 1.75),
    "log2": (1.25, 1.25),
    "log10": (1.25, 1.25),
    "hypot": (1.25, 1.25),
    "pow": (0.75, 2),
    "sin": (1.75, 1.75),
    "cos": (1.75, 1.75),
    "tan": (3.5, 3.5),
    "asin": (2.5, 2.5),
    "acos": (1.5, 1.5),
    "atan": (1.75, 2),
    "atan2": (2, 2),
    "sinh": (2.5, 2.5),
    "cosh": (1.75, 1.75),
    "tanh": (2.75, 2.75),
    "asinh": (2, 2),
    "acosh": (2.25, 2.25),
    "atanh": (2.25, 2.25),
    "erf": (1.75, 1.5),
    "erfc": (4.5, 3.5),
    "erfinv": (3.5, 6),
    "ndtr": (10, 5),
}
"""The errors of the functions of floats that are not exact: float32, float64.

In units in the last place of the exact result. Each is a little more than the worst of some ten
million points; the tests enforce it. sin, cos and tan of |x| > 1e5 (float32) or 1e9 (float64) are
the C library's.
"""


class Library(NamedTuple):
    """The text of functions.

    Attributes:
        definitions: What defines them.
        declarations: Of the functions of LLVM and of the C library that they call, one line each:
            symbol -> declaration.
    """

    definitions: str
    declarations: dict[str, str]


_FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    name: (arity, getattr(module, name))
    for module, arity, names in (
        (mathlib_exp, 1, "exp expm1 log log1p log2 log10 sinh cosh tanh asinh acosh atanh"),
        (mathlib_trig, 1, "sin cos tan asin acos atan"),
        (mathlib_trig, 2, "atan2"),
        (mathlib_erf, 1, "erf erfc erfinv ndtr"),
        (mathlib_pow, 1, "narrow"),
        (mathlib_pow, 2, "hypot pow"),
        (mathlib_divide, 2, "floor_divide remainder"),
    )
    for name in names.split()
}
_FUNCTIONS |= mathlib_numerics.formulas(_FUNCTIONS.copy())

_RANDOM = ("word", "words")
"""Functions of a stream of random bits, which `evaluate` calls: see `philox`."""


def symbol(function: str, dtype: DType, lanes: int) -> str:
    """Return the name of a function's definition.

    >>> from graphfw.ir.dtype import float32
    >>> symbol("exp", float32, 16)
    'math.exp.float32.16'
    """
    return f"math.{function}.{dtype.name}.{lanes}"


def library(uses: Iterable[Use]) -> Library:
    """Return the definitions of functions, each once, and what they need."""
    definitions: dict[str, str] = {}
    declarations: dict[str, str] = {}
    for use in uses:
        function, dtype, lanes = use
        if function in _RANDOM:
            definitions |= philox.definitions(function, symbol(*use), dtype, lanes)
            continue
        arity, formula = _FUNCTIONS[function]
        if function == "pow" and not dtype.is_floating:
            formula = mathlib_divide.pow
        body = MathBody(dtype, lanes)
        result = formula(body, *[body.operand(i) for i in range(arity)])
        name = symbol(*use)
        definitions |= body.helpers | {name: body.function(name, arity, result)}
        declarations |= body.declarations
    return Library("\n".join(definitions.values()), declarations)
