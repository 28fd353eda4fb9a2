"""The base of recurrent layers and cells: the recurrences, their weights, checks of arguments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar, cast

from graphfw.errors import DTypeError, ShapeError, a_type, counted
from graphfw.ir.dtype import DType, DTypeLike
from graphfw.ir.shape import shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ir.variable import Variable
from graphfw.nn import init
from graphfw.nn.checks import checked_size, size_or_none
from graphfw.nn.deferred import make_or_wait
from graphfw.nn.module import Module
from graphfw.nn.parameters import parameter
from graphfw.nn.torch_rules import TorchRule, Transposed
from graphfw.ops.args import TensorLike, as_tensor
from graphfw.ops.composed import demand, demand_one_of
from graphfw.ops.creation.constructors import zeros
from graphfw.ops.elementwise.math_functions import sigmoid, tanh
from graphfw.ops.linalg.products import matmul
from graphfw.ops.nn.activations import relu
from graphfw.ops.shape.concat import split

State: TypeAlias = tuple[Tensor, ...]
"""The state that a step takes from the one before: (h,), or (h, c)."""

StateT = TypeVar("StateT")
"""The state as calls return it: h, or (h, c) of an LSTM."""


class Weights(NamedTuple):
    """The weights of one layer in one direction; of G gates.

    weight_ih: [inputs, G * hidden]; weight_hh: [hidden, G * hidden]; the biases: [G * hidden].
    """

    weight_ih: Variable
    weight_hh: Variable
    bias_ih: Variable | None
    bias_hh: Variable | None


class CellRecurrence(ABC):
    """The computation of a step."""

    gates: ClassVar[int]
    states: ClassVar[tuple[str, ...]]

    def projected(self, x: Tensor, w: Weights) -> Tensor:
        """Return the input's share of the gates, for all steps at once.

        x: [*A, inputs] -> [*A, gates * hidden]
        """
        product = matmul(x, w.weight_ih)
        if w.bias_ih is None or w.bias_hh is None:
            return product
        return product + (w.bias_ih + w.bias_hh)

    @abstractmethod
    def step(self, z: Tensor, state: State, w: Weights) -> State:
        """Return the next state.  z: [*B, gates * hidden], states: [*B, hidden]"""


class RNNRecurrence(CellRecurrence):
    """An activation of what comes in and of the state."""

    gates = 1
    states = ("h",)

    def __init__(self, activation: Callable[[TensorLike], Tensor]) -> None:
        self.activation = activation

    def step(self, z: Tensor, state: State, w: Weights) -> State:
        """Return the next state."""
        return (self.activation(z + matmul(state[0], w.weight_hh)),)


class LSTMRecurrence(CellRecurrence):
    """Gates i, f, o and a cell; see `LSTM`."""

    gates = 4
    states = ("h", "c")

    def step(self, z: Tensor, state: State, w: Weights) -> State:
        """Return the next state."""
        h, c = state
        enter, forget, cell, leave = split(z + matmul(h, w.weight_hh), 4, axis=-1)
        c = sigmoid(forget) * c + sigmoid(enter) * tanh(cell)
        return sigmoid(leave) * tanh(c), c


class GRURecurrence(CellRecurrence):
    """Gates r, z and a new state; see `GRU`."""

    gates = 3
    states = ("h",)

    def projected(self, x: Tensor, w: Weights) -> Tensor:
        """Return the product with the inputs' own bias."""
        # The reset gate scales some entries of the other bias, which so belongs to the step.
        product = matmul(x, w.weight_ih)
        return product if w.bias_ih is None else product + w.bias_ih

    def step(self, z: Tensor, state: State, w: Weights) -> State:
        """Return the next state."""
        (h,) = state
        own = matmul(h, w.weight_hh)
        if w.bias_hh is not None:
            own = own + w.bias_hh
        reset_x, update_x, new_x = split(z, 3, axis=-1)
        reset_h, update_h, new_h = split(own, 3, axis=-1)
        update = sigmoid(update_x + update_h)
        new = tanh(new_x + sigmoid(reset_x + reset_h) * new_h)
        return (new + update * (h - new),)


_NONLINEARITIES: dict[str, Callable[[TensorLike], Tensor]] = {"tanh": tanh, "relu": relu}


def rnn_recurrence(owner: str, nonlinearity: str) -> RNNRecurrence:
    """Return the recurrence of an activation's name."""
    demand_one_of(owner, "nonlinearity", nonlinearity, _NONLINEARITIES)
    return RNNRecurrence(_NONLINEARITIES[nonlinearity])


