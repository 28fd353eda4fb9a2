"""The building blocks of type rules: requirements, broadcasting, axes, reshape.

All shape arithmetic of the project is here and in `dim`. A rule states what must hold with
`require`; `emit` turns a requirement that fails into an error with the operands' names and lines.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

from graphfw.errors import AxisError, GraphfwError, ShapeError, counted
from graphfw.ir.dim import DimLike, divisible, exact_div, is_symbol, symbols_of
from graphfw.ir.types import Shape

__all__ = [
    "Requirement",
    "broadcast",
    "broadcast_batch",
    "can_broadcast",
    "listed_axes",
    "normalize_axes",
    "normalize_axis",
    "permuted",
    "reduced",
    "require",
    "reshaped",
    "shape_text",
    "size_of",
]


class Requirement(Exception):
    """A type rule's condition that does not hold; never leaves graphfw.

    Args:
        message: What is required and fails.
        at: The dims that show it, as (operand, axis) pairs.
        fix: What to write instead.
        error: The class of the error to raise.
    """

    def __init__(
        self,
        message: str,
        at: Sequence[tuple[int, int]] = (),
        fix: str = "",
        error: type[GraphfwError] = ShapeError,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.at = tuple(at)
        self.fix = fix
        self.error = error


class ShapeMismatch(Requirement):
    """Two dims that don't broadcast: `at` names them."""


def require(
    condition: bool,
    message: str,
    at: Sequence[tuple[int, int]] = (),
    fix: str = "",
    error: type[GraphfwError] = ShapeError,
) -> None:
    """Raise a `Requirement` unless the condition holds."""
    if not condition:
        raise Requirement(message, at, fix, error)


def shape_text(shape: Iterable[DimLike]) -> str:
    """Return `[batch, 64]`."""
    return f"[{', '.join(map(str, shape))}]"


def size_of(shape: Iterable[DimLike]) -> DimLike:
    """Return the product of the dims."""
    size: DimLike = 1
    for dim in shape:
        size = size * dim
    return size


def broadcast(*shapes: Shape) -> Shape:
    """Return the shape that all broadcast to.

    A symbolic dim broadcasts against 1 and itself only: whether it equals 5 is not known when the
    graph is built, and guessing would give wrong gradients.
    """
    # Quickly, what is most common: one shape, equal shapes, a bias, a scalar.
    if len(shapes) == 1:
        return shapes[0]
    if len(shapes) == 2:
        long, short = shapes
        if len(short) > len(long):
            long, short = short, long
        if not short or long[-len(short) :] == short:
            return long
    ndim = max(map(len, shapes), default=0)
    result: list[DimLike] = []
    for axis in range(-ndim, 0):
        dim: DimLike = 1
        owner = 0
        for operand, shape in enumerate(shapes):
            size = shape[axis] if -axis <= len(shape) else 1
            if size is dim or size == 1 or size == dim:
                continue
            if dim != 1:
                _fail_broadcast(shapes, owner, operand, axis)
            dim, owner = size, operand
        result.append(dim)
    return tuple(result)


def one_name(a: DimLike, b: DimLike) -> str:
    """Return how a user may say that two dims are the same, as the beginning of a fix."""
    names = [name for name in (is_symbol(a), is_symbol(b)) if name]
    if not names:
        return ""
    said = [name for name in names if not name.startswith("_")]  # the others are made up
    rename = f'name both dims "{said[0]}"' if said else "give both dims one name"
    return f"{rename} if they are always equal, or "


def _fail_broadcast(shapes: Sequence[Shape], first: int, second: int, axis: int) -> None:
    """Say that two operands' dims at `axis` don't fit, unless two ints clash at whatever axis."""
    clash = _clash_of_ints(shapes)
    if clash:
        fix = "make the dims equal, or one of them 1"
        if len(shapes[clash[0][0]]) != len(shapes[clash[1][0]]):
            fix += ": x[:, None] and gf.expand_dims add such a dim"
        raise ShapeMismatch("shapes don't broadcast", clash, fix)
    a, b = shapes[first][axis], shapes[second][axis]
    fix = f"{one_name(a, b)}use gf.assert_shape"
    if isinstance(a, int) or isinstance(b, int):  # one that maybe is an array's: it has no names
        dim, size = (b, a) if isinstance(a, int) else (a, b)
        varies = f"feed the other through a placeholder with the dim `{dim}`"
        fix = f"if `{dim}` is always {size}, say so with gf.assert_shape; if not, {varies}"
    message = "a symbolic dim broadcasts with 1 and itself only"
    raise ShapeMismatch(message, [(first, axis), (second, axis)], fix)


def _clash_of_ints(shapes: Sequence[Shape]) -> list[tuple[int, int]]:
    """Return two dims that differ for certain, as (operand, axis) pairs, if there are any."""
    for axis in range(-max(map(len, shapes)), 0):
        known: tuple[int, DimLike] | None = None
        for operand, shape in enumerate(shapes):
            size = shape[axis] if -axis <= len(shape) else 1
            if size == 1 or not isinstance(size, int):
                continue
            if known is not None and known[1] != size:
                return [(known[0], axis), (operand, axis)]
            known = known or (operand, size)
    return []


