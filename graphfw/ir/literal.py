"""Values from the outside: turning what users pass into NumPy arrays, and holding one in a graph."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from graphfw.errors import ArgumentError, DTypeError
from graphfw.ir import ambient
from graphfw.ir.dtype import DType, as_dtype

Array = np.ndarray[Any, np.dtype[Any]]

PYTHON_SCALARS = (bool, int, float, complex)
"""Scalars that take the dtype of what they meet. `np.float64` is a `float`, so it is one too."""


def to_array(value: Any, dtype: DType | None = None) -> Array:
    """Return a NumPy array of a scalar, a nested list, an array, or what has `__array__`/`__dlpack__`.

    Without a dtype, arrays keep their own; Python's floats become the default dtype, its integers
    int64. The result may share memory with `value`.

    Raises:
        DTypeError: The elements are of no dtype that graphfw has (strings, objects).
        ArgumentError: A nested list is ragged.
    """
    if isinstance(value, np.ndarray):
        array = value
    elif isinstance(value, np.generic) and not isinstance(value, PYTHON_SCALARS):
        array = np.asarray(value)
    elif hasattr(value, "__array__"):
        array = np.asarray(value)
        if isinstance(value, PYTHON_SCALARS):  # np.float64, np.complex128
            array = array.astype(_python_dtype(array).dtype)
    elif hasattr(value, "__dlpack__"):
        array = np.from_dlpack(value)
    else:
        array = _from_python(value)
    known = as_dtype(array.dtype)
    target = known if dtype is None else dtype
    return array if array.dtype == target.dtype else array.astype(target.dtype)


def _from_python(value: Any) -> Array:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise ArgumentError(
            f"can't make an array: {error}", fix="give every row the same length"
        ) from None
    if array.dtype == object:
        kind = type(value).__name__
        raise DTypeError(
            f"can't make an array of {kind}: its elements are not numbers",
            fix="stack tensors with gf.stack; convert other objects to numbers first",
        )
    if _holds_numpy(value):
        return array
    return array.astype(_python_dtype(array).dtype, copy=False)


def _holds_numpy(value: Any) -> bool:
    """Say whether a nested list ends in NumPy values, whose dtypes then count."""
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    return isinstance(value, (np.ndarray, np.generic)) and not isinstance(value, PYTHON_SCALARS)


def _python_dtype(array: Array) -> DType:
    dtype = as_dtype(array.dtype)
    if dtype.is_floating:
        return ambient.get_default_dtype()
    if dtype.is_complex:
        default = ambient.get_default_dtype()
        return as_dtype("complex128" if default.name == "float64" else "complex64")
    return dtype


class Literal:
    """A read-only array that compares by content: what a `constant` node holds."""

    __slots__ = ("_digest", "array")

    def __init__(self, array: Array) -> None:
        # The graph must not change when the caller writes to the array later.
        self.array = array.copy() if array.flags.writeable else array
        self.array.flags.writeable = False
        self._digest: str | None = None

    @property
    def digest(self) -> str:
        """A hash of dtype, shape and bytes."""
        if self._digest is None:
            state = hashlib.blake2b(f"{self.array.dtype.name}{self.array.shape}".encode(), digest_size=10)
            state.update(np.ascontiguousarray(self.array).tobytes())
            self._digest = state.hexdigest()
        return self._digest

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Literal):
            return NotImplemented
        a, b = self.array, other.array
        return a.dtype == b.dtype and a.shape == b.shape and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Literal({self.array!r})"
