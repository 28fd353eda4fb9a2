"""`TransformerEncoder` and `TransformerDecoder`: stacks of layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from graphfw.hints.calls import explained
from graphfw.ir.dim import DimLike
from graphfw.ir.dtype import DTypeLike
from graphfw.ir.tensor import Tensor
from graphfw.nn.activations import ActivationOption
from graphfw.nn.checks import checked_size
from graphfw.nn.containers import ModuleList
from graphfw.nn.kv_cache import KVCache, check_caches
from graphfw.nn.module import Module
from graphfw.nn.normalise import LayerNorm
from graphfw.nn.transformer_layers import (
    TransformerDecoderLayer,
    TransformerEncoderLayer,
)
from graphfw.ops.args import TensorLike, as_tensor
from graphfw.ops.composed import demand

_MOST_LAYERS = 10_000
"""More layers are a mistake, and making them would take hours."""

_Layer = TypeVar("_Layer", TransformerEncoderLayer, TransformerDecoderLayer)


class _Stack(Module):
    """The base of both: layers of one kind, and a norm after the last."""

    layers: ModuleList
    norm: LayerNorm | None

    @explained
    def init_cache(
        self,
        batch: DimLike,
        max_length: DimLike,
        dtype: DTypeLike | None = None,
        *,
        start: TensorLike | None = None,
    ) -> tuple[KVCache, ...]:
        """Return an empty cache for each layer: `MultiHeadAttention.init_cache`."""
        layers: list[Any] = self.layers.children()
        return tuple([layer.init_cache(batch, max_length, dtype, start=start) for layer in layers])

    def _fill(
        self,
        kind: type[_Layer],
        num_layers: int,
        final_norm: bool | None,
        sizes: tuple[int, int, int | None, float, ActivationOption],
        norm_first: bool,
        bias: bool,
        causal: bool,
        kv_heads: int | None,
        rotary_base: float | None,
        eps: float,
        dtype: DTypeLike | None,
    ) -> None:
        """Make the layers, each with initial weights of its own."""
        count = checked_size(type(self).__name__, "num_layers", num_layers)
        message = f"{type(self).__name__}: num_layers={num_layers!r} are more than {_MOST_LAYERS:,}"
        demand(count <= _MOST_LAYERS, message, fix="use num_layers=12")
        self.layers = ModuleList(
            [
                kind(
                    *sizes,
                    norm_first=norm_first,
                    bias=bias,
                    causal=causal,
                    kv_heads=kv_heads,
                    rotary_base=rotary_base,
                    eps=eps,
                    dtype=dtype,
                )
                for _ in range(count)
            ]
        )
        is_normalised = norm_first if final_norm is None else final_norm
        self.norm = LayerNorm(sizes[0], eps, bias=bias, dtype=dtype) if is_normalised else None

    def _computed(self, x: Tensor, rest: tuple[Any, ...], cache: Any) -> Any:
        """Call the layers in order, each with its cache if there is one, and the norm."""
        if cache is None:
            for layer in self.layers:
                x = layer(x, *rest)
            return self._finished(x)
        check_caches(type(self).__name__, cache, len(self.layers))
        after = []
        for layer, own in zip(self.layers, cache, strict=True):
            x, own = layer(x, *rest, cache=own)
            after.append(own)
        return self._finished(x), tuple(after)

    def _finished(self, x: Tensor) -> Tensor:
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(_Stack):
    """Several `TransformerEncoderLayer`, and a norm.  [*B, T, embed_dim] -> [*B, T, embed_dim]

    State dicts of PyTorch's `TransformerEncoder` can be loaded. There the layers begin as copies of
    one, here each has initial weights of its own.

    Args:
        embed_dim, num_heads: As `TransformerEncoderLayer`.
        num_layers: The number of layers.
        feedforward_dim, dropout, activation, norm_first, bias: As `TransformerEncoderLayer`.
        final_norm: Whether a `LayerNorm` follows the last layer; by default where `norm_first`.
        causal, kv_heads, rotary_base, eps, dtype, name: As `TransformerEncoderLayer`.

    Attributes:
        layers: A `ModuleList` of the layers.
        norm: The `LayerNorm` after the last layer, or None.

    Raises:
        ArgumentError: As `TransformerEncoderLayer`, or num_layers is no int or below 1.
        ShapeError, DTypeError: As `TransformerEncoderLayer`.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     encoder = gf.nn.TransformerEncoder(64, 8, 2, norm_first=True)
    ...     is_word = gf.placeholder(("batch", "time"), gf.bool)
    ...     encoder(gf.placeholder(("batch", "time", 64)), mask=is_word[:, None, :]).shape
    (batch, time, 64)
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        num_layers: int,
        feedforward_dim: int | None = None,
        dropout: float = 0.1,
        activation: ActivationOption = "relu",
        *,
        norm_first: bool = False,
        final_norm: bool | None = None,
        bias: bool = True,
        causal: bool = False,
        kv_heads: int | None = None,
        rotary_base: float | None = None,
        eps: float = 1e-5,
        dtype: DTypeLike | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        sizes = embed_dim, num_heads, feedforward_dim, dropout, activation
        options = norm_first, bias, causal, kv_heads, rotary_base, eps, dtype
        self._fill(TransformerEncoderLayer, num_layers, final_norm, sizes, *options)

    def forward(
        self,
        x: TensorLike,
        mask: TensorLike | None = None,
        *,
        cache: Sequence[KVCache] | None = None,
    ) -> Tensor | Any:
        """Call the layers in order.  x: [*B, T, embed_dim] -> [*B, T, embed_dim]

        Args:
            x: The sequence.
            mask: As for `TransformerEncoderLayer`, in each layer.
            cache: One for each layer, from `init_cache` or an earlier call.

        Returns:
            The results; with a cache (results, cache).
        """
        return self._computed(as_tensor(x), (mask,), cache)


