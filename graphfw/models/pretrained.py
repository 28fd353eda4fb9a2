"""`from_pretrained`: models for folders of transformers; `tokenizer`: their tokenizers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from graphfw.errors import ArgumentError, CheckpointError, a_type, first_line
from graphfw.hints.calls import explained
from graphfw.ir.dtype import DTypeLike
from graphfw.models.bert import Bert, BertConfig
from graphfw.models.configs import file_of, read_options
from graphfw.models.gpt2 import GPT2, GPT2Config
from graphfw.models.llama import Llama, LlamaConfig
from graphfw.ops.composed import demand
from graphfw.utils.packages import package

_MODELS: dict[str, Any] = {
    config.model_type: (model, config)
    for model, config in ((Bert, BertConfig), (GPT2, GPT2Config), (Llama, LlamaConfig))
}
"""Models and their configurations by the `model_type` of a `config.json`."""


@explained
def from_pretrained(
    folder: str | os.PathLike[str],
    *,
    options: Mapping[str, Any] | None = None,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Bert | GPT2 | Llama:
    """Build the model of a folder of transformers, for evaluation.

    Its variables have initial values. `model.load_pytorch(folder, names=model.names)` loads the
    folder's weights; in a graph, the session is its first argument. To train the model, call
    `model.train()` first.

    Args:
        folder: A folder that `save_pretrained` of transformers wrote, or a copy of a repository of
            the Hugging Face Hub. `config.json` has the model's type and sizes.
        options: Values in place of those of `config.json`, by transformers' names; None leaves an
            option out.
        dtype: The weights' dtype, the default dtype when there is none.
        name: See `gf.nn.Module`.

    Returns:
        A `Bert`, `GPT2` or `Llama`, as after `model.eval()`.

    Raises:
        CheckpointError: There is no folder, or no `config.json` that can be read.
        ArgumentError: The model, or an option of it, is not implemented; or sizes don't fit.

    >>> import json, pathlib, tempfile
    >>> import graphfw as gf
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> sizes = {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4}
    >>> _ = (folder / "config.json").write_text(json.dumps(sizes))
    >>> with gf.Graph():
    ...     model = gf.models.from_pretrained(folder)
    >>> model.config.embed_dim
    32
    """
    message = f"from_pretrained: options is {a_type(options)}, and no dict"
    demand(isinstance(options, Mapping | None), message, fix='write options={"n_layer": 2}')
    content = {**read_options(folder), **(options or {})}
    kind = content.get("model_type")
    if not isinstance(kind, str) or kind not in _MODELS:
        known = ", ".join(f'"{word}"' for word in _MODELS)
        raise ArgumentError(
            'from_pretrained: the configuration has no "model_type"'
            if kind is None
            else f"from_pretrained: there is no model {kind!r}",
            fix=f"the models are {known}",
        )
    model, config = _MODELS[kind]
    made: Bert | GPT2 | Llama = model(config.from_huggingface(content), dtype=dtype, name=name)
    return made.eval()


@explained
def tokenizer(folder: str | os.PathLike[str]) -> Any:
    """Return the tokenizer of a folder of transformers: a `tokenizers.Tokenizer`.

    `tokenizer(folder).encode("text").ids` are tokens, and `.decode(ids)` is the text.

    Args:
        folder: The folder, which has a `tokenizer.json`, or that file.

    Raises:
        ImportError: The package tokenizers is missing: `pip install tokenizers`.
        CheckpointError: There is no such file, or it can't be read.
    """
    file = file_of(folder, "tokenizer.json")
    tokenizers = package("tokenizers", "gf.models.tokenizer")
    try:
        return tokenizers.Tokenizer.from_file(os.fspath(file))
    except Exception as error:  # the package raises no narrower class
        raise CheckpointError(
            f"cannot read {os.fspath(file)!r}: {first_line(error)}", fix="use a whole copy of it"
        ) from error
