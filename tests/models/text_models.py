"""Small language models, and folders with their configurations."""

import json

import graphfw as gf
from graphfw import models

GPT2 = {"vocab_size": 11, "max_length": 8, "embed_dim": 8, "num_layers": 2, "num_heads": 2}
LLAMA = {"vocab_size": 11, "embed_dim": 8, "num_layers": 2, "num_heads": 2, "feedforward_dim": 12}
BERT = LLAMA | {"max_length": 8}
CONFIGS = {
    "gpt2": models.GPT2Config(**GPT2),
    "bert": models.BertConfig(**BERT, lm_head=True),
    "llama": models.LlamaConfig(**LLAMA, kv_heads=1),
}
CLASSES = {"gpt2": models.GPT2, "bert": models.Bert, "llama": models.Llama}
KINDS = [*CONFIGS]
THEIR_SIZES = {
    "gpt2": {"vocab_size": 11, "n_positions": 8, "n_embd": 8, "n_layer": 2, "n_head": 2},
    "llama": {
        "vocab_size": 11,
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 12,
    },
}
THEIR_SIZES["bert"] = THEIR_SIZES["llama"] | {"max_position_embeddings": 8}


def made(kind, config=None, **options):
    with gf.Graph() as g:
        model = CLASSES[kind](config or CONFIGS[kind], **options)
    return g, model


def folder_of(kind, tmp_path, **options):
    content = {"model_type": kind} | THEIR_SIZES[kind] | options
    (tmp_path / "config.json").write_text(json.dumps(content))
    return tmp_path
