"""Checking what is fed, and finding what symbolic dims stand for, before anything is computed."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphfw.errors import (
    ArgumentError,
    DTypeError,
    FeedError,
    GraphfwError,
    a_type,
    counted,
)
from graphfw.ir import concrete
from graphfw.ir.arrays import as_given, fitted
from graphfw.ir.dim import DimLike, is_symbol, symbols_of
from graphfw.ir.dtype import DType, as_dtype, holds_stored
from graphfw.ir.literal import PYTHON_SCALARS, Array
from graphfw.ir.shape import shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ops.control.shape_checks import FedSize, ShapeCheck, size_at
from graphfw.runtime.program import Program, SizeSource
from graphfw.utils.signal_handlers import is_of_handler

_WEAK = (*PYTHON_SCALARS, list, tuple)
"""Values that take the dtype of what they are given to."""


def demand_dict(feeds: object) -> None:
    """See that feeds are a dict.

    Raises:
        FeedError: They are not.
    """
    if not isinstance(feeds, Mapping):
        raise FeedError(
            f"feeds is {a_type(feeds)}, not a dict",
            fix="write session.run(fetches, {x: array})",
        )


def array_of(value: Any) -> Array:
    """Return a value as a NumPy array, Python's floats and complex numbers with all their bits.

    Raises:
        DTypeError, ArgumentError: It is no array of numbers, or one on a GPU, or gives none.
    """
    try:
        if isinstance(value, Tensor) and concrete.is_concrete(value):
            value = concrete.value_of(value, "a feed")  # under "meta", too: a session computes
        array, _ = as_given(value)
    except (GraphfwError, MemoryError):
        raise
    except Exception as error:  # of its own `__array__` or `__dlpack__`
        if is_of_handler(error):
            raise
        raise ArgumentError(
            f"{a_type(value)} gives no array: {type(error).__name__}: {error}",
            fix="make a NumPy array of it, and pass that",
        ) from error
    if array.dtype.kind not in "biufcV" or issubclass(array.dtype.type, np.void):
        raise DTypeError(
            f"elements of dtype {array.dtype} are not numbers",
            fix='where they stand for numbers convert them: array.astype("float32")',
        )
    as_dtype(array.dtype)  # refuses numbers that graphfw has no dtype for
    return array


def host_array(placeholder: Tensor, value: Any) -> Array:
    """Return a fed value as a NumPy array of the placeholder's dtype.

    It is converted as `converted` says.

    Raises:
        FeedError: The value is no array, or conversion would lose something.
    """
    wanted = placeholder.dtype
    if isinstance(value, Tensor) and not concrete.is_concrete(value):
        raise FeedError(
            f"{label(placeholder)} is fed a tensor, which has no value yet",
            operands=[concrete.describe("fed", value)],
            fix="feed an array: fetch the tensor in one run and feed its value to the next",
        )
    try:
        array = array_of(value)
    except GraphfwError as error:
        cause = error.__cause__
        raise FeedError(f"{label(placeholder)}: {error.summary}", fix=error.fix) from cause
    found = converted(value, array, wanted)
    if found is not None:
        return found
    what, fix = refusal(value, array, wanted, "is fed")
    raise FeedError(
        f"{label(placeholder)} {what}",
        operands=[concrete.describe("wanted", placeholder)],
        fix=fix,
    )


def converted(value: Any, array: Array, wanted: DType) -> Array | None:
    """Return a value, whose `array_of` is given, as `wanted`, or None where it can't be.

    Python scalars and lists take that dtype where it can hold them, floats rounded; an array of
    another dtype is converted where nothing can be lost (float32 to float64, uint8 to float32).
    """
    if array.dtype == wanted.dtype:
        return array
    if _is_weak(value, array):
        return fitted(array, wanted)
    return array.astype(wanted.dtype) if _takes(wanted, as_dtype(array.dtype)) else None


def _is_weak(value: Any, array: Array) -> bool:
    """Return whether a value is Python's own; a list of NumPy's numbers for storage is not."""
    return isinstance(value, _WEAK) and not as_dtype(array.dtype).is_storage


def _takes(wide: DType, narrow: DType) -> bool:
    """Return whether a dtype takes every number of another; float64 takes large integers too."""
    if wide.is_storage or narrow.is_storage:
        return holds_stored(wide, narrow)
    return np.can_cast(narrow.dtype, wide.dtype, "safe")


def refusal(value: Any, array: Array, wanted: DType, verb: str) -> tuple[str, str]:
    """Return why `converted` gives None, and the fix; `verb` is what happens to the values."""
    if _is_weak(value, array):
        return (
            f"is {wanted.name}, which can't hold {reprlib.repr(value)}",
            f"give numbers that {wanted.name} can hold, or convert them: "
            f'np.asarray(…).astype("{wanted.name}")',
        )
    is_complex = array.dtype.kind == "c" and not wanted.is_complex
    return (
        f"is {wanted.name} and {verb} {array.dtype.name}, which can't be converted without loss",
        f'convert the array yourself: array{".real" * is_complex}.astype("{wanted.name}")',
    )


def bind_sizes(program: Program, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Check the fed shapes and return what each of the program's symbols stands for.

    Raises:
        FeedError: A shape is not its placeholder's, or one symbol would stand for two sizes.
        ShapeError: What `assert_shape` promised does not hold.
    """
    if len(shapes) != len(program.feeds):
        raise FeedError(
            f"the plan has {counted(len(program.feeds), 'feed')}, and is given "
            f"{counted(len(shapes), 'shape')}",
            fix="give one for each, in this order: "
            + ", ".join([str(t.name or t.type) for t in program.feeds]),
        )
    for placeholder, shape in zip(program.feeds, shapes, strict=True):
        if len(shape) != placeholder.ndim:
            raise _wrong_shape(
                placeholder, shape, f"{counted(len(shape), 'dim')}, not {placeholder.ndim}"
            )
        for axis, (dim, size) in enumerate(zip(placeholder.shape, shape, strict=True)):
            if isinstance(dim, int) and dim != size:
                raise _wrong_shape(placeholder, shape, f"dim {axis} is {size}, not {dim}")
    sizes: dict[str, int] = {}
    for name, feed, axis, scale, offset in program.size_sources:
        size = shapes[feed][axis]
        sizes[name], rest = divmod(size - offset, scale)
        if rest or sizes[name] < 0:
            placeholder = program.feeds[feed]
            wanted = placeholder.shape[axis] if offset else f"multiple of {scale}"
            reason = f"dim {axis} is {size}, which is no {wanted}"
            raise _wrong_shape(placeholder, shapes[feed], reason)
    check_promises(program, sizes)
    for number, (placeholder, shape) in enumerate(zip(program.feeds, shapes, strict=True)):
        for axis, (dim, size) in enumerate(zip(placeholder.shape, shape, strict=True)):
            expected = _size(dim, sizes)
            if expected is None or expected == size:
                continue
            lone = is_symbol(dim)
            for source in program.size_sources:
                if source.symbol == lone and (source.feed, source.axis) != (number, axis):
                    raise _conflict(
                        program, source, sizes[source.symbol], (placeholder, axis, size)
                    )
            raise _wrong_shape(placeholder, shape, f"dim {axis} is {size}, not {dim} = {expected}")
    return tuple(sizes[name] for name in program.symbols)


