"""Tensors that count: ranges, evenly spaced numbers, diagonals and triangles."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from graphfw.errors import ArgumentError, DTypeError, ShapeError
from graphfw.ir import ambient
from graphfw.ir.build import constant, emit
from graphfw.ir.dim import Dim, DimLike, dim_max
from graphfw.ir.dtype import DType, DTypeLike, as_dtype, int64, promote_all
from graphfw.ir.functions import F, public
from graphfw.ir.op import NONDIFF, Case, Cost, Op, bad, ok, op
from graphfw.ir.shape import require
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape, TensorType
from graphfw.ops.args import (
    TensorLike,
    as_tensor,
    converted,
    dims_of,
    dtype_or,
    is_whole,
    scalar_like,
)
from graphfw.ops.composed import demand, require_room
from graphfw.ops.creation.constructors import asarray, check_device, zeros
from graphfw.ops.shape.axes import expand_dims

__all__ = ["arange", "eye", "linspace", "tril", "triu"]


def _is_int64(number: int) -> bool:
    return -(2**63) <= number < 2**63


@op("arange")
class Arange(Op):
    """The numbers start, start + step, …  -> [size]"""

    start: DimLike
    step: int
    size: DimLike
    to: DType
    vjp = NONDIFF

    def shape(self) -> Shape:
        return (self.size,)

    def dtype(self) -> DType:
        fix = "use an integer dtype, and gf.astype for a mask"
        require(not self.to.is_bool, "can't count in bool", fix=fix, error=DTypeError)
        return self.to

    def eval(self, xp: Any) -> Any:
        if not 0 <= self.size <= sys.maxsize:  # NumPy would count none
            raise ValueError(f"there can't be {self.size} numbers")
        count = xp.arange(self.size, dtype=xp.int64)
        start, step = operator.index(self.start), self.step if self.size > 1 else 0
        last = start + (len(count) - 1) * step
        if self.to.is_inexact and not all(map(_is_int64, (start, step, last))):
            numbers = count.astype(xp.float64) * float(step) + float(start)
            return numbers.astype(self.to.dtype)
        # Numbers up to 2^64 - 1 are right modulo 2^64.
        start, step = [(n + 2**63) % 2**64 - 2**63 for n in (start, step)]
        return (count * step + start).astype(self.to.dtype)

    def cost(self, outputs: tuple[TensorType, ...], *inputs: TensorType) -> Cost:
        return Cost(0, 0, outputs[0].nbytes)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok(start=2, step=-3, size=5, to=int64)
        yield ok(start=0, step=1, size=0, to=as_dtype("float32"))
        yield bad(start=0, step=1, size=2, to=as_dtype("bool"), match="bool", error=DTypeError)


@public
def arange(
    start: complex | Dim,
    /,
    stop: complex | Dim | None = None,
    step: float = 1,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
) -> Tensor:
    """Count from `start` up to, and not including, `stop`.  -> [ceil((stop - start) / step)]

    With one number it is the stop, and the count starts at 0. Start and stop may be symbolic dims
    where the step is an int. Ints and dims give int64, floats the default dtype.

    Raises:
        ArgumentError: The step is 0, or not an int where a symbolic dim needs it to be.
        DTypeError: The numbers don't fit the dtype.

    >>> import graphfw as gf
    >>> gf.arange(5)
    Tensor([0, 1, 2, 3, 4], dtype=int64)
    >>> with gf.Graph():
    ...     gf.arange(gf.placeholder(("batch",), name="x").shape[0]).shape
    (batch,)
    """
    check_device("arange", device)
    first, last = (0, start) if stop is None else (start, stop)
    numbers = [_number(x) for x in (first, last, step)]
    is_float = any(isinstance(x, float) for x in numbers)
    to = dtype_or(dtype, ambient.get_default_dtype() if is_float else int64)
    demand(numbers[2] != 0, "arange: step=0", fix="use gf.full for one number many times")
    whole = [int(x) if isinstance(x, float) and x.is_integer() else x for x in numbers]
    if any(isinstance(x, float) for x in whole):
        return constant(_float_range(whole, to))
    begin, end, stride = whole
    if isinstance(stride, Dim):
        raise ArgumentError(
            f"arange: step={stride}: whether it is positive is not known until the graph runs",
            fix=_SCALED_FIX,
        )
    distance = end - begin if stride > 0 else begin - end
    size = dim_max(0, (distance + abs(stride) - 1) // abs(stride))
    if isinstance(begin, int) and isinstance(size, int) and size:
        _check_ends(begin, begin + (size - 1) * stride, to)
    return emit(Arange(begin, stride, size, to))


@public
def positions(size: DimLike) -> Tensor:
    """Return the numbers 0 to size - 1, for a dim that there is.  -> [size]

    `arange` gives [max(n - 1, 0)] for n - 1, which does not fit a tensor whose dim is n - 1.
    """
    return emit(Arange(0, 1, size, int64))


_SCALED_FIX = "use gf.arange(size) * step"


def _number(x: Any) -> Any:
    """Return an int, a float or a dim; ints of other libraries become Python's."""
    if isinstance(x, (Dim, float)) and not isinstance(x, np.generic):
        return x
    if is_whole(x):
        return operator.index(x)
    if isinstance(x, (float, np.floating)):
        return float(x)
    raise ArgumentError(
        f"arange: {x!r} is not a real number",
        fix="count with ints, floats or dims; a tensor's values are not known until the graph runs",
    )


def _check_ends(first: float, last: float, to: DType) -> None:
    """See that an integer dtype, or one for storage, holds the numbers: it may have no infinity."""
    for number in (first, last):
        if to.is_integer or to.is_storage or (isinstance(number, int) and not _is_int64(number)):
            scalar_like("arange", number, to)


