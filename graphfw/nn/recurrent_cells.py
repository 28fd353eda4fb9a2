"""Recurrent cells, which make one step: `RNNCell`, `LSTMCell`, `GRUCell`."""

from __future__ import annotations

from typing import Any, ClassVar

from graphfw.ir.dtype import DTypeLike
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Variable
from graphfw.nn.recurrence import (
    CellRecurrence,
    GRURecurrence,
    LSTMRecurrence,
    Recurrent,
    StateT,
    rnn_recurrence,
)
from graphfw.ops.args import TensorLike


class _RecurrentStep(Recurrent[StateT]):
    """One step of one layer."""

    weight_ih: Variable
    weight_hh: Variable
    bias_ih: Variable | None
    bias_hh: Variable | None

    def __init__(
        self,
        kind: CellRecurrence,
        input_size: int | None,
        hidden_size: int,
        bias: bool,
        dtype: DTypeLike | None,
        name: str | None,
    ) -> None:
        super().__init__(kind, input_size, hidden_size, bias, name)
        self._make_or_wait(dtype)

    def _make(self, dtype: DTypeLike | None) -> None:
        self._add_weights("", self.input_size, dtype)

    def _form(self) -> tuple[int, str]:
        return 1, "[*B, input_size]"

    def forward(self, x: TensorLike, state: Any = None) -> StateT:
        """Make a step, and return the next state.

        Args:
            x: [*B, input_size].
            state: h, or (h, c) of an LSTM: [*B, hidden_size] each; zeros where there is none.

        Raises:
            ShapeError, DTypeError: Something has other dims or another dtype.
            ArgumentError: The state of an LSTM is no pair.
        """
        tensor, w = self._checked_input(x), self._weights("")
        z = self._kind.projected(tensor, w)
        shape = (*tensor.shape[:-1], self.hidden_size)
        return self._returned(self._kind.step(z, self._checked_state(state, shape, z.dtype), w))

    def extra_repr(self) -> str:
        """Return the text of the sizes."""
        return f"{self.input_size} -> {self.hidden_size}, bias={self.bias}"


class RNNCell(_RecurrentStep[Tensor]):
    """One step of `RNN`.  x: [*B, input_size], h: [*B, hidden_size] -> h

    Args:
        input_size, hidden_size, bias, nonlinearity, dtype, name: As `RNN`.

    Attributes:
        weight_ih, weight_hh, bias_ih, bias_hh: As in `RNN`.

    Raises:
        ArgumentError: As `RNN`.
    """

    def __init__(
        self,
        input_size: int | None,
        hidden_size: int,
        bias: bool = True,
        *,
        nonlinearity: str = "tanh",
        dtype: DTypeLike | None = None,
        name: str | None = None,
    ) -> None:
        kind = rnn_recurrence("RNNCell", nonlinearity)
        super().__init__(kind, input_size, hidden_size, bias, dtype, name)
        self.nonlinearity = nonlinearity


class _GatedCell(_RecurrentStep[StateT]):
    """One step of a recurrence without options."""

    recurrence: ClassVar[type[CellRecurrence]]

    def __init__(
        self,
        input_size: int | None,
        hidden_size: int,
        bias: bool = True,
        *,
        dtype: DTypeLike | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(self.recurrence(), input_size, hidden_size, bias, dtype, name)


class LSTMCell(_GatedCell[tuple[Tensor, Tensor]]):
    """One step of `LSTM`.  x: [*B, input_size], (h, c): [*B, hidden_size] each -> (h, c)

    Args:
        input_size, hidden_size, bias, dtype, name: As `LSTM`.

    Attributes:
        weight_ih, weight_hh, bias_ih, bias_hh: As in `LSTM`.

    Raises:
        ArgumentError: As `LSTM`.
    """

    recurrence = LSTMRecurrence


class GRUCell(_GatedCell[Tensor]):
    """One step of `GRU`.  x: [*B, input_size], h: [*B, hidden_size] -> h

    Args:
        input_size, hidden_size, bias, dtype, name: As `GRU`.

    Attributes:
        weight_ih, weight_hh, bias_ih, bias_hh: As in `GRU`.

    Raises:
        ArgumentError: As `GRU`.
    """

    recurrence = GRURecurrence
