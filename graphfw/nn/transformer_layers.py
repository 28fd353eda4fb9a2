"""`TransformerEncoderLayer` and `TransformerDecoderLayer`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphfw.errors import counted
from graphfw.hints import calls
from graphfw.ir.dim import Dim, DimLike
from graphfw.ir.dtype import DTypeLike
from graphfw.ir.tensor import Tensor
from graphfw.nn.activations import (
    ActivationOption,
    activated,
    activation_text,
    checked_activation,
)
from graphfw.nn.attention import MultiHeadAttention
from graphfw.nn.checks import checked_size, explained
from graphfw.nn.dropout import Dropout
from graphfw.nn.kv_cache import KVCache
from graphfw.nn.linear import Linear
from graphfw.nn.module import Module
from graphfw.nn.normalise import LayerNorm
from graphfw.ops.args import TensorLike, as_tensor
from graphfw.ops.composed import demand_probability


class _TransformerLayer(Module):
    """The base of both: self-attention, a feed-forward network, and sums around each."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        feedforward_dim: int | None,
        dropout: float,
        activation: ActivationOption,
        norm_first: bool,
        bias: bool,
        causal: bool,
        kv_heads: int | None,
        rotary_base: float | None,
        eps: float,
        dtype: DTypeLike | None,
        name: str | None,
    ) -> None:
        super().__init__(name=name)
        layer = type(self).__name__
        self.embed_dim = checked_size(layer, "embed_dim", embed_dim)
        width = 4 * self.embed_dim if feedforward_dim is None else feedforward_dim
        self.feedforward_dim = checked_size(layer, "feedforward_dim", width)
        demand_probability(layer, "dropout", dropout)
        words = ("relu", "gelu")
        self.activation = checked_activation(layer, "activation", activation, words)
        self.norm_first = norm_first

        def attention(causal: bool, base: float | None) -> MultiHeadAttention:
            sizes = self.embed_dim, num_heads, dropout, bias
            return MultiHeadAttention(
                *sizes, causal=causal, kv_heads=kv_heads, rotary_base=base, dtype=dtype
            )

        self.self_attn = attention(causal, rotary_base)
        if self.has_memory:
            self.multihead_attn = attention(causal=False, base=None)
        self.linear1 = Linear(self.embed_dim, self.feedforward_dim, bias, dtype)
        self.linear2 = Linear(self.feedforward_dim, self.embed_dim, bias, dtype)
        for number in range(1, 4 if self.has_memory else 3):
            norm = LayerNorm(self.embed_dim, eps, bias=bias, dtype=dtype)
            self.add_module(f"norm{number}", norm)
        self.dropout = Dropout(dropout)

    has_memory: bool
    norm1: LayerNorm
    norm2: LayerNorm

    def _added(self, x: Tensor, norm: LayerNorm, change: Callable[[Tensor], Tensor]) -> Tensor:
        """Add a change to x, and normalise before the change or after the sum."""
        changed = self.dropout(change(norm(x) if self.norm_first else x))
        return x + changed if self.norm_first else norm(x + changed)

    def _self_attended(
        self, x: Tensor, mask: TensorLike | None, cache: KVCache | None
    ) -> tuple[Tensor, KVCache | None]:
        """Add self-attention; return the cache with these tokens, too."""
        after = cache

        def attend(y: Tensor) -> Tensor:
            nonlocal after
            found: Any = self.self_attn(y, mask=mask, cache=cache)
            result: Tensor
            result, after = (found, None) if cache is None else found
            return result

        return self._added(x, self.norm1, attend), after

    @calls.explained
    def init_cache(
        self,
        batch: DimLike,
        max_length: DimLike,
        dtype: DTypeLike | None = None,
        *,
        start: TensorLike | None = None,
    ) -> KVCache:
        """Return an empty cache of self-attention: `MultiHeadAttention.init_cache`."""
        return self.self_attn.init_cache(batch, max_length, dtype, start=start)

    def _fed_forward(self, x: Tensor, norm: LayerNorm) -> Tensor:
        """Add what the feed-forward network makes of each position."""

        def transform(y: Tensor) -> Tensor:
            inner = activated(self.activation, self.linear1(y))
            return self.linear2(self.dropout(inner))

        return self._added(x, norm, transform)

    def _fix(self, **inputs: Tensor) -> str:
        """Say what to do about an input of another width."""
        wanted = self.embed_dim
        for name, x in inputs.items():
            found = x.shape[-1] if x.ndim else wanted
            if found == wanted or isinstance(found, Dim):
                continue
            layer = f"{type(self).__name__}(embed_dim={wanted})"
            received = "receives" if name == "x" else f"receives {name} with"
            project = f"gf.nn.Linear({found}, {wanted})"
            hint = f"use embed_dim={found}" if name == "x" else f"project it, by {project}"
            return f"{layer} {received} {counted(found, 'feature')}: {hint}"
        return ""

    def extra_repr(self) -> str:
        """Return the text of the options."""
        shown = activation_text(self.activation)
        return f"{self.embed_dim}, activation={shown}, norm_first={self.norm_first}"


