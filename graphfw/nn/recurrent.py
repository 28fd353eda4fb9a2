"""Recurrent layers: `RNN`, `LSTM`, `GRU`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from graphfw.errors import DTypeError, ShapeError
from graphfw.ir.dtype import DTypeLike, int64
from graphfw.ir.shape import shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Variable
from graphfw.nn.checks import checked_size
from graphfw.nn.recurrence import (
    CellRecurrence,
    GRURecurrence,
    LSTMRecurrence,
    Recurrent,
    State,
    StateT,
    Weights,
    rnn_recurrence,
)
from graphfw.ops.args import TensorLike, as_tensor, converted
from graphfw.ops.composed import demand, demand_probability
from graphfw.ops.control.control_flow import scan
from graphfw.ops.creation.ranges import arange
from graphfw.ops.elementwise.where_clip import where
from graphfw.ops.nn.activations import dropout
from graphfw.ops.shape.axes import expand_dims, moveaxis
from graphfw.ops.shape.concat import concat
from graphfw.ops.shape.stacking import stack


class _Layer(Recurrent[StateT]):
    """All steps of one or more layers, in one or two directions."""

    weight_ih_l0: Variable
    weight_hh_l0: Variable
    bias_ih_l0: Variable | None
    bias_hh_l0: Variable | None

    def __init__(
        self,
        kind: CellRecurrence,
        input_size: int | None,
        hidden_size: int,
        num_layers: int,
        bias: bool,
        batch_first: bool,
        dropout: float,
        bidirectional: bool,
        dtype: DTypeLike | None,
        name: str | None,
    ) -> None:
        super().__init__(kind, input_size, hidden_size, bias, name)
        me = type(self).__name__
        self.num_layers = checked_size(me, "num_layers", num_layers)
        demand_probability(me, "dropout", dropout)
        message = f"{me}: dropout={dropout} is between layers, and there is one layer"
        fix = "use num_layers=2 or more, or gf.nn.Dropout after it"
        demand(not dropout or self.num_layers > 1, message, fix=fix)
        self.batch_first, self.dropout, self.bidirectional = batch_first, dropout, bidirectional
        self._make_or_wait(dtype)

    def _make(self, dtype: DTypeLike | None) -> None:
        directions = 1 + self.bidirectional
        for layer in range(self.num_layers):
            inputs = directions * self.hidden_size if layer else self.input_size
            for suffix in self._suffixes(layer):
                self._add_weights(suffix, inputs, dtype)

    def _form(self) -> tuple[int, str]:
        return 2, "[*B, T, input_size]" if self.batch_first else "[T, *B, input_size]"

    def _suffixes(self, layer: int) -> list[str]:
        """Return how the names of a layer's weights end, for each direction."""
        return [f"_l{layer}", f"_l{layer}_reverse"][: 1 + self.bidirectional]

    def forward(
        self,
        x: TensorLike,
        state: Any = None,
        *,
        lengths: TensorLike | None = None,
        mask: TensorLike | None = None,
    ) -> tuple[Tensor, StateT]:
        """Make all steps.

        A step that is padding leaves the state as it is and yields zeros, so that the last state
        is that of each sequence's own end, and the other direction begins there.

        Args:
            x: [T, *B, input_size]; [*B, T, input_size] with `batch_first`.
            state: The first state, h, or (h, c) of an LSTM: [num_layers * directions, *B,
                hidden_size] each; zeros where there is none.
            lengths: Integers [*B]: how many steps of each sequence are no padding. What is above T
                counts as T.
            mask: Instead of lengths, bools [T, *B], or [*B, T] with `batch_first`: False for
                padding.

        Returns:
            The last layer's h of all steps, [T, *B, directions * hidden_size] or [*B, T, …], and
            the last state, of the form of `state`.

        Raises:
            ShapeError, DTypeError: Something has other dims or another dtype.
            ArgumentError: There are lengths and a mask; the state of an LSTM is no pair.
        """
        tensor = self._checked_input(x)
        time = tensor.ndim - 2 if self.batch_first else 0
        sequence = moveaxis(tensor, time, 0)
        seen = self._seen(sequence, time, lengths, mask)
        count = self.num_layers * (1 + self.bidirectional)
        shape = (count, *sequence.shape[1:-1], self.hidden_size)
        first = self._kind.projected(sequence, self._weights("_l0"))
        begin = self._checked_state(
            state, shape, first.dtype, ", after num_layers times the directions"
        )
        ends: list[State] = []
        for layer in range(self.num_layers):
            if layer:
                sequence = dropout(sequence, self.dropout)
            stacks = []
            for suffix in self._suffixes(layer):
                w, number = self._weights(suffix), len(ends)
                z = self._kind.projected(sequence, w) if number else first
                start = tuple([s[number] for s in begin])
                end, hs = self._steps(z, start, w, seen, suffix.endswith("_reverse"))
                ends.append(end)
                stacks.append(hs)
            sequence = stacks[0] if len(stacks) == 1 else concat(stacks, axis=-1)
        last = tuple([stack(each) for each in zip(*ends, strict=True)])
        return moveaxis(sequence, 0, time), self._returned(last)

    def _steps(
        self, z: Tensor, start: State, w: Weights, seen: Tensor | None, backwards: bool
    ) -> tuple[State, Tensor]:
        """Return the last state, and h of all steps.  z: [T, *B, gates * hidden_size]"""

        def step(state: State, x: tuple[Tensor, Tensor | None]) -> tuple[State, Tensor]:
            z, seen = x
            new = self._kind.step(z, state, w)
            if seen is None:
                return new, new[0]
            new = tuple([where(seen, a, b) for a, b in zip(new, state, strict=True)])
            return new, where(seen, new[0], 0)

        end, hs = scan(step, start, (z, seen), reverse=backwards)
        return end, hs

    def _seen(
        self, x: Tensor, time: int, lengths: TensorLike | None, mask: TensorLike | None
    ) -> Tensor | None:
        """Return which steps are no padding.  x: [T, *B, features] -> bool [T, *B, 1]"""
        me = type(self).__name__
        message, fix = f"{me}: there are lengths and a mask", "leave one of them out"
        demand(lengths is None or mask is None, message, fix=fix)
        steps, *batch = x.shape[:-1]
        if lengths is not None:
            ends = as_tensor(lengths)
            self._check_padding("lengths", ends, tuple(batch), ends.dtype.is_integer, "integers")
            numbers = arange(steps)
            for _ in batch:
                numbers = expand_dims(numbers, axis=-1)
            return expand_dims(numbers < converted(ends, int64), axis=-1)
        if mask is not None:
            flags = as_tensor(mask)
            shape = (*batch[:time], steps, *batch[time:])
            self._check_padding("the mask", flags, shape, flags.dtype.is_bool, "bools")
            return expand_dims(moveaxis(flags, time, 0), axis=-1)
        return None

    def _check_padding(
        self, what: str, lengths: Tensor, shape: Sequence[Any], fits: bool, kind: str
    ) -> None:
        me, operands = type(self).__name__, {what: lengths}
        verb, each = ("are", "sequence") if what == "lengths" else ("is", "step")
        message = f"{me}: {what} {verb} {shape_text(lengths.shape)}, not {shape_text(tuple(shape))}"
        fix = f"give one {'length' if what == 'lengths' else 'bool'} for each {each}"
        if what == "lengths" and not self.batch_first:
            fix += "; the first dim of x is time without batch_first"
        demand(lengths.shape == tuple(shape), message, operands, fix=fix, error=ShapeError)
        message = f"{me}: {what} must be of {kind}, not {lengths.dtype.name}"
        fix = "write gf.astype(lengths, gf.int64)" if what == "lengths" else "write mask != 0"
        demand(fits, message, operands, fix=fix, error=DTypeError)

    def extra_repr(self) -> str:
        """Return the text of the sizes and options."""
        options = [f"num_layers={self.num_layers}"] if self.num_layers > 1 else []
        options += [n for n in ("batch_first", "bidirectional") if getattr(self, n)]
        options += [f"dropout={self.dropout}"] if self.dropout else []
        return ", ".join([f"{self.input_size} -> {self.hidden_size}", *options])


