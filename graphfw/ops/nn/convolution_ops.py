"""The sums of products that convolutions are made of, over any number of spatial dims.

One relation ties an element i of x, k of the kernel and p of the result, in each spatial dim:

    p * stride + k * dilation - before == i * spread

A convolution adds up x[i] weight[k] for each p; what the weights' gradient adds up for each k, and
x's for each i, are the same products. With the kernel reversed, stride and spread exchange their
roles, so x's gradient is a convolution again. There is no padding: what lies outside is 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from graphfw.errors import DTypeError, counted
from graphfw.ir.build import emit
from graphfw.ir.dim import DimLike, divisible
from graphfw.ir.dtype import DType
from graphfw.ir.functions import F
from graphfw.ir.op import Case, Cost, Op, bad, ok, op
from graphfw.ir.shape import require, size_of
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape, TensorType
from graphfw.ops.batching import MappedAxis, changed
from graphfw.ops.dtypes import compute_dtype, require_numeric, require_one_dtype
from graphfw.ops.fusible import FusibleProduct

BLOCK = 2**20
"""The most elements that are laid out at a time: 4 MB, which a cache holds."""


class Correlation(Op):
    """The base of the two sums of products over a sliding window.

    Attributes:
        output_sizes: The spatial sizes of the result.
        before: How far before x's first element the window begins.
        strides: How far the window moves.
        dilations: How far the kernel's elements are apart.
        input_dilations: How far x's elements are apart.
        groups: Into how many groups the channels of both sides are divided; each sees its own.
    """

    output_sizes: tuple[DimLike, ...]
    before: tuple[DimLike, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    input_dilations: tuple[int, ...]
    groups: DimLike = 1
    earlier_fields: ClassVar[dict[str, str]] = {
        "places": "output_sizes",
        "spreads": "input_dilations",
    }
    linear = "each"
    mixed_precision = "narrow"

    def dtype(self, x: DType, other: DType) -> DType:
        require_one_dtype(x, other)
        return require_numeric(x)

    def check(self, *shapes: Shape) -> None:
        """See that the operands have the dims that the fields speak of."""
        rank = len(self.output_sizes)
        for operand, shape in enumerate(shapes, 1):
            message = f"operand {operand} must have {counted(rank + 2, 'dim')}, not {len(shape)}"
            require(len(shape) == rank + 2, message, fix="give channels and spatial dims to both")
        for number in (*self.strides, *self.dilations, *self.input_dilations):
            require(number > 0, f"a step can't be {number}", fix="use 1 or more")

    def grouped(self, channels: DimLike) -> DimLike:
        """Return how many of the channels each group has."""
        message = (
            f"{counted(channels, 'channel')} don't divide into {counted(self.groups, 'group')}"
        )
        fits = channels == self.groups or divisible(channels, self.groups) is not False
        require(fits, message, fix=f"use a multiple of {self.groups}")
        return 1 if channels == self.groups else channels // self.groups

    def taps(self, kernel: Shape, source: Shape, result: Shape) -> Iterator[tuple[Any, ...]]:
        """Yield each position of the kernel with what it ties: slices of the result, and of x."""
        facts = list(
            zip(
                result,
                source,
                self.strides,
                self.dilations,
                self.input_dilations,
                self.before,
                strict=True,
            )
        )
        for tap in itertools.product(*[range(size) for size in kernel]):
            pairs = [
                tied(p, i, k * dilation - before, stride, spread)
                for k, (p, i, stride, dilation, spread, before) in zip(tap, facts, strict=True)
            ]
            yield tap, tuple([p for p, _ in pairs]), tuple([i for _, i in pairs])

    def backward(self, y: Tensor, weight: Tensor, sizes: Shape) -> Tensor:
        """Return for each position of x what the results that it is part of have in y."""
        before = self.before_reversed(weight.shape[2:])
        reverse = Conv(
            sizes, before, self.input_dilations, self.dilations, self.strides, self.groups
        )
        return emit(reverse, y, reversed_weight(weight, self.groups))

    def before_reversed(self, kernel: Shape) -> tuple[DimLike, ...]:
        """Return the padding before the first element in the convolution of the gradient."""
        facts = zip(self.dilations, kernel, self.before, strict=True)
        return tuple([dilation * (size - 1) - before for dilation, size, before in facts])

    def products(self, outputs: DimLike, per_output: DimLike) -> DimLike:
        """Return how many operations as many sums of products take: zeros between don't count."""
        return 2 * outputs * per_output // math.prod(self.input_dilations)


