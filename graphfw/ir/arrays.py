"""Arrays of what users pass: NumPy's and others' arrays, numbers, and lists of these."""

from __future__ import annotations

import math
import reprlib
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from graphfw.errors import ArgumentError, CheckpointError, DTypeError, a_type
from graphfw.ir import ambient, concrete
from graphfw.ir.dtype import BY_NAME, DType, as_dtype, float32, float64, limits_of
from graphfw.ir.literal import PYTHON_SCALARS, Array, Literal
from graphfw.ir.op import Inferred, infer_as
from graphfw.ir.sources import ConstantOp
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import TensorType
from graphfw.utils.nest import leaves

_PLAIN: dict[type, float] = {float: 1e38, int: 2.0**53}
"""Below these Python's numbers become floats in one rounding, and finite ones."""
_FLOATS = (float32, float64)


def to_array(value: Any, dtype: DType | None = None) -> Array:
    """Return an array of a scalar, a nested list, an array, or what has `__array__`/`__dlpack__`.

    Without a dtype, arrays keep their own; Python's floats become the default dtype, its integers
    int64. With one, Python's numbers are converted exactly once. The result may share memory with
    `value`.

    Raises:
        DTypeError: The elements are of no dtype that graphfw has (strings, objects), a Python
            number does not fit `dtype`, an imaginary part would be lost, or the array is masked.
        ArgumentError: A nested list is ragged or of tensors, or the array is on a GPU.
    """
    plain = _PLAIN.get(type(value))
    if plain is not None and dtype in _FLOATS and -plain < value < plain:
        return np.array(value, dtype.dtype)  # the most frequent of all, in a tenth of the time
    array, weak = as_given(value)
    own = as_dtype(array.dtype)
    if dtype is None:
        dtype = _python_dtype(array) if weak else own
    if own.is_complex and not dtype.is_complex:
        raise DTypeError(f"complex numbers don't fit {dtype.name}", fix="take the real part first")
    if weak and (number := misfit(array, dtype)) is not None:
        raise _beyond(str(number), dtype)
    if array.dtype == dtype.dtype:
        return array
    with np.errstate(over="ignore"):
        result = array.astype(dtype.dtype)
    if weak and has_overflowed(array, result, dtype):
        raise _beyond(reprlib.repr(value), dtype)
    return result


def as_given(value: Any) -> tuple[Array, bool]:
    """Return the value as it is, and whether it is Python's own, whose dtype means little.

    Raises:
        DTypeError: The elements are no numbers, or the array is masked.
        ArgumentError: A nested list is ragged or of tensors, or the array is on a GPU.
    """
    # Who has a masked array has imported `numpy.ma`, which takes its time.
    if "numpy.ma" in sys.modules and isinstance(value, np.ma.MaskedArray):
        raise DTypeError(
            "a masked array would lose its mask",
            fix="pass array.filled(…), and the mask on its own for gf.where",
        )
    if isinstance(value, np.ndarray):
        return np.asarray(value), False  # of a subclass only its numbers count
    if isinstance(value, np.generic):
        return np.asarray(value), isinstance(value, PYTHON_SCALARS)
    if hasattr(value, "__array__") or hasattr(value, "__dlpack__"):
        return _taken(value), False
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        tensors = [leaf for leaf in leaves(value) if isinstance(leaf, Tensor)]
        if tensors:
            raise _no_tensor(value, tensors) from None
        raise ArgumentError(
            f"can't make an array: {error}", fix="give every row the same length"
        ) from None
    if array.dtype.kind not in "biufcV":
        raise _no_numbers(value, array)
    if array.dtype == np.float64 and (array >= 2.0**63).any():
        array = _large_integers(value, array)
    return array, not _holds_numpy(value)


def entry_array(name: str, value: Any) -> Array:
    """Return an entry of a saved state as an array.

    Raises:
        CheckpointError: It is none of numbers.
    """
    try:
        return to_array(value)
    except (DTypeError, ArgumentError) as error:
        message = f'the entry "{name}" is no array of numbers: {error.summary}'
        raise CheckpointError(message, fix=error.fix) from None


def _large_integers(value: Any, array: Array) -> Array:
    """Return integers that NumPy took for floats, as some fit uint64 only; else what it made."""
    elements = np.asarray(value, object)
    if not all(isinstance(element, int) for element in elements.flat):
        return array
    try:
        return np.asarray(value, np.uint64)
    except OverflowError:  # others are negative
        return array


def _taken(value: Any) -> Array:
    """Return another library's array as NumPy's."""
    try:
        return np.asarray(value) if hasattr(value, "__array__") else np.from_dlpack(value)
    except DTypeError:  # an Update's
        raise
    except TypeError as error:  # the value's own: CuPy and PyTorch copy nothing home unasked
        raise ArgumentError(
            f"{a_type(value)} stays where it is: {error}",
            fix="copy it to the host: gf.to_numpy(array) of CuPy, tensor.cpu() of PyTorch",
        ) from None


def _no_tensor(value: Any, tensors: Sequence[Tensor]) -> ArgumentError:
    """Return why several tensors, such as a recurrent layer's results, are not one."""
    return ArgumentError(
        f"{a_type(value)} of tensors is no tensor",
        operands=[concrete.describe(f"x{i}", tensor) for i, tensor in enumerate(tensors[:2])],
        fix="take one: `y, state = lstm(x)`; gf.stack joins them",
    )