class Recurrent(Module, Generic[StateT]):
    """The base of cells and layers."""

    def __init__(
        self,
        kind: CellRecurrence,
        input_size: int | None,
        hidden_size: int,
        bias: bool,
        name: str | None,
    ) -> None:
        super().__init__(name=name)
        self._kind = kind
        self.input_size = size_or_none(type(self).__name__, "input_size", input_size)
        self.hidden_size = checked_size(type(self).__name__, "hidden_size", hidden_size)
        self.bias = bias

    def _make_or_wait(self, dtype: DTypeLike | None) -> None:
        """Make the weights, now or in the first call."""
        make_or_wait(self, "input_size", self.input_size, dtype)

    def _find_size(self, x: TensorLike) -> None:
        features = self._with_dims(x).shape[-1]
        self.input_size = checked_size(type(self).__name__, "input_size", features)

    def _add_weights(self, suffix: str, inputs: int | None, dtype: DTypeLike | None) -> None:
        """Make the weights of a layer and direction."""
        assert inputs is not None  # the first call has found it
        spread, wide = init.spread(self.hidden_size), self._kind.gates * self.hidden_size
        rows = {"weight_ih": inputs, "weight_hh": self.hidden_size}
        for name, size in rows.items():
            made = parameter(spread, (size, wide), dtype, is_transposed=True)
            setattr(self, name + suffix, made)
        for name in ("bias_ih", "bias_hh"):
            bias = parameter(spread, (wide,), dtype) if self.bias else None
            setattr(self, name + suffix, bias)

    def _torch_rules(self) -> list[TorchRule]:
        return [Transposed("weight_*")]  # PyTorch's are [gates * hidden_size, inputs]

    def _weights(self, suffix: str) -> Weights:
        return Weights(*[getattr(self, name + suffix) for name in Weights._fields])

    @abstractmethod
    def _form(self) -> tuple[int, str]:
        """Return the least number of dims of an input, and what its dims are."""

    def _with_dims(self, x: TensorLike) -> Tensor:
        """Return the input, which has as many dims as it needs."""
        tensor, me, (ndim, form) = as_tensor(x), type(self).__name__, self._form()
        message = (
            f"{me}: the input must have {counted(ndim, 'dim')} or more, {form}, not {tensor.ndim}"
        )
        fix = f"give it as {form}"
        demand(tensor.ndim >= ndim, message, {"x": tensor}, fix=fix, error=ShapeError)
        return tensor

    def _checked_input(self, x: TensorLike) -> Tensor:
        tensor, me = self._with_dims(x), type(self).__name__
        features = tensor.shape[-1]
        message = f"{me}(input_size={self.input_size}) receives {counted(features, 'feature')}"
        fix = f"use input_size={features}"
        if not isinstance(features, int):
            known = (*[None] * (tensor.ndim - 1), self.input_size)
            fix = f"say gf.assert_shape(x, {known})"
        shown = {"x": tensor, "weight": next(iter(self._variables.values()))}
        demand(features == self.input_size, message, shown, fix=fix, error=ShapeError)
        return tensor

    def _checked_state(self, state: Any, shape: Shape, dtype: DType, form: str = "") -> State:
        """Return a state's tensors: the given ones, or zeros."""
        names, me = self._kind.states, type(self).__name__
        if state is None:
            return tuple([zeros(shape, dtype=dtype) for _ in names])
        several = len(names) > 1
        if several:
            is_pair = isinstance(state, (tuple, list)) and len(state) == len(names)
            message = f"{me}: the state is {a_type(state)}, not a pair (h, c)"
            demand(is_pair, message, fix="pass what a call returned, or (h, c)")
        tensors = tuple([as_tensor(t) for t in (state if several else [state])])
        for label, tensor in zip(names, tensors, strict=True):
            operands = {label: tensor}
            message = f"{me}: {label} is {shape_text(tensor.shape)}, not {shape_text(shape)}"
            fix = "the state has the input's batch dims and hidden_size" + form
            if not form and tensor.shape[1:] == shape:
                fix = f"write {label}[-1]: the state of the last layer, where there are several"
            demand(tensor.shape == shape, message, operands, fix=fix, error=ShapeError)
            message = f"{me}: {label} is {tensor.dtype.name}, and its steps make {dtype.name}"
            fix = f"write gf.astype({label}, gf.{dtype.name})"
            demand(tensor.dtype == dtype, message, operands, fix=fix, error=DTypeError)
        return tensors

    def _returned(self, state: State) -> StateT:
        return cast(StateT, state if len(state) > 1 else state[0])
