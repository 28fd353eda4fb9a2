"""`WeightNorm` and `SpectralNorm`: layers whose weight is computed from another one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from graphfw.errors import ArgumentError, counted
from graphfw.ir import ambient
from graphfw.ir.dtype import DType
from graphfw.ir.functions import CALLED as F
from graphfw.ir.graph import current_graph
from graphfw.ir.literal import Array
from graphfw.ir.shape import normalize_axis
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import InitialOf, Update, Variable
from graphfw.loc import capture
from graphfw.nn.checks import checked_size
from graphfw.nn.convolution import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from graphfw.nn.module import Module
from graphfw.nn.parameters import parameter
from graphfw.nn.registration import checked_module
from graphfw.ops.args import as_tensor, converted, ruled
from graphfw.ops.composed import demand, wide, wide_dtype
from graphfw.ops.creation.inputs import stop_gradient


class _Wrapper(Module):
    """The base: calls a layer with another weight in the place of its own."""

    layer: Module
    names: ClassVar[Mapping[str, str]]
    """PyTorch's names of variables, with those here."""
    least_ndim: ClassVar[int]
    """The number of dims that the weight has at least."""

    def __init__(self, layer: Module, axis: int | None, name: str | None) -> None:
        super().__init__(name=name)
        kind = type(self).__name__
        self.layer = checked_module(kind, "layer", layer)
        weight = vars(layer).get("weight")
        message = f"{kind}: {type(layer).__name__} has no variable named weight"
        fix = "wrap the layers that have one, such as gf.nn.Linear"
        if not isinstance(weight, Variable):
            raise ArgumentError(message, fix=fix)
        message = f"{kind}: the weight of {type(layer).__name__} has {counted(weight.ndim, 'dim')}"
        fits = weight.ndim >= self.least_ndim
        demand(fits, message, {"weight": weight}, fix=fix)
        first = weight.ndim - 1 if weight.is_transposed else self._first_axis(layer)
        given = first if axis is None else axis
        self.axis: int = ruled(kind, weight, normalize_axis, given, weight.ndim)

    @property
    def _own_weight(self) -> Variable:
        """The layer's weight."""
        own: Variable = vars(self.layer)["weight"]
        return own

    @staticmethod
    def _first_axis(layer: Module) -> int:
        """Return PyTorch's default of the axis, for a weight with PyTorch's layout."""
        del layer
        return 0

    def _with_weight(self, weight: Tensor, inputs: tuple[Any, ...]) -> Any:
        """Call the layer, whose attribute is another tensor meanwhile."""
        attributes, own = vars(self.layer), self._own_weight
        attributes["weight"] = weight
        try:
            return self.layer(*inputs)
        finally:
            attributes["weight"] = own

    def from_torch(self, state: dict[str, Any]) -> dict[str, Any]:
        """Give PyTorch's variables their names here, where the others are the layer's."""
        return {self.names.get(n, f"layer.{n}"): array for n, array in state.items()}

    def extra_repr(self) -> str:
        """Return the text of the axis."""
        return f"axis={self.axis}"


class WeightNorm(_Wrapper):
    """A layer whose weight is scale * weight / |weight|, for each output.

    Length and direction are trained apart. T. Salimans and D. Kingma, "Weight normalization", 2016.
    It begins as the layer does. State dicts of PyTorch's `weight_norm` can be loaded.

    Args:
        layer: A layer with a variable `weight`, such as `Linear` or `Conv2d`, which stays trained.
        axis: The axis of the weight with a norm for each index: by default the last one of
            `Linear`, and else 0, as in PyTorch.
        name: See `Module`.

    Attributes:
        layer: The layer.
        scale: The norms of the weight that it is called with: [n].

    Raises:
        ArgumentError: layer is no Module, or has no variable `weight`.
        AxisError: The weight has no such axis.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     layer = gf.nn.WeightNorm(gf.nn.Linear(64, 10))
    ...     layer(gf.placeholder(("batch", 64))).shape
    (batch, 10)
    """

    least_ndim = 1
    names: ClassVar[Mapping[str, str]] = {
        "weight_g": "scale",
        "weight_v": "layer.weight",
        "parametrizations.weight.original0": "scale",
        "parametrizations.weight.original1": "layer.weight",
    }

    def __init__(self, layer: Module, axis: int | None = None, *, name: str | None = None) -> None:
        super().__init__(layer, axis, name)
        weight = self._own_weight
        norms = _Begin.of(weight, partial(_flat_norms, axis=self.axis))
        self.scale = parameter(norms, (_ints(weight)[self.axis],), weight.dtype)

    def forward(self, *inputs: Any) -> Tensor | Any:
        """Call the layer.

        Args:
            inputs: The layer's.
        """
        own = self._own_weight
        values = wide(own)
        shape = tuple(-1 if i == self.axis else 1 for i in range(own.ndim))
        factors = F.reshape(wide(self.scale), shape) / _norms(values, self.axis)
        return self._with_weight(converted(values * factors, own.dtype), inputs)

    def from_torch(self, state: dict[str, Any]) -> dict[str, Any]:
        """Give PyTorch's variables their names here, and the norms one dim."""
        made = super().from_torch(state)
        return made | {"scale": made["scale"].reshape(-1)} if "scale" in made else made


