"""`to_numpy`: results of any executor as NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphfw.errors import ArgumentError, GraphfwError, a_type
from graphfw.hints.calls import explained
from graphfw.ir.tensor import Tensor
from graphfw.runtime.feeding import array_of
from graphfw.runtime.unsettled import settle_result


@explained
def to_numpy(values: Any) -> Any:
    """Return arrays as NumPy arrays: those on a GPU are copied home, others are taken as they are.

    Args:
        values: An array of NumPy, CuPy, or anything with `__array__` or `__dlpack__`; None; or a
            nesting of lists, tuples, named tuples and dicts of these, as `Session.run` returns it.

    Returns:
        The same nesting, of NumPy arrays.

    Raises:
        ArgumentError: Something in it is no array.
        ExecutionError: It is the result of a run that has failed since.

    >>> import numpy as np
    >>> to_numpy({"loss": np.float32(0.5), "train": None})
    {'loss': array(0.5, dtype=float32), 'train': None}
    """
    if values is None:
        return None
    if isinstance(values, Mapping):
        return {key: to_numpy(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        found = [to_numpy(value) for value in values]
        if hasattr(values, "_fields"):
            return type(values)(*found)
        return type(values)(found)
    return _array(values)


def _array(value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, Tensor):
        if value.graph.is_ambient:
            raise ArgumentError("to_numpy: a tensor is no result of a run", fix="tensor.numpy()")
        raise ArgumentError(
            "to_numpy: a tensor has no value", fix="fetch it: session.run(tensor, feeds)"
        )
    home = getattr(value, "get", None)
    if callable(home) and hasattr(value, "__cuda_array_interface__"):  # CuPy's way
        settle_result(value)
        return np.asarray(home())
    try:
        return array_of(value)
    except GraphfwError as error:
        raise ArgumentError(
            f"to_numpy: {a_type(value)} can't be made a NumPy array: {error.summary}",
            fix="move it to the CPU first",
        ) from None
