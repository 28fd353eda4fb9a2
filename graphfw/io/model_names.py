"""Names of weights in files of well-known kinds of models, as tables to those of `gf.models`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from graphfw.errors import ArgumentError, did_you_mean

_Rows: TypeAlias = dict[str, str | None]


class NameTable(dict[str, str | None]):
    """A table of names for `load_pytorch` and `save_pytorch` that fits several files of a kind.

    Unlike in a dict that a user writes, a row may fit no entry: not all files have all of them.

    Args:
        rows: The begins of names in files to those of names in a model, or None to leave entries
            out; `save_pytorch` reads these rows from right to left.
        aliases: Rows for other names that files of the kind have, which are only read.

    >>> import graphfw as gf
    >>> gf.io.names_of("transformers.gpt2")["transformer.ln_f"]
    'norm'
    """

    __slots__ = ("aliases",)

    def __init__(
        self, rows: Mapping[str, str | None], aliases: Mapping[str, str | None] = {}
    ) -> None:
        super().__init__(rows)
        self.aliases = dict(aliases)

    def without(self, *scopes: str) -> NameTable:
        """Return a table that leaves out all entries for some scopes of the model."""

        def left(rows: _Rows) -> _Rows:
            return {theirs: None if _is_in(own, scopes) else own for theirs, own in rows.items()}

        return NameTable(left(self), left(self.aliases))


def _is_in(name: str | None, scopes: tuple[str, ...]) -> bool:
    return name is not None and any(name == s or name.startswith(f"{s}.") for s in scopes)


def names_of(kind: str) -> NameTable:
    """Return the table from the names in files of a kind to those of the model in `gf.models`.

    Args:
        kind: "transformers.bert", "transformers.gpt2" or "transformers.llama": files as the
            library transformers writes them, and as the Hugging Face Hub has them.

    Raises:
        ArgumentError: There is no such table.

    >>> import graphfw as gf
    >>> gf.io.names_of("transformers.llama")["model.layers.{i}.self_attn.q_proj"]
    'layers.{i}.attention.q_proj'
    """
    if kind not in _TABLES:
        known = ", ".join(f'"{name}"' for name in _TABLES)
        raise ArgumentError(
            f"names_of: there is no table for {kind!r}",
            fix=did_you_mean(str(kind), _TABLES) or f"use one of {known}",
        )
    table = _TABLES[kind]
    return NameTable(table, table.aliases)


def _gpt2() -> NameTable:
    layer = "transformer.h.{i}"
    rows: _Rows = {
        "transformer.wte": "embedding",
        "transformer.wpe": "positions",
        f"{layer}.ln_1": "layers.{i}.norm1",
        f"{layer}.attn.c_attn.weight": "layers.{i}.attention.in_proj_weight",
        f"{layer}.attn.c_attn.bias": "layers.{i}.attention.in_proj_bias",
        f"{layer}.attn.c_proj": "layers.{i}.attention.out_proj",
        f"{layer}.ln_2": "layers.{i}.norm2",
        f"{layer}.mlp.c_fc": "layers.{i}.linear1",
        f"{layer}.mlp.c_proj": "layers.{i}.linear2",
        "transformer.ln_f": "norm",
        "lm_head": "lm_head",
    }
    # The first versions kept the causal mask.
    masks = _left_out(f"{layer}.attn.bias", f"{layer}.attn.masked_bias")
    return NameTable(rows, masks | _unscoped("transformer", rows | masks))


def _bert() -> NameTable:
    layer = "bert.encoder.layer.{i}"
    norms: _Rows = {
        "bert.embeddings.LayerNorm": "norm",
        f"{layer}.attention.output.LayerNorm": "layers.{i}.norm1",
        f"{layer}.output.LayerNorm": "layers.{i}.norm2",
        "cls.predictions.transform.LayerNorm": "lm_head.norm",
    }
    rows = norms | {
        "bert.embeddings.word_embeddings": "embedding",
        "bert.embeddings.position_embeddings": "positions",
        "bert.embeddings.token_type_embeddings": "token_types",
        f"{layer}.attention.self.query": "layers.{i}.attention.q_proj",
        f"{layer}.attention.self.key": "layers.{i}.attention.k_proj",
        f"{layer}.attention.self.value": "layers.{i}.attention.v_proj",
        f"{layer}.attention.output.dense": "layers.{i}.attention.out_proj",
        f"{layer}.intermediate.dense": "layers.{i}.linear1",
        f"{layer}.output.dense": "layers.{i}.linear2",
        "bert.pooler.dense": "pooler",
        "cls.predictions.transform.dense": "lm_head.linear",
        "cls.predictions.bias": "lm_head.bias",
    }
    # What the first versions wrote: names as in TensorFlow, the positions, and both copies of what
    # the head shares with the embedding and with its own bias.
    former: _Rows = {f"{theirs}.gamma": f"{own}.weight" for theirs, own in norms.items()}
    former |= {f"{theirs}.beta": f"{own}.bias" for theirs, own in norms.items()}
    aliases = former | _left_out(
        "bert.embeddings.position_ids", "cls.predictions.decoder", "cls.seq_relationship"
    )
    return NameTable(rows, aliases | _unscoped("bert", rows | aliases))


def _llama() -> NameTable:
    layer = "model.layers.{i}"
    rows: _Rows = {
        "model.embed_tokens": "embedding",
        f"{layer}.input_layernorm": "layers.{i}.norm1",
        f"{layer}.self_attn.q_proj": "layers.{i}.attention.q_proj",
        f"{layer}.self_attn.k_proj": "layers.{i}.attention.k_proj",
        f"{layer}.self_attn.v_proj": "layers.{i}.attention.v_proj",
        f"{layer}.self_attn.o_proj": "layers.{i}.attention.out_proj",
        f"{layer}.post_attention_layernorm": "layers.{i}.norm2",
        f"{layer}.mlp.gate_proj": "layers.{i}.gate_proj",
        f"{layer}.mlp.up_proj": "layers.{i}.up_proj",
        f"{layer}.mlp.down_proj": "layers.{i}.down_proj",
        "model.norm": "norm",
        "lm_head": "lm_head",
    }
    frequencies = _left_out(f"{layer}.self_attn.rotary_emb.inv_freq")
    return NameTable(rows, frequencies | _unscoped("model", rows | frequencies))


def _left_out(*begins: str) -> _Rows:
    """Return rows that leave entries out."""
    return dict.fromkeys(begins)


def _unscoped(scope: str, rows: _Rows) -> _Rows:
    """Return the rows within a scope without it, as in files of a model that has no head."""
    inside = f"{scope}."
    return {t.removeprefix(inside): own for t, own in rows.items() if t.startswith(inside)}


_TABLES = {
    "transformers.bert": _bert(),
    "transformers.gpt2": _gpt2(),
    "transformers.llama": _llama(),
}
