"""`Window`: the geometry that convolution, pooling, unfolding and unpooling share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from graphfw.ir.dim import DimLike, dim_max, dim_min
from graphfw.ir.types import Shape
from graphfw.utils.records import record

Pairs: TypeAlias = tuple[tuple[DimLike, DimLike], ...]
"""The numbers of elements to add before and after each dim."""


@record
class Window:
    """The geometry of a window along one dim.

    Attributes:
        size: The dim's size.
        kernel: How many elements the window has.
        stride: How far it moves.
        dilation: How far its elements are apart.
        before: The padding before the dim's first element.
        after: The padding after its last.
    """

    size: DimLike
    kernel: DimLike
    stride: int = 1
    dilation: int = 1
    before: DimLike = 0
    after: DimLike = 0

    @property
    def padding(self) -> tuple[DimLike, DimLike]:
        """The padding at both ends."""
        return self.before, self.after

    @property
    def padded(self) -> DimLike:
        """The dim's size with its padding."""
        return self.size + self.before + self.after

    @property
    def extent(self) -> DimLike:
        """The width of the window, with its dilation."""
        return self.dilation * (self.kernel - 1) + 1

    @property
    def output_sizes(self) -> DimLike:
        """In how many positions the window fits."""
        return dim_max((self.padded - self.extent) // self.stride + 1, 0)

    @property
    def begun(self) -> DimLike:
        """The same, where the last window may reach beyond the end, if it begins before it."""
        up = (self.padded - self.extent + self.stride - 1) // self.stride + 1
        return dim_max(dim_min(up, (self.size + self.before - 1) // self.stride + 1), 0)

    @property
    def transposed(self) -> DimLike:
        """The size that a transposed convolution makes of the dim, before its padding is cut."""
        return (self.size - 1) * self.stride + self.extent

    def padding_after(self, output_size: DimLike) -> DimLike:
        """Return the padding after the dim for a number of positions; below 0 to leave some out."""
        return (output_size - 1) * self.stride + self.extent - self.before - self.size

    def padded_by(self, before: DimLike, after: DimLike) -> Window:
        """Return the window with other padding."""
        return Window(self.size, self.kernel, self.stride, self.dilation, before, after)

    def same(self, *, odd_first: bool = False) -> Window:
        """Return the window with the padding for size/stride positions, rounded up.

        Args:
            odd_first: Whether the odd element is added before the others, rather than after them.
        """
        output_size = (self.size + self.stride - 1) // self.stride
        total = dim_max(self.padded_by(0, 0).padding_after(output_size), 0)
        small = total // 2
        return self.padded_by(*((total - small, small) if odd_first else (small, total - small)))


def windows_of(
    sizes: Shape,
    kernel: Shape,
    strides: Sequence[int],
    dilations: Sequence[int],
    pairs: Pairs | None = None,
) -> tuple[Window, ...]:
    """Return the window along each dim; `pairs` has the padding before and after each."""
    facts = zip(sizes, kernel, strides, dilations, pairs or ((0, 0),) * len(sizes), strict=True)
    return tuple([Window(n, k, s, d, *pair) for n, k, s, d, pair in facts])


def output_sizes_of(windows: Iterable[Window]) -> Shape:
    """Return in how many positions a window fits, along each dim."""
    return tuple([window.output_sizes for window in windows])


def fields_of(windows: Sequence[Window]) -> tuple[tuple[Any, ...], ...]:
    """Return the kernel, the strides, the dilations, and the padding before and after each dim."""
    names = ("kernel", "stride", "dilation", "before", "after")
    return tuple([tuple([getattr(window, name) for window in windows]) for name in names])