class SpectralNorm(_Wrapper):
    """A layer whose weight is weight / its largest singular value.

    So a `Linear` makes no difference of inputs longer. T. Miyato et al., "Spectral normalization
    for generative adversarial networks", 2018. The singular value comes from a power iteration
    that goes on in training: `minimize` and `apply_gradients` update its vectors, as those of
    `BatchNorm`. State dicts of PyTorch's `spectral_norm` can be loaded.

    Args:
        layer: A layer with a variable `weight` of two dims or more, such as `Linear` or `Conv2d`,
            which stays trained.
        iterations: How many steps of the power iteration a call in training makes.
        axis: The axis of the weight that becomes the rows of a matrix; by default the last one of
            `Linear`, 1 of transposed convolutions, and else 0, as in PyTorch.
        eps: The least divisor of the vectors.
        name: See `Module`.

    Attributes:
        layer: The layer.
        u, v: The vectors, of as many elements as the matrix has rows and columns; not trained.

    Raises:
        ArgumentError: layer is no Module, or has no variable `weight` of two dims or more; or
            iterations is no int, or below 1.
        AxisError: The weight has no such axis.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     layer = gf.nn.SpectralNorm(gf.nn.Conv2d(3, 8, 3))
    ...     layer(gf.placeholder(("batch", 3, 8, 8))).shape
    (batch, 8, 6, 6)
    """

    least_ndim = 2
    names: ClassVar[Mapping[str, str]] = {
        "weight_orig": "layer.weight",
        "weight_u": "u",
        "weight_v": "v",
        "parametrizations.weight.original": "layer.weight",
        "parametrizations.weight.0._u": "u",
        "parametrizations.weight.0._v": "v",
    }

    def __init__(
        self,
        layer: Module,
        iterations: int = 1,
        *,
        axis: int | None = None,
        eps: float = 1e-12,
        name: str | None = None,
    ) -> None:
        super().__init__(layer, axis, name)
        weight = self._own_weight
        self.iterations = checked_size("SpectralNorm", "iterations", iterations)
        self.eps = eps
        rows = _ints(weight)[self.axis]
        sizes = rows, math.prod(_ints(weight)) // rows
        exact = wide_dtype(weight.dtype)
        self.u, self.v = (
            parameter(
                _Begin.of(weight, partial(_first_vector, axis=self.axis, eps=eps, side=side)),
                (size,),
                exact,
                trainable=False,
            )
            for side, size in enumerate(sizes)
        )

    @staticmethod
    def _first_axis(layer: Module) -> int:
        return 1 if isinstance(layer, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)) else 0

    def forward(self, *inputs: Any) -> Tensor | Any:
        """Call the layer.

        Args:
            inputs: The layer's.
        """
        own = self._own_weight
        values = wide(own)
        matrix = _matrix(values, self.axis)
        u: Tensor = self.u
        v: Tensor = self.v
        is_training = self.training
        if is_training:
            u, v = _iterated(stop_gradient(matrix), v, self.iterations, self.eps)
        norm = F.vecdot(u, matrix @ v)
        result = self._with_weight(converted(values / norm, own.dtype), inputs)
        if is_training:
            graph = current_graph()
            loc = graph.provenance or capture(ambient.current_scope.get())
            graph.check_update(self.u, loc)
            graph.carried.append((Update([(self.u, u), (self.v, v)], graph, loc), result))
        return result


def _ints(variable: Variable) -> tuple[int, ...]:
    return tuple(size for size in variable.shape if isinstance(size, int))  # all of a weight's


def _norms(weight: Tensor, axis: int) -> Tensor:
    """Return the norm for each index of an axis; the other dims are 1."""
    others = tuple(i for i in range(weight.ndim) if i != axis)
    return F.vector_norm(weight, axis=others, keepdims=True) if others else F.abs(weight)


def _flat_norms(weight: Tensor, axis: int) -> Tensor:
    return F.reshape(_norms(weight, axis), (-1,))


def _matrix(weight: Tensor, axis: int) -> Tensor:
    """Lay out a weight as a matrix, whose rows are the indices of an axis."""
    return F.reshape(F.moveaxis(weight, axis, 0), (weight.shape[axis], -1))


def _iterated(matrix: Tensor, v: Tensor, count: int, eps: float) -> tuple[Tensor, Tensor]:
    """Return the vectors u and v after steps of the power iteration."""
    for _ in range(count):
        u = F.normalize(matrix @ v, eps=eps)
        v = F.normalize(matrix.mT @ u, eps=eps)
    return u, v


def _first_vector(weight: Tensor, axis: int, eps: float, side: int) -> Tensor:
    """Return u (side 0) or v (side 1) of a weight, after 15 steps, as many as PyTorch makes."""
    matrix = _matrix(wide(weight), axis)
    start = F.cos(F.arange(1, matrix.shape[1] + 1, dtype=matrix.dtype))
    return _iterated(matrix, start, 15, eps)[side]


@dataclass(frozen=True)
class _Begin:
    """An initialiser: a function of what another variable begins with."""

    initial: Array | Tensor | InitialOf
    shape: tuple[int, ...]
    dtype: DType
    function: partial[Tensor]

    @classmethod
    def of(cls, variable: Variable, function: partial[Tensor]) -> _Begin:
        """Make one of a variable."""
        initial: Any = variable.initial
        if callable(initial) and not isinstance(initial, (Tensor, InitialOf)):
            initial = InitialOf(initial, lambda: variable.name)
        return cls(initial, _ints(variable), variable.dtype, function)

    def __call__(self, shape: tuple[int, ...], dtype: DType) -> Tensor:
        initial = self.initial
        first = initial(self.shape, self.dtype) if isinstance(initial, InitialOf) else initial
        return converted(self.function(as_tensor(first)), dtype)

    def __repr__(self) -> str:
        of = repr(self.initial) if isinstance(self.initial, InitialOf) else "an array"
        return f"{self.function.func.__name__.lstrip('_')}({of})"
