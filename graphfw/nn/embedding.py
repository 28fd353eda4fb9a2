"""`Embedding`: a vector for each of a number of things."""

from __future__ import annotations

from dataclasses import dataclass

from graphfw.errors import DTypeError, counted
from graphfw.ir.build import emit
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
        self.num_embeddings = checked_size("Embedding", "num_embeddings", num_embeddings)
        self.embedding_dim = checked_size("Embedding", "embedding_dim", embedding_dim)
        if padding_idx is not None:
            rows = self.num_embeddings
            fits = -rows <= padding_idx < rows
            message = f"Embedding: padding_idx={padding_idx} is none of {counted(rows, 'row')}"
            demand(fits, message, fix=f"use 0 to {rows - 1}")
            padding_idx %= rows
        self.padding_idx = padding_idx
        initial = initial_of("Embedding", "weight_init", weight_init, init.normal)
        if padding_idx is not None and callable(initial):  # an array is taken as it is
            initial = _Padded(initial, padding_idx)
        self.weight = parameter(initial, (self.num_embeddings, self.embedding_dim), dtype)

    def forward(self, indices: TensorLike) -> Tensor:
        """Take the rows.  indices: [*B] -> [*B, embedding_dim]"""
        ids = as_tensor(indices)
        demand(
            ids.dtype.is_integer,
            f"Embedding: indices must be integers, not {ids.dtype.name}",
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


@dataclass(frozen=True)
class _Padded:
    """An initial table with one row of zeros."""

    initial: Initializer
    row: int

    def __call__(self, shape: tuple[int, ...], dtype: DType) -> Tensor:
        is_row = expand_dims(arange(shape[0]) == self.row, axis=1)
        return where(is_row, 0, as_tensor(self.initial(shape, dtype)))
