"""Checking what is fed, and finding what the symbolic dims stand for, before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphfw.errors import FeedError, GraphfwError, Operand, ShapeError
from graphfw.ir import concrete
from graphfw.ir.dim import Dim, DimLike, is_symbol, symbols_of
from graphfw.ir.dim_text import evaluate
from graphfw.ir.literal import PYTHON_SCALARS, Array, to_array
from graphfw.ir.shape import shape_text
from graphfw.ir.tensor import Tensor
from graphfw.runtime.program import Program


def host_array(placeholder: Tensor, value: Any) -> Array:
    """Return a fed value as a NumPy array of the placeholder's dtype.

    Python scalars and lists take that dtype where its kind can hold them; an array of another dtype
    is converted where nothing can be lost (float32 to float64, uint8 to float32), else refused.

    Raises:
        FeedError: The value is no array, or conversion would lose something.
    """
    wanted = placeholder.dtype
    if isinstance(value, Tensor):
        raise FeedError(
            f"{_name(placeholder)} is fed a tensor, which has no value yet",
            operands=[concrete.describe("fed", value)],
            fix="feed an array; to use a tensor's value, fetch it in one run and feed it to the next",
        )
    try:
        array = to_array(value)
    except GraphfwError as error:
        raise FeedError(f"{_name(placeholder)}: {error.summary}", fix=error.fix) from None
    if array.dtype == wanted.dtype:
        return array
    if _fits(array, wanted.dtype, weak=isinstance(value, (*PYTHON_SCALARS, list, tuple))):
        return array.astype(wanted.dtype)
    raise FeedError(
        f"{_name(placeholder)} is {wanted.name} and is fed {array.dtype.name}, "
        "which can't be converted without loss",
        operands=[concrete.describe("wanted", placeholder)],
        fix=f'convert the array yourself: array.astype("{wanted.name}")',
    )


def _fits(array: Array, wanted: Any, *, weak: bool) -> bool:
    if weak and array.dtype.kind == "i" and wanted.kind in "iu":
        limits = np.iinfo(wanted)
        return not array.size or bool(array.min() >= limits.min and array.max() <= limits.max)
    if weak and array.dtype.kind in "biufc":
        order = "biufcV"  # ml_dtypes' bfloat16 is of kind V
        kind = "f" if wanted.kind == "V" else wanted.kind
        return order.index(array.dtype.kind) <= order.index(kind) or array.dtype.kind == kind
    return bool(np.can_cast(array.dtype, wanted, "safe"))


def bind_sizes(program: Program, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Check the fed shapes and return what each of the program's symbols stands for.

    Raises:
        FeedError: A shape is not its placeholder's, or one symbol would stand for two sizes, or a
            symbol is left open.
        ShapeError: What `assert_shape` promised does not hold.
    """
    sizes: dict[str, int] = {}
    first: dict[str, tuple[Tensor, int]] = {}
    for placeholder, shape in zip(program.feeds, shapes, strict=True):
        if len(shape) != placeholder.ndim:
            raise _wrong_shape(placeholder, shape, f"{len(shape)} dims, not {placeholder.ndim}")
        for axis, (dim, size) in enumerate(zip(placeholder.shape, shape, strict=True)):
            name = is_symbol(dim)
            if name is None:
                continue
            if sizes.setdefault(name, size) != size:
                raise _conflict(name, sizes[name], first[name], size, (placeholder, axis))
            first.setdefault(name, (placeholder, axis))
    for placeholder, shape in zip(program.feeds, shapes, strict=True):
        for axis, (dim, size) in enumerate(zip(placeholder.shape, shape, strict=True)):
            expected = _size(dim, sizes)
            if expected is not None and expected != size:
                reason = f"dim {axis} is {size}, not {dim}" + (
                    f" = {expected}" if isinstance(dim, Dim) else ""
                )
                raise _wrong_shape(placeholder, shape, reason)
    _check_promises(program, sizes)
    for name in program.symbols:
        if name not in sizes:
            origin = program.graph.symbol_origin(name) or f"`{name}` has no size"
            raise FeedError(
                f"the dim `{name}` is needed, and nothing that is fed tells its size",
                why=origin,
                fix="feed that placeholder too",
            )
    return tuple(sizes[name] for name in program.symbols)


def _size(dim: DimLike, sizes: Mapping[str, int]) -> int | None:
    """Return a dim's size, or None where a symbol in it is not known yet."""
    if isinstance(dim, int):
        return dim
    return evaluate(dim, sizes) if symbols_of(dim) <= sizes.keys() else None


def _check_promises(program: Program, sizes: dict[str, int]) -> None:
    """Check what assert_shape says, in order; a symbol that it introduces gets its size here."""
    for check in program.shape_checks:
        actual = _size(check.actual, sizes)
        if actual is None:
            continue
        name = is_symbol(check.said)
        if name is not None:
            sizes.setdefault(name, actual)
        said = _size(check.said, sizes)
        if said is not None and said != actual:
            shown = f"{check.said} = {said}" if isinstance(check.said, Dim) else str(said)
            raise ShapeError(
                f"assert_shape: the dim `{check.actual}` is {actual} in this run, not {shown}",
                at=check.loc,
                fix="feed arrays that agree, or drop the assertion",
            )


def _wrong_shape(placeholder: Tensor, shape: tuple[int, ...], reason: str) -> FeedError:
    fix = ""
    if len(shape) == placeholder.ndim - 1:
        fix = "add the missing dim: array[None] makes a batch of one"
    elif len(shape) == placeholder.ndim + 1:
        fix = "remove a dim, with array[0] or array.reshape"
    elif sorted(shape) == sorted(d for d in placeholder.shape if isinstance(d, int)):
        fix = "the dims are in another order: use array.transpose"
    return FeedError(
        f"{_name(placeholder)} is {shape_text(placeholder.shape)} and is fed "
        f"{shape_text(shape)}: {reason}",
        operands=[concrete.describe("wanted", placeholder)],
        fix=fix,
    )


def _conflict(
    name: str, size: int, first: tuple[Tensor, int], other: int, second: tuple[Tensor, int]
) -> FeedError:
    operands: list[Operand] = [
        concrete.describe("first", first[0]),
        concrete.describe("second", second[0]),
    ]
    return FeedError(
        f"the dim `{name}` is {size} in {_name(first[0])} (dim {first[1]}) "
        f"and {other} in {_name(second[0])} (dim {second[1]})",
        operands=operands,
        fix=f"feed arrays whose `{name}` agrees",
    )


def _name(tensor: Tensor) -> str:
    return f'"{tensor.name}"' if tensor.name else f"the placeholder at {tensor.node.loc.short()}"
