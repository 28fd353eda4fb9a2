"""Initial values for variables: `gf.Variable(init.he_normal, shape=(64, 128))`.

Each name is an initialiser, ready for use; called with options it gives another with these:
`init.he_normal(mode="fan_out")`, `init.normal(std=0.02)`. Called with a shape it draws a tensor; a
session does so when it starts, in a stream of the variable's name: the values depend on the
session's seed and on that name only.

`fan_in` and `fan_out`, the numbers of inputs and outputs of one unit, follow from the shape: dim
`in_axis` and dim `out_axis`, times the size of all other dims. The defaults fit the [in, out]
weights of `Linear`; for convolution kernels [out, in, …] say `in_axis=1, out_axis=0`.
"""

from __future__ import annotations

import abc
import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from inspect import Parameter, Signature
from numbers import Number
from typing import TYPE_CHECKING, Any, Self, overload

from graphfw.errors import AxisError, ShapeError
from graphfw.hints.calls import FOREIGN, raise_refusal, refuse_kinds
from graphfw.hints.names import hints_for_module
from graphfw.ir import ambient
from graphfw.ir.dtype import DType, DTypeLike
from graphfw.ir.functions import F
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import INITIALIZERS
from graphfw.nn.checks import checked_size, near_divisor
from graphfw.ops import random
from graphfw.ops.args import converted, dtype_or
from graphfw.ops.composed import demand, demand_one_of, wide_dtype
from graphfw.ops.creation.constructors import full
from graphfw.ops.creation.ranges import eye
from graphfw.ops.elementwise.where_clip import where
from graphfw.ops.linalg.cholesky_qr import qr

__all__ = [
    "Initializer",
    "constant",
    "dirac",
    "he_normal",
    "he_uniform",
    "identity",
    "lecun_normal",
    "lecun_uniform",
    "normal",
    "ones",
    "orthogonal",
    "truncated_normal",
    "uniform",
    "xavier_normal",
    "xavier_uniform",
    "zeros",
]

if not TYPE_CHECKING:  # which would take a module with `__getattr__` to have every name
    __getattr__, __dir__ = hints_for_module("gf.nn.init", __name__, __all__)


class _Taken:
    """The signature of an initialiser's call: its options are the fields of its class."""

    def __get__(
        self, initializer: Initializer | None, owner: type[Initializer]
    ) -> Signature | None:
        if initializer is None:
            return None  # a class takes what its `__init__` does
        call = inspect.signature(owner.__call__)
        options = [
            Parameter(
                f.name,
                Parameter.KEYWORD_ONLY,
                default=getattr(initializer, f.name),
                annotation=f.type,
            )
            for f in fields(initializer)
        ]
        shape, dtype = list(call.parameters.values())[1:3]
        return call.replace(parameters=[shape, dtype, *options])


@dataclass(frozen=True)
class Initializer(abc.ABC):
    """The base: a subclass says in `draw` how to fill a shape, with its options as fields."""

    __signature__ = _Taken()

    @overload
    def __call__(self, **options: Any) -> Self: ...
    @overload
    def __call__(self, shape: Sequence[int], dtype: DTypeLike | None = None) -> Tensor: ...
    def __call__(
        self, shape: Sequence[int] | None = None, dtype: DTypeLike | None = None, **options: Any
    ) -> Any:
        """Return an initialiser with other options, or, given a shape, a tensor of it.

        Raises:
            ArgumentError: There is no such option, or it makes no sense.
            ShapeError: `shape` is no shape, or the initialiser can't fill it.
        """
        arguments = () if shape is None else (shape, dtype)
        try:
            made = replace(self, **options) if shape is None else self._drawn(shape, dtype, options)
        except FOREIGN as error:
            raise_refusal(error, self, arguments, options, _public_name(self))
        refuse_kinds(self, arguments, options, _public_name(self))  # options may only fail later
        return made

    def _drawn(
        self, shape: Sequence[int], dtype: DTypeLike | None, options: Mapping[str, Any]
    ) -> Tensor:
        name = type(self).__name__
        is_shape = isinstance(shape, (tuple, list))
        example = next((f"{field.name}={shape!r}" for field in fields(self)), "")
        demand(
            is_shape,
            f"{name}: {shape!r} is no shape",
            error=ShapeError,
            fix=f"name the option: {example}" if example else "give a tuple of ints",
        )
        demand(not options, f"{name}: options come in a call of their own", fix="init(…)(shape)")
        return self.draw(tuple(shape), dtype_or(dtype, ambient.get_default_dtype()))

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            message = f"{type(self).__name__}: {one.name}={value!r} is no number"
            fits = isinstance(value, Number) or not isinstance(one.default, float)
            demand(fits, message, fix=f"use {one.name}={one.default!r}")

    @abc.abstractmethod
    def draw(self, shape: tuple[int, ...], dtype: DType) -> Tensor:
        """Return a tensor of this shape and dtype."""


