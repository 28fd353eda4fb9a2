"""Helpers of public functions: checks of arguments, floats, wide arithmetic."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from graphfw.errors import (
    ArgumentError,
    CallError,
    DTypeError,
    GraphfwError,
    MemoryLimitError,
    a_type,
    counted,
)
from graphfw.hints.lookup import meant_option
from graphfw.ir import concrete
from graphfw.ir.dtype import DType, float32
from graphfw.ir.functions import F
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import TensorLike, converted, inexact


def demand(
    condition: bool,
    message: str,
    operands: Mapping[str, Tensor] | None = None,
    *,
    fix: str = "",
    error: type[GraphfwError] = ArgumentError,
) -> None:
    """Raise an error at the user's line, with the operands by their labels, unless it holds."""
    if condition:
        return
    shown = [concrete.describe(label, tensor) for label, tensor in (operands or {}).items()]
    raise error(message, operands=shown, fix=fix)


def demand_one_of(what: str, name: str, given: object, known: Iterable[str]) -> None:
    """Raise an error unless an argument is one of the words that it may be.

    Args:
        what: The public function.
        name: Its argument.
        given: What was passed.
        known: The words.

    >>> import graphfw as gf
    >>> try:
    ...     gf.resize(gf.ones((1, 1, 2, 2)), (4, 4), mode="bilinear")
    ... except gf.ArgumentError as error:
    ...     print(error.fix)
    use mode="linear"
    """
    words = list(known)
    if isinstance(given, str) and given in words:
        return
    shown = ", ".join(f'"{word}"' for word in words)
    meant = meant_option(given, words)
    raise ArgumentError(
        f"{what}: {name}={given!r} is none of {shown}",
        fix=f'use {name}="{meant}"' if meant else f"use one of {shown}",
    )


def callback(what: str, name: str, function: Any, call: str) -> Callable[..., Any]:
    """Return a function that a user has passed to `what`, with clear errors for wrong calls.

    Args:
        what: The public function.
        name: Its argument.
        function: What was passed.
        call: How `what` calls it, as errors say it: "f(carry, x)".

    Raises:
        ArgumentError: It is no function.
        CallError: When called: it does not take these arguments.
    """
    message = f"{what}: {name} is {a_type(function)}, not a function"
    demand(callable(function), message, fix=f"pass a function, which is called as {call}")

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError:
            _refuse_arguments(what, name, function, call, args, kwargs)
            raise

    return called


def _refuse_arguments(
    what: str,
    name: str,
    function: Callable[..., Any],
    call: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> None:
    """Raise an error if a function does not take these arguments."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # of a builtin, which has none
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as mismatch:
        count = counted(len(args) + len(kwargs), "argument")
        raise CallError(
            f"{what}: {name} is called with {count}: {mismatch}", fix=f"it is called as {call}"
        ) from None


def require_room(name: str, count: float) -> None:
    """See that NumPy may have an array of so many numbers, which is a part of the graph.

    Raises:
        MemoryLimitError: It may not.
    """
    if count > sys.maxsize // 16:
        message = f"{name}: NumPy has no arrays of {count:,} numbers"
        raise MemoryLimitError(message, fix="use fewer")


def demand_probability(what: str, option: str, value: Any) -> None:
    """See that a probability of dropping is in [0, 1).

    Raises:
        ArgumentError: It is not, or is no number.
    """
    text, fix = f"{what}: {option}={value!r}", f"use {option}=0.5"
    demand(hasattr(value, "__float__"), f"{text} is no number", fix=fix)
    if 2 <= value < 100:  # in percent
        fix = f"use {option}={value / 100:g}"
    demand(0 <= value < 1, f"{text} must be at least 0 and below 1", fix=fix)


def floats(name: str, x: TensorLike) -> Tensor:
    """Return a tensor of real floats: integers and bools become the default dtype.

    Raises:
        DTypeError: It is complex.
    """
    tensor = inexact(x)
    message = f"{name}: wants floating-point tensors, not {tensor.dtype.name}"
    fix = "take gf.real(x), gf.imag(x) or gf.abs(x)"
    demand(tensor.dtype.is_floating, message, {"x": tensor}, fix=fix, error=DTypeError)
    return tensor


def safe_root(x: Tensor) -> Tensor:
    """Return the square root, with gradient 0 at 0, where its slope is infinite."""
    is_zero = x == 0
    return F.where(is_zero, 0, F.sqrt(F.where(is_zero, 1, x)))


def power_of_positive(x: Tensor, exponent: float) -> Tensor:
    """Return a power of x, which is above 0: by square roots where they serve, which are faster."""
    if exponent not in (0.25, 0.5, 0.75):
        return x**exponent
    root = F.sqrt(x)
    if exponent == 0.5:
        return root
    fourth = F.sqrt(root)
    return fourth if exponent == 0.25 else root * fourth


def wide(x: Tensor) -> Tensor:
    """Return the tensor in the dtype that its sums are made in: float32 for 16-bit floats."""
    return converted(x, wide_dtype(x.dtype))


def wide_dtype(dtype: DType) -> DType:
    """Return the dtype that sums of `dtype` are made in."""
    return float32 if dtype.is_low_precision else dtype
