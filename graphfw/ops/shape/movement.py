"""Moving elements about without looking at them: reshape, transpose, broadcast."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from graphfw.errors import ExecutionError, ShapeError, counted
from graphfw.ir.affine import Index, broadcast_index, reshape_index
from graphfw.ir.build import emit
from graphfw.ir.dim import DimLike
from graphfw.ir.dtype import DType
from graphfw.ir.functions import F, public
from graphfw.ir.op import ALIAS, PURE, Case, Cost, Op, bad, ok, op
from graphfw.ir.shape import can_broadcast, permuted, require, reshaped, shape_text, size_of
from graphfw.ir.shared_ops import shared
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape, TensorType
from graphfw.ops.args import TensorLike, as_tensor, axes_in_order, dims_of, ruled
from graphfw.ops.batching import MappedAxis, lifted
from graphfw.ops.composed import demand

__all__ = ["broadcast_to", "permute_dims", "reshape"]


class Movement(Op):
    """The base of ops that compute nothing: the result has the input's elements."""

    traits = frozenset({PURE, ALIAS})
    linear = "jointly"
    mixed_precision = "follows"

    def dtype(self, x: DType) -> DType:
        return x

    def cost(self, outputs: tuple[TensorType, ...], *inputs: TensorType) -> Cost:
        return super().cost(outputs, *inputs)._replace(flops=0)


@op("reshape")
class Reshape(Movement):
    """The same elements in another shape.  x: [*A]  ->  dims"""

    dims: Shape

    def shape(self, x: Shape) -> Shape:
        return reshaped(x, self.dims)

    def eval(self, xp: Any, x: Any) -> Any:
        if -1 in self.dims:
            known = math.prod([int(dim) for dim in self.dims if dim != -1])
            if known == 0 or x.size % known:
                raise ExecutionError(
                    f"reshape: {counted(x.size, 'element')} don't divide into shape "
                    f"{shape_text(self.dims)}",
                    fix=f"feed sizes that make the number of elements a multiple of {known}",
                )
        return xp.reshape(x, self.dims)

    def source_index(self, index: Index, x: Shape, y: Shape) -> Index | None:
        # Runs check whether a dim of -1 divides: see `control/shape_checks.py`.
        return reshape_index(index, y, x) if size_of(x) == size_of(y) else None

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        def gradient() -> Tensor:
            if size_of(ct.shape) == size_of(x.shape):
                return reshape(ct, x.shape)
            # n//2 rows of 2 are n elements only if n is even, which each run checks.
            elements = F.assert_shape(reshape(ct, -1), (size_of(x.shape),))
            return reshape(elements, x.shape)

        return (gradient,)

    def batch(self, mapped: MappedAxis, batched: Sequence[bool], x: Tensor) -> Tensor:
        own, dims = x.shape[1:], reshaped(x.shape[1:], self.dims)
        if size_of(own) != size_of(dims):  # as in the gradient
            x = F.assert_shape(
                reshape(x, (mapped.size, size_of(own))), (mapped.size, size_of(dims))
            )
        return emit(Reshape((mapped.size, *dims)), x)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[3, 4]", dims=(2, 6))
        yield ok("float32[n, 4]", dims=(-1, 2))
        yield bad("float32[3, 4]", dims=(5, 2), match="12 elements don't fill shape \\[5, 2\\]")
        yield bad("float32[3, 4]", dims=(-1, 5), match="don't divide")


@public
def reshape(
    x: TensorLike, /, shape: DimLike | Sequence[DimLike], *, copy: bool | None = None
) -> Tensor:
    """Give the elements another shape, in row-major order.  x: [*A] -> shape

    One dim may be -1: what is left. Dims may be symbolic (`x.shape[0] * 8`). Tensors don't change,
    so `copy` makes no difference.

    Raises:
        ShapeError: The numbers of elements differ, or can't be shown to agree.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     x = gf.placeholder(("batch", 8, 4), name="x")
    ...     gf.reshape(x, (-1, 4)).shape
    (8*batch, 4)
    """
    tensor = as_tensor(x)
    dims = dims_of("reshape", shape, hole=True)
    if dims == tensor.shape:
        return tensor
    solved = ruled("reshape", tensor, reshaped, tensor.shape, dims)
    # A hole that can't be shown to divide stays one: whether it does is seen when the graph runs.
    exact = solved == dims or size_of(solved) == tensor.size
    return (
        tensor
        if solved == tensor.shape
        else emit(shared(Reshape, solved if exact else dims), tensor)
    )