@dataclass(frozen=True)
class Constant(Initializer):
    """One value everywhere."""

    value: float = 0.0

    if TYPE_CHECKING:

        @overload  # type: ignore[override]  # its own options only
        def __call__(self, *, value: float = ...) -> Self: ...
        @overload
        def __call__(self, shape: Sequence[int], dtype: DTypeLike | None = None) -> Tensor: ...
        def __call__(self, shape: Any = None, dtype: Any = None, **options: Any) -> Any: ...

    def draw(self, shape: tuple[int, ...], dtype: DType) -> Tensor:
        """Fill the shape."""
        return full(shape, self.value, dtype=dtype)


@dataclass(frozen=True)
class IdentityMatrix(Initializer):
    """`gain` on the diagonal of a matrix, 0 elsewhere."""

    gain: float = 1.0

    if TYPE_CHECKING:

        @overload  # type: ignore[override]  # its own options only
        def __call__(self, *, gain: float = ...) -> Self: ...
        @overload
        def __call__(self, shape: Sequence[int], dtype: DTypeLike | None = None) -> Tensor: ...
        def __call__(self, shape: Any = None, dtype: Any = None, **options: Any) -> Any: ...

    def draw(self, shape: tuple[int, ...], dtype: DType) -> Tensor:
        """Make the matrix."""
        message = f"identity: the shape {list(shape)} is no matrix"
        demand(len(shape) == 2, message, fix="use it for weights of 2 dims", error=ShapeError)
        return eye(shape[0], shape[1], dtype=dtype) * self.gain


@dataclass(frozen=True)
class UniformInitializer(Initializer):
    """Uniform in [low, high)."""

    low: float = 0.0
    high: float = 1.0

    if TYPE_CHECKING:

        @overload  # type: ignore[override]  # its own options only
        def __call__(self, *, low: float = ..., high: float = ...) -> Self: ...
        @overload
        def __call__(self, shape: Sequence[int], dtype: DTypeLike | None = None) -> Tensor: ...
        def __call__(self, shape: Any = None, dtype: Any = None, **options: Any) -> Any: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        message = f"{type(self).__name__}: low={self.low} must be below high={self.high}"
        demand(self.low < self.high, message, fix="name the options: uniform(low=-0.1, high=0.1)")

    def draw(self, shape: tuple[int, ...], dtype: DType) -> Tensor:
        """Draw from the distribution."""
        return random.uniform(shape, self.low, self.high, dtype=dtype)


@lru_cache
def spread(fan_in: int) -> UniformInitializer:
    """Return the initialiser of layers that are given none: uniform in ±1/sqrt(fan_in)."""
    bound = fan_in**-0.5
    return UniformInitializer(low=-bound, high=bound)


@dataclass(frozen=True)
class NormalInitializer(Initializer):
    """Normal."""

    mean: float = 0.0
    std: float = 1.0

    if TYPE_CHECKING:

        @overload  # type: ignore[override]  # its own options only
        def __call__(self, *, mean: float = ..., std: float = ...) -> Self: ...
        @overload
        def __call__(self, shape: Sequence[int], dtype: DTypeLike | None = None) -> Tensor: ...
        def __call__(self, shape: Any = None, dtype: Any = None, **options: Any) -> Any: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        message = f"{type(self).__name__}: std={self.std} must not be negative"
        demand(self.std >= 0, message, fix="use std=0.02")

    def draw(self, shape: tuple[int, ...], dtype: DType) -> Tensor:
        """Draw from the distribution."""
        return random.normal(shape, self.mean, self.std, dtype=dtype)


@dataclass(frozen=True)
class TruncatedNormal(NormalInitializer):
    """Normal, cut off at mean + low std and mean + high std."""

    low: float = -2.0
    high: float = 2.0

    if TYPE_CHECKING:

        @overload  # type: ignore[override]  # its own options only
        def __call__(
            self, *, mean: float = ..., std: float = ..., low: float = ..., high: float = ...
        ) -> Self: ...
        @overload
        def __call__(self, shape: Sequence[int], dtype: DTypeLike | None = None) -> Tensor: ...
        def __call__(self, shape: Any = None, dtype: Any = None, **options: Any) -> Any: ...

    def draw(self, shape: tuple[int, ...], dtype: DType) -> Tensor:
        """Draw from the distribution."""
        return random.truncated_normal(shape, self.low, self.high, self.mean, self.std, dtype=dtype)