def tied(results: int, sources: int, offset: int, stride: int, spread: int) -> tuple[slice, slice]:
    """Return slices of the p and i with p * stride + offset == i * spread, p and i in range."""
    common = math.gcd(stride, spread)
    step, source_step = spread // common, stride // common
    if offset % common:
        return slice(0, 0), slice(0, 0)
    first = -(offset // common) * pow(source_step, -1, step) % step
    source = (first * stride + offset) // spread
    skipped = max(-(source // source_step), 0)
    first, source = first + skipped * step, source + skipped * source_step
    count = min((results - 1 - first) // step, (sources - 1 - source) // source_step) + 1
    if count <= 0:
        return slice(0, 0), slice(0, 0)
    return (
        slice(first, first + (count - 1) * step + 1, step),
        slice(source, source + (count - 1) * source_step + 1, source_step),
    )


def reversed_weight(weight: Tensor, groups: DimLike) -> Tensor:
    """Return the weight of the way back: [O, C/G, *K] -> [C, O/G, *K], reversed in all of K."""
    kernel, each_has = weight.shape[2:], weight.shape[1]
    flipped = [axis for axis, size in enumerate(kernel, 2) if size != 1]
    weight = F.flip(weight, axis=flipped)
    if groups == 1:
        return F.swapaxes(weight, 0, 1)
    split = F.reshape(weight, (groups, _parted(weight.shape[0], groups), each_has, *kernel))
    return F.reshape(F.swapaxes(split, 1, 2), (groups * each_has, split.shape[1], *kernel))


def _parted(channels: DimLike, groups: DimLike) -> DimLike:
    return 1 if channels == groups else channels // groups


# Examples of gf.vmap become channels: those of one group side by side, or each example a group.


def _inside(x: Tensor, axis: int, groups: DimLike) -> Tensor:
    """Move examples into the channels, inside of each group.  [L, *A, C, *B] -> [*A, L*C, *B]"""
    mapped, channels = x.shape[0], x.shape[axis + 1]
    dims = (*x.shape[: axis + 1], groups, _parted(channels, groups), *x.shape[axis + 2 :])
    moved = F.moveaxis(F.reshape(x, dims), 0, axis + 1)
    return F.reshape(moved, (*x.shape[1 : axis + 1], mapped * channels, *x.shape[axis + 2 :]))


def _outside(x: Tensor, axis: int, groups: DimLike, mapped: DimLike) -> Tensor:
    """Take examples out of the channels again: the reverse of `_inside`."""
    channels = _parted(x.shape[axis], mapped)
    dims = (*x.shape[:axis], groups, mapped, _parted(channels, groups), *x.shape[axis + 1 :])
    moved = F.moveaxis(F.reshape(x, dims), axis + 1, 0)
    return F.reshape(moved, (mapped, *x.shape[:axis], channels, *x.shape[axis + 1 :]))


@op("conv")
class Conv(Correlation, FusibleProduct):
    """Sums of products over windows.  x: [N, C, *S]  weight: [O, C/G, *K]  ->  [N, O, *P]"""

    columns = 2

    def shape(self, x: Shape, weight: Shape) -> Shape:
        self.check(x, weight)
        fits = x[1] == self.groups * weight[1]
        message = f"x has {counted(x[1], 'channel')}, and the weight takes {weight[1]} in each of"
        fix = f"use a weight [O, {self.grouped(x[1])}, *K]"
        require(fits, f"{message} {counted(self.groups, 'group')}", [(0, 1), (1, 1)], fix)
        self.grouped(weight[0])
        return (x[0], weight[0], *self.output_sizes)

    def eval(self, xp: Any, x: Any, weight: Any) -> Any:
        batch, space, kernel = x.shape[0], x.shape[2:], weight.shape[2:]
        if 0 in (batch, weight.shape[0], *self.output_sizes):  # so, too, if gf.vmap has no examples
            return xp.zeros((batch, weight.shape[0], *self.output_sizes), x.dtype)
        dtype, groups = compute_dtype(xp, x.dtype), self.groups
        source = _by_group(xp, x, groups)
        result = xp.zeros((batch, groups, weight.shape[0] // groups, *self.output_sizes), dtype)
        # Either the elements that the windows see are laid out, or what each element contributes.
        if math.prod(self.output_sizes) <= math.prod(space):
            add, rows_of, line = _gather, _rows, x.shape[1] * math.prod(self.output_sizes)
        else:
            add, rows_of, line = _scatter, _stacked_rows, weight.shape[0] * math.prod(space)
        taps = list(self.taps(kernel, space, self.output_sizes))
        together, block = _block(line, len(taps))
        # [G, O/G, C/G, T]
        flat = weight.astype(dtype).reshape(*result.shape[1:3], weight.shape[1], len(taps))
        blocks = [
            (taps[i : i + together], rows_of(xp, flat[..., i : i + together]))
            for i in range(0, len(taps), together)
        ]
        for start in range(0, batch, block):
            some = source[:, :, start : start + block].astype(dtype, copy=False)
            total = xp.moveaxis(result[start : start + block], 0, 2)
            for own, rows in blocks:
                add(xp, some, rows, own, total)
        return result.reshape(batch, weight.shape[0], *self.output_sizes).astype(
            x.dtype, copy=False
        )

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor, weight: Tensor) -> tuple[Any, ...]:
        back = ConvWeight(weight.shape[2:], *self.values[1:])
        return (
            lambda: self.backward(ct, F.conj(weight), x.shape[2:]),
            lambda: emit(back, F.conj(x), ct),
        )

    def batch(
        self, mapped: MappedAxis, batched: Sequence[bool], x: Tensor, weight: Tensor
    ) -> Tensor:
        if not batched[1]:  # examples are but more of N
            y = emit(self, F.flatten(x, 0, 1), weight)
            return F.reshape(y, (*x.shape[:2], *y.shape[1:]))
        if not batched[0]:
            y = emit(self, x, _inside(weight, 0, self.groups))
            return _outside(y, 1, self.groups, mapped.size)
        apart = changed(self, groups=mapped.size * self.groups)
        y = emit(apart, _inside(x, 1, 1), _inside(weight, 0, 1))
        return _outside(y, 1, 1, mapped.size)

    def cost(self, outputs: tuple[TensorType, ...], *inputs: TensorType) -> Cost:
        flops = self.products(outputs[0].size, size_of(inputs[1].shape[1:]))
        return super().cost(outputs, *inputs)._replace(flops=flops)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[n, 3, 7]", "float32[4, 3, 3]", **_facts((3,), 1, 2, 1, 1, 1))
        yield ok("float32[2, 4, 6, s]", "float32[6, 2, 2, 3]", **_facts((3, 4), 1, 2, 2, 1, 2))
        yield ok("float32[2, 3, 3, 2]", "float32[3, 1, 2, 3]", **_facts((7, 4), 1, 1, 1, 2, 3))
        yield ok("float32[1, 2, 5]", "float32[2, 2, 3]", **_facts((6,), -1, 2, 1, 3, 1))
        yield ok("float32[2, 2, 3, 2, 2]", "float32[1, 2, 2, 1, 2]", **_facts((2, 2, 1), 0, 1))
        yield ok("complex64[1, 2, 4]", "complex64[2, 2, 3]", **_facts((4,), 1, 1))
        yield ok("int32[1, 1, 4]", "int32[1, 1, 2]", **_facts((3,), 0, 1))
        yield bad(
            "float32[1, 3, 4]",
            "float32[2, 2, 3]",
            **_facts((2,), 0, 1),
            match="x has 3 channels, and the weight takes 2",
        )
        yield bad(
            "float32[1, 4, 4]",
            "float32[3, 2, 3]",
            **_facts((2,), 0, 1, 1, 1, 2),
            match="3 channels don't divide into 2 groups",
        )
        yield bad("float32[3]", "float32[1, 1, 3]", **_facts((2,), 0, 1), match="3 dims, not 1")
        yield bad(
            "bool[1, 1, 3]",
            "bool[1, 1, 3]",
            **_facts((2,), 0, 1),
            match="numeric",
            error=DTypeError,
        )


def _facts(
    output_sizes: Shape,
    before: int,
    stride: int,
    dilation: int = 1,
    spread: int = 1,
    groups: int = 1,
) -> dict[str, Any]:
    rank = len(output_sizes)
    return {
        "output_sizes": output_sizes,
        "before": (before,) * rank,
        "strides": (stride,) * rank,
        "dilations": (dilation,) * rank,
        "input_dilations": (spread,) * rank,
        "groups": groups,
    }


def _by_group(xp: Any, x: Any, groups: Any) -> Any:
    """Return [G, C/G, N, *S]: so the positions of a block of N are the columns of one product."""
    split = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    return xp.moveaxis(split, 0, 2)


def _block(line: int, taps: int) -> tuple[int, int]:
    """Return how many taps to lay out together, and of how many elements of the batch."""
    together = max(min(BLOCK // max(line, 1), taps), 1)
    return together, max(BLOCK // max(line * together, 1), 1)


def _laid_out(xp: Any, x: Any, pairs: Sequence[tuple[Any, Any]], sizes: Shape) -> Any:
    """Lay out what of x there is for each tap, at the positions of the other side.

    x: [G, C, N, *S], pairs: keys of the positions and of x, for each tap -> [G, T * C, N * sizes]
    """
    groups, channels, batch = x.shape[:3]
    seen = xp.zeros((groups, len(pairs), channels, batch, *sizes), x.dtype)
    for number, (positions, own) in enumerate(pairs):
        seen[(slice(None), number, slice(None), slice(None), *positions)] = x[(..., *own)]
    return seen.reshape(groups, len(pairs) * channels, batch * math.prod(sizes))


def _rows(xp: Any, weight: Any) -> Any:
    """Lay out weights for sums over channels and taps.  [G, O/G, C/G, T] -> [G, O/G, T * C/G]"""
    groups, outputs, inputs, taps = weight.shape
    return xp.swapaxes(weight, 2, 3).reshape(groups, outputs, taps * inputs)


def _stacked_rows(xp: Any, weight: Any) -> Any:
    """Lay out weights for each tap's results.  [G, O/G, C/G, T] -> [G, T * O/G, C/G]"""
    groups, outputs, inputs, taps = weight.shape
    return xp.moveaxis(weight, 3, 1).reshape(groups, taps * outputs, inputs)


def _gather(xp: Any, source: Any, rows: Any, taps: Sequence[tuple[Any, ...]], total: Any) -> None:
    """Add the products of weights and what the windows see.

    source: [G, C/G, N, *S], rows: [G, O/G, T * C/G], total: [G, O/G, N, *P]
    """
    columns = _laid_out(
        xp, source, [(positions, own) for _, positions, own in taps], total.shape[3:]
    )
    total += xp.matmul(rows, columns).reshape(total.shape)


def _scatter(xp: Any, source: Any, rows: Any, taps: Sequence[tuple[Any, ...]], total: Any) -> None:
    """Add each element times its weights to the results that it is part of.

    source: [G, C/G, N, *S], rows: [G, T * O/G, C/G], total: [G, O/G, N, *P]
    """
    groups, inputs, *rest = source.shape
    products = xp.matmul(rows, source.reshape(groups, inputs, math.prod(rest)))
    blocks = products.reshape(groups, len(taps), total.shape[1], *rest)
    for number, (_, results, sources) in enumerate(taps):
        total[(..., *results)] += blocks[:, number][(..., *sources)]


@op("conv_weight")
class ConvWeight(Correlation):
    """The gradient of a kernel.  x: [N, C, *S]  y: [N, O, *P]  ->  [O, C/G, *K]"""

    def shape(self, x: Shape, y: Shape) -> Shape:
        self.check(x, y)
        require(x[0] == y[0], "the numbers of elements differ", [(0, 0), (1, 0)], "make them equal")
        self.grouped(y[1])
        return (y[1], self.grouped(x[1]), *self.output_sizes)

    def eval(self, xp: Any, x: Any, y: Any) -> Any:
        dtype, groups = compute_dtype(xp, x.dtype), max(self.groups, 1)
        source, rows = _by_group(xp, x, groups), _by_group(xp, y, groups)
        taps = list(self.taps(self.output_sizes, x.shape[2:], y.shape[2:]))
        # The side with fewer positions stays as it is; of the other, what belongs to these is laid
        # out.
        lays_x = math.prod(y.shape[2:]) <= math.prod(x.shape[2:])
        wide, kept = (source, rows) if lays_x else (rows, source)
        pairs = [(results, own) if lays_x else (own, results) for _, results, own in taps]
        sizes = kept.shape[3:]
        together, block = _block(groups * wide.shape[1] * math.prod(sizes), len(taps))
        result = xp.zeros((groups, len(taps), wide.shape[1], kept.shape[1]), dtype)
        for start in range(0, x.shape[0], block):
            some, columns = [
                a[:, :, start : start + block].astype(dtype, copy=False) for a in (wide, kept)
            ]
            columns = columns.reshape(groups, kept.shape[1], math.prod(columns.shape[2:]))
            for first in range(0, len(taps), together):
                own = pairs[first : first + together]
                products = xp.matmul(_laid_out(xp, some, own, sizes), xp.swapaxes(columns, 1, 2))
                result[:, first : first + together] += products.reshape(
                    groups, len(own), *result.shape[2:]
                )
        # [G, T, C/G, O/G] or [G, T, O/G, C/G] -> [O, C/G, T]
        flat = xp.transpose(result, (0, 3, 2, 1) if lays_x else (0, 2, 3, 1))
        weight = flat.reshape(y.shape[1], source.shape[1], *self.output_sizes)
        return weight.astype(x.dtype, copy=False)

    def vjp(self, ct: Tensor, w: Tensor, x: Tensor, y: Tensor) -> tuple[Any, ...]:
        forward = Conv(y.shape[2:], *self.values[1:])
        return (
            lambda: self.backward(F.conj(y), ct, x.shape[2:]),
            lambda: emit(forward, F.conj(x), ct),
        )

    def batch(self, mapped: MappedAxis, batched: Sequence[bool], x: Tensor, y: Tensor) -> Tensor:
        if not batched[1]:
            w = emit(self, _inside(x, 1, self.groups), y)
            return _outside(w, 1, 1, mapped.size)
        if not batched[0]:
            w = emit(self, x, _inside(y, 1, self.groups))
            return _outside(w, 0, self.groups, mapped.size)
        apart = changed(self, groups=mapped.size * self.groups)
        w = emit(apart, _inside(x, 1, 1), _inside(y, 1, 1))
        return _outside(w, 0, 1, mapped.size)

    def cost(self, outputs: tuple[TensorType, ...], *inputs: TensorType) -> Cost:
        positions = inputs[1].shape[0] * size_of(inputs[1].shape[2:])
        flops = self.products(outputs[0].size, positions)
        return super().cost(outputs, *inputs)._replace(flops=flops)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[n, 3, 7]", "float32[n, 4, 3]", **_facts((3,), 1, 2))
        yield ok("float32[2, 4, 6, 5]", "float32[2, 6, 3, 4]", **_facts((2, 3), 1, 2, 2, 1, 2))
        yield ok("float32[2, 3, 3, 2]", "float32[2, 3, 6, 4]", **_facts((2, 3), 1, 1, 1, 2, 3))
        yield ok("complex64[2, 1, 3]", "complex64[2, 2, 3]", **_facts((2,), 0, 1))
        yield bad(
            "float32[2, 1, 3]",
            "float32[3, 1, 3]",
            **_facts((2,), 0, 1),
            match="the numbers of elements differ",
        )