class TransformerEncoderLayer(_TransformerLayer):
    """Self-attention and a feed-forward network.  [*B, T, embed_dim] -> [*B, T, embed_dim]

    A. Vaswani et al., "Attention is all you need", 2017. Results equal PyTorch's with
    `batch_first=True`; weights have the same names, and its state dicts can be loaded.

    Args:
        embed_dim: The size of inputs and results.
        num_heads: The number of subspaces of the attention; it divides embed_dim.
        feedforward_dim: The size between the two maps of the feed-forward network,
            4 * embed_dim by default.
        dropout: In training, the probability of leaving out a key, an element of either result
            before it is added, or one within the feed-forward network.
        activation: Between the two maps: "relu", "gelu", or a function or layer.
        norm_first: Whether to normalise before attention and network, rather than after each sum.
        bias: Whether linear maps and norms have biases.
        causal: Position i sees positions 0 to i only.
        kv_heads: As for `MultiHeadAttention`.
        rotary_base: The same, in the attention of the sequence to itself.
        eps: What norms add to the variance.
        dtype: The weights' dtype, the default dtype when there is none.
        name: See `Module`.

    Attributes:
        self_attn: The `MultiHeadAttention`.
        linear1, linear2: The `Linear` maps of the feed-forward network.
        norm1, norm2: The `LayerNorm` of attention and of the network.

    Raises:
        ArgumentError: A size is no int or below 1, embed_dim is no multiple of num_heads, dropout
            is outside [0, 1), or activation is no function.
        ShapeError, DTypeError: In a call: shapes don't fit, or the mask is of integers.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     layer = gf.nn.TransformerEncoderLayer(64, 8, norm_first=True)
    ...     layer(gf.placeholder(("batch", "time", 64))).shape
    (batch, time, 64)
    """

    has_memory = False

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        feedforward_dim: int | None = None,
        dropout: float = 0.1,
        activation: ActivationOption = "relu",
        *,
        norm_first: bool = False,
        bias: bool = True,
        causal: bool = False,
        kv_heads: int | None = None,
        rotary_base: float | None = None,
        eps: float = 1e-5,
        dtype: DTypeLike | None = None,
        name: str | None = None,
    ) -> None:
        sizes = embed_dim, num_heads, feedforward_dim, dropout, activation
        super().__init__(*sizes, norm_first, bias, causal, kv_heads, rotary_base, eps, dtype, name)

    def forward(
        self,
        x: TensorLike,
        mask: TensorLike | None = None,
        *,
        cache: KVCache | None = None,
    ) -> Tensor | Any:
        """Attend and transform.  x: [*B, T, embed_dim] -> [*B, T, embed_dim]

        Args:
            x: The sequence.
            mask: As for `MultiHeadAttention`; to leave out padding give [*B, 1, T], True where
                there is none.
            cache: Of the tokens before x, as for `MultiHeadAttention`.

        Returns:
            The results; with a cache (results, cache).
        """
        tensor = as_tensor(x)
        with explained(lambda: self._fix(x=tensor)):
            attended, after = self._self_attended(tensor, mask, cache)
            result = self._fed_forward(attended, self.norm2)
        return result if cache is None else (result, after)


