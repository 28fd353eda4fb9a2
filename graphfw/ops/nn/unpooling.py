"""Unpooling: what a max pooling kept, back where it was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from graphfw.errors import AxisError, ShapeError
from graphfw.ir.build import emit
from graphfw.ir.dim import DimLike, always_ge, dim_max
from graphfw.ir.functions import F, public
from graphfw.ir.op import Case, bad, ok, op
from graphfw.ir.shape import shape_text, size_of
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.args import TensorLike, as_tensor, dims_of
from graphfw.ops.composed import demand
from graphfw.ops.nn.spatial_arguments import Ints, Padding, each, read_windows, spatial_rank
from graphfw.ops.shape.gather_scatter import IndexSet

__all__ = ["max_unpool"]


@op("max_unpool")
class MaxUnpool(IndexSet):
    """Planes of zeros with values put into them, which remembers that planes have several dims.

    x: [B, size of dims]  values: [B, P]  indices: [B, 1], [B, P]  ->  x's

    It is computed as any `index_set`; formats that have an operator for it want the fields.

    Attributes:
        pooled_sizes: The spatial dims of the values.
        dims: Those of the planes.
        strides: How far the windows of the pooling moved.
    """

    pooled_sizes: Shape = ()
    dims: Shape = ()
    strides: tuple[int, ...] = ()
    earlier_fields: ClassVar[dict[str, str]] = {"places": "pooled_sizes"}

    @staticmethod
    def cases() -> Iterator[Case]:
        sizes: dict[str, Any] = {"pooled_sizes": (1, 2), "dims": (3, 5), "strides": (2, 3)}
        inputs = "float32[4, 15]", "float32[4, 2]", "int64[4, 2]", "int64[4, 2]"
        yield ok(*inputs, axis=0, ints=(0, 4), **sizes)
        yield bad(*inputs[:3], axis=2, match="axes 2 to 2", error=AxisError, **sizes)


@public
def max_unpool(
    x: TensorLike,
    indices: TensorLike,
    /,
    kernel_size: Ints,
    *,
    stride: Ints | None = None,
    padding: Padding = 0,
    output_size: Sequence[DimLike] | None = None,
) -> Tensor:
    """Put what a max pooling kept back where it was, among zeros.

    x: [N, C, *P], indices: [N, C, *P] -> [N, C, *S]. Any dtype. Where an index stands twice, the
    last value counts, and gets the gradient.

    Args:
        x: The images, sequences or volumes that were pooled.
        indices: Where in the spatial dims, taken as one, each element goes, as `gf.max_pool` gives
            them with `return_indices`.
        kernel_size: The pooling's window: one int, or one for each spatial dim.
        stride: How far it moved; by default as far as it is wide.
        padding: How much was added at both ends, in numbers as for `gf.conv`.
        output_size: The sizes to make, since poolings of several sizes have the same result: those
            of the spatial dims, or of all. Each must be less than one stride away from the
            default, (P - 1) stride - padding at both ends + kernel_size.

    Raises:
        ShapeError: x has no spatial dim, or the indices are not as many.
        ArgumentError: An argument does not fit the spatial dims, or output_size is out of reach.
        DTypeError: The indices are no integers.
        ExecutionError: When run: an index is negative or beyond the end of its plane.

    >>> import graphfw as gf
    >>> y, indices = gf.max_pool(gf.asarray([[[1, 5, 2, 3]]]), 2, return_indices=True)
    >>> gf.max_unpool(y, indices, 2)
    Tensor([[[0, 5, 0, 3]]], dtype=int64)
    """
    name = "max_unpool"
    tensor, index = as_tensor(x), as_tensor(indices)
    rank = spatial_rank(name, tensor)
    kernel = each(name, "kernel_size", kernel_size, rank)
    shown = {"x": tensor, "indices": index}
    message = f"indices {shape_text(index.shape)} are not those of x {shape_text(tensor.shape)}"
    fix = "give the indices of the pooling that made x"
    demand(index.shape == tensor.shape, f"{name}: {message}", shown, fix=fix, error=ShapeError)
    fix = 'give numbers: for "valid" 0'
    demand(not isinstance(padding, str), f"{name}: padding={padding!r} is no number", fix=fix)
    sizes = tensor.shape[2:]
    windows = read_windows(name, sizes, kernel, kernel if stride is None else stride, 1, padding)
    strides = tuple([w.stride for w in windows])
    usual = tuple([dim_max(w.transposed - w.before - w.after, 0) for w in windows])
    dims = usual if output_size is None else _wanted(tensor, output_size, usual, strides)
    planes, count = size_of(tensor.shape[:2]), size_of(sizes)
    refusal = name + ": index {index} lies outside of a plane of {size} elements"
    made = emit(
        MaxUnpool(0, refusal, sizes, dims, strides),
        F.zeros((planes, size_of(dims)), dtype=tensor.dtype),
        F.reshape(tensor, (planes, count)),
        F.reshape(F.positions(planes), (planes, 1)),
        F.reshape(index, (planes, count)),
    )
    result: Tensor = F.reshape(made, (*tensor.shape[:2], *dims))
    return result


def _wanted(x: Tensor, output_size: Any, usual: Shape, strides: Sequence[int]) -> Shape:
    """Return the spatial dims that are asked for.

    Raises:
        ArgumentError: A pooling of them has surely another result than x's dims.
    """
    given = dims_of("max_unpool", output_size)
    dims = given[2:] if len(given) == x.ndim else given
    demand(
        len(dims) == len(usual),
        f"max_unpool: output_size={shape_text(given)} does not fit {len(usual)} spatial dims",
        {"x": x},
        fix="give the sizes of the spatial dims: pooled.shape[2:]",
    )
    for dim, size, step in zip(dims, usual, strides, strict=True):
        demand(
            not (always_ge(dim, size + step) or always_ge(size - step, dim)),
            f"max_unpool: output_size {dim} is out of reach: without it there would be {size}, and "
            f"the stride is {step}",
            {"x": x},
            fix=f"use more than {size - step} and less than {size + step}",
        )
    return dims