class TransformerDecoder(_Stack):
    """Several `TransformerDecoderLayer`, and a norm.  [*B, T, embed_dim] -> [*B, T, embed_dim]

    State dicts of PyTorch's `TransformerDecoder` can be loaded; see `TransformerEncoder`.

    Args:
        embed_dim, num_heads, num_layers: As `TransformerEncoder`.
        feedforward_dim, dropout, activation, norm_first, final_norm: As `TransformerEncoder`.
        bias, causal, kv_heads, rotary_base, eps, dtype, name: As `TransformerDecoderLayer`.

    Attributes:
        layers: A `ModuleList` of the layers.
        norm: The `LayerNorm` after the last layer, or None.

    Raises:
        ArgumentError: As `TransformerEncoder`.
        ShapeError, DTypeError: As `TransformerDecoderLayer`.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        num_layers: int,
        feedforward_dim: int | None = None,
        dropout: float = 0.1,
        activation: ActivationOption = "relu",
        *,
        norm_first: bool = False,
        final_norm: bool | None = None,
        bias: bool = True,
        causal: bool = True,
        kv_heads: int | None = None,
        rotary_base: float | None = None,
        eps: float = 1e-5,
        dtype: DTypeLike | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        sizes = embed_dim, num_heads, feedforward_dim, dropout, activation
        options = norm_first, bias, causal, kv_heads, rotary_base, eps, dtype
        self._fill(TransformerDecoderLayer, num_layers, final_norm, sizes, *options)

    def forward(
        self,
        x: TensorLike,
        memory: TensorLike,
        mask: TensorLike | None = None,
        memory_mask: TensorLike | None = None,
        *,
        cache: Sequence[KVCache] | None = None,
    ) -> Tensor | Any:
        """Call the layers in order, each with the memory.  -> [*B, T, embed_dim]

        Args:
            x: The sequence: [*B, T, embed_dim].
            memory: What an encoder returns: [*B, S, embed_dim].
            mask: As for `TransformerDecoderLayer`, in each layer.
            memory_mask: The same.
            cache: As for `TransformerEncoder`.

        Returns:
            The results; with a cache (results, cache).
        """
        return self._computed(as_tensor(x), (as_tensor(memory), mask, memory_mask), cache)