@dataclass(frozen=True)
class VarianceScaling(Initializer):
    """Mean 0 and variance gain² / fan, where fan is `fan_in`, `fan_out` or their mean, `fan_avg`.

    K. He et al., "Delving deep into rectifiers", 2015 (gain² = 2, for ReLU); X. Glorot, Y. Bengio,
    "Understanding the difficulty of training deep feedforward neural networks", 2010 (fan_avg).
    """

    mode: str = "fan_in"
    gain: float = 1.0
    distribution: str = "normal"
    in_axis: int = -2
    out_axis: int = -1

    if TYPE_CHECKING:

        @overload  # type: ignore[override]  # its own options only
        def __call__(
            self,
            *,
            mode: str = ...,
            gain: float = ...,
            distribution: str = ...,
            in_axis: int = ...,
            out_axis: int = ...,
        ) -> Self: ...
        @overload
        def __call__(self, shape: Sequence[int], dtype: DTypeLike | None = None) -> Tensor: ...
        def __call__(self, shape: Any = None, dtype: Any = None, **options: Any) -> Any: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        for option, allowed in _CHOICES.items():
            value = getattr(self, option)
            demand_one_of("VarianceScaling", option, value, allowed)
        message = f"VarianceScaling: gain={self.gain} must be positive"
        demand(self.gain > 0, message, fix="use gain=1.0")

    def draw(self, shape: tuple[int, ...], dtype: DType) -> Tensor:
        """Draw from the distribution."""
        fan_in, fan_out = fans(shape, self.in_axis, self.out_axis)
        fan = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[self.mode]
        std = self.gain / math.sqrt(max(fan, 1))
        if self.distribution == "normal":
            return random.normal(shape, std=std, dtype=dtype)
        bound = math.sqrt(3) * std
        return random.uniform(shape, -bound, bound, dtype=dtype)


@dataclass(frozen=True)
class Orthogonal(Initializer):
    """A random orthogonal matrix times `gain`, uniform over all: rows or columns are orthonormal.

    Of more than two dims it is the matrix [all others, dim `out_axis`]. A. Saxe et al., "Exact
    solutions to the nonlinear dynamics of learning in deep linear neural networks", 2013; F.
    Mezzadri, "How to generate random matrices from the classical compact groups", 2007.

    >>> import graphfw as gf
    >>> w = gf.nn.init.orthogonal((3, 5), gf.float64)
    >>> bool(gf.allclose(w @ w.mT, gf.eye(3, dtype=gf.float64)))
    True
    """

    gain: float = 1.0
    out_axis: int = -1

    if TYPE_CHECKING:

        @overload  # type: ignore[override]  # its own options only
        def __call__(self, *, gain: float = ..., out_axis: int = ...) -> Self: ...
        @overload
        def __call__(self, shape: Sequence[int], dtype: DTypeLike | None = None) -> Tensor: ...
        def __call__(self, shape: Any = None, dtype: Any = None, **options: Any) -> Any: ...

    def draw(self, shape: tuple[int, ...], dtype: DType) -> Tensor:
        """Draw a matrix of normal numbers, and make its columns orthonormal."""
        demand(
            len(shape) >= 2,
            f"orthogonal: the shape {list(shape)} has not 2 dims",
            fix="use init.normal(std=…) for vectors",
            error=ShapeError,
        )
        fits = -len(shape) <= self.out_axis < len(shape)
        message = f"orthogonal: out_axis={self.out_axis} is no axis of {list(shape)}"
        demand(fits, message, fix="use out_axis=-1, or 0 for kernels", error=AxisError)
        axis = self.out_axis % len(shape)
        others = shape[:axis] + shape[axis + 1 :]
        rows, columns = math.prod(others), shape[axis]
        exact = wide_dtype(dtype)
        normal = random.normal((max(rows, columns), min(rows, columns)), dtype=exact)
        q, r = qr(normal)
        # The signs of R's diagonal are the algorithm's choice, not chance's.
        q = q * where(F.diagonal(r) < 0, -self.gain, self.gain)
        matrix = q if rows >= columns else q.mT
        weight = F.moveaxis(F.reshape(matrix, (*others, columns)), -1, axis)
        return converted(weight, dtype)