def _size(dim: DimLike, sizes: Mapping[str, int]) -> int | None:
    """Return a dim's size, or None where a symbol in it is not known yet."""
    try:
        return size_at(dim, sizes)
    except ZeroDivisionError as error:
        raise FeedError(str(error)) from None


def check_promises(program: Program, sizes: dict[str, int]) -> None:
    """Check shapes in order; a symbol that `assert_shape` introduces gets its size here.

    Raises:
        ShapeError: One is another than it is said to be.
    """
    for check in program.shape_checks:
        actual = _size(check.actual, sizes)
        if actual is not None and check.introduced is not None:
            sizes.setdefault(check.introduced, actual)
        if _fails(check, sizes):
            names = symbols_of(check.actual) | symbols_of(check.said)
            found = [source for source in program.size_sources if source.symbol in names]
            raise check.error(sizes, [_fed_size(program, source, sizes) for source in found])


def _fed_size(program: Program, source: SizeSource, sizes: Mapping[str, int]) -> FedSize:
    placeholder = program.feeds[source.feed]
    known = [_size(dim, sizes) for dim in placeholder.shape]
    shape = shape_text(
        [d if n is None else n for d, n in zip(placeholder.shape, known, strict=True)]
    )
    return FedSize(source.symbol, placeholder, label(placeholder), source.axis, shape)


def _fails(check: ShapeCheck, sizes: Mapping[str, int]) -> bool:
    try:
        return check.fails(sizes)
    except ZeroDivisionError as error:
        raise FeedError(str(error)) from None


def _wrong_shape(placeholder: Tensor, shape: tuple[int, ...], reason: str) -> FeedError:
    known = [dim for dim in placeholder.shape if isinstance(dim, int)]
    fix = f"feed an array of shape {shape_text(placeholder.shape)}"
    if len(shape) == placeholder.ndim - 1:
        fix = "add the missing dim: array[None] makes a batch of one"
    elif len(shape) == placeholder.ndim + 1:
        fix = "remove a dim, with array[0] or array.reshape"
    elif len(shape) == placeholder.ndim and sorted(shape) == sorted(known):
        fix = "the dims are in another order: use array.transpose"
    return FeedError(
        f"{label(placeholder)} is {shape_text(placeholder.shape)} and is fed "
        f"{shape_text(shape)}: {reason}",
        operands=[concrete.describe("wanted", placeholder)],
        fix=fix,
    )


def _conflict(
    program: Program, source: SizeSource, size: int, other: tuple[Tensor, int, int]
) -> FeedError:
    first = program.feeds[source.feed]
    second, axis, other_size = other
    return FeedError(
        f"the dim `{source.symbol}` is {size} in {label(first)} (dim {source.axis}) "
        f"and {other_size} in {label(second)} (dim {axis})",
        operands=[concrete.describe("first", first), concrete.describe("second", second)],
        fix=f"feed arrays whose `{source.symbol}` agrees",
    )


def label(tensor: Tensor) -> str:
    """Say what messages call a placeholder."""
    return f'"{tensor.name}"' if tensor.name else f"the placeholder at {tensor.node.loc.short()}"
