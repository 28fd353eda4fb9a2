"""Reductions of what sliding windows see, for pooling, and what their gradients take."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from graphfw.errors import DTypeError, counted
from graphfw.ir.build import emit, emit_all
from graphfw.ir.dim import DimLike, always_le
from graphfw.ir.dtype import DType, as_dtype, int64
from graphfw.ir.functions import F
from graphfw.ir.op import NONDIFF, Case, Cost, bad, ok, op
from graphfw.ir.shape import require, shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape, TensorType
from graphfw.ops.batching import MappedAxis, Outputs
from graphfw.ops.dtypes import (
    compute_dtype,
    least,
    require_indices,
    require_numeric,
    require_ordered,
)
from graphfw.ops.fusible import FusiblePool
from graphfw.ops.nn.unfold import SAMPLE, FoldWindows, Windowed
from graphfw.ops.nn.window import Pairs

_PADDED: dict[str, Any] = {**SAMPLE, "before": (2,), "after": (1,)}


class Padded(Windowed):
    """The base of ops whose windows reach beyond x, where they see what changes nothing.

    Attributes:
        before: How far they reach, before the first element of each dim.
        after: How far they reach after the last.
    """

    before: tuple[DimLike, ...]
    after: tuple[DimLike, ...]

    @property
    def pairs(self) -> Pairs:
        """The padding before and after each dim."""
        return tuple(zip(self.before, self.after, strict=True))

    def check(self, x: Shape) -> tuple[Shape, Shape]:
        rank = len(self.window)
        message = (
            f"a window of {counted(rank, 'dim')} needs as many numbers of elements before and after"
        )
        fits = len(self.before) == len(self.after) == rank
        require(fits, message, fix="give one int for each dim")
        for reach in (*self.before, *self.after):
            require(not always_le(reach, -1), f"a window can't reach {reach} beyond", fix="use 0")
        return super().check(x)

    def wider(self, sizes: Shape) -> Shape:
        """Return the sizes of all that the windows see."""
        return tuple([window.padded for window in self.windows(sizes)])

    @property
    def reaches(self) -> bool:
        """Whether windows see anything but x."""
        return self.pairs != ((0, 0),) * len(self.window)

    def widened(self, xp: Any, x: Any, value: Any) -> Any:
        """Return an array of all that the windows see, with a value outside of x."""
        if not self.reaches:
            return x
        pairs = [(0, 0)] * (x.ndim - len(self.window)) + list(self.pairs)
        return xp.pad(x, pairs, constant_values=value)

    def inside(self, x: Any, sizes: Shape) -> Any:
        """Return of all that the windows see what is x."""
        if not self.reaches:
            return x
        ends = zip(self.before, sizes, strict=True)
        return x[(..., *[slice(before, before + size) for before, size in ends])]


class WindowReduction(Padded):
    """The base of ops that reduce what a window sees.  x: [*B, *S]  ->  [*B, *P]"""

    def shape(self, x: Shape) -> Shape:
        return self.output_shape(x)

    def cost(self, outputs: tuple[TensorType, ...], *inputs: TensorType) -> Cost:
        flops = outputs[0].size * math.prod(self.window)
        return super().cost(outputs, *inputs)._replace(flops=flops)

    def neutral(self, dtype: DType) -> float | int:
        """Return the number that windows have outside of x."""
        return 0

    def seen(self, xp: Any, x: Any) -> Iterator[Any]:
        """Yield each element of the window, at all positions, as what is computed with."""
        values = x.astype(compute_dtype(xp, x.dtype), copy=False)
        values = self.widened(xp, values, self.neutral(as_dtype(x.dtype)))
        output_sizes = self.output_sizes(x.shape[x.ndim - len(self.window) :])
        for _, key in self.taps(output_sizes):
            yield values[key]


def _samples(of_bools: str) -> Iterator[Case]:
    """Yield samples for contract tests, and what is said of bools."""
    yield ok("float32[2, n]", **_PADDED)
    yield ok("float32[5, 7]", window=(2, 3), strides=(2, 1), dilations=(1, 2), **_none(2))
    yield ok(
        "int32[2, 3, 3, 2]",
        window=(1, 3, 2),
        strides=(1, 1, 3),
        dilations=(1, 1, 1),
        before=(0, 1, 0),
        after=(1, 0, 1),
    )
    yield bad(
        "float32[5]", window=(2, 2), strides=(1, 1), dilations=(1, 1), **_none(2), match="over 1"
    )
    yield bad("float32[5]", **SAMPLE, **_none(2), match="numbers of elements before")
    yield bad("bool[5]", **_PADDED, match=of_bools, error=DTypeError)


def _none(rank: int) -> dict[str, Any]:
    return {"before": (0,) * rank, "after": (0,) * rank}


@op("window_sum")
class WindowSum(WindowReduction):
    """The sum of what a window sees at each position.  x: [*B, *S]  ->  [*B, *P]"""

    linear = "jointly"

    def dtype(self, x: DType) -> DType:
        return require_numeric(x)

    def eval(self, xp: Any, x: Any) -> Any:
        first, *others = self.seen(xp, x)
        total = xp.array(first)
        for values in others:
            total += values
        return total.astype(x.dtype, copy=False)

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        lead = x.ndim - len(self.window)
        sizes = x.shape[lead:]
        back = FoldWindows(self.window, self.strides, self.dilations, self.wider(sizes))
        ones = (*ct.shape[:lead], *[1] * len(self.window), *ct.shape[lead:])
        full = (*ct.shape[:lead], *self.window, *ct.shape[lead:])
        return (lambda: self.inside(emit(back, F.broadcast_to(F.reshape(ct, ones), full)), sizes),)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield from _samples("wants numeric")
        yield ok("complex64[4]", **_PADDED)


class WindowChoice(WindowReduction):
    """The base of what finds the largest: the first of those that tie, or a NaN if there is one."""

    mixed_precision = "follows"

    def dtype(self, x: DType) -> DType:
        return require_ordered(x)

    def neutral(self, dtype: DType) -> float | int:
        return least(dtype)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield from _samples("wants real")


@op("window_max")
class WindowMax(WindowChoice, FusiblePool):
    """The largest that a window sees at each position.  x: [*B, *S]  ->  [*B, *P]"""

    def eval(self, xp: Any, x: Any) -> Any:
        first, *others = self.seen(xp, x)
        largest = xp.array(first)
        for values in others:
            xp.maximum(largest, values, out=largest)
        return largest.astype(x.dtype, copy=False)

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        def gradient() -> Tensor:
            number = emit(WindowArgmax(*self.values), x)
            dims = x.shape[x.ndim - len(self.window) :]
            return emit(WindowPut(*[*self.values, dims]), ct, number)

        return (gradient,)


@op("window_argmax")
class WindowArgmax(WindowChoice):
    """The number of a window's largest element, counted in order.  x: [*B, *S]  ->  [*B, *P]"""

    vjp = NONDIFF

    def dtype(self, x: DType) -> DType:
        require_ordered(x)
        return int64

    def eval(self, xp: Any, x: Any) -> Any:
        first, *others = self.seen(xp, x)
        largest = xp.array(first)
        kind = xp.uint8 if len(others) < 256 else xp.int64
        position = xp.zeros(largest.shape, kind)
        for number, values in enumerate(others, 1):
            better = (values > largest) | (values != values)  # of several NaNs the last
            xp.maximum(largest, values, out=largest)
            xp.maximum(position, better * kind(number), out=position)  # numbers only grow
        return position.astype(xp.int64, copy=False)