class TransformerDecoderLayer(_TransformerLayer):
    """Self-attention, attention to a memory, and a feed-forward network.

    [*B, T, embed_dim] and a memory [*B, S, embed_dim] -> [*B, T, embed_dim]. A. Vaswani et al.,
    "Attention is all you need", 2017. Results equal PyTorch's with `batch_first=True` and a causal
    `tgt_mask`; weights have the same names, and its state dicts can be loaded.

    Args:
        embed_dim, num_heads, feedforward_dim, dropout, activation, norm_first, bias: As
            `TransformerEncoderLayer`.
        causal: Position i sees positions 0 to i of its own sequence only, and all of the memory.
        kv_heads, rotary_base, eps, dtype, name: As `TransformerEncoderLayer`.

    Attributes:
        self_attn, multihead_attn: The `MultiHeadAttention` to the sequence and to the memory.
        linear1, linear2: The `Linear` maps of the feed-forward network.
        norm1, norm2, norm3: The `LayerNorm` of either attention and of the network.

    Raises:
        ArgumentError: As `TransformerEncoderLayer`.
        ShapeError, DTypeError: In a call: shapes don't fit, or a mask is of integers.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     layer = gf.nn.TransformerDecoderLayer(64, 8)
    ...     x, memory = gf.placeholder(("batch", "t", 64)), gf.placeholder(("batch", "s", 64))
    ...     layer(x, memory).shape
    (batch, t, 64)
    """

    has_memory = True
    multihead_attn: MultiHeadAttention
    norm3: LayerNorm

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        feedforward_dim: int | None = None,
        dropout: float = 0.1,
        activation: ActivationOption = "relu",
        *,
        norm_first: bool = False,
        bias: bool = True,
        causal: bool = True,
        kv_heads: int | None = None,
        rotary_base: float | None = None,
        eps: float = 1e-5,
        dtype: DTypeLike | None = None,
        name: str | None = None,
    ) -> None:
        sizes = embed_dim, num_heads, feedforward_dim, dropout, activation
        super().__init__(*sizes, norm_first, bias, causal, kv_heads, rotary_base, eps, dtype, name)

    def forward(
        self,
        x: TensorLike,
        memory: TensorLike,
        mask: TensorLike | None = None,
        memory_mask: TensorLike | None = None,
        *,
        cache: KVCache | None = None,
    ) -> Tensor | Any:
        """Attend twice and transform.  x: [*B, T, embed_dim] -> [*B, T, embed_dim]

        Args:
            x: The sequence.
            memory: What an encoder returns: [*B, S, embed_dim].
            mask: Where x may see x, as for `MultiHeadAttention`.
            memory_mask: Where x may see the memory: for padding [*B, 1, S], True where there is
                none.
            cache: Of the tokens before x, as for `MultiHeadAttention`. The memory has none: in a
                loop its keys and values are computed once, before the loop.

        Returns:
            The results; with a cache (results, cache).
        """
        tensor, seen = as_tensor(x), as_tensor(memory)
        with explained(lambda: self._fix(x=tensor, memory=seen)):
            attended, after = self._self_attended(tensor, mask, cache)
            attended = self._added(
                attended,
                self.norm2,
                lambda y: self.multihead_attn(y, seen, mask=memory_mask),
            )
            result = self._fed_forward(attended, self.norm3)
        return result if cache is None else (result, after)