@dataclass(frozen=True)
class Dirac(Initializer):
    """A convolution kernel that passes channels on unchanged.  [out, in / groups, *K]

    1 at the middle of each channel's own kernel, 0 elsewhere: in each group, output i is input i,
    as far as there are both.

    >>> import graphfw as gf
    >>> gf.nn.init.dirac((1, 2, 3))
    Tensor([[[0., 1., 0.],
             [0., 0., 0.]]], dtype=float32)
    """

    groups: int = 1

    if TYPE_CHECKING:

        @overload  # type: ignore[override]  # its own options only
        def __call__(self, *, groups: int = ...) -> Self: ...
        @overload
        def __call__(self, shape: Sequence[int], dtype: DTypeLike | None = None) -> Tensor: ...
        def __call__(self, shape: Any = None, dtype: Any = None, **options: Any) -> Any: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_size("dirac", "groups", self.groups)

    def draw(self, shape: tuple[int, ...], dtype: DType) -> Tensor:
        """Make the kernel."""
        message = f"dirac: the shape {list(shape)} is no kernel's, [out, in, *K]"
        fix = "use init.identity for matrices" if len(shape) == 2 else "give at least 3 dims"
        demand(len(shape) >= 3, message, fix=fix, error=ShapeError)
        out_channels, in_channels, *kernel = shape
        message = f"dirac: {out_channels} output channels are no multiple of groups={self.groups}"
        near = near_divisor(self.groups, out_channels)
        demand(out_channels % self.groups == 0, message, fix=f"use groups={near}")
        own = eye(out_channels // self.groups, in_channels, dtype=dtype)
        channels = F.reshape(F.tile(own, (self.groups, 1)), (*shape[:2], *[1] * len(kernel)))
        middle = sum(size // 2 * math.prod(kernel[axis + 1 :]) for axis, size in enumerate(kernel))
        return channels * F.reshape(F.one_hot(middle, math.prod(kernel), dtype=dtype), kernel)


_CHOICES = {"mode": ("fan_in", "fan_out", "fan_avg"), "distribution": ("normal", "uniform")}


def fans(shape: Sequence[int], in_axis: int = -2, out_axis: int = -1) -> tuple[int, int]:
    """Return the numbers of inputs and outputs of one unit of a weight.

    Raises:
        ShapeError: The shape has fewer than 2 dims, or the axes are not two of its own.
    """
    demand(
        len(shape) >= 2,
        f"fans: a weight of shape {list(shape)} has no fans: it has not 2 dims",
        error=ShapeError,
        fix="use init.normal(std=…) or init.uniform(low=…, high=…)",
    )
    axes = [axis + len(shape) if axis < 0 else axis for axis in (in_axis, out_axis)]
    fits = all(0 <= axis < len(shape) for axis in axes) and axes[0] != axes[1]
    message = f"in_axis={in_axis} and out_axis={out_axis} are not two axes of {list(shape)}"
    demand(fits, f"fans: {message}", fix="name two of the shape's dims", error=AxisError)
    field = math.prod(size for axis, size in enumerate(shape) if axis not in axes)
    return shape[axes[0]] * field, shape[axes[1]] * field


def _public_name(initializer: Initializer) -> str:
    names = [name for name in __all__ if globals()[name] is initializer]
    return names[0] if names else type(initializer).__name__


INITIALIZERS.update(
    {
        kind.__name__: kind
        for kind in (
            Constant,
            Dirac,
            IdentityMatrix,
            NormalInitializer,
            Orthogonal,
            TruncatedNormal,
            UniformInitializer,
            VarianceScaling,
        )
    },
    # As earlier texts write them.
    Identity=IdentityMatrix,
    Normal=NormalInitializer,
    Uniform=UniformInitializer,
)

zeros = Constant(0.0)
ones = Constant(1.0)
constant = Constant()
identity = IdentityMatrix()
uniform = UniformInitializer()
normal = NormalInitializer()
truncated_normal = TruncatedNormal()
xavier_uniform = VarianceScaling("fan_avg", distribution="uniform")
xavier_normal = VarianceScaling("fan_avg")
he_uniform = VarianceScaling(gain=math.sqrt(2), distribution="uniform")
he_normal = VarianceScaling(gain=math.sqrt(2))
lecun_normal = VarianceScaling()
lecun_uniform = VarianceScaling(distribution="uniform")
orthogonal = Orthogonal()
dirac = Dirac()
