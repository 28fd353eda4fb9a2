"""Folders of low-rank updates in the layout of Hugging Face's PEFT."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from graphfw import io
from graphfw.errors import CheckpointError
from graphfw.nn import weights
from graphfw.nn.interface import ModuleInterface
from graphfw.nn.weight_names import Names, inverted, rename_with, renamed

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."
_PLAIN: dict[str, Any] = {
    "bias": "none",
    "use_dora": False,
    "use_rslora": False,
    "lora_bias": False,
    "rank_pattern": {},
    "alpha_pattern": {},
    "modules_to_save": None,
    "layer_replication": None,
}
"""The options of a configuration that must have these values, which are PEFT's defaults."""


class PeftOptions(NamedTuple):
    """The options of low-rank updates in a configuration.

    Attributes:
        rank: Their rank.
        alpha: They are scaled by alpha / rank.
        dropout: In training, the probability of leaving out a feature of their inputs.
    """

    rank: int
    alpha: float
    dropout: float


def read_options(folder: Any) -> PeftOptions:
    """Read the configuration.

    Raises:
        CheckpointError: It can't be read, or is not one of plain low-rank updates.
    """
    path = Path(folder) / _CONFIG
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(
            f"cannot read {str(path)!r}: {error}",
            fix="pass a folder that PEFT's save_pretrained has written",
        ) from error
    config = io.from_text(text, str(path))
    if config.get("peft_type") != "LORA":
        raise CheckpointError(
            f"{str(path)!r} is no configuration of low-rank updates",
            fix='its entry "peft_type" must be "LORA"',
        )
    for name, plain in _PLAIN.items():
        if config.get(name, plain) not in (plain, None, False, {}, []):
            raise CheckpointError(
                f"{str(path)!r} has {name}={config[name]!r}, which adapters do not compute",
                fix=f"train with {name}={plain!r}, or merge the updates into the weights in PEFT",
            )
    try:
        return PeftOptions(
            int(config["r"]), float(config["lora_alpha"]), config.get("lora_dropout", 0.0)
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f'{str(path)!r} has no numbers "r" and "lora_alpha"', fix="add them"
        ) from error


def read_updates(folder: Any, names: Names | None) -> dict[str, Any]:
    """Read the updates, by graphfw's names in PyTorch's layouts.

    Raises:
        CheckpointError: They can't be read, or two get one name.
        ArgumentError: A row of the table is wrong.
    """
    what = "Adapters.load_peft"
    rename = rename_with(what, names)
    arrays = io.read_pytorch(os.path.join(folder, _WEIGHTS))
    return renamed(what, arrays, lambda name: rename(name.removeprefix(_PREFIX)))


def save(
    module: ModuleInterface,
    layers: Sequence[str],
    options: PeftOptions,
    session: Any,
    folder: Any,
    names: Names | None,
) -> None:
    """Write the configuration and the updates: see `Adapters.save_peft`."""
    what = "Adapters.save_peft"
    rename = rename_with(what, inverted(what, names))
    config = {
        "peft_type": "LORA",
        "base_model_name_or_path": None,
        "task_type": None,
        "inference_mode": True,
        "r": options.rank,
        "lora_alpha": int(options.alpha) if options.alpha.is_integer() else options.alpha,
        "lora_dropout": options.dropout,
        "target_modules": [rename(layer) for layer in layers],
        "fan_in_fan_out": False,
        "init_lora_weights": True,
        **_PLAIN,
    }
    root = Path(folder)
    try:
        root.mkdir(parents=True, exist_ok=True)
        weights.save_pytorch(module, session, root / _WEIGHTS, lambda n: f"{_PREFIX}{rename(n)}")
        (root / _CONFIG).write_text(io.to_text(config), encoding="utf-8")
    except OSError as error:
        raise CheckpointError(
            f"cannot write {os.fspath(folder)!r}: {error.strerror or error}",
            fix="choose a folder that can be written",
        ) from error