def broadcast_batch(*shapes: Shape) -> Shape:
    """Return the shape that all dims but the last two, those of matrices, broadcast to."""
    try:
        return broadcast(*[shape[:-2] for shape in shapes])
    except Requirement as failed:
        at = [(operand, axis - 2) for operand, axis in failed.at]  # as axes of the whole shapes
        raise Requirement(failed.message, at, failed.fix) from None


def can_broadcast(shape: Shape, target: Shape) -> bool:
    """Return whether `shape` broadcasts to exactly `target`."""
    if len(shape) > len(target):
        return False
    tail = target[len(target) - len(shape) :]
    return all(a in (1, b) for a, b in zip(shape, tail, strict=True))


def normalize_axis(axis: int, ndim: int) -> int:
    """Return the axis counted from the front, or fail where there is no such axis."""
    index = int_or_none(axis)
    if index is None:
        fix = "name one dim by an int, such as -1 for the last"
        raise Requirement(f"axis {axis!r} is no int", (), fix, AxisError)
    if not -ndim <= index < ndim:
        valid = f"use {-ndim} to {ndim - 1}" if ndim else "a 0-d tensor has no axes"
        raise Requirement(
            f"axis {index} is out of range for {counted(ndim, 'dim')}", (), valid, AxisError
        )
    return index + ndim if index < 0 else index


def int_or_none(value: Any) -> int | None:
    """Return an int in any form, such as `np.int64`, as Python's; None for all else."""
    if type(value) is int:
        return value
    if isinstance(value, (bool, type)):
        return None
    try:
        return operator.index(value)
    except TypeError:  # of arrays, which have the method, too
        return None


def listed_axes(axes: Any, ndim: int) -> tuple[int, ...]:
    """Return an int or several as axes counted from the front, in the order they were given in."""
    if int_or_none(axes) is not None:
        return (normalize_axis(axes, ndim),)
    if isinstance(axes, str) or not isinstance(axes, Iterable):
        fix = "name dims by ints: -1, or (0, 1)"
        raise Requirement(f"axis {axes!r} is no int and no sequence of ints", (), fix, AxisError)
    given = tuple(axes)
    result = tuple(normalize_axis(axis, ndim) for axis in given)
    message = f"axis {given} names a dim twice"
    require(len(set(result)) == len(result), message, (), "name each dim once", AxisError)
    return result


def normalize_axes(axes: int | Iterable[int] | None, ndim: int) -> tuple[int, ...]:
    """Return sorted axes counted from the front; None means all."""
    return tuple(range(ndim)) if axes is None else tuple(sorted(listed_axes(axes, ndim)))


def reduced(shape: Shape, axes: Sequence[int], keepdims: bool) -> Shape:
    """Return the shape after a reduction over normalised axes."""
    if keepdims:
        return tuple(1 if i in axes else dim for i, dim in enumerate(shape))
    return tuple(dim for i, dim in enumerate(shape) if i not in axes)


def permuted(shape: Shape, axes: Sequence[int]) -> Shape:
    """Return the shape with its dims in the order of `axes`."""
    return tuple(shape[axis] for axis in axes)


def reshaped(shape: Shape, target: Sequence[DimLike]) -> Shape:
    """Return `target` with its -1, if it has one, solved so that the number of elements stays.

    Where the division can't be proved exact for symbolic dims it is left as `//`, and checked when
    the graph runs.
    """
    holes = [i for i, dim in enumerate(target) if dim == -1]
    if len(holes) > 1:
        message = f"shape {shape_text(target)} has more than one -1"
        raise Requirement(message, fix="write -1 for one dim, and the sizes of the others")
    if any(isinstance(dim, int) and dim < -1 for dim in target):
        message = f"shape {shape_text(target)} has a negative dim"
        raise Requirement(message, fix="write -1 for one dim that is to be what is left")
    total = size_of(shape)
    if not holes:
        known = size_of(target)
        if total == known:
            return tuple(target)
        message = (
            f"{counted(total, 'element')} don't fill shape {shape_text(target)}, which has {known}"
        )
        raise Requirement(message, (), _reshape_fix(total, known))
    known = size_of(dim for dim in target if dim != -1)
    if divisible(total, known) is False:
        message = f"{counted(total, 'element')} don't divide into shape {shape_text(target)}"
        raise Requirement(message, (), f"choose dims whose product divides {total}")
    quotient = exact_div(total, known)
    hole = total // known if quotient is None else quotient
    return tuple(hole if i == holes[0] else dim for i, dim in enumerate(target))


def _reshape_fix(total: DimLike, known: DimLike) -> str:
    if symbols_of(total) and symbols_of(total) != symbols_of(known):
        return "use -1 for the dim that varies, or the tensor's own x.shape[i]"
    return f"choose dims whose product is {total}, or -1 for one of them"
