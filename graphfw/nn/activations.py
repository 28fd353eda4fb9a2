"""Activation functions as modules, for `Sequential`: each calls the function of its name.

Elsewhere call the function: `gf.relu(x)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias

from graphfw.errors import ArgumentError, ShapeError
from graphfw.ir.dim import DimLike
from graphfw.ir.functions import CALLED as F
from graphfw.ir.shape import normalize_axis
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Variable
from graphfw.nn import init
from graphfw.nn.checks import channel_axis, checked_size
from graphfw.nn.module import Module
from graphfw.nn.parameters import parameter
from graphfw.ops.args import Axes, TensorLike, as_tensor, ruled
from graphfw.ops.composed import demand, demand_one_of

ActivationOption: TypeAlias = str | Callable[[Tensor], Tensor]
"""An activation as an argument of a layer: a word, a function or a layer."""


def checked_activation(
    layer: str, argument: str, activation: ActivationOption, words: Sequence[str]
) -> ActivationOption:
    """Return an activation that is a known word, a function or a layer.

    Raises:
        ArgumentError: It is none of them.
    """
    if isinstance(activation, type):
        name = activation.__name__
        fix = f"make one: {argument}={name}()"
        raise ArgumentError(f"{layer}: {argument}={name} is a class", fix=fix)
    if not callable(activation):
        demand_one_of(layer, argument, activation, words)
    return activation


def activated(activation: ActivationOption, x: Tensor) -> Tensor:
    """Call an activation, or the function that a word names.  x: [*A] -> [*A]"""
    # Words, and not their functions, are kept as attributes: functions can't be pickled.
    call = getattr(F, activation) if isinstance(activation, str) else activation
    result: Tensor = call(x)
    return result


def activation_text(activation: ActivationOption) -> str:
    """Return a word, or the name of a function or layer."""
    kind = type(activation).__name__
    return activation if isinstance(activation, str) else getattr(activation, "__name__", kind)


class Activation(Module):
    """The base: calls a public function with the options that the subclass was made with."""

    function: ClassVar[str]

    def __init__(self, *, name: str | None = None, **options: Any) -> None:
        super().__init__(name=name)
        self.options = options

    def forward(self, x: TensorLike) -> Tensor:
        """Call the function.  x: [*A] -> see the function"""
        result: Tensor = getattr(F, self.function)(as_tensor(x), **self.options)
        return result

    def extra_repr(self) -> str:
        """Return the text of the options."""
        return ", ".join(f"{option}={value!r}" for option, value in self.options.items())


class _Plain(Activation):
    """The base of those without options."""

    def __init__(self, *, name: str | None = None) -> None:
        super().__init__(name=name)


class Identity(_Plain):
    """x itself."""

    function = "identity"


class ReLU(_Plain):
    """max(x, 0); see `gf.relu`."""

    function = "relu"


class ReLU6(_Plain):
    """min(max(x, 0), 6); see `gf.relu6`."""

    function = "relu6"


class SELU(_Plain):
    """The scaled ELU; see `gf.selu`."""

    function = "selu"


class SiLU(_Plain):
    """x sigmoid(x), also called swish; see `gf.silu`."""

    function = "silu"


class Mish(_Plain):
    """x tanh(softplus(x)); see `gf.mish`."""

    function = "mish"


class Tanh(_Plain):
    """tanh(x); see `gf.tanh`."""

    function = "tanh"


class Sigmoid(_Plain):
    """1 / (1 + exp(-x)); see `gf.sigmoid`."""

    function = "sigmoid"


class LogSigmoid(_Plain):
    """log(sigmoid(x)); see `gf.log_sigmoid`."""

    function = "log_sigmoid"


class Softsign(_Plain):
    """x / (1 + |x|); see `gf.softsign`."""

    function = "softsign"


class Hardsigmoid(_Plain):
    """x / 6 + 1/2 cut off at 0 and 1; see `gf.hardsigmoid`."""

    function = "hardsigmoid"


class Hardswish(_Plain):
    """x hardsigmoid(x); see `gf.hardswish`."""

    function = "hardswish"


class LeakyReLU(Activation):
    """x where positive, else negative_slope x; see `gf.leaky_relu`."""

    function = "leaky_relu"

    def __init__(self, negative_slope: float = 0.01, *, name: str | None = None) -> None:
        super().__init__(name=name, negative_slope=negative_slope)


class ELU(Activation):
    """x where positive, else alpha (exp(x) - 1); see `gf.elu`."""

    function = "elu"

    def __init__(self, alpha: float = 1.0, *, name: str | None = None) -> None:
        super().__init__(name=name, alpha=alpha)


class CELU(Activation):
    """x where positive, else alpha (exp(x / alpha) - 1); see `gf.celu`."""

    function = "celu"

    def __init__(self, alpha: float = 1.0, *, name: str | None = None) -> None:
        super().__init__(name=name, alpha=alpha)


class GELU(Activation):
    """x times the normal distribution function of x; see `gf.gelu`."""

    function = "gelu"

    def __init__(self, approximate: str = "none", *, name: str | None = None) -> None:
        super().__init__(name=name, approximate=approximate)


class Softplus(Activation):
    """log(1 + exp(beta x)) / beta; see `gf.softplus`."""

    function = "softplus"

    def __init__(self, beta: float = 1.0, *, name: str | None = None) -> None:
        super().__init__(name=name, beta=beta)


class Hardtanh(Activation):
    """x cut off at min and max; see `gf.hardtanh`."""

    function = "hardtanh"

    def __init__(self, min: float = -1.0, max: float = 1.0, *, name: str | None = None) -> None:
        super().__init__(name=name, min=min, max=max)


class GLU(Activation):
    """The first half along an axis, times the sigmoid of the second; see `gf.glu`."""

    function = "glu"

    def __init__(self, axis: int = -1, *, name: str | None = None) -> None:
        super().__init__(name=name, axis=axis)


class Softmax(Activation):
    """exp(x) over its sum along an axis; see `gf.softmax`.

    `gf.nn.cross_entropy` wants logits: a model that is trained by it does not end with this.
    """

    function = "softmax"

    def __init__(self, axis: Axes = -1, *, name: str | None = None) -> None:
        super().__init__(name=name, axis=axis)


class LogSoftmax(Activation):
    """The logarithm of softmax; see `gf.log_softmax`."""

    function = "log_softmax"

    def __init__(self, axis: Axes = -1, *, name: str | None = None) -> None:
        super().__init__(name=name, axis=axis)


class Flatten(Activation):
    """Join the dims from `start` to `end`, by default all but the batch's; see `gf.flatten`."""

    function = "flatten"

    def __init__(self, start: int = 1, end: int = -1, *, name: str | None = None) -> None:
        super().__init__(name=name, start=start, end=end)


