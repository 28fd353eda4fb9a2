"""Normalisation with learnt scales and shifts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from graphfw.errors import ShapeError, counted
from graphfw.ir import ambient
from graphfw.ir.dim import Dim, DimLike
from graphfw.ir.dtype import DTypeLike, int64
from graphfw.ir.functions import CALLED as F
from graphfw.ir.graph import current_graph
from graphfw.ir.shape import normalize_axis, size_of
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Update, Variable
from graphfw.loc import capture
from graphfw.nn import init
from graphfw.nn.checks import channel_axis, checked_size, explained, near_divisor, size_or_none
from graphfw.nn.deferred import make_or_wait
from graphfw.nn.module import Module
from graphfw.nn.parameters import parameter
from graphfw.nn.torch_rules import TheirsAlone, TorchRule
from graphfw.ops.args import TensorLike, as_tensor, converted, dtype_or, ruled
from graphfw.ops.composed import demand, floats, wide, wide_dtype
from graphfw.ops.nn.normalisation import batch_norm, group_norm, layer_norm, rms_norm


def _sizes(layer: str, features: int | Sequence[int] | None) -> tuple[int, ...] | None:
    """Return the sizes of the dims that are normalised over; None where the first call finds it."""
    if features is None:
        return None
    sizes = features if isinstance(features, (tuple, list)) else (features,)
    message = f"{layer}: features={features!r} has no dims"
    demand(len(sizes) > 0, message, fix="give the size of the last dim: features=64")
    return tuple(checked_size(layer, "features", size) for size in sizes)


def _last_size(layer: str, x: TensorLike) -> tuple[int, ...]:
    """Return the size of the last dim, to normalise over."""
    tensor = as_tensor(x)
    message = f"{layer}: x has no dims, and features is the size of its last one"
    demand(tensor.ndim > 0, message, {"x": tensor}, fix="x[None] adds one", error=ShapeError)
    return (checked_size(layer, "features", tensor.shape[-1]),)


def _feature_fix(layer: str, sizes: tuple[int, ...], x: Tensor) -> str:
    found = x.shape[x.ndim - len(sizes) :]
    if found == sizes or x.ndim < len(sizes):
        return ""
    wanted, actual = (s[0] if len(s) == 1 else s for s in (sizes, found))
    return f"{layer}({wanted}) receives features of size {actual}: use {layer}({actual})"


class LayerNorm(Module):
    """Normalise to mean 0 and variance 1 over the last dims, scale and shift.  [*B, *F] -> [*B, *F]

    See `gf.layer_norm`.

    Args:
        features: The size of x's last dim, or the sizes of its last dims, F; None to find that of
            the last dim in the first call, which makes the variables.
        eps: What is added to the variance.
        affine: Whether to scale by learnt weights.
        bias: Whether to shift by learnt biases, too.
        dtype: The weights' dtype, the default dtype when there is none.
        name: See `Module`.

    Attributes:
        weight: [*F], or None.
        bias: [*F], or None.

    Raises:
        ArgumentError: A size is no int, or below 1.
        ShapeError: In a call: x's last dims are not F.
    """

    weight: Variable | None
    bias: Variable | None

    def __init__(
        self,
        features: int | Sequence[int] | None,
        eps: float = 1e-5,
        affine: bool = True,
        bias: bool = True,
        dtype: DTypeLike | None = None,
        *,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.features = _sizes("LayerNorm", features)
        self.eps = eps
        make_or_wait(self, "features", self.features, affine, bias, dtype)

    def _find_size(self, x: TensorLike) -> None:
        self.features = _last_size("LayerNorm", x)

    def _make(self, affine: bool, bias: bool, dtype: Any) -> None:
        assert self.features is not None
        self.weight = parameter(init.ones, self.features, dtype) if affine else None
        self.bias = parameter(init.zeros, self.features, dtype) if affine and bias else None

    def forward(self, x: TensorLike) -> Tensor:
        """Normalise.  x: [*B, *F] -> [*B, *F]"""
        tensor = as_tensor(x)
        sizes = self.features
        assert sizes is not None
        axes = tuple(range(-len(sizes), 0))
        with explained(lambda: _feature_fix("LayerNorm", sizes, tensor)):
            return layer_norm(tensor, self.weight, self.bias, axis=axes, eps=self.eps)

    def extra_repr(self) -> str:
        """Return the text of the sizes and options."""
        options = f"eps={self.eps}, affine={self.weight is not None}"
        return f"{', '.join(map(str, self.features or ()))}, {options}"


class RMSNorm(Module):
    """Divide by the root of the mean square over the last dims, and scale.  [*B, *F] -> [*B, *F]

    See `gf.rms_norm`.

    Args:
        features: The size of x's last dim, or the sizes of its last dims, F; None to find that of
            the last dim in the first call, which makes the variables.
        eps: What is added to the mean square.
        affine: Whether to scale by learnt weights.
        dtype: The weights' dtype, the default dtype when there is none.
        name: See `Module`.

    Attributes:
        weight: [*F], or None.

    Raises:
        ArgumentError: A size is no int, or below 1.
        ShapeError: In a call: x's last dims are not F.
    """

    weight: Variable | None

    def __init__(
        self,
        features: int | Sequence[int] | None,
        eps: float = 1e-6,
        affine: bool = True,
        dtype: DTypeLike | None = None,
        *,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.features = _sizes("RMSNorm", features)
        self.eps = eps
        make_or_wait(self, "features", self.features, affine, dtype)

    def _find_size(self, x: TensorLike) -> None:
        self.features = _last_size("RMSNorm", x)

    def _make(self, affine: bool, dtype: Any) -> None:
        assert self.features is not None
        self.weight = parameter(init.ones, self.features, dtype) if affine else None

    def forward(self, x: TensorLike) -> Tensor:
        """Normalise.  x: [*B, *F] -> [*B, *F]"""
        tensor = as_tensor(x)
        sizes = self.features
        assert sizes is not None
        axes = tuple(range(-len(sizes), 0))
        with explained(lambda: _feature_fix("RMSNorm", sizes, tensor)):
            return rms_norm(tensor, self.weight, axis=axes, eps=self.eps)

    def extra_repr(self) -> str:
        """Return the text of the sizes and options."""
        options = f"eps={self.eps}, affine={self.weight is not None}"
        return f"{', '.join(map(str, self.features or ()))}, {options}"


class PerChannel(Module):
    """The base of layers with a scale and a shift for each channel."""

    weight: Variable | None
    bias: Variable | None
    size: ClassVar[str] = "channels"
    """The name of the argument that says how many channels there are."""
    elsewhere: ClassVar[str] = "where the channels are in dim {0}, say axis={0}"
    """The advice for an x whose channels may be in another dim."""

    def __init__(
        self,
        channels: int | None,
        eps: float,
        affine: bool,
        dtype: DTypeLike | None,
        axis: int | None,
        name: str | None,
        *options: Any,
    ) -> None:
        super().__init__(name=name)
        self.channels = size_or_none(type(self).__name__, self.size, channels)
        self.eps, self.axis = eps, axis
        make_or_wait(self, self.size, self.channels, affine, dtype, *options)

    def _find_size(self, x: TensorLike) -> None:
        layer, tensor = type(self).__name__, as_tensor(x)
        _, axis_index = self._axes(tensor)
        self.channels = checked_size(layer, self.size, tensor.shape[axis_index])

    def _make(self, affine: bool, dtype: Any) -> None:
        assert self.channels is not None
        self.weight = parameter(init.ones, (self.channels,), dtype) if affine else None
        self.bias = parameter(init.zeros, (self.channels,), dtype) if affine else None

    def _axes(self, x: Tensor) -> tuple[int, int]:
        """Return the axis of the channels as it is given, and counted from the front."""
        layer = type(self).__name__
        axis = channel_axis(layer, self.size, self.axis, x)
        return axis, ruled(layer, x, normalize_axis, axis, x.ndim)

    def _axis_index(self, x: Tensor) -> int:
        """Return the axis of the channels, after checking that there are as many as expected."""
        layer = type(self).__name__
        axis, axis_index = self._axes(x)
        found = x.shape[axis_index]
        fits = found == self.channels
        hint = f"use {self.size}={found}"
        if isinstance(found, Dim):
            known = tuple([self.channels if i == axis_index else None for i in range(x.ndim)])
            hint = f"say gf.assert_shape(x, {known})"
        others = [i for i, dim in enumerate(x.shape) if i and dim == self.channels]
        if others:
            hint = self.elsewhere.format(others[0])
        message = f"{layer}: x has {counted(found, 'channel')} at axis {axis}, not {self.channels}"
        own = next((v for v in self._variables.values() if v.shape == (self.channels,)), None)
        shown = {"x": x} if own is None else {"x": x, own.name.rpartition(".")[2]: own}
        demand(fits, message, shown, fix=hint, error=ShapeError)
        return axis_index

    def _axis_text(self) -> str:
        return "" if self.axis is None else f", axis={self.axis}"


class Tracking(PerChannel):
    """The base of layers that keep a running mean and variance of each channel, or none."""

    running_mean: Variable | None
    running_var: Variable | None
    num_batches_tracked: Variable | None

    def __init__(
        self,
        channels: int | None,
        eps: float,
        momentum: float | None,
        affine: bool,
        track_running_stats: bool,
        dtype: DTypeLike | None,
        axis: int | None,
        name: str | None,
    ) -> None:
        fits = momentum is None or 0 < momentum <= 1
        message = f"{type(self).__name__}: momentum={momentum} must be above 0 and at most 1"
        demand(fits, message, fix="use momentum=0.1, or None for the mean over all batches")
        self.momentum = momentum
        super().__init__(channels, eps, affine, dtype, axis, name, track_running_stats)

    def _make(self, affine: bool, dtype: Any, track_running_stats: bool = True) -> None:
        super()._make(affine, dtype)
        self.running_mean = self.running_var = self.num_batches_tracked = None
        if track_running_stats:
            assert self.channels is not None
            exact = wide_dtype(dtype_or(dtype, ambient.get_default_dtype()))
            shape = (self.channels,)
            self.running_mean = parameter(init.zeros, shape, exact, trainable=False)
            self.running_var = parameter(init.ones, shape, exact, trainable=False)
            if self.momentum is None:
                self.num_batches_tracked = parameter(init.zeros, (), int64, trainable=False)

    def _torch_rules(self) -> list[TorchRule]:
        """Say that PyTorch counts batches, also where a momentum makes that useless."""
        is_theirs = self.running_mean is not None and self.num_batches_tracked is None
        return [TheirsAlone("num_batches_tracked")] if is_theirs else []

    def _running(self) -> tuple[Variable, Variable] | None:
        """Return the running mean and variance, if there are any."""
        if self.running_mean is None or self.running_var is None:
            return None
        return self.running_mean, self.running_var

    def _follow(self, mean: Tensor, var: Tensor, count: DimLike, result: Tensor) -> None:
        """Have the running statistics updated by what minimises a loss that `result` is part of.

        Args:
            mean: The batch's mean.
            var: The batch's variance, of `count` elements.
            count: How many elements a channel has.
            result: What the layer returns.
        """
        running = self._running()
        if running is None:
            return
        moves: list[tuple[Variable, Tensor]] = []
        if self.num_batches_tracked is not None:
            batches = self.num_batches_tracked + 1
            moves.append((self.num_batches_tracked, batches))
        for old, new in zip(running, (mean, var * _bessel(count, var)), strict=True):
            batch = converted(new, old.dtype)
            if self.momentum is None:
                n = converted(batches, old.dtype)
                moves.append((old, (batch + old * (n - 1)) / n))
            else:
                moves.append((old, old + self.momentum * (batch - old)))
        graph = current_graph()
        loc = graph.provenance or capture(ambient.current_scope.get())
        graph.check_update(running[0], loc)
        graph.carried.append((Update(moves, graph, loc), result))

    def _normalised(self, x: Tensor, mean: Tensor, var: Tensor, index: int) -> Tensor:
        return batch_norm(x, mean, var, self.weight, self.bias, axis=index, eps=self.eps)


class BatchNorm(Tracking):
    """Normalise each channel over all other dims: the batch and positions.  x: [*B, C] -> [*B, C]

    In training by the batch's own mean and variance, else by running ones. The running ones are
    updated along with the step of an optimiser that minimises what the result is part of:
    `running += momentum * (batch - running)`, with the unbiased variance; or, without a momentum,
    they are the means over all batches so far. S. Ioffe, C. Szegedy, "Batch normalization", 2015.

    Args:
        channels: The size of x's dim `axis`, C; None to find it in the first call, which makes the
            variables.
        eps: What is added to the variance.
        momentum: How much of the batch goes into the running mean and variance, in (0, 1]; None
            for as much of the n-th batch as makes them the mean over n batches, 1/n.
        affine: Whether to scale and shift by learnt weights and biases.
        dtype: The weights' dtype, the default dtype when there is none; the running statistics of
            16-bit floats are float32.
        track_running_stats: Whether to have running statistics; without them it is always the
            batch's own mean and variance.
        axis: The axis of the channels. It is needed for an x of more than two dims: 1 for images
            [N, C, H, W], -1 for sequences [N, T, C].
        name: See `Module`.

    Attributes:
        weight: [C], or None.
        bias: [C], or None.
        running_mean: [C], not trained, or None.
        running_var: [C], not trained, or None.
        num_batches_tracked: How many batches the means are over, [] of int64, not trained; None
            where there is a momentum.

    Raises:
        ArgumentError: channels is no int or below 1, or momentum is outside (0, 1].
        ShapeError: In a call: x's dim `axis` is not C, or no axis is given and x has more than two
            dims, or in training each channel has one element.
    """

    def __init__(
        self,
        channels: int | None,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        dtype: DTypeLike | None = None,
        *,
        track_running_stats: bool = True,
        axis: int | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(channels, eps, momentum, affine, track_running_stats, dtype, axis, name)

    def forward(self, x: TensorLike) -> Tensor:
        """Normalise.  x: [*B, C] -> [*B, C]"""
        tensor = floats("BatchNorm", x)
        axis_index = self._axis_index(tensor)
        running = self._running()
        if running is not None and not self.training:
            return self._normalised(tensor, *running, axis_index)
        others = tuple(axis for axis in range(tensor.ndim) if axis != axis_index)
        count = size_of(tensor.shape[axis] for axis in others)
        demand(
            count != 1,
            "BatchNorm: one element a channel has no variance to train with",
            {"x": tensor},
            error=ShapeError,
            fix="evaluate by model(x, training=False), or train on larger batches",
        )
        values = wide(tensor)
        mean = F.mean(values, axis=others)
        var = F.var(values, axis=others)
        result = self._normalised(tensor, mean, var, axis_index)
        self._follow(mean, var, count, result)
        return result

    def extra_repr(self) -> str:
        """Return the text of the sizes and options."""
        affine = self.weight is not None
        tracks = "" if self.running_mean is not None else ", track_running_stats=False"
        return (
            f"{self.channels}, momentum={self.momentum}, eps={self.eps}, affine={affine}"
            f"{self._axis_text()}{tracks}"
        )


def _bessel(count: DimLike, like: Tensor) -> float | Tensor:
    """Return n / (n - 1), which makes the variance of n samples unbiased.

    A batch whose size is known only in the run may have 1 element: its variance, 0, stays 0.
    """
    if not isinstance(count, Dim):
        return count / max(count - 1, 1)
    samples = as_tensor(count, like.dtype)
    factor: Tensor = samples / F.maximum(samples - 1, 1)
    return factor


class GroupNorm(PerChannel):
    """Normalise groups of channels, with all positions, in each element.  x: [N, *S, C] -> the same

    See `gf.group_norm`.

    Args:
        groups: How many groups of neighbouring channels.
        channels: The size of x's dim `axis`, C: a multiple of groups; None to find it in the first
            call, which makes the variables.
        eps: What is added to the variance.
        affine: Whether to scale and shift by learnt weights and biases.
        dtype: The weights' dtype, the default dtype when there is none.
        axis: The axis of the channels. It is needed for an x of more than two dims: 1 for images
            [N, C, H, W], -1 for sequences [N, T, C].
        name: See `Module`.

    Attributes:
        weight: [C], or None.
        bias: [C], or None.

    Raises:
        ArgumentError: A size is no int or below 1, or channels is no multiple of groups.
        ShapeError: In a call: x's dim `axis` is not C, or no axis is given and x has more than two
            dims.
    """

    def __init__(
        self,
        groups: int,
        channels: int | None,
        eps: float = 1e-5,
        affine: bool = True,
        dtype: DTypeLike | None = None,
        *,
        axis: int | None = None,
        name: str | None = None,
    ) -> None:
        self.groups = checked_size("GroupNorm", "groups", groups)
        super().__init__(channels, eps, affine, dtype, axis, name)

    def _make(self, affine: bool, dtype: Any) -> None:
        channels, groups = self.channels, self.groups
        assert channels is not None
        message = f"GroupNorm: channels={channels} is no multiple of groups={groups}"
        near = near_divisor(groups, channels)
        demand(channels % groups == 0, message, fix=f"use groups={near}, which divides {channels}")
        super()._make(affine, dtype)

    def forward(self, x: TensorLike) -> Tensor:
        """Normalise.  x: [N, *S, C] -> the same"""
        tensor = floats("GroupNorm", x)
        axis_index = self._axis_index(tensor)
        return group_norm(
            tensor, self.groups, self.weight, self.bias, axis=axis_index, eps=self.eps
        )

    def extra_repr(self) -> str:
        """Return the text of the sizes and options."""
        affine = self.weight is not None
        sizes = f"{self.groups}, {self.channels}"
        return f"{sizes}, eps={self.eps}, affine={affine}{self._axis_text()}"
