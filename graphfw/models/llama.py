"""`Llama`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from graphfw import nn
from graphfw.errors import ArgumentError, a_type
from graphfw.ir.dtype import DTypeLike
from graphfw.ir.tensor import Tensor
from graphfw.models.configs import ModelConfig, activation_layer
from graphfw.models.language import CausalModel, attended, checked_config, checked_tokens, embedding
from graphfw.models.rotations import RotaryScaling, read_rotation
from graphfw.ops.args import TensorLike
from graphfw.ops.composed import demand


@dataclass(frozen=True, kw_only=True)
class LlamaConfig(ModelConfig):
    """The sizes and options of a `Llama`. The defaults are those of Llama 1 with 7B parameters.

    Args:
        vocab_size: The number of tokens.
        embed_dim: The size of the vector of each token.
        num_layers: The number of layers.
        num_heads: The number of heads of each attention.
        kv_heads: The number of heads of keys and values; None for num_heads.
        feedforward_dim: The hidden size of the feed-forward network.
        activation: The activation of the gate: "silu", "gelu", "gelu_tanh" or "relu".
        attention_dropout: In training, the probability of leaving out a key.
        attention_bias: Whether the layers of attention have biases.
        feedforward_bias: Whether the three layers of the feed-forward network have biases.
        rotary_base: See `gf.nn.rotary_embedding`.
        rotary_scaling: A `LinearScaling` or `Llama3Scaling` of the rotations; None for none.
        eps: The number that norms add to the mean square.
        tied_head: Whether the head's weight is the embedding's.

    Raises:
        ArgumentError: A value is of another kind, or out of range.

    >>> import graphfw as gf
    >>> gf.models.LlamaConfig(num_heads=32, kv_heads=8).embed_dim
    4096
    """

    vocab_size: int = 32000
    embed_dim: int = 4096
    num_layers: int = 32
    num_heads: int = 32
    kv_heads: int | None = None
    feedforward_dim: int = 11008
    activation: str = "silu"
    attention_dropout: float = 0.0
    attention_bias: bool = False
    feedforward_bias: bool = False
    rotary_base: float = 10000.0
    rotary_scaling: RotaryScaling | None = None
    eps: float = 1e-6
    tied_head: bool = False

    model_type: ClassVar[str] = "llama"
    _fields: ClassVar[Mapping[str, str]] = {
        "vocab_size": "vocab_size",
        "hidden_size": "embed_dim",
        "num_hidden_layers": "num_layers",
        "num_attention_heads": "num_heads",
        "num_key_value_heads": "kv_heads",
        "intermediate_size": "feedforward_dim",
        "hidden_act": "activation",
        "attention_dropout": "attention_dropout",
        "attention_bias": "attention_bias",
        "mlp_bias": "feedforward_bias",
        "rms_norm_eps": "eps",
        "tie_word_embeddings": "tied_head",
    }
    # Angles go on beyond the positions of training.
    _free: ClassVar[frozenset[str]] = frozenset(["max_position_embeddings"])

    def __post_init__(self) -> None:
        super().__post_init__()
        message = f"LlamaConfig: rotary_scaling is {a_type(self.rotary_scaling)}"
        fits = isinstance(self.rotary_scaling, RotaryScaling | None)
        demand(fits, message, fix="use rotary_scaling=gf.models.Llama3Scaling(8.0)")

    @classmethod
    def _read(cls, left: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of rotations, whose base transformers 5 keeps with their scaling.

        Raises:
            ArgumentError: The scaling is not implemented, or heads don't divide embed_dim among
                them.
        """
        fields: dict[str, Any] = {}
        if "rope_theta" in left:
            fields["rotary_base"] = left.pop("rope_theta")
        for option in ("rope_parameters", "rope_scaling"):
            if option in left:
                fields |= read_rotation(f"{cls.__name__}: {option}", left.pop(option))
        width = left.pop("head_dim", None)
        sizes = (
            left.get("hidden_size", cls.embed_dim),
            left.get("num_attention_heads", cls.num_heads),
        )
        ints = all(isinstance(size, int) and size > 0 for size in sizes)
        if width is not None and ints and width != sizes[0] // sizes[1]:
            raise ArgumentError(
                f"{cls.__name__}: head_dim={width!r} is not implemented",
                fix="use a model with head_dim = hidden_size / num_attention_heads",
            )
        return fields

    def _rotation(self) -> dict[str, Any]:
        """Return the arguments of `gf.nn.MultiHeadAttention` for rotations."""
        if self.rotary_scaling is None:
            return {"rotary_base": self.rotary_base}
        width = self.embed_dim // self.num_heads
        frequencies = np.power(float(self.rotary_base), -np.arange(0, width, 2) / width)
        return {"rotary_frequencies": self.rotary_scaling.scaled(frequencies)}


