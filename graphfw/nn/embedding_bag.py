"""`EmbeddingBag`: the sum, mean or maximum of the rows of a table that a bag names."""

from __future__ import annotations

from graphfw.errors import DTypeError, ShapeError, counted
from graphfw.ir.dim import DimLike
from graphfw.ir.dtype import DTypeLike
from graphfw.ir.functions import CALLED as F
from graphfw.ir.shape import can_broadcast, shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Initializer
from graphfw.nn.embedding import Embedding
from graphfw.ops.args import TensorLike, as_tensor, converted
from graphfw.ops.composed import demand, demand_one_of, wide

_MODES = ("mean", "sum", "max")


class EmbeddingBag(Embedding):
    """The mean, sum or maximum of the rows that the indices of a bag name.

    indices: [*B, N], a bag in each row -> [*B, embedding_dim]; or [M], with the position where each
    bag begins -> [bags, embedding_dim]. An empty bag gives zeros.

    Args:
        num_embeddings: The number of rows; indices are from 0 to num_embeddings - 1.
        embedding_dim: The size of a row.
        mode: "mean", "sum" or "max".
        padding_idx: A row that is no part of a bag, that gets no gradient, and that initialisers
            begin with 0: rows of bags can be filled up with it.
        dtype, weight_init, name: As for `Embedding`.

    Attributes:
        weight: [num_embeddings, embedding_dim].

    Raises:
        ArgumentError: As `Embedding`, or the mode is unknown. In a call: weights are given, and the
            mode is not "sum".
        DTypeError: In a call: indices or offsets are no integers, or weights no real numbers.
        ShapeError: In a call: indices have no dim, or offsets or weights don't fit.
        ExecutionError: When run: an index is negative or out of range, or offsets don't begin
            with 0.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     bag = gf.nn.EmbeddingBag(1000, 16, mode="sum")
    ...     words = gf.placeholder(("batch", "words"), gf.int64)
    ...     bag(words).shape
    (batch, 16)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        mode: str = "mean",
        padding_idx: int | None = None,
        dtype: DTypeLike | None = None,
        *,
        weight_init: Initializer | TensorLike | None = None,
        name: str | None = None,
    ) -> None:
        demand_one_of("EmbeddingBag", "mode", mode, _MODES)
        self.mode = mode
        sizes = num_embeddings, embedding_dim, padding_idx, dtype
        super().__init__(*sizes, weight_init=weight_init, name=name)

    def forward(
        self,
        indices: TensorLike,
        offsets: TensorLike | None = None,
        weights: TensorLike | None = None,
    ) -> Tensor:
        """Take the rows of each bag, and reduce them.

        Args:
            indices: [*B, N]; with offsets [M].
            offsets: Where each bag begins in the indices: [bags], in order, from 0.
            weights: A factor for each index, where the mode is "sum": of the indices' shape.
        """
        ids = as_tensor(indices)
        rows = super().forward(ids)
        is_flat = offsets is not None
        message = f"EmbeddingBag: indices have {counted(ids.ndim, 'dim')}"
        fits = ids.ndim == 1 if is_flat else ids.ndim >= 1
        fix = "with offsets they have one: [M]" if is_flat else "write indices[None]: one bag"
        demand(fits, message, {"indices": ids}, fix=fix, error=ShapeError)
        values = wide(rows)
        if weights is not None:
            values = values * F.expand_dims(self._factors(ids, weights), axis=-1)
        if self.padding_idx is None:
            counts = F.ones(ids.shape, dtype=values.dtype)
        else:
            is_kept = ids != self.padding_idx
            counts = converted(is_kept, values.dtype)
            rest = -float("inf") if self.mode == "max" else 0.0
            values = F.where(F.expand_dims(is_kept, axis=-1), values, rest)
        if offsets is None:
            sizes = F.sum(counts, axis=-1, keepdims=True)
            total = self._reduced(values)
        else:
            bags, count = self._bags(ids, as_tensor(offsets))
            sizes = F.expand_dims(F.segment_sum(counts, bags, count), axis=-1)
            reduce = F.segment_max if self.mode == "max" else F.segment_sum
            total = reduce(values, bags, count)
        if self.mode == "mean":
            total = total / F.maximum(sizes, 1)
        elif self.mode == "max":
            total = F.where(sizes > 0, total, 0.0)
        return converted(total, rows.dtype)

    def _reduced(self, values: Tensor) -> Tensor:
        """Sum up the rows of each bag, or take the largest numbers.  [*B, N, D] -> [*B, D]"""
        if self.mode != "max":
            return F.sum(values, axis=-2)
        # One element more: there is no maximum of none.
        least = F.full((*values.shape[:-2], 1, values.shape[-1]), -float("inf"), dtype=values.dtype)
        return F.max(F.concat([values, least], axis=-2), axis=-2)

    def _bags(self, ids: Tensor, offsets: Tensor) -> tuple[Tensor, DimLike]:
        """Return the number of the bag of each index, and how many there are."""
        message = f"EmbeddingBag: offsets must be integers, not {offsets.dtype.name}"
        fix = "use ints, or convert with gf.astype(offsets, gf.int64)"
        fits = offsets.dtype.is_integer
        demand(fits, message, {"offsets": offsets}, fix=fix, error=DTypeError)
        message = f"EmbeddingBag: offsets have {counted(offsets.ndim, 'dim')}, not 1"
        fix = "give the position where each bag begins: [bags]"
        demand(offsets.ndim == 1, message, {"offsets": offsets}, fix=fix, error=ShapeError)
        at = F.arange(ids.shape[0], dtype=offsets.dtype)
        return F.searchsorted(offsets, at, side="right") - 1, offsets.shape[0]

    def _factors(self, ids: Tensor, weights: TensorLike) -> Tensor:
        """Return a factor for each index."""
        message = f'EmbeddingBag: weights are for mode="sum", and it is "{self.mode}"'
        demand(self.mode == "sum", message, fix='use mode="sum"')
        factors = as_tensor(weights)
        shown = {"indices": ids, "weights": factors}
        message = f"EmbeddingBag: weights must be floats, not {factors.dtype.name}"
        fits, fix = factors.dtype.is_floating, "use floats, or convert with gf.astype"
        demand(fits, message, shown, fix=fix, error=DTypeError)
        message = f"EmbeddingBag: weights have the shape {shape_text(factors.shape)}"
        fits, fix = can_broadcast(factors.shape, ids.shape), "give one for each index"
        demand(fits, message, shown, fix=fix, error=ShapeError)
        return wide(factors)

    def extra_repr(self) -> str:
        """Return the text of the sizes and the mode."""
        return f"{super().extra_repr()}, mode={self.mode}"