def _float_range(numbers: Sequence[Any], to: DType) -> np.ndarray[Any, Any]:
    """Count in steps that are no whole numbers: in float64, rounded once."""
    are_known = not any(isinstance(x, Dim) for x in numbers)
    message = f"arange: a size is among {numbers}, which are no whole numbers"
    demand(are_known, message, fix=_SCALED_FIX)
    message = f"arange: {numbers} does not fit {to.name}"
    has_fractions = to.is_inexact or to.holds_floats
    demand(has_fractions, message, fix="use a floating-point dtype", error=DTypeError)
    are_finite = all(map(math.isfinite, numbers))
    demand(are_finite, f"arange: {numbers} is not finite", fix="count between finite numbers")
    first, last, step = numbers
    require_room("arange", (last - first) / step)
    counted = np.arange(*numbers, dtype=np.float64)
    if counted.size:
        _check_ends(float(counted[0]), float(counted[-1]), to)
    return counted.astype(to.dtype)


@public
def linspace(
    start: complex | Tensor,
    stop: complex | Tensor,
    /,
    num: DimLike,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    endpoint: bool = True,
) -> Tensor:
    """Return evenly spaced numbers from `start` to `stop`, both exactly.  -> [num]

    `start` and `stop` are numbers or 0-d tensors, `num` may be a symbolic dim. Without `endpoint`
    the last number is one step before `stop`. The dtype is the default one (complex for complex
    numbers) or that of the tensors.

    Raises:
        ShapeError: `num` is negative.
        DTypeError: The dtype is not floating-point or complex.

    >>> import graphfw as gf
    >>> gf.linspace(0, 1, 5)
    Tensor([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    check_device("linspace", device)
    (size,) = dims_of("linspace", num)
    to = dtype_or(dtype, _inexact_of([as_tensor(start), as_tensor(stop)]))
    message = f"linspace: {to.name} is for storage alone: nothing is computed in it"
    fix = f'convert the result: gf.astype(gf.linspace(…), "{to.name}")'
    demand(not (to.is_storage and to.holds_floats), message, fix=fix, error=DTypeError)
    message = f"linspace: dtype={to.name} has no fractions"
    demand(to.is_inexact, message, fix="use gf.arange for integers", error=DTypeError)
    if isinstance(size, int) and not isinstance(start, Tensor) and not isinstance(stop, Tensor):
        require_room("linspace", size)
        return constant(np.linspace(start, stop, size, endpoint=endpoint).astype(to.dtype))
    first, last = asarray(start, dtype=to), asarray(stop, dtype=to)
    steps = dim_max(size - 1, 1) if endpoint else dim_max(size, 1)
    # Weighing both ends gives them back exactly, which start + i*step does not.
    fraction = converted(positions(size), to.real) / as_tensor(steps, to.real)
    weights = converted(fraction, to)
    spaced: Tensor = first * (1 - weights) + last * weights
    return spaced


def _inexact_of(tensors: Sequence[Tensor]) -> DType:
    """Return the dtype for numbers between these."""
    known = tuple(t.dtype for t in tensors if t.dtype.is_inexact)
    return promote_all(known) if known else ambient.get_default_dtype()


@public
def eye(
    n_rows: DimLike,
    n_cols: DimLike | None = None,
    /,
    *,
    k: int = 0,
    dtype: DTypeLike | None = None,
    device: str | None = None,
) -> Tensor:
    """Return ones on a diagonal and zeros elsewhere.  -> [n_rows, n_cols]

    Args:
        n_rows: The number of rows; it may be symbolic, as may n_cols.
        n_cols: The number of columns, that of rows by default.
        k: The diagonal: 0 is the main one, positive ones lie above it.
        dtype: The elements' type, the default dtype by default.
        device: None or "graph".

    Raises:
        ShapeError: A size is negative.
        DTypeError: The dtype has no 0.
    """
    check_device("eye", device)
    rows, columns = dims_of("eye", (n_rows, n_rows if n_cols is None else n_cols))
    to = dtype_or(dtype, ambient.get_default_dtype())
    if to.is_storage:
        scalar_like("eye", 0, to)  # which float8_e8m0fnu lacks
    is_one = _diagonal(rows, k) == positions(columns)
    return converted(is_one, to)


def _diagonal(rows: DimLike, k: int) -> Tensor:
    """Return the column of each row in which the k-th diagonal is.  -> [rows, 1]"""
    far = 2**62  # beyond any dim; the sum still fits int64
    return expand_dims(positions(rows) + max(-far, min(k, far)), axis=1)


@public
def tril(x: TensorLike, /, *, k: int = 0) -> Tensor:
    """Keep what is on and below the k-th diagonal, and set the rest to 0.  x: [*B, M, N] -> same

    Raises:
        ShapeError: x has fewer than two dims.
    """
    return _triangle("tril", as_tensor(x), k)


@public
def triu(x: TensorLike, /, *, k: int = 0) -> Tensor:
    """Keep what is on and above the k-th diagonal, and set the rest to 0.  x: [*B, M, N] -> same

    Raises:
        ShapeError: x has fewer than two dims.
    """
    return _triangle("triu", as_tensor(x), k)


def _triangle(name: str, x: Tensor, k: int) -> Tensor:
    demand(
        x.ndim >= 2,
        f"{name}: wants 2 dims or more, not {x.ndim}",
        {"x": x},
        fix="gf.expand_dims adds a dim",
        error=ShapeError,
    )
    diagonal = _diagonal(x.shape[-2], k)
    column = positions(x.shape[-1])
    keep = column <= diagonal if name == "tril" else column >= diagonal
    return F.where(keep, x, zeros((), dtype=x.dtype))
