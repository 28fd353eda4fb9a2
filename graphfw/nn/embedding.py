"""`Embedding`: a vector for each of a number of things; `LearnedPositions`: one for a position."""

from __future__ import annotations

from dataclasses import dataclass

from graphfw.errors import DTypeError, ShapeError, counted
from graphfw.ir.build import emit
from graphfw.ir.dim import Dim
from graphfw.ir.dtype import DType, DTypeLike
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Initializer
from graphfw.nn import init
from graphfw.nn.checks import checked_size
from graphfw.nn.module import Module
from graphfw.nn.parameters import initial_of, parameter
from graphfw.ops.args import TensorLike, as_tensor
from graphfw.ops.composed import demand
from graphfw.ops.creation.inputs import stop_gradient
from graphfw.ops.creation.ranges import arange
from graphfw.ops.elementwise.where_clip import where
from graphfw.ops.shape.axes import expand_dims
from graphfw.ops.shape.gather_scatter import Gather

# Negative indices are refused: mostly they are marks, as of padding, and no count from the end.
_REFUSAL = "Embedding: index {index} is out of range: it has {size} rows"


class Embedding(Module):
    """The rows of a table that indices name.  indices: integers [*B] -> [*B, embedding_dim]

    Args:
        num_embeddings: The number of rows; indices are from 0 to num_embeddings - 1.
        embedding_dim: The size of a row.
        padding_idx: A row that gets no gradient, and that initialisers begin with 0.
        dtype: The table's dtype, the default dtype when there is none.
        weight_init: The initial table: an initialiser or an array; normal with mean 0 and variance
            1 when there is none.
        name: See `Module`.

    Attributes:
        weight: [num_embeddings, embedding_dim].

    Raises:
        ArgumentError: A size is no int or below 1, or padding_idx is no row.
        DTypeError: In a call: the indices are no integers.
        ExecutionError: When run: an index is negative or out of range.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        dtype: DTypeLike | None = None,
        *,
        weight_init: Initializer | TensorLike | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        layer = type(self).__name__
        self.num_embeddings = checked_size(layer, "num_embeddings", num_embeddings)
        self.embedding_dim = checked_size(layer, "embedding_dim", embedding_dim)
        if padding_idx is not None:
            rows = self.num_embeddings
            fits = -rows <= padding_idx < rows
            message = f"{layer}: padding_idx={padding_idx} is none of {counted(rows, 'row')}"
            demand(fits, message, fix=f"use 0 to {rows - 1}")
            padding_idx %= rows
        self.padding_idx = padding_idx
        initial = initial_of(layer, "weight_init", weight_init, init.normal)
        if padding_idx is not None and callable(initial):  # an array is taken as it is
            initial = _Padded(initial, padding_idx)
        self.weight = parameter(initial, (self.num_embeddings, self.embedding_dim), dtype)

    def forward(self, indices: TensorLike) -> Tensor:
        """Take the rows.  indices: [*B] -> [*B, embedding_dim]"""
        ids = as_tensor(indices)
        demand(
            ids.dtype.is_integer,
            f"{type(self).__name__}: indices must be integers, not {ids.dtype.name}",
            {"indices": ids, "weight": self.weight},
            fix="use ints, or convert with gf.astype(index, gf.int64)",
            error=DTypeError,
        )
        rows = emit(Gather(0, _REFUSAL), self.weight, ids)
        if self.padding_idx is None:
            return rows
        is_padding = expand_dims(ids == self.padding_idx, axis=-1)
        return where(is_padding, stop_gradient(rows), rows)

    def extra_repr(self) -> str:
        """Return the text of the sizes."""
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings} -> {self.embedding_dim}{padding}"


_BEYOND = "LearnedPositions: position {index} is out of range: there are {size}"


class LearnedPositions(Module):
    """Add a learned vector for each position.  x: [*B, T, embed_dim] -> [*B, T, embed_dim]

    Args:
        max_length: The number of positions; T is at most as many.
        embed_dim: The size of x's last dim.
        dtype: The vectors' dtype, the default dtype when there is none.
        weight_init: The initial vectors: an initialiser or an array; normal with mean 0 and
            standard deviation 0.02 when there is none.
        name: See `Module`.

    Attributes:
        weight: [max_length, embed_dim].

    Raises:
        ArgumentError: A size is no int or below 1.
        ShapeError: In a call: x has another size, or more positions.
        DTypeError: In a call: positions are no integers.
        ExecutionError: When run: a position is negative or out of range.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     model = gf.nn.Sequential(gf.nn.Embedding(100, 64), gf.nn.LearnedPositions(512, 64))
    ...     model(gf.placeholder(("batch", "time"), gf.int64)).shape
    (batch, time, 64)
    """

    def __init__(
        self,
        max_length: int,
        embed_dim: int,
        dtype: DTypeLike | None = None,
        *,
        weight_init: Initializer | TensorLike | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.max_length = checked_size("LearnedPositions", "max_length", max_length)
        self.embed_dim = checked_size("LearnedPositions", "embed_dim", embed_dim)
        spread = init.normal(std=0.02)
        initial = initial_of("LearnedPositions", "weight_init", weight_init, spread)
        self.weight = parameter(initial, (self.max_length, self.embed_dim), dtype)

    def forward(self, x: TensorLike, positions: TensorLike | None = None) -> Tensor:
        """Add the vectors.  x: [*B, T, embed_dim] -> the same

        Args:
            x: A sequence.
            positions: Ints that broadcast to [*B, T]; 0, 1, … by default.
        """
        tensor = as_tensor(x)
        layer = "LearnedPositions"
        message = f"{layer}: x has {counted(tensor.ndim, 'dim')}, and no [T, {self.embed_dim}]"
        fits = tensor.ndim >= 2
        fix = "it has a dim for time before its features: x[None] is a sequence of one"
        demand(fits, message, {"x": tensor}, fix=fix, error=ShapeError)
        length, features = tensor.shape[-2:]
        message = f"{layer}: x has {counted(features, 'feature')}, not {self.embed_dim}"
        fix = f"use {layer}({self.max_length}, {features})"
        if isinstance(features, Dim):
            known = (*[None] * (tensor.ndim - 1), self.embed_dim)
            fix = f"say gf.assert_shape(x, {known})"
        shown = {"x": tensor, "weight": self.weight}
        demand(features == self.embed_dim, message, shown, fix=fix, error=ShapeError)
        if positions is not None:
            return tensor + emit(Gather(0, _BEYOND), self.weight, _whole_numbers(layer, positions))
        message = f"{layer}: x has {counted(length, 'position')}, and there are {self.max_length}"
        fix = f"use {layer}({length}, {self.embed_dim})"
        is_longer = isinstance(length, int) and length > self.max_length
        demand(not is_longer, message, shown, fix=fix, error=ShapeError)
        return tensor + emit(Gather(0, _BEYOND), self.weight, arange(length))

    def extra_repr(self) -> str:
        """Return the text of the sizes."""
        return f"{self.max_length}, {self.embed_dim}"


def _whole_numbers(layer: str, positions: TensorLike) -> Tensor:
    tensor = as_tensor(positions)
    message = f"{layer}: positions must be integers, not {tensor.dtype.name}"
    fix = "convert with gf.astype(positions, gf.int64)"
    fits = tensor.dtype.is_integer
    demand(fits, message, {"positions": tensor}, fix=fix, error=DTypeError)
    return tensor


@dataclass(frozen=True)
class _Padded:
    """An initial table with one row of zeros."""

    initial: Initializer
    row: int

    def __call__(self, shape: tuple[int, ...], dtype: DType) -> Tensor:
        is_row = expand_dims(arange(shape[0]) == self.row, axis=1)
        return where(is_row, 0, as_tensor(self.initial(shape, dtype)))
