"""The forms of calls, found out quickly: calls like an earlier one need no more."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np

from graphfw.ir import ambient
from graphfw.ir.graph import innermost_graph
from graphfw.ir.literal import Array
from graphfw.ir.modes import modes_key
from graphfw.ir.tensor import Tensor

_EXACT = frozenset({bool, int, str, bytes, type(None)})
"""Types whose equal values are the same value."""


def call_key(
    args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Hashable, ...] | None, list[Array]]:
    """Return a key that is equal for calls as good as this one, and the arrays in it, in order.

    Calls with one key have arrays of the same dtypes and shapes in the same positions, and
    otherwise equal arguments, in the same surroundings. The key may turn out not to be hashable.

    Returns:
        No key where that takes a closer look: inside of a graph, with tensors, with kinds of arrays
        and containers that are not NumPy's and Python's own.
    """
    arrays: list[Array] = []
    if innermost_graph.get() is not None:
        return None, arrays
    key: list[Any] = [
        ambient.get_default_dtype(),
        ambient.is_for_training(),
        ambient.grad_enabled.get(),
        modes_key(),
        len(args),
    ]
    if not _look(args, key, arrays):
        return None, arrays
    if kwargs:
        key += kwargs
        if not _look(kwargs.values(), key, arrays):
            return None, arrays
    return tuple(key), arrays


def _look(values: Iterable[Any], key: list[Any], arrays: list[Array]) -> bool:
    """Add to the key and the arrays; returns False where something takes a closer look."""
    for value in values:
        kind = type(value)
        if kind is np.ndarray:
            arrays.append(value)
            key += (value.dtype, value.shape)
        elif kind in _EXACT:
            key += (kind, value)
        elif kind is float or kind is complex:
            key += (kind, repr(value))  # -0.0 is not 0.0, and NaN is NaN
        elif kind is dict:
            key += (kind, tuple(value), tuple(map(type, value)))
            if not _look(value.values(), key, arrays):
                return False
        elif kind is list or kind is tuple:
            key += (kind, len(value))
            if not _look(value, key, arrays):
                return False
        elif isinstance(value, np.generic):
            array = np.asarray(value)
            arrays.append(array)
            key += (array.dtype, ())
        elif _is_array(value) or isinstance(value, (Tensor, Mapping, list, tuple)):
            return False
        else:
            key += (kind, value)
    return True


def _is_array(value: Any) -> bool:
    return (
        hasattr(value, "__array__")
        or hasattr(value, "__dlpack__")
        or hasattr(value, "__cuda_array_interface__")
    )
