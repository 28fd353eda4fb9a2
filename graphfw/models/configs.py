"""`ModelConfig`: the sizes and options of a language model, and the reading of Hugging Face's."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

from graphfw import nn
from graphfw.errors import ArgumentError, CheckpointError, a_type, did_you_mean, first_line
from graphfw.hints.names import Unchanging
from graphfw.nn.checks import checked_size
from graphfw.ops.composed import demand, demand_one_of, demand_probability

_ACTIVATIONS: Mapping[str, Callable[[], nn.Module]] = {
    "gelu": nn.GELU,
    "gelu_tanh": partial(nn.GELU, "tanh"),
    "relu": nn.ReLU,
    "silu": nn.SiLU,
}
"""Layers by the words that configurations have for activations."""

_THEIR_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_fast": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
"""The same words by those of transformers."""

_MOST_LAYERS = 10_000
"""More layers are a mistake, and making them would take hours."""

_WITHOUT_EFFECT = frozenset(
    (
        # How a file was made, and in which dtype: the model is built with the dtype of the call.
        *("architectures", "dtype", "torch_dtype", "transformers_version", "_name_or_path"),
        *("finetuning_task", "problem_type", "task_specific_params", "id2label", "label2id"),
        *("initializer_range", "model_type"),
        # How transformers computes, and what it returns: logits are the same.
        *("_attn_implementation", "_attn_implementation_autoset", "chunk_size_feed_forward"),
        *("gradient_checkpointing", "output_attentions", "output_hidden_states", "output_past"),
        *("return_dict", "torchscript", "use_bfloat16", "use_cache", "tf_legacy_loss"),
        *("pretraining_tp", "reorder_and_upcast_attn"),
        # Tokens, and generation.
        *("bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "prefix"),
        *("decoder_start_token_id", "tokenizer_class", "max_length", "min_length", "do_sample"),
        *("early_stopping", "num_beams", "num_beam_groups", "diversity_penalty", "temperature"),
        *("top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty"),
        *("no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids"),
        *("num_return_sequences", "output_scores", "return_dict_in_generate"),
        *("forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values"),
        *("exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens"),
    )
)
"""Options of all of transformers' models that change no logits."""

_ABSENT: Mapping[str, Any] = {
    "add_cross_attention": False,
    "cross_attention_hidden_size": None,
    "is_decoder": False,
    "is_encoder_decoder": False,
    "pruned_heads": {},
    "tie_encoder_decoder": False,
}
"""Options of all of transformers' models, with the only values that the models here have."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Unchanging):
    """The base of language models' configurations.

    Attributes:
        model_type: The word for the model in `config.json`.
    """

    _answers_as = "Config"
    model_type: ClassVar[str]
    _fields: ClassVar[Mapping[str, str]]
    """The fields for transformers' options."""
    _only: ClassVar[Mapping[str, Any]] = {}
    """Further options, and the only value that is implemented."""
    _free: ClassVar[frozenset[str]] = frozenset()
    """Further options that change no logits."""

    def __post_init__(self) -> None:
        for field in fields(self):
            _check(type(self).__name__, field, getattr(self, field.name))

    @classmethod
    def from_huggingface(cls, source: str | os.PathLike[str] | Mapping[str, Any]) -> Self:
        """Return the configuration of a `config.json` of transformers.

        Options that change no logits, such as those of generation, are left out. An option that is
        not implemented is an error.

        Args:
            source: The file or its folder, or its content as a dict. A value of None is
                transformers' default, as if the option were missing.

        Raises:
            CheckpointError: There is no such file, or it is no JSON.
            ArgumentError: It is for another model, or has an option that is not implemented here.
        """
        options = read_options(source)
        found = options.get("model_type", cls.model_type)
        message = f'{cls.__name__}: the configuration is for the model "{found}"'
        fix = "use gf.models.from_pretrained(folder), which finds the model for it"
        demand(found == cls.model_type, message, fix=fix)
        left = {name: value for name, value in options.items() if value is not None}
        values = cls._read(left)
        values |= {cls._fields[n]: left.pop(n) for n in cls._fields if n in left}
        if "activation" in values:
            values["activation"] = _activation_word(cls.__name__, values["activation"])
        only = {**_ABSENT, **cls._only}
        for name, value in left.items():
            if name in only and value != only[name]:
                raise ArgumentError(
                    f"{cls.__name__}: the option {name}={value!r} is not implemented",
                    fix=f"use a model with {name}={only[name]!r}",
                )
            if name not in only and name not in _WITHOUT_EFFECT | cls._free:
                hint = did_you_mean(str(name), cls._fields, cutoff=0.8)
                raise ArgumentError(
                    f"{cls.__name__}: the option {name}={value!r} is not known",
                    fix=hint
                    or f'if it changes no logits, leave it out: options={{"{name}": None}}',
                )
        return cls(**values)

    @classmethod
    def _read(cls, left: dict[str, Any]) -> dict[str, Any]:
        """Return the fields that several options set together, and take these options out."""
        return {}


