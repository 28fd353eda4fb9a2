"""Convolutions and transposed convolutions over one, two or three spatial dims."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

from graphfw.errors import ShapeError, counted
from graphfw.ir.dtype import DTypeLike
from graphfw.ir.functions import CALLED as F
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Initializer, Variable
from graphfw.nn import init
from graphfw.nn.checks import checked_size, explained, near_divisor, size_or_none
from graphfw.nn.deferred import make_or_wait
from graphfw.nn.module import Module
from graphfw.nn.parameters import initial_of, parameter
from graphfw.ops.args import TensorLike, as_tensor
from graphfw.ops.composed import demand, demand_one_of
from graphfw.ops.nn.convolution import conv, conv_transpose
from graphfw.ops.nn.spatial_arguments import Ints, Padding, each, read_windows
from graphfw.ops.shape.padding import PadMode

_PAD_MODES: dict[str, PadMode] = {
    "zeros": "constant",
    "reflect": "reflect",
    "replicate": "edge",
    "circular": "wrap",
}


def check_rank(layer: str, rank: int, x: Tensor) -> None:
    """Demand that x has a dim for the batch, one for the channels, and `rank` spatial ones."""
    fix = "give it dims for batch, channels and positions"
    if x.ndim == rank + 1:
        fix = "x[None] adds a dim for the batch"
    elif 3 <= x.ndim <= 5:
        fix = f"use the layer for {x.ndim - 2}d"
    names = "NCL" if rank == 1 else "NC" + "DHW"[3 - rank :]
    message = f"{layer}: x must be [{', '.join(names)}], and has {counted(x.ndim, 'dim')}"
    demand(x.ndim == rank + 2, message, {"x": x}, fix=fix, error=ShapeError)


class _ConvWeights(Module):
    """The base of convolutions and their transposes: the weights, and the arguments."""

    rank: ClassVar[int]
    weight: Variable
    bias: Variable | None

    def __init__(
        self,
        in_channels: int | None,
        out_channels: int,
        facts: dict[str, Any],
        bias: bool,
        dtype: DTypeLike | None,
        weight_init: Initializer | TensorLike | None,
        bias_init: Initializer | TensorLike | None,
        name: str | None,
    ) -> None:
        super().__init__(name=name)
        layer = type(self).__name__
        self.in_channels = size_or_none(layer, "in_channels", in_channels)
        self.out_channels = checked_size(layer, "out_channels", out_channels)
        self.kernel_size, self.facts = facts.pop("kernel_size"), facts
        self._check_groups()
        options = bias, dtype, weight_init, bias_init
        make_or_wait(self, "in_channels", self.in_channels, *options)

    def _find_size(self, x: TensorLike) -> None:
        layer = type(self).__name__
        self.in_channels = checked_size(layer, "in_channels", self._checked(x).shape[1])
        self._check_groups()

    def _check_groups(self) -> None:
        """See that the numbers of channels that are known are multiples of that of groups."""
        layer, count = type(self).__name__, self.facts["groups"]
        named = {"in_channels": self.in_channels, "out_channels": self.out_channels}
        sizes = {what: size for what, size in named.items() if size is not None}
        near = near_divisor(count, *sizes.values())
        for what, size in sizes.items():
            message = f"{layer}: {what}={size} is no multiple of groups={count}"
            demand(size % count == 0, message, fix=f"use groups={near}, which divides both")

    def _make(self, bias: bool, dtype: Any, weight_init: Any, bias_init: Any) -> None:
        full = (*self._channel_shape(), *self.kernel_size)
        fan_in, _ = init.fans(full, in_axis=1, out_axis=0)
        spread = init.spread(fan_in)
        me, own = type(self).__name__, (self.out_channels,)
        self.weight = parameter(initial_of(me, "weight_init", weight_init, spread), full, dtype)
        first = initial_of(me, "bias_init", bias_init, spread)
        self.bias = parameter(first, own, dtype) if bias else None

    @abc.abstractmethod
    def _channel_shape(self) -> tuple[int, int]:
        """Return the first two dims of the weight."""

    def _checked(self, x: TensorLike) -> Tensor:
        tensor = as_tensor(x)
        check_rank(type(self).__name__, self.rank, tensor)
        return tensor

    def _fix(self, x: Tensor) -> str:
        """Say what to do about an input that does not fit."""
        me, wanted, found = type(self).__name__, self.in_channels, x.shape[1]
        if found == wanted:
            return ""
        if x.shape[-1] == wanted:
            return f"{me} wants the channels in dim 1: gf.moveaxis(x, -1, 1)"
        return (
            f"{me}(in_channels={wanted}) receives {counted(found, 'channel')}: use "
            f"in_channels={found}"
        )

    def extra_repr(self) -> str:
        """Return the text of the sizes and options."""
        ones = (1,) * self.rank
        defaults = {
            "stride": ones,
            "padding": 0,
            "output_padding": (0,) * self.rank,
            "dilation": ones,
            "groups": 1,
            "padding_mode": "zeros",
        }
        said = [f"{k}={v!r}, " for k, v in self.facts.items() if v != defaults[k]]
        options = f"kernel_size={self.kernel_size}, {''.join(said)}bias={self.bias is not None}"
        return f"{self.in_channels} -> {self.out_channels}, {options}"


class _Conv(_ConvWeights):
    """A convolution with learnt kernels."""

    def __init__(
        self,
        in_channels: int | None,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Padding = 0,
        dilation: Ints = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        dtype: DTypeLike | None = None,
        *,
        weight_init: Initializer | TensorLike | None = None,
        bias_init: Initializer | TensorLike | None = None,
        name: str | None = None,
    ) -> None:
        layer, rank = type(self).__name__, self.rank
        demand_one_of(layer, "padding_mode", padding_mode, _PAD_MODES)
        facts: dict[str, Any] = {
            "kernel_size": each(layer, "kernel_size", kernel_size, rank),
            "stride": each(layer, "stride", stride, rank),
            "padding": padding,
            "dilation": each(layer, "dilation", dilation, rank),
            "groups": checked_size(layer, "groups", groups),
            "padding_mode": padding_mode,
        }
        steps = facts["stride"], facts["dilation"]
        read_windows(layer, (1,) * rank, facts["kernel_size"], *steps, padding)
        options = bias, dtype, weight_init, bias_init
        super().__init__(in_channels, out_channels, facts, *options, name)

    def _channel_shape(self) -> tuple[int, int]:
        assert self.in_channels is not None
        return self.out_channels, self.in_channels // self.facts["groups"]

    def forward(self, x: TensorLike) -> Tensor:
        """Convolve.  x: [N, C, *S] -> [N, O, *T]"""
        tensor = self._checked(x)
        options = dict(self.facts)
        mode = _PAD_MODES[options.pop("padding_mode")]
        with explained(lambda: self._fix(tensor)):
            padded = tensor
            if mode != "constant":
                how = [options[fact] for fact in ("stride", "dilation", "padding")]
                layer, kernel = type(self).__name__, self.kernel_size
                windows = read_windows(layer, tensor.shape[2:], kernel, *how)
                pairs = [window.padding for window in windows]
                padded = F.pad(tensor, ((0, 0), (0, 0), *pairs), mode=mode)
                options["padding"] = 0
            return conv(padded, self.weight, self.bias, **options)


class Conv1d(_Conv):
    """Convolve sequences.  x: [N, C, L] -> [N, O, L']

    Arguments: see `Conv2d`.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     x = gf.placeholder(("batch", 16, "time"), name="x")
    ...     gf.nn.Conv1d(16, 32, 3, padding="same")(x).shape
    (batch, 32, time)
    """

    rank = 1


class Conv2d(_Conv):
    """Convolve images.  x: [N, C, H, W] -> [N, O, H', W']

    See `gf.conv`.

    Args:
        in_channels: How many channels x has, C; None to find it in the first call, which makes the
            variables.
        out_channels: How many the result has, O.
        kernel_size: The kernel's size: one int, or one for each spatial dim.
        stride: How far the kernel moves.
        padding: How much to add at both ends: numbers, "same" or "valid", as for `gf.conv`.
        dilation: How far the kernel's elements are apart.
        groups: Into how many groups the channels are divided.
        bias: Whether to add a bias.
        padding_mode: What to add: "zeros", or elements of x: "reflect", "replicate" (the edge), or
            "circular" (the other end).
        dtype: The weights' dtype, the default dtype when there is none.
        weight_init: Initial weights: an initialiser or an array; uniform in ±1/sqrt(C/groups K)
            when there is none.
        bias_init: Initial bias; the same.
        name: See `Module`.

    Attributes:
        weight: [O, C/groups, *K].
        bias: [O], or None.

    Raises:
        ArgumentError: An argument is not what it should be.
        ShapeError: In a call: x has other dims or channels, or is smaller than the kernel.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     x = gf.placeholder(("batch", 3, 32, 32), name="x")
    ...     gf.nn.Conv2d(3, 8, 3, stride=2, padding=1)(x).shape
    (batch, 8, 16, 16)
    """

    rank = 2


class Conv3d(_Conv):
    """Convolve volumes.  x: [N, C, D, H, W] -> [N, O, D', H', W']

    Arguments: see `Conv2d`.
    """

    rank = 3


class _ConvTranspose(_ConvWeights):
    """The transpose of a convolution, with learnt kernels."""

    def __init__(
        self,
        in_channels: int | None,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Padding = 0,
        output_padding: Ints = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Ints = 1,
        dtype: DTypeLike | None = None,
        *,
        weight_init: Initializer | TensorLike | None = None,
        bias_init: Initializer | TensorLike | None = None,
        name: str | None = None,
    ) -> None:
        layer, rank = type(self).__name__, self.rank
        facts: dict[str, Any] = {
            "kernel_size": each(layer, "kernel_size", kernel_size, rank),
            "stride": each(layer, "stride", stride, rank),
            "padding": padding,
            "output_padding": each(layer, "output_padding", output_padding, rank, 0),
            "dilation": each(layer, "dilation", dilation, rank),
            "groups": checked_size(layer, "groups", groups),
        }
        options = bias, dtype, weight_init, bias_init
        super().__init__(in_channels, out_channels, facts, *options, name)

    def _channel_shape(self) -> tuple[int, int]:
        assert self.in_channels is not None
        return self.in_channels, self.out_channels // self.facts["groups"]

    def forward(self, x: TensorLike) -> Tensor:
        """Do the transpose of a convolution.  x: [N, C, *S] -> [N, O, *T]"""
        tensor = self._checked(x)
        with explained(lambda: self._fix(tensor)):
            return conv_transpose(tensor, self.weight, self.bias, **self.facts)


class ConvTranspose1d(_ConvTranspose):
    """Do the transpose of a convolution of sequences.  x: [N, C, L] -> [N, O, L']

    Arguments: see `ConvTranspose2d`.
    """

    rank = 1


class ConvTranspose2d(_ConvTranspose):
    """Do the transpose of a convolution of images.  x: [N, C, H, W] -> [N, O, H', W']

    See `gf.conv_transpose`.

    Args:
        in_channels: How many channels x has, C; None to find it in the first call, which makes the
            variables.
        out_channels: How many the result has, O.
        kernel_size: The kernel's size: one int, or one for each spatial dim.
        stride: How far apart the elements of x come to lie.
        padding: How much to cut off at both ends.
        output_padding: How much longer the result is than it has to be.
        groups: Into how many groups the channels are divided.
        bias: Whether to add a bias.
        dilation: How far the kernel's elements are apart.
        dtype: The weights' dtype, the default dtype when there is none.
        weight_init: Initial weights: an initialiser or an array; uniform in ±1/sqrt(O/groups K)
            when there is none.
        bias_init: Initial bias; the same.
        name: See `Module`.

    Attributes:
        weight: [C, O/groups, *K].
        bias: [O], or None.

    Raises:
        ArgumentError: An argument is not what it should be.
        ShapeError: In a call: x has other dims or channels, or nothing is left of the result.
    """

    rank = 2


class ConvTranspose3d(_ConvTranspose):
    """Do the transpose of a convolution of volumes.  x: [N, C, D, H, W] -> [N, O, D', H', W']

    Arguments: see `ConvTranspose2d`.
    """

    rank = 3