@op("permute_dims")
class PermuteDims(Movement):
    """The dims in another order.  x: [*A]  ->  [A[axes[0]], A[axes[1]], ...]"""

    axes: tuple[int, ...]

    def shape(self, x: Shape) -> Shape:
        fits = sorted(self.axes) == list(range(len(x)))
        require(
            fits,
            f"axes {self.axes} must name each of the {counted(len(x), 'dim')} once",
            (),
            f"use each of 0 to {len(x) - 1} once",
        )
        return permuted(x, self.axes)

    def eval(self, xp: Any, x: Any) -> Any:
        return xp.transpose(x, self.axes)

    def source_index(self, index: Index, x: Shape, y: Shape) -> Index:
        return tuple([index[self.axes.index(axis)] for axis in range(len(x))])

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        inverse = sorted(range(len(self.axes)), key=self.axes.__getitem__)
        return (lambda: F.permute_dims(ct, tuple(inverse)),)

    def batch(self, mapped: MappedAxis, batched: Sequence[bool], x: Tensor) -> Tensor:
        return emit(PermuteDims((0, *[axis + 1 for axis in self.axes])), x)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[2, 3, n]", axes=(2, 0, 1))
        yield bad("float32[2, 3]", axes=(0, 0), match="each of the 2 dims once")


@public
def permute_dims(x: TensorLike, /, axes: Sequence[int] | None = None) -> Tensor:
    """Put the dims into another order.  x: [*A] -> [A[axes[0]], A[axes[1]], …]

    Without `axes` the order is reversed, as NumPy's `transpose` does.

    Raises:
        ShapeError: `axes` does not name each dim once.
    """
    tensor = as_tensor(x)
    wanted = range(tensor.ndim)[::-1] if axes is None else axes
    order = axes_in_order("permute_dims", tensor, wanted)
    return (
        tensor if order == tuple(range(tensor.ndim)) else emit(shared(PermuteDims, order), tensor)
    )


@op("broadcast_to")
class BroadcastTo(Movement):
    """Repeats along new dims and dims of size 1.  x: [*A]  ->  dims"""

    dims: Shape

    def shape(self, x: Shape) -> Shape:
        fits = can_broadcast(x, self.dims)
        require(
            fits,
            f"{shape_text(x)} does not broadcast to {shape_text(self.dims)}",
            (),
            "each dim must be 1 or that of the target, counted from the back",
        )
        return self.dims

    def eval(self, xp: Any, x: Any) -> Any:
        return xp.broadcast_to(x, self.dims)

    def source_index(self, index: Index, x: Shape, y: Shape) -> Index:
        return broadcast_index(index, x)

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        return (lambda: F.sum_to(ct, x.shape),)

    def batch(self, mapped: MappedAxis, batched: Sequence[bool], x: Tensor) -> Tensor:
        return emit(BroadcastTo((mapped.size, *self.dims)), lifted(x, len(self.dims) + 1))

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[3, 1]", dims=(2, 3, 4))
        yield ok("float32[]", dims=(0, 2))
        yield bad("float32[3]", dims=(3, 2), match="does not broadcast")


@public
def broadcast_to(x: TensorLike, /, shape: DimLike | Sequence[DimLike]) -> Tensor:
    """Repeat along new dims and dims of size 1.  x: [*A] -> shape

    Raises:
        ShapeError: The shape does not broadcast to it.
    """
    tensor = as_tensor(x)
    wanted = dims_of("broadcast_to", shape, hole=True)
    own = [None] * (len(wanted) - tensor.ndim) + list(tensor.shape)
    if any([dim == -1 for dim in wanted]):  # as PyTorch's expand leaves a dim as it is
        meant: list[Any] = [
            size if dim == -1 else dim for dim, size in zip(wanted, own, strict=False)
        ]
        fix = f"write the dims themselves: {shape_text(tuple(meant))}"
        demand(
            None in meant,
            "broadcast_to: a dim can't be -1",
            {"x": tensor},
            fix=fix,
            error=ShapeError,
        )
    dims = dims_of("broadcast_to", wanted)
    return tensor if tensor.shape == dims else emit(shared(BroadcastTo, dims), tensor)