class RNN(_Layer[Tensor]):
    """A recurrent layer: h ← tanh(x W_ih + b_ih + h W_hh + b_hh).  See `forward` for shapes.

    `load_state_dict` takes the state dict of PyTorch's layer.

    Args:
        input_size: The size of x's last dim; None to find it in the first call, which makes the
            variables.
        hidden_size: The size of the state.
        num_layers: How many layers there are, each over the steps of the one before.
        nonlinearity: "tanh" or "relu".
        bias: Whether there are biases.
        batch_first: Whether the dim of time comes after those of the batch.
        dropout: In training, the probability of dropping an element between layers.
        bidirectional: Whether each layer also goes from the last step to the first.
        dtype: The weights' dtype, the default dtype when there is none.
        name: See `Module`.

    Attributes:
        weight_ih_l0: [input_size, hidden_size]; in layer k > 0 `weight_ih_l<k>`: [directions *
            hidden_size, hidden_size]; those of the other direction end in `_reverse`. Initially all
            weights are uniform in ±1/sqrt(hidden_size).
        weight_hh_l0: [hidden_size, hidden_size].
        bias_ih_l0, bias_hh_l0: [hidden_size], or None.

    Raises:
        ArgumentError: A size is no int or below 1, there is no such nonlinearity, dropout is
            outside [0, 1), or above 0 with one layer.
    """

    def __init__(
        self,
        input_size: int | None,
        hidden_size: int,
        num_layers: int = 1,
        *,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        dtype: DTypeLike | None = None,
        name: str | None = None,
    ) -> None:
        kind, first = rnn_recurrence("RNN", nonlinearity), batch_first
        sizes = (input_size, hidden_size, num_layers)
        super().__init__(kind, *sizes, bias, first, dropout, bidirectional, dtype, name)
        self.nonlinearity = nonlinearity


