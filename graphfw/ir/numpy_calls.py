"""NumPy's functions called on tensors: `np.exp(t)` makes the node that `gf.exp(t)` makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from graphfw.errors import did_you_mean
from graphfw.ir.functions import FUNCTIONS

_NUMPY_NAMES = {
    "absolute": "abs",
    "amax": "max",
    "amin": "min",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "concatenate": "concat",
    "conjugate": "conj",
    "cumprod": "cumulative_prod",
    "cumsum": "cumulative_sum",
    "invert": "bitwise_invert",
    "left_shift": "bitwise_left_shift",
    "power": "pow",
    "right_shift": "bitwise_right_shift",
    "transpose": "permute_dims",
    "true_divide": "divide",
}
"""Where NumPy's name is not that of the Array API standard."""


def ufunc(ufunc: np.ufunc, method: str, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Answer `__array_ufunc__`.

    Raises:
        TypeError: graphfw has no such function, or none with these options.
    """
    name = _NUMPY_NAMES.get(ufunc.__name__, ufunc.__name__)
    if method != "__call__" or kwargs or name not in FUNCTIONS:
        raise _unknown(f"np.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}"))
    return FUNCTIONS[name](*inputs)


def function(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Answer `__array_function__`: NumPy's options must be ours too.

    Raises:
        TypeError: graphfw has no such function, or none with these options.
    """
    name = _NUMPY_NAMES.get(func.__name__, func.__name__)
    if name not in FUNCTIONS or not (func.__module__ or "").startswith("numpy"):
        raise _unknown(f"np.{func.__name__}")
    return FUNCTIONS[name](*args, **kwargs)


def _unknown(what: str) -> TypeError:
    near = did_you_mean(what.removeprefix("np."), FUNCTIONS)
    text = f"{what} of a graphfw tensor: graphfw has no such function"
    return TypeError(f"{text}; {near}" if near else text)
