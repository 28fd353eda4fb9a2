"""`SpatialDim`: the arguments of steps for each spatial dim of a convolution or of pooling."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from graphfw.ir.dim import DimLike
from graphfw.runtime.numpy_executor.convolution.window_bounds import DenseStride

_FAR = 2**61


class SpatialDim(NamedTuple):
    """A spatial dim, in the order of `window_bounds.Spatial`.

    Attributes:
        size: The size of the image.
        in_memory: The distance of its elements in memory, in elements.
        output_size: The size of the result.
        taps: The number of the window's taps.
        stride: The distance of neighbouring windows.
        dilation: The distance of neighbouring taps.
        before: The zeros before the image.
    """

    size: DimLike
    in_memory: DimLike
    output_size: DimLike
    taps: int
    stride: int
    dilation: DimLike
    before: DimLike

    @property
    def is_still(self) -> bool:
        """Whether each position sees the element of the same number."""
        return self.taps == self.stride == 1 and self.before == 0 and self.output_size == self.size

    @property
    def step(self) -> DenseStride:
        """Its stride if neighbouring positions' elements can be read as vectors, else 0."""
        is_dense = self.in_memory == 1 or self.size == 1
        return 1 if is_dense and self.stride == 1 else 2 if is_dense and self.stride == 2 else 0


def joined(dims: Iterable[SpatialDim]) -> list[SpatialDim]:
    """Join dims to those before them where the window has one element of them.

    So runs of positions in a row are as long as can be.
    """
    found: list[SpatialDim] = []
    for dim in dims:
        last = found[-1] if found else dim
        width = dim.size
        is_one = last.stride == 1 and last.in_memory == dim.in_memory * width
        if found and dim.is_still and is_one:
            found[-1] = SpatialDim(
                last.size * width,
                dim.in_memory,
                last.output_size * width,
                last.taps,
                1,
                last.dilation * width,
                last.before * width,
            )
        else:
            found.append(dim)
    return found


def numbers(dims: Iterable[SpatialDim]) -> list[DimLike]:
    """Return the run-time integers of dims.

    A dim of one element counts as contiguous: its element is read as one lane of a vector.

    Raises:
        OverflowError: The number of an element that a window sees may have more than 64 bits.
    """
    dims = list(dims)
    for dim in dims:
        far = dim.taps * dim.dilation
        if any([isinstance(n, int) and n >= _FAR for n in (dim.stride, far, dim.before)]):
            raise OverflowError
    dense = [dim._replace(in_memory=1) if dim.size == 1 else dim for dim in dims]
    return [number for dim in dense for number in dim]
