"""`CausalModel`: the base of models that predict the next token."""

from __future__ import annotations

from typing import Any, TypeVar

from graphfw import io, nn
from graphfw.errors import DTypeError, ShapeError, a_type
from graphfw.hints.calls import explained
from graphfw.ir.dim import DimLike
from graphfw.ir.dtype import DTypeLike
from graphfw.ir.tensor import Tensor
from graphfw.models.configs import ModelConfig
from graphfw.nn import init
from graphfw.nn.kv_cache import check_caches
from graphfw.ops.args import TensorLike, as_tensor
from graphfw.ops.composed import demand
from graphfw.ops.linalg.products import matmul

_Config = TypeVar("_Config", bound=ModelConfig)


def checked_config(model: str, config: Any, kind: type[_Config]) -> _Config:
    """Return the configuration of a model.

    Raises:
        ArgumentError: It is something else, or one of another model.
    """
    message = f"{model}: the configuration is {a_type(config)}"
    fix = f"pass gf.models.{kind.__name__}(…), or {kind.__name__}.from_huggingface(folder)"
    demand(isinstance(config, kind), message, fix=fix)
    checked: _Config = config
    return checked


def checked_tokens(model: str, tokens: TensorLike) -> Tensor:
    """Return the tokens that a model is called with.

    Raises:
        ShapeError: They have no dim for time.
        DTypeError: They are no integers.
    """
    ids = as_tensor(tokens)
    message = f"{model}: the tokens have no dim for time"
    demand(ids.ndim >= 1, message, {"tokens": ids}, fix="write tokens[None]", error=ShapeError)
    message = f"{model}: tokens must be integers, not {ids.dtype.name}"
    fix = "convert with gf.astype(tokens, gf.int64)"
    demand(ids.dtype.is_integer, message, {"tokens": ids}, fix=fix, error=DTypeError)
    return ids


def embedding(config: Any, dtype: DTypeLike | None) -> nn.Embedding:
    """Return the embedding of tokens, with initial values of the standard deviation 0.02."""
    size = config.vocab_size, config.embed_dim
    return nn.Embedding(*size, dtype=dtype, weight_init=init.normal(std=0.02))


class CausalModel(nn.Module):
    """The base of `GPT2` and `Llama`: layers, a norm, and a head, which may share its weight."""

    embedding: nn.Embedding
    layers: nn.ModuleList
    norm: nn.Module
    lm_head: nn.Linear | None
    _kind: str
    """The name of the table of names."""

    @property
    def names(self) -> io.NameTable:
        """The names of transformers' files, for `load_pytorch` and `save_pytorch`.

        It is a table of `gf.io.names_of`, without the head if this model has none of its own.
        """
        table = io.names_of(self._kind)
        return table.without("lm_head") if self.lm_head is None else table

    def _head(self, config: Any, dtype: DTypeLike | None) -> nn.Linear | None:
        """Return the head; None if its weight is the embedding's."""
        if config.tied_head:
            return None
        return nn.Linear(config.embed_dim, config.vocab_size, bias=False, dtype=dtype)

    @explained
    def init_cache(
        self,
        batch: DimLike,
        max_length: DimLike,
        dtype: DTypeLike | None = None,
        *,
        start: TensorLike | None = None,
    ) -> tuple[nn.KVCache, ...]:
        """Return an empty cache for each layer, as `gf.nn.MultiHeadAttention.init_cache` does."""
        layers: list[Any] = self.layers.children()
        options = batch, max_length, dtype
        return tuple([layer.attention.init_cache(*options, start=start) for layer in layers])

    def _logits(self, x: Tensor, mask: TensorLike | None, cache: Any) -> Any:
        """Call the layers, the norm and the head.  [*B, T, embed_dim] -> [*B, T, vocab_size]"""
        after: list[nn.KVCache | None] = []
        for layer, own in zip(self.layers, cache or [None] * len(self.layers), strict=True):
            x, own = layer(x, mask, own)
            after.append(own)
        x = self.norm(x)
        logits = matmul(x, self.embedding.weight.mT) if self.lm_head is None else self.lm_head(x)
        return logits if cache is None else (logits, tuple(after))

    def _check_cache(self, cache: Any) -> None:
        """Check that there is a cache for each layer, if there are any.

        Raises:
            ArgumentError: There is something else.
        """
        if cache is not None:
            check_caches(type(self).__name__, cache, len(self.layers))


def attended(
    attention: nn.MultiHeadAttention, x: Tensor, mask: TensorLike | None, cache: nn.KVCache | None
) -> tuple[Tensor, nn.KVCache | None]:
    """Return the results of attention, and the cache with these tokens if there is one."""
    found: Any = attention(x, mask=mask, cache=cache)
    return (found, None) if cache is None else found
