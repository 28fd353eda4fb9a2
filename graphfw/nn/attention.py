"""`MultiHeadAttention`."""

from __future__ import annotations

from graphfw.errors import DTypeError, ShapeError, counted
from graphfw.ir.dim import Dim
from graphfw.ir.dtype import DTypeLike
from graphfw.ir.tensor import Tensor
from graphfw.nn import init
from graphfw.nn.checks import checked_size, explained, near_divisor
from graphfw.nn.linear import Linear
from graphfw.nn.module import Module
from graphfw.nn.torch_rules import Concatenated, Renamed, TorchRule
from graphfw.ops.args import TensorLike, as_tensor
from graphfw.ops.composed import demand, demand_probability
from graphfw.ops.nn.attention import scaled_dot_product_attention
from graphfw.ops.shape.axes import expand_dims, swapaxes
from graphfw.ops.shape.movement import reshape


class MultiHeadAttention(Module):
    """Attention in several subspaces at once.  [*B, Tq, embed_dim] -> [*B, Tq, embed_dim]

    A. Vaswani et al., "Attention is all you need", 2017. A query whose keys are all masked gets the
    output's bias only.

    Args:
        embed_dim: The size of queries and results.
        num_heads: The number of subspaces; it divides embed_dim.
        dropout: In training, the probability of leaving out a key.
        bias: Whether the four linear maps have biases.
        causal: Query i sees keys 0 to i only.
        key_dim: The size of keys, embed_dim by default.
        value_dim: The size of values, that of keys by default.
        dtype: The weights' dtype, the default dtype when there is none.
        name: See `Module`.

    Attributes:
        q_proj, k_proj, v_proj, out_proj: The `Linear` maps.

    Raises:
        ArgumentError: A size is no int or below 1, embed_dim is no multiple of num_heads, or
            dropout is outside [0, 1).
        ShapeError, DTypeError: In a call: shapes don't fit, or the mask is of integers.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     attend = gf.nn.MultiHeadAttention(64, 8, causal=True)
    ...     attend(gf.placeholder(("batch", "time", 64))).shape
    (batch, time, 64)
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        causal: bool = False,
        key_dim: int | None = None,
        value_dim: int | None = None,
        dtype: DTypeLike | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        layer = "MultiHeadAttention"
        self.embed_dim = checked_size(layer, "embed_dim", embed_dim)
        self.num_heads = checked_size(layer, "num_heads", num_heads)
        self.key_dim = checked_size(layer, "key_dim", key_dim or embed_dim)
        self.value_dim = checked_size(layer, "value_dim", value_dim or self.key_dim)
        divides = self.embed_dim % self.num_heads == 0
        message = f"{layer}: embed_dim={embed_dim} is no multiple of num_heads={num_heads}"
        near = near_divisor(self.num_heads, self.embed_dim)
        demand(divides, message, fix=f"use num_heads={near}, which divides {embed_dim}")
        demand_probability(layer, "dropout", dropout)
        self.dropout, self.causal = dropout, causal

        def linear(size: int) -> Linear:
            spread, size_out = init.xavier_uniform, self.embed_dim
            return Linear(size, size_out, bias, dtype, weight_init=spread, bias_init=init.zeros)

        self.q_proj = linear(self.embed_dim)
        self.k_proj = linear(self.key_dim)
        self.v_proj = linear(self.value_dim)
        self.out_proj = Linear(self.embed_dim, self.embed_dim, bias, dtype, bias_init=init.zeros)

    def forward(
        self,
        query: TensorLike,
        key: TensorLike | None = None,
        value: TensorLike | None = None,
        mask: TensorLike | None = None,
    ) -> Tensor:
        """Attend to keys and values, by default to the queries' own.

        Args:
            query: [*B, Tq, embed_dim].
            key: [*B, Tk, key_dim]; the queries by default.
            value: [*B, Tk, value_dim]; the keys by default.
            mask: Bools, True where the query may see the key, or floats added to the scores:
                [Tq, Tk], [*B, Tq, Tk] or [*B, num_heads, Tq, Tk], or what broadcasts to these. To
                leave out padding give [*B, 1, Tk].
        """
        queries = as_tensor(query)
        keys = queries if key is None else as_tensor(key)
        values = keys if value is None else as_tensor(value)
        message = f"MultiHeadAttention: queries must have 2 dims or more, not {queries.ndim}"
        fix = "they have a dim for time before their features: query[None] is a sequence of one"
        demand(queries.ndim >= 2, message, {"query": queries}, fix=fix, error=ShapeError)
        q = self._projected(self.q_proj, queries, "embed_dim")
        k = self._projected(self.k_proj, keys, "key_dim")
        v = self._projected(self.v_proj, values, "value_dim")
        heads = scaled_dot_product_attention(
            q,
            k,
            v,
            self._laid_out(mask, queries.ndim),
            causal=self.causal,
            dropout=self.dropout if self.dropout and self.is_training else 0.0,
        )
        joined = swapaxes(heads, -3, -2)
        result: Tensor = self.out_proj(reshape(joined, (*joined.shape[:-2], self.embed_dim)))
        return result

    def _torch_rules(self) -> list[TorchRule]:
        """Say how PyTorch joins the first three maps; their weights only where sizes are equal."""
        weights, biases = [[f"{n}_proj.{kind}" for n in "qkv"] for kind in ("weight", "bias")]
        if {self.key_dim, self.value_dim} == {self.embed_dim}:
            return [Concatenated("in_proj_weight", weights), Concatenated("in_proj_bias", biases)]
        separate = [Renamed(name.replace(".", "_"), name) for name in weights]
        return [*separate, Concatenated("in_proj_bias", biases)]

    def _projected(self, linear: Linear, x: Tensor, size: str) -> Tensor:
        """Map what has the width that the argument `size` says, and split it."""

        def fix() -> str:
            wanted = linear.in_features
            found = x.shape[-1] if x.ndim else wanted
            if found == wanted or isinstance(found, Dim):
                return ""
            layer = f"MultiHeadAttention({size}={wanted})"
            return f"{layer} receives {counted(found, 'feature')}: use {size}={found}"

        with explained(fix):
            return self._split(linear(x))

    def _split(self, x: Tensor) -> Tensor:
        """Give each head its channels.  x: [*B, T, embed_dim] -> [*B, num_heads, T, width]"""
        width = self.embed_dim // self.num_heads
        return swapaxes(reshape(x, (*x.shape[:-1], self.num_heads, width)), -3, -2)

    def _laid_out(self, mask: TensorLike | None, ndim: int) -> Tensor | None:
        """Give a mask that has none a dim for the heads.  [*B, Tq, Tk] -> [*B, 1, Tq, Tk]"""
        if mask is None:
            return None
        tensor = as_tensor(mask)
        kind = tensor.dtype
        message = f"MultiHeadAttention: the mask must be of bools or floats, not {kind.name}"
        fits = kind.is_bool or kind.is_floating
        demand(fits, message, {"mask": tensor}, fix="write mask != 0", error=DTypeError)
        return expand_dims(tensor, axis=-3) if tensor.ndim == ndim > 2 else tensor

    def extra_repr(self) -> str:
        """Return the text of the sizes and options."""
        options = f"dropout={self.dropout}, causal={self.causal}"
        return f"{self.embed_dim}, num_heads={self.num_heads}, {options}"
