"""`GPT2`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from graphfw import nn
from graphfw.ir.dtype import DTypeLike
from graphfw.ir.tensor import Tensor
from graphfw.models.configs import ModelConfig, activation_layer
from graphfw.models.language import CausalModel, attended, checked_config, checked_tokens, embedding
from graphfw.nn.torch_rules import TorchRule, Transposed
from graphfw.ops.args import TensorLike


@dataclass(frozen=True, kw_only=True)
class GPT2Config(ModelConfig):
    """The sizes and options of a `GPT2`. The defaults are those of the smallest one.

    Args:
        vocab_size: The number of tokens.
        max_length: The number of positions.
        embed_dim: The size of the vector of each token.
        num_layers: The number of layers.
        num_heads: The number of heads of each attention.
        feedforward_dim: The hidden size of the feed-forward network; None for 4 * embed_dim.
        activation: The feed-forward network's activation: "gelu_tanh", "gelu", "relu" or "silu".
        embed_dropout: In training, the probability of dropping an element of an embedding.
        attention_dropout: The same for a key.
        dropout: The same for an element of the results of attention and feed-forward network.
        eps: The number that norms add to the variance.
        tied_head: Whether the head's weight is the embedding's.

    Raises:
        ArgumentError: A value is of another kind, or out of range.

    >>> import graphfw as gf
    >>> gf.models.GPT2Config.from_huggingface({"model_type": "gpt2", "n_layer": 24}).num_layers
    24
    """

    vocab_size: int = 50257
    max_length: int = 1024
    embed_dim: int = 768
    num_layers: int = 12
    num_heads: int = 12
    feedforward_dim: int | None = None
    activation: str = "gelu_tanh"
    embed_dropout: float = 0.1
    attention_dropout: float = 0.1
    dropout: float = 0.1
    eps: float = 1e-5
    tied_head: bool = True

    model_type: ClassVar[str] = "gpt2"
    _fields: ClassVar[Mapping[str, str]] = {
        "vocab_size": "vocab_size",
        "n_positions": "max_length",
        "n_embd": "embed_dim",
        "n_layer": "num_layers",
        "n_head": "num_heads",
        "n_inner": "feedforward_dim",
        "activation_function": "activation",
        "embd_pdrop": "embed_dropout",
        "attn_pdrop": "attention_dropout",
        "resid_pdrop": "dropout",
        "layer_norm_epsilon": "eps",
        "tie_word_embeddings": "tied_head",
    }
    _only: ClassVar[Mapping[str, bool]] = {
        "scale_attn_by_inverse_layer_idx": False,
        "scale_attn_weights": True,
    }
    _free: ClassVar[frozenset[str]] = frozenset(
        (
            "n_ctx",  # the number of positions once more
            # Of heads for other tasks.
            *("summary_activation", "summary_first_dropout", "summary_proj_to_labels"),
            *("summary_type", "summary_use_proj"),
        )
    )


class GPT2Layer(nn.Module):
    """Attention and a feed-forward network with pre-norm.  [*B, T, embed_dim] -> the same"""

    def __init__(self, config: GPT2Config, dtype: DTypeLike | None) -> None:
        width, dropout = config.embed_dim, config.attention_dropout
        inner = config.feedforward_dim or 4 * width
        self.norm1 = nn.LayerNorm(width, config.eps, dtype=dtype)
        self.attention = nn.MultiHeadAttention(
            width, config.num_heads, dropout, causal=True, dtype=dtype
        )
        self.norm2 = nn.LayerNorm(width, config.eps, dtype=dtype)
        self.linear1 = nn.Linear(width, inner, dtype=dtype)
        self.activation = activation_layer(config.activation)
        self.linear2 = nn.Linear(inner, width, dtype=dtype)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, x: Tensor, mask: TensorLike | None = None, cache: nn.KVCache | None = None
    ) -> tuple[Tensor, nn.KVCache | None]:
        """Attend and transform.  x: [*B, T, embed_dim] -> the same, and the cache with x, if any"""
        change, cache = attended(self.attention, self.norm1(x), mask, cache)
        x = x + self.dropout(change)
        inner = self.activation(self.linear1(self.norm2(x)))
        return x + self.dropout(self.linear2(inner)), cache

    def _torch_rules(self) -> list[TorchRule]:
        """Transpose all matrices: transformers keeps them as [in, out], unlike PyTorch's layers."""
        names = "attention.in_proj_weight", "attention.out_proj.weight", "linear?.weight"
        return [Transposed(name) for name in names]


class GPT2(CausalModel):
    """GPT-2: predicts the next token.  tokens: integers [*B, T] -> logits [*B, T, vocab_size]

    A. Radford et al., "Language models are unsupervised multitask learners", 2019. Weights of
    transformers' `GPT2LMHeadModel` and `GPT2Model` are loaded with `names=model.names`.

    Args:
        config: The sizes and options.
        dtype: The weights' dtype, the default dtype when there is none.
        name: See `gf.nn.Module`.

    Attributes:
        embedding: The `Embedding` of tokens.
        positions: The `LearnedPositions`.
        layers: A `ModuleList` of the layers, each with an `attention`.
        norm: The last `LayerNorm`.
        lm_head: The `Linear` layer for logits, or None if its weight is the embedding's.

    Raises:
        ArgumentError: The configuration is none, or its sizes don't fit.
        ShapeError, DTypeError: In a call: tokens are no integers, there are more than max_length,
            or the mask does not fit.
        ExecutionError: When run: a token or a position is out of range.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     config = gf.models.GPT2Config(vocab_size=100, embed_dim=32, num_layers=2, num_heads=4)
    ...     model = gf.models.GPT2(config)
    ...     model(gf.placeholder(("batch", "time"), gf.int64)).shape
    (batch, time, 100)
    """

    _kind = "transformers.gpt2"

    def __init__(
        self, config: GPT2Config, *, dtype: DTypeLike | None = None, name: str | None = None
    ) -> None:
        super().__init__(name=name)
        self.config = checked_config("GPT2", config, GPT2Config)
        self.embedding = embedding(config, dtype)
        self.positions = nn.LearnedPositions(config.max_length, config.embed_dim, dtype)
        self.dropout = nn.Dropout(config.embed_dropout)
        self.layers = nn.ModuleList([GPT2Layer(config, dtype) for _ in range(config.num_layers)])
        self.norm = nn.LayerNorm(config.embed_dim, config.eps, dtype=dtype)
        self.lm_head = self._head(config, dtype)

    def forward(
        self,
        tokens: TensorLike,
        *,
        mask: TensorLike | None = None,
        positions: TensorLike | None = None,
        cache: Sequence[nn.KVCache] | None = None,
    ) -> Tensor | Any:
        """Return the logits of the tokens that follow each.  [*B, T] -> [*B, T, vocab_size]

        Args:
            tokens: Integers from 0 to vocab_size - 1.
            mask: As for `gf.nn.MultiHeadAttention`; each token sees those before it. To leave out
                padding give [*B, 1, T], True where there is none.
            positions: Integers that broadcast to [*B, T]; by default 0, 1, …, or those after the
                tokens in the cache.
            cache: The cache of the tokens before, from `init_cache` or an earlier call; see
                `gf.nn.MultiHeadAttention`.

        Returns:
            The logits; with a cache (logits, cache), where the cache has these tokens, too.
        """
        ids = checked_tokens("GPT2", tokens)
        self._check_cache(cache)
        if positions is None and cache is not None:
            positions = cache[0].positions(ids.shape[-1])
        x = self.dropout(self.positions(self.embedding(ids), positions))
        return self._logits(x, mask, cache)
