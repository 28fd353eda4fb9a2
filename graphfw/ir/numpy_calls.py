"""NumPy's functions called on tensors: `np.exp(t)` makes the node that `gf.exp(t)` makes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from graphfw.errors import did_you_mean
from graphfw.ir.functions import OVERRIDABLE

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
    "unique": "unique_values",
}
"""Where NumPy's name is not that of the Array API standard."""

_UFUNC_NAMES = {**_NUMPY_NAMES, "expit": "sigmoid", "gammaln": "lgamma", "psi": "digamma"}
"""The same of ufuncs, SciPy's among them."""


def ufunc(ufunc: np.ufunc, method: str, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Answer `__array_ufunc__`.

    Raises:
        TypeError: graphfw has no such function, or none with these options.
    """
    name = _UFUNC_NAMES.get(ufunc.__name__, ufunc.__name__)
    own = f"np.{ufunc.__name__}" if hasattr(np, ufunc.__name__) else ufunc.__name__
    what = own if method == "__call__" else f"{own}.{method}"
    if method != "__call__" or name not in OVERRIDABLE:
        raise _unknown(what)
    if kwargs:
        raise _refused(what, kwargs, name)
    return OVERRIDABLE[name](*inputs)


def function(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Answer `__array_function__`: NumPy's options must be ours too.

    Raises:
        TypeError: graphfw has no such function, or none with these options.
    """
    name = _NUMPY_NAMES.get(func.__name__, func.__name__)
    module = func.__module__ or ""
    what = f"{module.replace('numpy', 'np', 1)}.{func.__name__}"
    if func in _OTHERWISE:
        return _OTHERWISE[func](*args, **kwargs)
    if func is np.resize or name not in OVERRIDABLE or not module.startswith("numpy"):
        raise _unknown(what)
    refused = kwargs.keys() - inspect.signature(OVERRIDABLE[name]).parameters.keys()
    if refused:
        # gf.linalg and gf.fft have NumPy's names.
        place = module.removeprefix("numpy").removeprefix(".")
        raise _refused(what, sorted(refused), f"{place}.{name}" if place else name)
    return OVERRIDABLE[name](*args, **kwargs)


def _dot(a: Any, b: Any) -> Any:
    """Multiply as `np.dot` where `matmul` is the same."""
    x, y = OVERRIDABLE["asarray"](a), OVERRIDABLE["asarray"](b)
    if x.ndim not in (1, 2) or y.ndim not in (1, 2):
        raise TypeError(
            f"np.dot of graphfw tensors is for 1 and 2 dims, not for {x.type} and {y.type}; "
            "use gf.matmul, gf.tensordot, or x * y for scalars"
        )
    return OVERRIDABLE["matmul"](x, y)


def _diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """As `np.diagonal`: of the first two axes, where the standard takes the last two."""
    return OVERRIDABLE["diagonal"](_with_last(a, axis1, axis2), offset=offset)


def _trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """As `np.trace`, see `_diagonal`."""
    return OVERRIDABLE["trace"](_with_last(a, axis1, axis2), offset=offset)


def _with_last(a: Any, *axes: int) -> Any:
    return OVERRIDABLE["moveaxis"](a, axes, (-2, -1))


_OTHERWISE: dict[Callable[..., Any], Callable[..., Any]] = {
    np.diagonal: _diagonal,
    np.dot: _dot,
    np.trace: _trace,
}
"""What NumPy means otherwise than graphfw does by the same name; `np.resize` repeats elements."""


def _unknown(what: str) -> TypeError:
    own = what.rpartition(".")[2]
    near = did_you_mean(own, [name for name in OVERRIDABLE if name != own], cutoff=0.75)
    text = f"{what} of a graphfw tensor: graphfw has no such function"
    return TypeError(f"{text}; {near}" if near else text)


def _refused(what: str, options: Iterable[str], name: str) -> TypeError:
    listed = ", ".join(f"{option}=" for option in options)
    return TypeError(f"{what} of a graphfw tensor does not take {listed}; use gf.{name}")
