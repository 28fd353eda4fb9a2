"""`MultiHeadAttention`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphfw.errors import DTypeError, ShapeError, counted
from graphfw.hints import calls
from graphfw.ir import ambient
from graphfw.ir.dim import Dim, DimLike
from graphfw.ir.dtype import DTypeLike
from graphfw.ir.tensor import Tensor
from graphfw.nn import init
from graphfw.nn.checks import checked_size, explained, near_divisor, size_or_none
from graphfw.nn.deferred import make_or_wait
from graphfw.nn.kv_cache import (
    KVCache,
    check_cache,
    empty_cache,
    extended,
    known_length,
    not_padding,
    visible,
)
from graphfw.nn.linear import Linear
from graphfw.nn.module import Module
from graphfw.nn.torch_rules import Concatenated, Renamed, TorchRule
from graphfw.ops.args import TensorLike, as_tensor, converted
from graphfw.ops.composed import demand, demand_probability
from graphfw.ops.nn.attention import scaled_dot_product_attention
from graphfw.ops.nn.positions import check_rotation, rotary_embedding
from graphfw.ops.shape.axes import expand_dims, swapaxes
from graphfw.ops.shape.movement import reshape


class MultiHeadAttention(Module):
    """Attention in several subspaces at once.  [*B, Tq, embed_dim] -> [*B, Tq, embed_dim]

    A. Vaswani et al., "Attention is all you need", 2017. A query whose keys are all masked gets the
    output's bias only.

    Args:
        embed_dim: The size of queries and results; None to find it in the first call, which makes
            the linear maps.
        num_heads: The number of subspaces; it divides embed_dim.
        dropout: In training, the probability of leaving out a key.
        bias: Whether the four linear maps have biases.
        causal: Query i sees keys 0 to i only.
        key_dim: The size of keys, embed_dim by default.
        value_dim: The size of values, that of keys by default.
        kv_heads: The number of heads of keys and values, num_heads by default; it divides
            num_heads. Heads of queries share them: grouped-query attention (J. Ainslie et al.,
            2023), or, with 1, multi-query attention.
        rotary_base: Turn queries and keys by their positions, 0, 1, …, as
            `gf.nn.rotary_embedding` does with this base; 10000.0 is usual. None leaves them.
        rotary_frequencies: The same with these angles, one for each pair of a head's channels,
            instead of a base.
        dtype: The weights' dtype, the default dtype when there is none.
        name: See `Module`.

    Attributes:
        q_proj, k_proj, v_proj, out_proj: The `Linear` maps, or modules of the same sizes that were
            assigned in their place.

    Raises:
        ArgumentError: A size is no int or below 1, embed_dim is no multiple of num_heads or
            num_heads of kv_heads, dropout is outside [0, 1), or rotary_base is not above 0,
            heads have an odd number of channels for it, or rotary_frequencies are not so many.
        ShapeError, DTypeError: In a call: shapes don't fit, or the mask is of integers.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     attend = gf.nn.MultiHeadAttention(64, 8, causal=True)
    ...     attend(gf.placeholder(("batch", "time", 64))).shape
    (batch, time, 64)
    """

    q_proj: Linear
    k_proj: Linear
    v_proj: Linear
    out_proj: Linear

    def __init__(
        self,
        embed_dim: int | None,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        causal: bool = False,
        key_dim: int | None = None,
        value_dim: int | None = None,
        kv_heads: int | None = None,
        rotary_base: float | None = None,
        rotary_frequencies: Sequence[float] | None = None,
        dtype: DTypeLike | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        layer = "MultiHeadAttention"
        self.embed_dim = size_or_none(layer, "embed_dim", embed_dim)
        self.num_heads = checked_size(layer, "num_heads", num_heads)
        self.key_dim = size_or_none(layer, "key_dim", key_dim or embed_dim)
        self.value_dim = size_or_none(layer, "value_dim", value_dim or self.key_dim)
        count = self.num_heads if kv_heads is None else kv_heads
        self.kv_heads = checked_size(layer, "kv_heads", count)
        message = f"{layer}: num_heads={num_heads} is no multiple of kv_heads={kv_heads}"
        near = near_divisor(self.kv_heads, self.num_heads)
        fix = f"use kv_heads={near}, which divides {num_heads}"
        demand(self.num_heads % self.kv_heads == 0, message, fix=fix)
        demand_probability(layer, "dropout", dropout)
        self.dropout, self.causal, self.rotary_base = dropout, causal, rotary_base
        self.rotary_frequencies = rotary_frequencies
        if self.embed_dim is not None:
            self._check_width(self.embed_dim)
        make_or_wait(self, "embed_dim", self.embed_dim, bias, dtype)

    def _check_width(self, embed_dim: int) -> None:
        """See that the heads have equal widths, which can be turned if they are to be."""
        layer, heads = "MultiHeadAttention", self.num_heads
        message = f"{layer}: embed_dim={embed_dim} is no multiple of num_heads={heads}"
        fix = f"use num_heads={near_divisor(heads, embed_dim)}, which divides {embed_dim}"
        demand(embed_dim % heads == 0, message, fix=fix)
        if self.rotary_base is not None:
            check_rotation(layer, "rotary_base", self.rotary_base, embed_dim // heads)
        self.rotary_frequencies = _checked_frequencies(
            layer, self.rotary_base, self.rotary_frequencies, embed_dim // heads
        )

    def _find_size(self, query: TensorLike) -> None:
        features = self._queries(query).shape[-1]
        size = checked_size("MultiHeadAttention", "embed_dim", features)
        self._check_width(size)
        self.embed_dim = size
        self.key_dim = self.key_dim or size
        self.value_dim = self.value_dim or self.key_dim

    def _make(self, bias: bool, dtype: DTypeLike | None) -> None:
        assert self.embed_dim is not None
        self._width = self.embed_dim // self.num_heads

        def linear(size: int | None, heads: int) -> Linear:
            spread, out = init.xavier_uniform, heads * self._width
            return Linear(size, out, bias, dtype, weight_init=spread, bias_init=init.zeros)

        self.q_proj = linear(self.embed_dim, self.num_heads)
        self.k_proj = linear(self.key_dim, self.kv_heads)
        self.v_proj = linear(self.value_dim, self.kv_heads)
        self.out_proj = Linear(self.embed_dim, self.embed_dim, bias, dtype, bias_init=init.zeros)

    def forward(
        self,
        query: TensorLike,
        key: TensorLike | None = None,
        value: TensorLike | None = None,
        mask: TensorLike | None = None,
        *,
        cache: KVCache | None = None,
    ) -> Tensor | Any:
        """Attend to keys and values, by default to the queries' own.

        Args:
            query: [*B, Tq, embed_dim].
            key: [*B, Tk, key_dim]; the queries by default.
            value: [*B, Tk, value_dim]; the keys by default.
            mask: Bools, True where the query may see the key, or floats added to the scores:
                [Tq, Tk], [*B, Tq, Tk] or [*B, num_heads, Tq, Tk], or what broadcasts to these. To
                leave out padding give [*B, 1, Tk]. With a cache Tk is its max_length.
            cache: Keys and values of the tokens before these, from `init_cache` or an earlier call.
                Only for self-attention with causal=True; query is then [B, T, embed_dim]. Position
                i of the query is the cache's length + i.

        Returns:
            The results; with a cache (results, cache), the latter with these tokens' keys and
            values, too.
        """
        queries = self._queries(query)
        keys = queries if key is None else as_tensor(key)
        values = keys if value is None else as_tensor(value)
        if cache is not None:
            self._check_cached(queries, cache, key is None and value is None)
        q = self._projected(self.q_proj, queries, "embed_dim", self.num_heads)
        k = self._projected(self.k_proj, keys, "key_dim", self.kv_heads)
        v = self._projected(self.v_proj, values, "value_dim", self.kv_heads)
        if self.rotary_base is not None or self.rotary_frequencies is not None:
            at = None if cache is None else cache.positions(q.shape[-2])
            if at is not None and at.ndim > 1:
                at = expand_dims(at, axis=1)  # for all heads
            q, k = self._rotated(q, at), self._rotated(k, at)
        seen = self._laid_out(mask, queries.ndim)
        if cache is None:
            return self._attended(q, k, v, seen, self.causal)
        after, count = extended(cache, k, v), q.shape[-2]
        if seen is None and known_length(cache) == 0:  # there are no tokens to look back at
            k, v = (converted(x, cache.keys.dtype) for x in (k, v))
            return self._attended(q, k, v, not_padding(cache, count), causal=True), after
        seen = visible(cache, count, seen)
        return self._attended(q, after.keys, after.values, seen, causal=False), after

    @calls.explained
    def init_cache(
        self,
        batch: DimLike,
        max_length: DimLike,
        dtype: DTypeLike | None = None,
        *,
        start: TensorLike | None = None,
    ) -> KVCache:
        """Return an empty `KVCache` for `max_length` tokens in each of `batch` sequences.

        Args:
            batch: The number of sequences, an int or a dim.
            max_length: How many tokens there may be, an int or a dim.
            dtype: That of the keys and values that are kept, the weights' by default.
            start: Ints [batch]: how many tokens of each row, the first ones, are padding. They are
                not seen, and positions are counted after them.

        Raises:
            ArgumentError: max_length is no int or below 1.
            ShapeError: batch is no size, or start has another shape.
            DTypeError: dtype is not of floats, or start not of integers.
        """
        # What was assigned in the place of a `Linear` may have its weights anywhere.
        held = [v.dtype for v in self.k_proj.variables() if v.dtype.is_floating]
        kind = next(iter(held), ambient.get_default_dtype()) if dtype is None else dtype
        sizes = self.kv_heads, self._width
        return empty_cache("MultiHeadAttention", batch, max_length, *sizes, kind, start)

    def _attended(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool
    ) -> Tensor:
        """Attend by heads, and join them.  q: [*B, num_heads, Tq, width] -> [*B, Tq, embed_dim]"""
        if self.kv_heads < self.num_heads:
            q, k, v = self._grouped(q), expand_dims(k, axis=-3), expand_dims(v, axis=-3)
            mask = None if mask is None else self._grouped_mask(mask)
        heads = scaled_dot_product_attention(
            q,
            k,
            v,
            mask,
            causal=causal,
            dropout=self.dropout,
        )
        if self.kv_heads < self.num_heads:
            heads = reshape(heads, (*heads.shape[:-4], self.num_heads, *heads.shape[-2:]))
        joined = swapaxes(heads, -3, -2)
        size = self.num_heads * self._width
        return self.out_proj(reshape(joined, (*joined.shape[:-2], size)))

    def _queries(self, query: TensorLike) -> Tensor:
        """Return the queries, which have a dim for time."""
        queries = as_tensor(query)
        message = f"MultiHeadAttention: queries must have 2 dims or more, not {queries.ndim}"
        fix = "they have a dim for time before their features: query[None] is a sequence of one"
        demand(queries.ndim >= 2, message, {"query": queries}, fix=fix, error=ShapeError)
        return queries

    def _check_cached(self, x: Tensor, cache: Any, is_of_self: bool) -> None:
        """See that the arguments of a call with a cache, and this layer, fit it."""
        layer = "MultiHeadAttention"
        message = f"{layer}: a cache is for the queries' own keys and values"
        demand(is_of_self, message, fix="leave out key and value, or the cache")
        message = f"{layer}: with a cache attention is causal, and this layer is not"
        fix = "make it with causal=True: the tokens after a position are not there yet"
        demand(self.causal, message, fix=fix)
        check_cache(layer, x, cache, self.kv_heads, self._width)

    def _torch_rules(self) -> list[TorchRule]:
        """Say how PyTorch joins the first three maps; their weights only where sizes are equal."""
        weights, biases = [[f"{n}_proj.{kind}" for n in "qkv"] for kind in ("weight", "bias")]
        rows = [heads * self._width for heads in (self.num_heads, self.kv_heads, self.kv_heads)]
        joined_biases = Concatenated("in_proj_bias", biases, rows)
        if {self.key_dim, self.value_dim} == {self.embed_dim}:
            return [Concatenated("in_proj_weight", weights, rows), joined_biases]
        separate = [Renamed(name.replace(".", "_"), name) for name in weights]
        return [*separate, joined_biases]

    def _projected(self, linear: Module, x: Tensor, size: str, heads: int) -> Tensor:
        """Map what has the width that the argument `size` says, and split it."""

        def fix() -> str:
            wanted = getattr(self, size)
            found = x.shape[-1] if x.ndim else wanted
            if found == wanted or isinstance(found, Dim):
                return ""
            layer = f"MultiHeadAttention({size}={wanted})"
            return f"{layer} receives {counted(found, 'feature')}: use {size}={found}"

        with explained(fix):
            return self._split(linear(x), heads)

    def _rotated(self, x: Tensor, positions: Tensor | None) -> Tensor:
        """Turn queries or keys by their positions.  x: [*B, heads, T, width] -> the same"""
        if self.rotary_base is not None:
            return rotary_embedding(x, positions, base=self.rotary_base)
        return rotary_embedding(x, positions, frequencies=self.rotary_frequencies)

    def _split(self, x: Tensor, heads: int) -> Tensor:
        """Give each head its channels.  x: [*B, T, heads * width] -> [*B, heads, T, width]"""
        return swapaxes(reshape(x, (*x.shape[:-1], heads, self._width)), -3, -2)

    def _grouped(self, x: Tensor) -> Tensor:
        """Put heads that share keys together.  [*B, num_heads, …] -> [*B, kv_heads, group, …]"""
        group = self.num_heads // self.kv_heads
        return reshape(x, (*x.shape[:-3], self.kv_heads, group, *x.shape[-2:]))

    def _grouped_mask(self, mask: Tensor) -> Tensor:
        """Do the same with a mask, which may have one head for all, or no dim for heads."""
        if mask.ndim < 3:
            return mask
        found = mask.shape[-3]
        if found == 1:
            return expand_dims(mask, axis=-3)
        message = f"MultiHeadAttention: the mask has {counted(found, 'head')}, not {self.num_heads}"
        fix = "give a mask for each of the heads, or one for all: [*B, 1, Tq, Tk]"
        demand(found == self.num_heads, message, {"mask": mask}, fix=fix, error=ShapeError)
        return self._grouped(mask)

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
        if self.kv_heads < self.num_heads:
            options += f", kv_heads={self.kv_heads}"
        if self.rotary_base is not None:
            options += f", rotary_base={self.rotary_base}"
        if self.rotary_frequencies is not None:
            options += f", {len(self.rotary_frequencies)} rotary_frequencies"
        return f"{self.embed_dim}, num_heads={self.num_heads}, {options}"


def _checked_frequencies(
    layer: str, base: float | None, frequencies: Sequence[float] | None, width: int
) -> tuple[float, ...] | None:
    """Return the angles of the pairs of channels of a head of so many.

    Raises:
        ArgumentError: They are not as many numbers, or there is a base, too.
    """
    if frequencies is None:
        return None
    message = f"{layer}: rotary_base={base} has no effect beside rotary_frequencies"
    demand(base is None, message, fix="leave out one of them")
    array = np.asarray(frequencies)
    fits = array.shape == (width / 2,) and array.dtype.kind in "fiu"
    message = f"{layer}: rotary_frequencies are not {width / 2:g} numbers"
    fix = f"heads have {counted(width, 'channel')}: give a number for each pair"
    demand(fits, message, fix=fix)
    return tuple(array.tolist())