class Unflatten(Module):
    """Split a dim into several, as `Flatten` joins them.  [*A, size, *B] -> [*A, *sizes, *B]

    Args:
        axis: The dim.
        sizes: The sizes of the dims that it becomes; one may be -1, which is what remains.
        name: See `Module`.

    Raises:
        ShapeError: In a call: the sizes don't make up the dim.
        AxisError: In a call: x has no such dim.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     x = gf.placeholder(("batch", 12))
    ...     gf.nn.Unflatten(1, (3, -1, 2))(x).shape
    (batch, 3, 2, 2)
    """

    def __init__(
        self, axis: int, sizes: int | Sequence[DimLike], *, name: str | None = None
    ) -> None:
        super().__init__(name=name)
        self.axis = axis
        self.sizes = tuple(sizes) if isinstance(sizes, Sequence) else (sizes,)

    def forward(self, x: TensorLike) -> Tensor:
        """Split.  x: [*A, size, *B] -> [*A, *sizes, *B]"""
        tensor = as_tensor(x)
        axis = ruled("Unflatten", tensor, normalize_axis, self.axis, tensor.ndim)
        return F.reshape(tensor, (*tensor.shape[:axis], *self.sizes, *tensor.shape[axis + 1 :]))

    def extra_repr(self) -> str:
        """Return the text of the axis and the sizes."""
        return f"axis={self.axis}, sizes={self.sizes}"


class PReLU(Module):
    """x where positive, else weight x, with slopes that are learnt.  x: [*A] -> [*A]

    Args:
        num_parameters: 1: one slope; else the number of channels: the size of x's dim `axis`.
        axis: The axis of the channels. With slopes of their own it is needed for an x of more than
            two dims: 1 for images [N, C, H, W], -1 for sequences [N, T, C].
        slope: The initial slope.
        name: See `Module`.

    Attributes:
        weight: [num_parameters].
    """

    def __init__(
        self,
        num_parameters: int = 1,
        *,
        axis: int | None = None,
        slope: float = 0.25,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.num_parameters = checked_size("PReLU", "num_parameters", num_parameters)
        self.axis = axis
        self.weight: Variable = parameter(init.constant(value=slope), (self.num_parameters,))

    def forward(self, x: TensorLike) -> Tensor:
        """Scale what is negative.  x: [*A] -> [*A]"""
        tensor = as_tensor(x)
        if self.num_parameters == 1:
            return F.prelu(tensor, self.weight)
        axis = channel_axis("PReLU", "slopes", self.axis, tensor)
        fits = -tensor.ndim <= axis < tensor.ndim and tensor.shape[axis] == self.num_parameters
        demand(
            fits,
            f"PReLU: {self.num_parameters} slopes don't fit x at axis {axis}",
            {"x": tensor, "weight": self.weight},
            fix="give as many slopes as the dim at `axis` has elements, or 1",
            error=ShapeError,
        )
        trailing = (tensor.ndim - 1 - axis) % tensor.ndim
        shaped = F.reshape(self.weight, (self.num_parameters, *[1] * trailing))
        return F.prelu(tensor, shaped)

    def extra_repr(self) -> str:
        """Return the number of slopes."""
        axis = "" if self.axis is None else f", axis={self.axis}"
        return f"num_parameters={self.num_parameters}{axis}"
