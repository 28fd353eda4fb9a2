"""NumPy's functions called on tensors: `np.exp(t)` makes the node that `gf.exp(t)` makes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from graphfw.errors import CallError
from graphfw.hints.lookup import renamed
from graphfw.hints.names import hint_for_call
from graphfw.ir.functions import OVERRIDABLE, F


@functools.cache
def _named(name: str) -> str:
    """Return graphfw's name of a function of NumPy's or SciPy's: most have the same name."""
    return name if name in OVERRIDABLE else renamed(name).rpartition(".")[2]


def ufunc(ufunc: np.ufunc, method: str, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Answer `__array_ufunc__`.

    Raises:
        TypeError: graphfw has no such function, or none with these options.
    """
    name = _named(ufunc.__name__)
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
    name = _named(func.__name__)
    module = func.__module__ or ""
    what = f"{module.replace('numpy', 'np', 1)}.{func.__name__}"
    if func in _OTHERWISE:
        return _OTHERWISE[func](*args, **kwargs)
    if func is np.resize or name not in OVERRIDABLE or not module.startswith("numpy"):
        raise _unknown(what)
    refused = kwargs.keys() - inspect.signature(OVERRIDABLE[name]).parameters.keys()
    if refused:
        # gf.linalg and gf.fft have NumPy's names.
        namespace = module.removeprefix("numpy").removeprefix(".")
        raise _refused(what, sorted(refused), f"{namespace}.{name}" if namespace else name)
    return OVERRIDABLE[name](*args, **kwargs)


class CalledByNumPy:
    """A base of tensors: other libraries ask them about their functions."""

    __slots__ = ()

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        return F.array_namespace(api_version)

    __array_priority__ = 1000

    def __array_ufunc__(self, func: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return ufunc(func, method, inputs, kwargs)

    def __array_function__(
        self, func: Callable[..., Any], types: Any, args: Any, kwargs: Any
    ) -> Any:
        return function(func, args, kwargs)


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
    """Return a diagonal of the first two axes, as `np.diagonal`, and not of the last two."""
    return OVERRIDABLE["diagonal"](_with_last(a, axis1, axis2), offset=offset)


def _trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Return the sum of the diagonal of the first two axes, as `np.trace`."""
    return OVERRIDABLE["trace"](_with_last(a, axis1, axis2), offset=offset)


def _with_last(a: Any, *axes: int) -> Any:
    return OVERRIDABLE["moveaxis"](a, axes, (-2, -1))


def _transpose(a: Any, axes: Any = None) -> Any:
    """Permute axes, as `np.transpose`; PyTorch's function exchanges two axes."""
    return OVERRIDABLE["permute_dims"](a, axes)


_OTHERWISE: dict[Callable[..., Any], Callable[..., Any]] = {
    np.diagonal: _diagonal,
    np.dot: _dot,
    np.trace: _trace,
    np.transpose: _transpose,
}
"""Names that mean something else in NumPy than in graphfw; `np.resize` repeats elements."""


def _unknown(what: str) -> TypeError:
    fix = hint_for_call(what.rpartition(".")[2])
    return CallError(f"{what} of a graphfw tensor: graphfw has no such function", fix=fix)


def _refused(what: str, options: Iterable[str], name: str) -> TypeError:
    listed = ", ".join(f"{option}=" for option in options)
    return CallError(f"{what} of a graphfw tensor does not take {listed}", fix=f"use gf.{name}")
