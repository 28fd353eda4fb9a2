"""Values from the outside: what users pass as a NumPy array, and how a graph holds one."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphfw.errors import ArgumentError, DTypeError
from graphfw.ir import ambient
from graphfw.ir.dtype import DType, as_dtype

Array = np.ndarray[Any, np.dtype[Any]]

PYTHON_SCALARS = (bool, int, float, complex)
"""Scalars that take the dtype of what they meet. `np.float64` is a `float`, so it is one too."""


def to_array(value: Any, dtype: DType | None = None) -> Array:
    """Return an array of a scalar, a nested list, an array, or what has `__array__`/`__dlpack__`.

    Without a dtype, arrays keep their own; Python's floats become the default dtype, its integers
    int64. With one, Python's numbers are converted exactly once. The result may share memory with
    `value`.

    Raises:
        DTypeError: The elements are of no dtype that graphfw has (strings, objects), a Python
            number does not fit `dtype`, or the array is masked.
        ArgumentError: A nested list is ragged.
    """
    array, weak = as_given(value)
    own = as_dtype(array.dtype)
    if dtype is None:
        dtype = _python_dtype(array) if weak else own
    if weak and dtype.is_integer:
        _check_range(array, dtype)
    if array.dtype == dtype.dtype:
        return array
    with np.errstate(over="ignore"):
        result = array.astype(dtype.dtype)
    if weak and dtype.is_inexact and not np.array_equal(np.isinf(result), np.isinf(array)):
        raise DTypeError(
            f"{value!r} is beyond what {dtype.name} holds", fix="use gf.inf where infinity is meant"
        )
    return result


def as_given(value: Any) -> tuple[Array, bool]:
    """Return the value as it is, and whether it is Python's own, whose dtype means little."""
    if isinstance(value, np.ma.MaskedArray):
        raise DTypeError(
            "a masked array would lose its mask",
            fix="pass array.filled(…), and the mask on its own for gf.where",
        )
    if isinstance(value, np.ndarray):
        return np.asarray(value), False  # of a subclass only its numbers count
    if isinstance(value, np.generic):
        return np.asarray(value), isinstance(value, PYTHON_SCALARS)
    if hasattr(value, "__array__"):
        return np.asarray(value), False
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value), False
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise ArgumentError(
            f"can't make an array: {error}", fix="give every row the same length"
        ) from None
    if array.dtype.kind not in "biufcV":
        raise _no_numbers(value, array)
    return array, not _holds_numpy(value)


def _no_numbers(value: Any, array: Array) -> DTypeError:
    """Say why an array that NumPy made has elements of no dtype that graphfw has."""
    elements = array.ravel().tolist()
    if elements and all(isinstance(element, int) for element in elements):
        return DTypeError(
            f"{max(elements, key=abs)} fits neither int64 nor uint64",
            fix="make it a float: float(…)",
        )
    return DTypeError(
        f"can't make an array of {type(value).__name__}: its elements are not numbers",
        fix="give numbers, lists of numbers, or arrays of them",
    )


def _check_range(array: Array, dtype: DType) -> None:
    if array.dtype.kind not in "iu" or not array.size:
        return
    limits = np.iinfo(dtype.dtype)
    extremes = (int(array),) if array.ndim == 0 else (int(array.min()), int(array.max()))
    for extreme in extremes:
        if not limits.min <= extreme <= limits.max:
            raise DTypeError(
                f"{extreme} does not fit {dtype.name}",
                fix=f"it holds {limits.min} to {limits.max}: use a wider dtype",
            )


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
        # The graph must not change when the caller writes to the array later, or to what a
        # read-only view is a view of.
        frozen = not array.flags.writeable and array.base is None
        self.array = array if frozen else array.copy()
        self.array.flags.writeable = False
        self._digest: str | None = None

    @property
    def digest(self) -> str:
        """A hash of dtype, shape and bytes."""
        if self._digest is None:
            from hashlib import blake2b  # here, not above: OpenSSL takes its time to load

            state = blake2b(f"{self.array.dtype.name}{self.array.shape}".encode(), digest_size=10)
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