def read_options(source: str | os.PathLike[str] | Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a `config.json`, of its folder, or a dict as it is.

    Raises:
        CheckpointError: There is no such file, or it is no JSON.
        ArgumentError: The source is neither a path nor a dict.
    """
    if isinstance(source, Mapping):
        return dict(source)
    file = file_of(source, "config.json")
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"cannot read {os.fspath(file)!r}: {first_line(error)}", fix="use a whole copy of it"
        ) from error
    if not isinstance(content, dict):
        raise CheckpointError(
            f"{os.fspath(file)!r} has {a_type(content)}, and no options by name",
            fix="use the config.json of a model of transformers",
        )
    return content


def file_of(folder: str | os.PathLike[str], name: str) -> Path:
    """Return a file of a folder of transformers, which may be passed itself.

    Raises:
        ArgumentError: The folder is no path.
        CheckpointError: There is no such folder, or no such file in it.
    """
    message = f"the folder is {a_type(folder)}, and no path"
    fix = f"pass the path of a folder that has a {name}"
    demand(isinstance(folder, str | os.PathLike), message, fix=fix)
    path = Path(folder)
    if not os.path.exists(path):  # Path.exists raises for names that can't be
        raise CheckpointError(
            f"there is no file or folder {os.fspath(path)!r}",
            fix="download the model first, and pass its folder: graphfw downloads nothing",
        )
    file = path / name if path.is_dir() else path
    if not file.exists():
        raise CheckpointError(
            f"the folder {os.fspath(path)!r} has no {name}",
            fix="pass a folder that save_pretrained of transformers wrote",
        )
    return file


def activation_layer(word: str) -> nn.Module:
    """Return a layer for one of the words that configurations have for activations."""
    return _ACTIVATIONS[word]()


def _check(config: str, field: Field[Any], value: Any) -> None:
    """See that a field has a value of its kind.

    Raises:
        ArgumentError: It has not.
    """
    name = field.name
    if name == "activation":
        demand_one_of(config, name, value, _ACTIVATIONS)
    elif name.endswith("dropout"):
        demand_probability(config, name, value)
    elif field.type == "bool":
        message = f"{config}: {name} is {a_type(value)}, and no bool"
        demand(isinstance(value, bool), message, fix=f"use {name}=True or {name}=False")
    elif field.type == "float":
        fits = isinstance(value, float | int) and value > 0
        message = f"{config}: {name} must be a number above 0"
        demand(fits, message, fix=f"use {name}={field.default}")
    elif field.type == "int" or (field.type == "int | None" and value is not None):
        size = checked_size(config, name, value)
        fits = name != "num_layers" or size <= _MOST_LAYERS
        message = f"{config}: num_layers is more than {_MOST_LAYERS:,}"
        demand(fits, message, fix=f"use num_layers={field.default}")


def _activation_word(config: str, theirs: Any) -> str:
    """Return graphfw's word for an activation of transformers.

    Raises:
        ArgumentError: It is not implemented.
    """
    word = _THEIR_ACTIVATIONS.get(theirs) if isinstance(theirs, str) else None
    if word is None:
        raise ArgumentError(
            f"{config}: the activation {theirs!r} is not implemented",
            fix=f"use a model with one of these: {', '.join(_THEIR_ACTIVATIONS)}",
        )
    return word
