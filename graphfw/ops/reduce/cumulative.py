"""Sums, products and extremes of all elements up to each, and differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from graphfw.errors import AxisError, DTypeError, counted
from graphfw.ir.build import emit
from graphfw.ir.concrete import describe
from graphfw.ir.dim import Dim
from graphfw.ir.dtype import DType, DTypeLike
from graphfw.ir.functions import F, public
from graphfw.ir.op import Case, Cost, Op, bad, ok, op
from graphfw.ir.shape import normalize_axis, require, shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape, TensorType
from graphfw.ops.args import TensorLike, as_tensor, promoted, ruled
from graphfw.ops.batching import along_axes
from graphfw.ops.composed import demand
from graphfw.ops.dtypes import compute_dtype, require_numeric, require_one_dtype, require_ordered
from graphfw.ops.reduce.reductions import accumulated

__all__ = ["cumulative_max", "cumulative_min", "cumulative_prod", "cumulative_sum", "diff"]


class Cumulative(Op):
    """The base of running sums and products along an axis.  x: [*A]  ->  [*A]

    `reverse` runs from the end; `exclusive` leaves the element itself out, so that the first
    result is that of nothing. The two make the family closed under differentiation.
    """

    axis: int
    reverse: bool = False
    exclusive: bool = False
    function: ClassVar[str]
    start: ClassVar[int]
    batch = along_axes

    def shape(self, x: Shape) -> Shape:
        normalize_axis(self.axis, len(x))
        return x

    def dtype(self, x: DType) -> DType:
        return require_numeric(x)

    def eval(self, xp: Any, x: Any) -> Any:
        run = getattr(xp, self.function)
        dtype = compute_dtype(xp, x.dtype)
        values = _from_start(xp, x, self.axis, self.reverse)
        result = xp.full(x.shape, self.start, dtype=dtype)
        target = _from_start(xp, result, self.axis, self.reverse)
        if self.exclusive:
            target[1:] = run(values[:-1], axis=0, dtype=dtype)
        else:
            target[...] = run(values, axis=0, dtype=dtype)
        return result.astype(x.dtype, copy=False)

    @staticmethod
    def cases() -> Iterator[Case]:
        for reverse in (False, True):
            for exclusive in (False, True):
                yield ok("float32[3, n]", axis=1, reverse=reverse, exclusive=exclusive)
        yield ok("float32[4, 2]", axis=0)
        yield ok("float32[2, 0]", axis=1, exclusive=True)
        yield ok("int32[5]", axis=0)
        yield ok("complex64[3]", axis=0)
        yield bad("float32[3]", axis=1, match="axis 1 is out of range for 1 dim")
        yield bad("bool[3]", axis=0, match="wants numeric tensors, not bool", error=DTypeError)


def _from_start(xp: Any, x: Any, axis: int, reverse: bool) -> Any:
    """Return a view with the axis in front, in the order in which it is walked."""
    lines = xp.moveaxis(x, axis, 0)
    return lines[::-1] if reverse else lines


@op("cumulative_sum")
class CumulativeSum(Cumulative):
    """The sum of the elements up to each."""

    function = "cumsum"
    start = 0
    linear = "jointly"

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        return (lambda: emit(CumulativeSum(self.axis, not self.reverse, self.exclusive), ct),)


@op("cumulative_prod")
class CumulativeProd(Cumulative):
    """The product of the elements up to each."""

    function = "cumprod"
    start = 1

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        return (lambda: self.gradient(ct, y, x),)

    def gradient(self, ct: Tensor, y: Tensor, x: Tensor) -> Tensor:
        """Return the gradient without dividing by x, which may be 0.

        With p[t] the product of what comes before t, dy[i]/dx[t] is p[t] times the product of what
        lies between t and i; the sum of ct[i] times the latter is a recurrence from the other end.
        """
        factor = F.conj(x)
        back = Recurrence(self.axis, not self.reverse)
        if self.exclusive:
            before, after = y, emit(back, factor, ct)
        else:
            before = emit(CumulativeProd(self.axis, self.reverse, exclusive=True), x)
            after = ct + emit(back, factor, factor * ct)
        result: Tensor = after * F.conj(before)
        return result


@op("recurrence")
class Recurrence(Op):
    """The state before each step of h -> a*h + b, from 0.  a: [*A]  b: [*A]  ->  [*A]

    y[0] = 0, y[t+1] = a[t]*y[t] + b[t] along the axis; `reverse` runs from the end. Its gradient
    is another recurrence, so that running products have gradients of any order.
    """

    axis: int
    reverse: bool = False
    batch = along_axes

    def shape(self, a: Shape, b: Shape) -> Shape:
        message = f"wants one shape, not {shape_text(a)} and {shape_text(b)}"
        require(a == b, message, fix="broadcast both first")
        normalize_axis(self.axis, len(a))
        return a

    def dtype(self, a: DType, b: DType) -> DType:
        require_one_dtype(a, b)
        return require_numeric(a)

    def eval(self, xp: Any, a: Any, b: Any) -> Any:
        result = xp.zeros(a.shape, dtype=compute_dtype(xp, a.dtype))
        factors, terms, states = (
            _from_start(xp, v, self.axis, self.reverse) for v in (a, b, result)
        )
        # Step by step: doubling would need fewer calls, but makes inf*0 where this has 0.
        for t in range(len(states) - 1):
            states[t + 1] = factors[t] * states[t] + terms[t]
        return result.astype(a.dtype, copy=False)

    def vjp(self, ct: Tensor, y: Tensor, a: Tensor, b: Tensor) -> tuple[Any, ...]:
        def for_b() -> Tensor:
            return emit(Recurrence(self.axis, not self.reverse), F.conj(a), ct)

        return (lambda: for_b() * F.conj(y), for_b)

    def cost(self, outputs: tuple[TensorType, ...], *inputs: TensorType) -> Cost:
        return super().cost(outputs, *inputs)._replace(flops=2 * outputs[0].size)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[3, n]", "float32[3, n]", axis=1)
        yield ok("float32[4, 2]", "float32[4, 2]", axis=0, reverse=True)
        yield ok("float32[0]", "float32[0]", axis=0)
        yield ok("complex64[3]", "complex64[3]", axis=0)
        yield bad("float32[3]", "float32[1]", axis=0, match="wants one shape")
        yield bad("float32[3]", "float32[3]", axis=1, match="axis 1 is out of range")
        yield bad("bool[3]", "bool[3]", axis=0, match="wants numeric tensors", error=DTypeError)


@public
def product_of_others(x: Tensor, axis: int) -> Tensor:
    """For each element return the product of all others along an axis: the gradient of `prod`."""
    before = emit(CumulativeProd(axis, exclusive=True), x)
    return before * emit(CumulativeProd(axis, reverse=True, exclusive=True), x)


@public
def cumulative_sum(
    x: TensorLike,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
) -> Tensor:
    """Add up all elements up to each along an axis.  x: [*A] -> [*A]

    Numeric or bool; small integers and bools are summed as int64 (unsigned as uint64), float16 and
    bfloat16 accumulate in float32.

    Args:
        x: What to add up.
        axis: Along which dim; may be left out where there is one only.
        dtype: What to convert to first.
        include_initial: Whether to begin with 0, the sum of nothing: one element more.

    Raises:
        AxisError: There is no such axis, or none is given for a tensor of several dims.

    >>> import graphfw as gf
    >>> gf.cumulative_sum(gf.asarray([1, 2, 3]), include_initial=True)
    Tensor([0, 1, 3, 6], dtype=int64)
    """
    return _cumulative(CumulativeSum, x, axis, dtype, include_initial)


@public
def cumulative_prod(
    x: TensorLike,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
) -> Tensor:
    """Multiply all elements up to each along an axis.  x: [*A] -> [*A]

    As `cumulative_sum`; the product of nothing is 1. Gradients are right where elements are 0, too.

    Raises:
        AxisError: There is no such axis, or none is given for a tensor of several dims.

    >>> import graphfw as gf
    >>> gf.cumulative_prod(gf.asarray([2, 3, 4]))
    Tensor([ 2,  6, 24], dtype=int64)
    """
    return _cumulative(CumulativeProd, x, axis, dtype, include_initial)


@public
def cumulative_max(x: TensorLike, /, *, axis: int | None = None) -> Tensor:
    """Take the largest of all elements up to each along an axis.  x: [*A] real -> [*A]

    From a NaN on the result is NaN. Elements that tie share the gradient.

    Args:
        x: What to look through.
        axis: Along which dim; may be left out where there is one only.

    Raises:
        AxisError: There is no such axis, or none is given for a tensor of several dims.
        DTypeError: The tensor is bool or complex.

    >>> import graphfw as gf
    >>> gf.cumulative_max(gf.asarray([1, 3, 2, 5]))
    Tensor([1, 3, 3, 5], dtype=int64)
    """
    return _extremes("cumulative_max", F.maximum, x, axis)


@public
def cumulative_min(x: TensorLike, /, *, axis: int | None = None) -> Tensor:
    """Take the smallest of all elements up to each along an axis.  x: [*A] real -> [*A]

    Otherwise as `cumulative_max`.

    Raises:
        AxisError, DTypeError: As `cumulative_max`.

    >>> import graphfw as gf
    >>> gf.cumulative_min(gf.asarray([3, 4, 1, 2]))
    Tensor([3, 3, 1, 1], dtype=int64)
    """
    return _extremes("cumulative_min", F.minimum, x, axis)


def _extremes(
    name: str, better: Callable[[Tensor, Tensor], Tensor], x: TensorLike, axis: int | None
) -> Tensor:
    tensor = as_tensor(x)
    axis_index = _only_axis(name, tensor, axis)
    ruled(name, tensor, require_ordered, tensor.dtype)
    result: Tensor = F.associative_scan(better, tensor, axis=axis_index)
    return result


def _cumulative(
    cls: type[Cumulative],
    x: TensorLike,
    axis: int | None,
    dtype: DTypeLike | None,
    include_initial: bool,
) -> Tensor:
    tensor = as_tensor(x)
    axis_index = _only_axis(cls.name, tensor, axis)
    result = emit(cls(axis_index), accumulated(tensor, dtype))
    if not include_initial:
        return result
    edge = (*tensor.shape[:axis_index], 1, *tensor.shape[axis_index + 1 :])
    first = F.broadcast_to(as_tensor(cls.start, result.dtype), edge)
    return F.concat([first, result], axis=axis_index)


def _only_axis(name: str, x: Tensor, axis: int | None) -> int:
    """Return an axis counted from the front, which may be left out where there is one only."""
    if axis is None and x.ndim > 1:
        raise AxisError(
            f"{name}: along which of the {counted(x.ndim, 'dim')} is not said",
            operands=[describe("x", x)],
            fix="pass axis=",
        )
    return ruled(name, x, normalize_axis, axis or 0, x.ndim)


@public
def diff(
    x: TensorLike,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: TensorLike | None = None,
    append: TensorLike | None = None,
) -> Tensor:
    """Subtract from each element the one before it along an axis, n times.

    x: [*B, N, *C] -> [*B, N - n, *C], or 0 instead of a negative size. Numeric dtypes.

    Args:
        x: What to take differences of.
        axis: Along which dim.
        n: How many times.
        prepend: What to put in front of x first: a scalar, or a tensor with x's dims except `axis`.
        append: What to put after x.

    Raises:
        AxisError: There is no such axis.
        ArgumentError: `n` is negative.
        DTypeError: The tensor is bool.

    >>> import graphfw as gf
    >>> gf.diff(gf.asarray([1, 4, 9, 16]), prepend=0)
    Tensor([1, 3, 5, 7], dtype=int64)
    """
    tensor = as_tensor(x)
    axis_index = ruled("diff", tensor, normalize_axis, axis, tensor.ndim)
    demand(n >= 0, f"diff: n is {n}, and must be 0 or more", {"x": tensor}, fix="use n=1")
    ruled("diff", tensor, require_numeric, tensor.dtype)
    pieces = [piece for piece in (prepend, tensor, append) if piece is not None]
    if len(pieces) > 1:
        edge = (*tensor.shape[:axis_index], 1, *tensor.shape[axis_index + 1 :])
        tensors = [
            F.broadcast_to(piece, edge) if piece.ndim == 0 else piece
            for piece in promoted("diff", *pieces)
        ]
        tensor = F.concat(tensors, axis=axis_index)
    before = (slice(None),) * axis_index
    size = tensor.shape[axis_index]
    for _ in range(n if isinstance(size, Dim) else min(n, size)):  # of nothing there are none
        tensor = tensor[(*before, slice(1, None))] - tensor[(*before, slice(None, -1))]
    return tensor