def _only(mask: Any, values: Any) -> Any:
    """Return values where the mask is true, else 0: as bits, much faster than with `where`."""
    bits = f"i{values.dtype.itemsize}"
    return (values.view(bits) & -mask.astype(bits)).view(values.dtype)


@op("window_take")
class WindowTake(Padded):
    """The element of a number at each position.  x: [*B, *S]  number: [*B, *P]  ->  [*B, *P]

    Outside of x it is 0.
    """

    linear = "jointly"
    mixed_precision = "follows"

    def shape(self, x: Shape, number: Shape) -> Shape:
        output_sizes = self.output_shape(x)
        message = f"there must be a number for each position, {shape_text(output_sizes)}"
        require(number == output_sizes, message, fix="use what window_argmax returns")
        return output_sizes

    def dtype(self, x: DType, number: DType) -> DType:
        require_indices(number)
        return require_ordered(x)

    def eval(self, xp: Any, x: Any, number: Any) -> Any:
        taken, x = xp.zeros(number.shape, x.dtype), self.widened(xp, x, 0)
        for tap, (_, key) in enumerate(self.taps(number.shape[x.ndim - len(self.window) :])):
            taken += _only(number == tap, x[key])
        return taken

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor, number: Tensor) -> tuple[Any, ...]:
        dims = x.shape[x.ndim - len(self.window) :]
        back = WindowPut(*[*self.values, dims])
        return (lambda: emit(back, ct, number), None)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[2, 5]", "int64[2, 6]", ints=(0, 2), **_PADDED)
        yield ok("float32[0, 5]", "int64[0, 3]", ints=(0, 2), **SAMPLE, **_none(1))
        yield ok(
            "float32[5, 7]",
            "int32[2, 3]",
            window=(2, 3),
            strides=(2, 1),
            dilations=(1, 2),
            **_none(2),
            ints=(0, 6),
        )
        yield bad("float32[5]", "int32[2]", match="a number for each position, \\[6\\]", **_PADDED)
        yield bad("float32[5]", "float32[6]", match="integers", error=DTypeError, **_PADDED)


