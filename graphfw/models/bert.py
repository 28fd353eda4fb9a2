"""`Bert`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from graphfw import io, nn
from graphfw.errors import ArgumentError, GraphError, a_type
from graphfw.hints.calls import explained
from graphfw.ir.dtype import DTypeLike
from graphfw.ir.functions import CALLED as F
from graphfw.ir.tensor import Tensor
from graphfw.models.configs import ModelConfig, activation_layer
from graphfw.models.language import checked_config, checked_tokens, embedding
from graphfw.nn import init
from graphfw.nn.parameters import parameter
from graphfw.ops.args import TensorLike, as_tensor
from graphfw.ops.composed import demand
from graphfw.ops.linalg.products import matmul


class _Heads(NamedTuple):
    """The heads that a class of transformers has."""

    pooler: bool
    lm_head: bool


_HEADS = {
    "BertModel": _Heads(pooler=True, lm_head=False),
    "BertForMaskedLM": _Heads(pooler=False, lm_head=True),
    "BertForPreTraining": _Heads(pooler=True, lm_head=True),
}


@dataclass(frozen=True, kw_only=True)
class BertConfig(ModelConfig):
    """The sizes and options of a `Bert`. The defaults are those of BERT base.

    Args:
        vocab_size: The number of tokens.
        type_vocab_size: The number of types of tokens, which tell apart sentences of one input.
        max_length: The number of positions.
        embed_dim: The size of the vector of each token.
        num_layers: The number of layers.
        num_heads: The number of heads of each attention.
        feedforward_dim: The hidden size of the feed-forward network.
        activation: The feed-forward network's activation: "gelu", "gelu_tanh", "relu" or "silu".
        attention_dropout: In training, the probability of leaving out a key.
        dropout: The same for an element of embeddings, attention's results and the network's.
        eps: The number that norms add to the variance.
        pooler: Whether there is a layer for `pool`.
        lm_head: Whether there is a head for `logits`.

    Raises:
        ArgumentError: A value is of another kind, or out of range.

    >>> import graphfw as gf
    >>> gf.models.BertConfig(lm_head=True).embed_dim
    768
    """

    vocab_size: int = 30522
    type_vocab_size: int = 2
    max_length: int = 512
    embed_dim: int = 768
    num_layers: int = 12
    num_heads: int = 12
    feedforward_dim: int = 3072
    activation: str = "gelu"
    attention_dropout: float = 0.1
    dropout: float = 0.1
    eps: float = 1e-12
    pooler: bool = True
    lm_head: bool = False

    model_type: ClassVar[str] = "bert"
    _fields: ClassVar[Mapping[str, str]] = {
        "vocab_size": "vocab_size",
        "type_vocab_size": "type_vocab_size",
        "max_position_embeddings": "max_length",
        "hidden_size": "embed_dim",
        "num_hidden_layers": "num_layers",
        "num_attention_heads": "num_heads",
        "intermediate_size": "feedforward_dim",
        "hidden_act": "activation",
        "attention_probs_dropout_prob": "attention_dropout",
        "hidden_dropout_prob": "dropout",
        "layer_norm_eps": "eps",
    }
    _only: ClassVar[Mapping[str, Any]] = {
        "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
    }
    _free: ClassVar[frozenset[str]] = frozenset(["classifier_dropout"])

    @classmethod
    def _read(cls, left: dict[str, Any]) -> dict[str, Any]:
        """Return the heads that the class in transformers has."""
        names = left.get("architectures", ["BertModel"])
        message = f"{cls.__name__}: architectures is {a_type(names)}, and no list of names"
        fits = isinstance(names, list) and {*map(type, names)} <= {str}
        demand(fits, message, fix='use a list: architectures=["BertModel"]')
        unknown = [name for name in names if name not in _HEADS]
        if unknown:
            raise ArgumentError(
                f"{cls.__name__}: the head of {unknown[0]} is not implemented",
                fix='leave it out: options={"architectures": []}, and load with ignore_extra=True',
            )
        heads = [_HEADS[name] for name in names]
        return {"pooler": any(h.pooler for h in heads), "lm_head": any(h.lm_head for h in heads)}


class BertLayer(nn.Module):
    """Attention and a feed-forward network with post-norm.  [*B, T, embed_dim] -> the same"""

    def __init__(self, config: BertConfig, dtype: DTypeLike | None) -> None:
        width, inner = config.embed_dim, config.feedforward_dim
        self.attention = nn.MultiHeadAttention(
            width, config.num_heads, config.attention_dropout, dtype=dtype
        )
        self.norm1 = nn.LayerNorm(width, config.eps, dtype=dtype)
        self.linear1 = nn.Linear(width, inner, dtype=dtype)
        self.activation = activation_layer(config.activation)
        self.linear2 = nn.Linear(inner, width, dtype=dtype)
        self.norm2 = nn.LayerNorm(width, config.eps, dtype=dtype)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, mask: TensorLike | None = None) -> Tensor:
        """Attend and transform.  x: [*B, T, embed_dim] -> the same"""
        x = self.norm1(x + self.dropout(self.attention(x, mask=mask)))
        inner = self.activation(self.linear1(x))
        result: Tensor = self.norm2(x + self.dropout(self.linear2(inner)))
        return result


class MaskedHead(nn.Module):
    """A layer, a norm, and products with embeddings.  [*B, embed_dim] -> [*B, vocab_size]"""

    def __init__(self, config: BertConfig, dtype: DTypeLike | None) -> None:
        self.linear = nn.Linear(config.embed_dim, config.embed_dim, dtype=dtype)
        self.activation = activation_layer(config.activation)
        self.norm = nn.LayerNorm(config.embed_dim, config.eps, dtype=dtype)
        self.bias = parameter(init.zeros, (config.vocab_size,), dtype)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        """Return logits.  x: [*B, embed_dim], table: [vocab_size, embed_dim] -> [*B, vocab_size]"""
        transformed = self.norm(self.activation(self.linear(x)))
        return matmul(transformed, table.mT) + self.bias


class Bert(nn.Module):
    """BERT: reads a text in both directions.  tokens: integers [*B, T] -> [*B, T, embed_dim]

    J. Devlin et al., "BERT: Pre-training of deep bidirectional transformers for language
    understanding", 2018. Weights of transformers' `BertModel`, `BertForMaskedLM` and
    `BertForPreTraining` are loaded with `names=model.names`; the head for the next sentence is left
    out.

    Args:
        config: The sizes and options.
        dtype: The weights' dtype, the default dtype when there is none.
        name: See `gf.nn.Module`.

    Attributes:
        embedding: The `Embedding` of tokens.
        token_types: The `Embedding` of their types.
        positions: The `LearnedPositions`.
        norm: The `LayerNorm` of the embeddings.
        layers: A `ModuleList` of the layers, each with an `attention`.
        pooler: The `Linear` layer of `pool`, or None.
        lm_head: The head of `logits`, or None.

    Raises:
        ArgumentError: The configuration is none, or its sizes don't fit.
        ShapeError, DTypeError: In a call: tokens are no integers, there are more than max_length,
            or the mask does not fit.
        ExecutionError: When run: a token, a type or a position is out of range.

    >>> import graphfw as gf
    >>> sizes = {"vocab_size": 100, "embed_dim": 32, "num_layers": 2, "num_heads": 4}
    >>> with gf.Graph():
    ...     model = gf.models.Bert(gf.models.BertConfig(**sizes, lm_head=True))
    ...     tokens = gf.placeholder(("batch", "time"), gf.int64)
    ...     hidden = model(tokens, mask=(tokens != 0)[:, None, :])
    ...     hidden.shape, model.pool(hidden).shape, model.logits(hidden).shape
    ((batch, time, 32), (batch, 32), (batch, time, 100))
    """

    pooler: nn.Linear | None
    lm_head: MaskedHead | None

    def __init__(
        self, config: BertConfig, *, dtype: DTypeLike | None = None, name: str | None = None
    ) -> None:
        super().__init__(name=name)
        self.config = checked_config("Bert", config, BertConfig)
        width, spread = config.embed_dim, init.normal(std=0.02)
        self.embedding = embedding(config, dtype)
        self.token_types = nn.Embedding(
            config.type_vocab_size, width, dtype=dtype, weight_init=spread
        )
        self.positions = nn.LearnedPositions(config.max_length, width, dtype)
        self.norm = nn.LayerNorm(width, config.eps, dtype=dtype)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList([BertLayer(config, dtype) for _ in range(config.num_layers)])
        self.pooler = nn.Linear(width, width, dtype=dtype) if config.pooler else None
        self.lm_head = MaskedHead(config, dtype) if config.lm_head else None

    @property
    def names(self) -> io.NameTable:
        """The names of transformers' files, for `load_pytorch` and `save_pytorch`.

        It is `gf.io.names_of("transformers.bert")`, without what this model does not have.
        """
        heads = {"pooler": self.pooler, "lm_head": self.lm_head}
        absent = [name for name, head in heads.items() if head is None]
        return io.names_of("transformers.bert").without(*absent)

    def forward(
        self,
        tokens: TensorLike,
        token_types: TensorLike | None = None,
        *,
        mask: TensorLike | None = None,
        positions: TensorLike | None = None,
    ) -> Tensor:
        """Return a vector for each token, in its context.  [*B, T] -> [*B, T, embed_dim]

        Args:
            tokens: Integers from 0 to vocab_size - 1.
            token_types: Integers from 0 to type_vocab_size - 1 that broadcast to [*B, T]; 0 by
                default.
            mask: As for `gf.nn.MultiHeadAttention`. To leave out padding give [*B, 1, T], True
                where there is none.
            positions: Integers that broadcast to [*B, T]; 0, 1, … by default.
        """
        ids = checked_tokens("Bert", tokens)
        types = 0 if token_types is None else token_types
        x = self.positions(self.embedding(ids) + self.token_types(types), positions)
        x = self.dropout(self.norm(x))
        for layer in self.layers:
            x = layer(x, mask)
        result: Tensor = x
        return result

    @explained
    def pool(self, hidden: TensorLike) -> Tensor:
        """Return a vector for each text, from that of its first token.

        hidden: [*B, T, embed_dim] -> [*B, embed_dim]

        Raises:
            GraphError: The model has no pooler.
        """
        if self.pooler is None:
            raise GraphError("this Bert has no pooler", fix="build it with BertConfig(pooler=True)")
        result: Tensor = F.tanh(self.pooler(as_tensor(hidden)[..., 0, :]))
        return result

    @explained
    def logits(self, hidden: TensorLike) -> Tensor:
        """Return the logits of the tokens that were masked.

        hidden: [*B, T, embed_dim] -> [*B, T, vocab_size]

        Raises:
            GraphError: The model has no head for them.
        """
        if self.lm_head is None:
            raise GraphError("this Bert has no head", fix="build it with BertConfig(lm_head=True)")
        result: Tensor = self.lm_head(as_tensor(hidden), self.embedding.weight)
        return result