class LlamaLayer(nn.Module):
    """Attention and a gated network with pre-norm.  [*B, T, embed_dim] -> the same"""

    def __init__(self, config: LlamaConfig, dtype: DTypeLike | None) -> None:
        width, inner, bias = config.embed_dim, config.feedforward_dim, config.feedforward_bias
        self.norm1 = nn.RMSNorm(width, config.eps, dtype=dtype)
        self.attention = nn.MultiHeadAttention(
            width,
            config.num_heads,
            config.attention_dropout,
            config.attention_bias,
            causal=True,
            kv_heads=config.kv_heads,
            dtype=dtype,
            **config._rotation(),
        )
        self.norm2 = nn.RMSNorm(width, config.eps, dtype=dtype)
        self.gate_proj = nn.Linear(width, inner, bias, dtype)
        self.up_proj = nn.Linear(width, inner, bias, dtype)
        self.activation = activation_layer(config.activation)
        self.down_proj = nn.Linear(inner, width, bias, dtype)

    def forward(
        self, x: Tensor, mask: TensorLike | None = None, cache: nn.KVCache | None = None
    ) -> tuple[Tensor, nn.KVCache | None]:
        """Attend and transform.  x: [*B, T, embed_dim] -> the same, and the cache with x, if any"""
        change, cache = attended(self.attention, self.norm1(x), mask, cache)
        x = x + change
        y = self.norm2(x)
        gated = self.activation(self.gate_proj(y)) * self.up_proj(y)
        return x + self.down_proj(gated), cache


class Llama(CausalModel):
    """Llama: predicts the next token.  tokens: integers [*B, T] -> logits [*B, T, vocab_size]

    H. Touvron et al., "LLaMA: open and efficient foundation language models", 2023: RMS norms
    (B. Zhang, R. Sennrich, 2019), rotary embeddings (J. Su et al., 2021), a gated feed-forward
    network (N. Shazeer, 2020), and heads that may share keys and values. Weights of transformers'
    `LlamaForCausalLM` are loaded with `names=model.names`.

    Args:
        config: The sizes and options.
        dtype: The weights' dtype, the default dtype when there is none.
        name: See `gf.nn.Module`.

    Attributes:
        embedding: The `Embedding` of tokens.
        layers: A `ModuleList` of the layers, each with an `attention`.
        norm: The last `RMSNorm`.
        lm_head: The `Linear` layer for logits, or None if its weight is the embedding's.

    Raises:
        ArgumentError: The configuration is none, or its sizes don't fit.
        ShapeError, DTypeError: In a call: tokens are no integers, or the mask does not fit.
        ExecutionError: When run: a token is out of range.

    >>> import graphfw as gf
    >>> sizes = {"vocab_size": 100, "embed_dim": 32, "num_layers": 2, "feedforward_dim": 64}
    >>> with gf.Graph():
    ...     model = gf.models.Llama(gf.models.LlamaConfig(**sizes, num_heads=4, kv_heads=2))
    ...     model(gf.placeholder(("batch", "time"), gf.int64)).shape
    (batch, time, 100)
    """

    _kind = "transformers.llama"

    def __init__(
        self, config: LlamaConfig, *, dtype: DTypeLike | None = None, name: str | None = None
    ) -> None:
        super().__init__(name=name)
        self.config = checked_config("Llama", config, LlamaConfig)
        self.embedding = embedding(config, dtype)
        self.layers = nn.ModuleList([LlamaLayer(config, dtype) for _ in range(config.num_layers)])
        self.norm = nn.RMSNorm(config.embed_dim, config.eps, dtype=dtype)
        self.lm_head = self._head(config, dtype)

    def forward(
        self,
        tokens: TensorLike,
        *,
        mask: TensorLike | None = None,
        cache: Sequence[nn.KVCache] | None = None,
    ) -> Tensor | Any:
        """Return the logits of the tokens that follow each.  [*B, T] -> [*B, T, vocab_size]

        Args:
            tokens: Integers from 0 to vocab_size - 1.
            mask: As for `gf.nn.MultiHeadAttention`; each token sees those before it. To leave out
                padding give [*B, 1, T], True where there is none; it may be on either side, for
                attention depends on distances only.
            cache: The cache of the tokens before, from `init_cache` or an earlier call; see
                `gf.nn.MultiHeadAttention`.

        Returns:
            The logits; with a cache (logits, cache), where the cache has these tokens, too.
        """
        ids = checked_tokens("Llama", tokens)
        self._check_cache(cache)
        return self._logits(self.embedding(ids), mask, cache)