def _no_numbers(value: Any, array: Array) -> DTypeError:
    """Return why an array that NumPy made has elements of no dtype that graphfw has."""
    if value is None:
        return DTypeError(
            "None is neither a tensor nor a number",
            fix="if a function or a layer's forward gave it, end that with `return`",
        )
    if callable(value):
        what = f"the class {value.__name__}" if isinstance(value, type) else a_type(value)
        return DTypeError(
            f"{what} is neither a tensor nor a number", fix="call it, and use the result"
        )
    elements = array.ravel().tolist()
    if elements and all(isinstance(element, int) for element in elements):
        largest = max(elements, key=abs)
        text = str(largest) if largest.bit_length() <= 1024 else "an int of so many digits"
        return DTypeError(
            f"{text} fits neither int64 nor uint64",
            fix="make it a float: float(…)",
        )
    return DTypeError(
        f"can't make an array of {type(value).__name__}: its elements are not numbers",
        fix="give numbers, lists of numbers, or arrays of them"
        if not isinstance(value, str)
        else 'give numbers, not a name: an entry of a dict is batch["x"]',
    )


def misfit(array: Array, dtype: DType) -> int | float | None:
    """Return one of Python's numbers that a dtype of integers can't hold; None without any.

    Of floats only what is before the point has to fit, as NumPy and others drop the rest.
    """
    is_whole = dtype.is_integer or (dtype.is_storage and not dtype.holds_floats)
    if not is_whole or array.dtype.kind not in "iuf" or not array.size:
        return None
    limits = limits_of(dtype)
    extremes = (array,) if array.ndim == 0 else (array.min(), array.max())
    for extreme in extremes:
        number: int | float = extreme.item()
        # NaN is the least and the largest number of an array that has it, and within no limits.
        if (
            not limits.min
            <= (math.trunc(number) if math.isfinite(number) else number)
            <= limits.max
        ):
            return number
    return None


def has_overflowed(array: Array, rounded: Array, dtype: DType) -> bool:
    """Return whether Python's numbers were beyond what a dtype of floats, or complex ones, holds.

    What is infinite or NaN must be so in `rounded`, the array in that dtype, and nothing else.
    """
    if not (dtype.is_inexact or dtype.holds_floats):
        return False
    if not np.array_equal(np.isfinite(array), np.isfinite(rounded)):
        return True
    if not dtype.is_storage:
        return False
    # Most of these have no infinity, and make NaN of it. float4_e2m1fn has no NaN either: it
    # makes 6, its largest number, of what is too large, to which 8 would be nearer from 7 on.
    if not np.array_equal(np.isinf(array), np.isinf(rounded)):
        return True
    return dtype.name == "float4_e2m1fn" and bool((np.abs(array) >= 7).any())


def fitted(array: Array, dtype: DType) -> Array | None:
    """Return Python's numbers in a dtype, floats rounded, or None where it can't hold them."""
    kind: str = dtype.kind
    if kind == "storage":
        kind = "float" if dtype.holds_floats else "int"
    own = as_dtype(array.dtype)
    if own.is_storage or _RANK[own.kind] > _RANK[kind] or misfit(array, dtype) is not None:
        return array if own is dtype else None
    with np.errstate(over="ignore"):
        result: Array = array.astype(dtype.dtype)
    return None if has_overflowed(array, result, dtype) else result


_RANK = {"bool": 0, "int": 1, "uint": 1, "float": 2, "complex": 3}


def _beyond(shown: str, dtype: DType) -> DTypeError:
    """Say that a dtype doesn't hold a number."""
    if dtype.is_inexact:
        return DTypeError(
            f"{shown} is beyond what {dtype.name} holds", fix="use gf.inf where infinity is meant"
        )
    limits = limits_of(dtype)
    least, largest = [
        f"{float(x):g}" if dtype.holds_floats else x for x in (limits.min, limits.max)
    ]
    return DTypeError(
        f"{shown} does not fit {dtype.name}",
        fix=f"it holds {least} to {largest}: use another dtype",
    )


def _holds_numpy(value: Any) -> bool:
    """Return whether a nested list ends in NumPy values, whose dtypes then count."""
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


def number(value: complex, dtype: DType | None) -> ConstantOp:
    """Return a Python number as a constant; see `to_array`."""
    if dtype is None or isinstance(value, complex):  # the default dtype, which changes
        return ConstantOp(Literal.taken(to_array(value, dtype)))
    # By the type, too, for 1 is equal to True and 1.0; and by the text, for 0.0 is equal to -0.0.
    key = (value or str(value), type(value), dtype.name)
    known = _numbers.get(key)
    if known is None:
        known = ConstantOp(Literal.taken(to_array(value, dtype)))
        infer_as(known, _scalar_types(dtype.name))
        if len(_numbers) >= _NUMBERS:
            _numbers.clear()
        _numbers[key] = known
    return known


_numbers: dict[tuple[complex | str, type, str], ConstantOp] = {}
_NUMBERS = 1024
"""The most numbers that are remembered: graphs have 0, 1 and -inf thousands of times."""


@cache
def _scalar_types(dtype: str) -> Inferred:
    return {(): ((), (TensorType(BY_NAME[dtype], ()),))}