class _GatedLayer(_Layer[StateT]):
    """The layers of a recurrence without options."""

    recurrence: ClassVar[type[CellRecurrence]]

    def __init__(
        self,
        input_size: int | None,
        hidden_size: int,
        num_layers: int = 1,
        *,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        dtype: DTypeLike | None = None,
        name: str | None = None,
    ) -> None:
        kind, first = self.recurrence(), batch_first
        sizes = (input_size, hidden_size, num_layers)
        super().__init__(kind, *sizes, bias, first, dropout, bidirectional, dtype, name)


class LSTM(_GatedLayer[tuple[Tensor, Tensor]]):
    """Long short-term memory: gates say what enters a cell, stays in it and leaves it.

    c ← σ(f) c + σ(i) tanh(g), h ← σ(o) tanh(c), with [i, f, g, o] = x W_ih + b_ih + h W_hh + b_hh.
    S. Hochreiter and J. Schmidhuber, 1997, with the forget gate of F. Gers et al., 2000. The state
    is (h, c). See `forward` for shapes, `RNN` for PyTorch's state dicts; the order of the gates is
    the same there.

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional: As `RNN`.
        dtype: The weights' dtype, the default dtype when there is none.
        name: See `Module`.

    Attributes:
        weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0: As in `RNN`, with 4 * hidden_size
            columns: i, f, g, o.

    Raises:
        ArgumentError: As `RNN`.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     lstm = gf.nn.LSTM(16, 32, num_layers=2, batch_first=True)
    ...     y, (h, c) = lstm(gf.placeholder(("batch", "time", 16)))
    >>> y.shape, c.shape
    ((batch, time, 32), (2, batch, 32))
    """

    recurrence = LSTMRecurrence


class GRU(_GatedLayer[Tensor]):
    """Gated recurrent units: h ← (1 - z) n + z h.  See `forward` for shapes.

    [r, z] = σ of the first two thirds of x W_ih + b_ih + h W_hh + b_hh, and n = tanh(x W_in + b_in
    + r (h W_hn + b_hn)): the reset gate scales the product, as in PyTorch and cuDNN; K. Cho et
    al., 2014, has it scale h before the product. See `RNN` for PyTorch's state dicts.

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional: As `RNN`.
        dtype: The weights' dtype, the default dtype when there is none.
        name: See `Module`.

    Attributes:
        weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0: As in `RNN`, with 3 * hidden_size
            columns: r, z, n.

    Raises:
        ArgumentError: As `RNN`.
    """

    recurrence = GRURecurrence
