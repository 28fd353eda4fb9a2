"""Layers that treat each channel as a whole, for x [N, C, *S]."""

from __future__ import annotations

from typing import ClassVar

from graphfw.ir.dtype import DTypeLike
from graphfw.ir.functions import CALLED as F
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Tensor
from graphfw.nn.convolution import check_rank
from graphfw.nn.dropout import Dropout
from graphfw.nn.normalise import BatchNorm, Tracking
from graphfw.ops.args import TensorLike, as_tensor
from graphfw.ops.composed import floats, wide
from graphfw.ops.nn.activations import dropout
from graphfw.ops.nn.normalisation import instance_norm

_TO_DIM_1 = "move the channels to dim 1: gf.moveaxis(x, {0}, 1)"


class _ChannelBatchNorm(BatchNorm):
    """`BatchNorm` with the channels in dim 1."""

    rank: ClassVar[int]
    size = "num_features"
    elsewhere = _TO_DIM_1

    def __init__(
        self,
        num_features: int | None,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        dtype: DTypeLike | None = None,
        *,
        name: str | None = None,
    ) -> None:
        super().__init__(
            num_features,
            eps,
            momentum,
            affine,
            dtype,
            track_running_stats=track_running_stats,
            axis=1,
            name=name,
        )

    def forward(self, x: TensorLike) -> Tensor:
        """Normalise.  x: [N, C, *S] -> [N, C, *S]"""
        tensor = as_tensor(x)
        check_rank(type(self).__name__, self.rank, tensor)
        return super().forward(tensor)


class BatchNorm1d(_ChannelBatchNorm):
    """Normalise each channel over batch and positions.  x: [N, C] or [N, C, L] -> the same

    See `BatchNorm`; the arguments have PyTorch's order.
    """

    rank = 1

    def forward(self, x: TensorLike) -> Tensor:
        """Normalise.  x: [N, C] or [N, C, L] -> the same"""
        tensor = as_tensor(x)
        return BatchNorm.forward(self, tensor) if tensor.ndim == 2 else super().forward(tensor)


class BatchNorm2d(_ChannelBatchNorm):
    """Normalise each channel over batch and positions.  x: [N, C, H, W] -> the same

    See `BatchNorm`; the arguments have PyTorch's order.
    """

    rank = 2


class BatchNorm3d(_ChannelBatchNorm):
    """Normalise each channel over batch and positions.  x: [N, C, D, H, W] -> the same

    See `BatchNorm`; the arguments have PyTorch's order.
    """

    rank = 3


class _InstanceNorm(Tracking):
    """The base of the layers for one, two and three spatial dims."""

    rank: ClassVar[int]
    size = "num_features"
    elsewhere = _TO_DIM_1

    def __init__(
        self,
        num_features: int | None,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        dtype: DTypeLike | None = None,
        *,
        name: str | None = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, dtype, 1, name)

    def forward(self, x: TensorLike) -> Tensor:
        """Normalise.  x: [N, C, *S] -> [N, C, *S]"""
        layer = type(self).__name__
        tensor = floats(layer, x)
        check_rank(layer, self.rank, tensor)
        axis_index, running = self._axis_index(tensor), self._running()
        if running is not None and not self.training:
            return self._normalised(tensor, *running, axis_index)
        result = instance_norm(tensor, self.weight, self.bias, axis=axis_index, eps=self.eps)
        if running is not None:
            values, positions = wide(tensor), tuple(range(2, tensor.ndim))
            mean = F.mean(values, axis=(0, *positions))
            var = F.mean(F.var(values, axis=positions), axis=0)
            self._follow(mean, var, size_of(tensor.shape[2:]), result)
        return result

    def extra_repr(self) -> str:
        """Return the text of the size and options."""
        tracks = "" if self.running_mean is None else f", momentum={self.momentum}"
        return f"{self.channels}, eps={self.eps}, affine={self.weight is not None}{tracks}"


class InstanceNorm1d(_InstanceNorm):
    """Normalise each channel of each element over its positions.  x: [N, C, L] -> the same

    See `gf.instance_norm`. With `track_running_stats` it has running statistics, as `BatchNorm`
    has, and normalises by them where it doesn't train.
    """

    rank = 1


class InstanceNorm2d(_InstanceNorm):
    """Normalise each channel of each element over its positions.  x: [N, C, H, W] -> the same

    See `gf.instance_norm`. With `track_running_stats` it has running statistics, as `BatchNorm`
    has, and normalises by them where it doesn't train.
    """

    rank = 2


class InstanceNorm3d(_InstanceNorm):
    """Normalise each channel of each element over its positions.  x: [N, C, D, H, W] -> the same

    See `gf.instance_norm`. With `track_running_stats` it has running statistics, as `BatchNorm`
    has, and normalises by them where it doesn't train.
    """

    rank = 3


class _ChannelDropout(Dropout):
    """Drops whole channels."""

    rank: ClassVar[int]

    def forward(self, x: TensorLike) -> Tensor:
        """Drop.  x: [N, C, *S] -> [N, C, *S]"""
        layer = type(self).__name__
        tensor = floats(layer, x)
        check_rank(layer, self.rank, tensor)
        if self.p == 0 or not self.training:
            return tensor
        ones = F.ones((*tensor.shape[:2], *[1] * self.rank), dtype=tensor.dtype)
        return tensor * dropout(ones, self.p)


class Dropout1d(_ChannelDropout):
    """In training, zero whole channels at random and scale up the others.  x: [N, C, L]

    See `Dropout`.
    """

    rank = 1


class Dropout2d(_ChannelDropout):
    """In training, zero whole channels at random and scale up the others.  x: [N, C, H, W]

    See `Dropout`. J. Tompson et al., "Efficient object localization using convolutional networks",
    2015.
    """

    rank = 2


class Dropout3d(_ChannelDropout):
    """In training, zero whole channels at random and scale up the others.  x: [N, C, D, H, W]

    See `Dropout`.
    """

    rank = 3
