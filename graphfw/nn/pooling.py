"""Pooling over one, two or three spatial dims: each layer calls the function of its name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from graphfw.ir.dim import DimLike
from graphfw.ir.tensor import Tensor
from graphfw.nn.activations import Activation
from graphfw.nn.convolution import check_rank
from graphfw.nn.module import Module
from graphfw.ops.args import TensorLike, as_tensor
from graphfw.ops.nn.spatial_arguments import Ints, Padding, each
from graphfw.ops.nn.unpooling import max_unpool


class _PoolLayer(Activation):
    """The base: checks how many dims there are."""

    rank: ClassVar[int]

    def __init__(self, *, name: str | None = None, **options: Any) -> None:
        for what in {"kernel_size", "stride", "dilation"} & options.keys():
            if options[what] is not None:
                options[what] = each(type(self).__name__, what, options[what], self.rank)
        super().__init__(name=name, **options)

    def forward(self, x: TensorLike) -> Tensor:
        """Pool.  x: [N, C, *S] -> [N, C, *P]"""
        tensor = as_tensor(x)
        check_rank(type(self).__name__, self.rank, tensor)
        return super().forward(tensor)


class _MaxPool(_PoolLayer):
    """The largest of what a window sees."""

    function = "max_pool"

    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Padding = 0,
        dilation: Ints = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
        *,
        name: str | None = None,
    ) -> None:
        super().__init__(
            name=name,
            kernel_size=kernel_size,
            stride=stride,
            padding=padding,
            dilation=dilation,
            return_indices=return_indices,
            ceil_mode=ceil_mode,
        )


class MaxPool1d(_MaxPool):
    """Take the largest of what a window sees; see `gf.max_pool`.  [N, C, L] -> [N, C, L']"""

    rank = 1


class MaxPool2d(_MaxPool):
    """Take the largest of what a window sees; see `gf.max_pool`.  [N, C, H, W] -> [N, C, H', W']"""

    rank = 2


class MaxPool3d(_MaxPool):
    """Take the largest of what a window sees; see `gf.max_pool`.  [N, C, *S] -> [N, C, *S']"""

    rank = 3


class _MaxUnpool(Module):
    """The inverse of a max pooling: the elements that it kept, back where they were."""

    rank: ClassVar[int]

    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Padding = 0,
        *,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        kind = type(self).__name__
        self.kernel_size = each(kind, "kernel_size", kernel_size, self.rank)
        self.stride = stride if stride is None else each(kind, "stride", stride, self.rank)
        self.padding = padding

    def forward(
        self,
        x: TensorLike,
        indices: TensorLike,
        output_size: Sequence[DimLike] | None = None,
    ) -> Tensor:
        """Put each element where its index says.  x, indices: [N, C, *P] -> [N, C, *S]"""
        tensor = as_tensor(x)
        check_rank(type(self).__name__, self.rank, tensor)
        return max_unpool(
            tensor,
            indices,
            self.kernel_size,
            stride=self.stride,
            padding=self.padding,
            output_size=output_size,
        )

    def extra_repr(self) -> str:
        """Return the text of the arguments."""
        return f"{self.kernel_size}, stride={self.stride}, padding={self.padding!r}"


class MaxUnpool1d(_MaxUnpool):
    """Put back what `MaxPool1d` kept; see `gf.max_unpool`.  [N, C, L] -> [N, C, L']"""

    rank = 1


class MaxUnpool2d(_MaxUnpool):
    """Put back what `MaxPool2d` kept; see `gf.max_unpool`.  [N, C, H, W] -> [N, C, H', W']"""

    rank = 2


class MaxUnpool3d(_MaxUnpool):
    """Put back what `MaxPool3d` kept; see `gf.max_unpool`.  [N, C, *S] -> [N, C, *S']"""

    rank = 3


class _AvgPool(_PoolLayer):
    """The mean of what a window sees."""

    function = "avg_pool"

    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Padding = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: float | None = None,
        *,
        name: str | None = None,
    ) -> None:
        super().__init__(
            name=name,
            kernel_size=kernel_size,
            stride=stride,
            padding=padding,
            ceil_mode=ceil_mode,
            count_include_pad=count_include_pad,
            divisor_override=divisor_override,
        )


class AvgPool1d(_AvgPool):
    """Take the mean of what a window sees; see `gf.avg_pool`.  [N, C, L] -> [N, C, L']"""

    rank = 1


class AvgPool2d(_AvgPool):
    """Take the mean of what a window sees; see `gf.avg_pool`.  [N, C, H, W] -> [N, C, H', W']"""

    rank = 2


class AvgPool3d(_AvgPool):
    """Take the mean of what a window sees; see `gf.avg_pool`.  [N, C, *S] -> [N, C, *S']"""

    rank = 3


class _LPPool(_PoolLayer):
    """The norm of what a window sees."""

    function = "lp_pool"

    def __init__(
        self,
        norm_type: float,
        kernel_size: Ints,
        stride: Ints | None = None,
        ceil_mode: bool = False,
        *,
        name: str | None = None,
    ) -> None:
        super().__init__(
            name=name, ord=norm_type, kernel_size=kernel_size, stride=stride, ceil_mode=ceil_mode
        )


class LPPool1d(_LPPool):
    """Take the norm of what a window sees; see `gf.lp_pool`.  [N, C, L] -> [N, C, L']"""

    rank = 1


class LPPool2d(_LPPool):
    """Take the norm of what a window sees; see `gf.lp_pool`.  [N, C, H, W] -> [N, C, H', W']"""

    rank = 2


class LPPool3d(_LPPool):
    """Take the norm of what a window sees; see `gf.lp_pool`.  [N, C, *S] -> [N, C, *S']"""

    rank = 3


class _AdaptiveAvgPool(_PoolLayer):
    """The mean of each bin along the spatial dims."""

    function = "adaptive_avg_pool"

    def __init__(self, output_size: Any, *, name: str | None = None) -> None:
        super().__init__(name=name, output_size=output_size)


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Take the mean of each of `output_size` bins of x; see `gf.adaptive_avg_pool`."""

    rank = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Take the mean of each of `output_size` bins of x; see `gf.adaptive_avg_pool`."""

    rank = 2


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """Take the mean of each of `output_size` bins of x; see `gf.adaptive_avg_pool`."""

    rank = 3


class _AdaptiveMaxPool(_PoolLayer):
    """The largest of each bin along the spatial dims."""

    function = "adaptive_max_pool"

    def __init__(
        self, output_size: Any, return_indices: bool = False, *, name: str | None = None
    ) -> None:
        super().__init__(name=name, output_size=output_size, return_indices=return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Take the largest of each of `output_size` bins of x; see `gf.adaptive_max_pool`."""

    rank = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Take the largest of each of `output_size` bins of x; see `gf.adaptive_max_pool`."""

    rank = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Take the largest of each of `output_size` bins of x; see `gf.adaptive_max_pool`."""

    rank = 3