@op("window_put")
class WindowPut(Padded):
    """x added up where the elements of the numbers lie.  x, number: [*B, *P]  ->  [*B, *dims]

    What lies outside goes nowhere.
    """

    dims: Shape
    linear = "jointly"

    def shape(self, x: Shape, number: Shape) -> Shape:
        self.check(self.dims)
        output_sizes = self.output_sizes(self.dims)
        lead = len(x) - len(output_sizes)
        fits = x == number and lead >= 0 and x[lead:] == output_sizes
        message = f"both must end in the positions, {shape_text(output_sizes)}"
        require(fits, message, fix="use what window_argmax returns")
        return (*x[:lead], *self.dims)

    def dtype(self, x: DType, number: DType) -> DType:
        require_indices(number)
        return require_ordered(x)

    def eval(self, xp: Any, x: Any, number: Any) -> Any:
        rank = len(self.window)
        values = x.astype(compute_dtype(xp, x.dtype), copy=False)
        total = xp.zeros((*x.shape[: x.ndim - rank], *self.wider(self.dims)), values.dtype)
        for tap, (_, key) in enumerate(self.taps(x.shape[x.ndim - rank :])):
            total[key] += _only(number == tap, values)
        return xp.ascontiguousarray(self.inside(total, self.dims).astype(x.dtype, copy=False))

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor, number: Tensor) -> tuple[Any, ...]:
        forward = WindowTake(*self.values[:-1])
        return (lambda: emit(forward, ct, number), None)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[n, 6]", "int64[n, 6]", dims=(5,), ints=(0, 2), **_PADDED)
        yield ok("int32[3]", "int8[3]", dims=(5,), ints=(0, 2), **SAMPLE, **_none(1))
        yield bad("float32[2]", "int64[2]", dims=(5,), match="end in the positions", **_PADDED)
        bools: dict[str, Any] = {"dims": (5,), "match": "wants real", "error": DTypeError}
        yield bad("bool[6]", "int64[6]", **bools, **_PADDED)


@op("window_relu_sum")
class WindowReluSum(Padded, FusiblePool):
    """The sum of relu(x + y) over what a window sees.  x: [N, C, *S]  y: [C]  ->  [N, C, *P]

    It is what sums over windows become that are computed with the convolution before them.
    """

    vjp = NONDIFF

    def shape(self, x: Shape, y: Shape) -> Shape:
        output_sizes = self.output_shape(x)
        fits = len(x) == len(self.window) + 2 and y == x[1:2]
        require(fits, "y must be one for each channel of x, [N, C, *S]", fix="give y [C]")
        return output_sizes

    def dtype(self, x: DType, y: DType) -> DType:
        require(x is y, "x and y must be of one dtype", fix="convert y", error=DTypeError)
        return require_ordered(x)

    def eval(self, xp: Any, x: Any, y: Any) -> Any:
        shifted = xp.add(x, y.reshape(-1, *[1] * len(self.window)))
        return WindowSum(*self.values).eval(xp, xp.maximum(shifted, x.dtype.type(0)))

    def batch(self, mapped: MappedAxis, batched: Sequence[bool], *xs: Tensor) -> Outputs:
        x, y = xs
        before = (mapped.size, 1) if batched[1] else ()
        shifted = x + F.reshape(y, (*before, *y.shape[-1:], *[1] * len(self.window)))
        return emit_all(WindowSum(*self.values), F.relu(shifted))

    def cost(self, outputs: tuple[TensorType, ...], *inputs: TensorType) -> Cost:
        flops = outputs[0].size * math.prod(self.window) + 2 * inputs[0].size
        return super().cost(outputs, *inputs)._replace(flops=flops)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[2, n, 5]", "float32[n]", **_PADDED)
        yield ok("float32[1, 2, 5]", "float32[2]", **SAMPLE, **_none(1))
        yield bad("float32[2, 3, 5]", "float32[2]", match="one for each channel", **_PADDED)
        one: dict[str, Any] = {"match": "of one dtype", "error": DTypeError}
        yield bad("float32[2, 3, 5]", "float64[3]", **one, **_PADDED)


@op("window_route")
class WindowRoute(Padded):
    """x where the largest element of each window of y lies.  x: [*B, *P]  y: [*B, *S]  ->  y's

    It is `window_put` of the numbers that `window_argmax` finds in y.
    """

    vjp = NONDIFF

    def shape(self, x: Shape, y: Shape) -> Shape:
        output_sizes = self.output_shape(y)
        message = f"x must be one for each position, {shape_text(output_sizes)}"
        require(x == output_sizes, message, fix="give what window_max would return")
        return y

    def dtype(self, x: DType, y: DType) -> DType:
        require_ordered(y)
        return require_ordered(x)

    def eval(self, xp: Any, x: Any, y: Any) -> Any:
        number = WindowArgmax(*self.values).eval(xp, y)
        dims = y.shape[y.ndim - len(self.window) :]
        return WindowPut(*[*self.values, dims]).eval(xp, x, number)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[n, 6]", "float32[n, 5]", **_PADDED)
        yield ok("float32[3]", "float32[5]", **SAMPLE, **_none(1))
        yield bad("float32[2]", "float32[5]", match="one for each position, \\[6\\]", **_PADDED)
        yield bad("float32[6]", "bool[5]", match="wants real", error=DTypeError, **_PADDED)
