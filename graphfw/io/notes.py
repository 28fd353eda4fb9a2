"""A user's metadata of a checkpoint, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from graphfw.errors import ArgumentError, CheckpointError, a_type
from graphfw.io.checksums import from_json


def to_text(metadata: Mapping[str, Any]) -> str:
    """Return a dict as JSON; NumPy's scalars become Python's numbers.

    Raises:
        ArgumentError: It is no dict with names, or JSON does not have one of its values.

    >>> to_text({"epoch": 3, "loss": np.float32(0.5)})
    '{"epoch": 3, "loss": 0.5}'
    """
    if not isinstance(metadata, Mapping):
        raise ArgumentError(
            f"save: metadata is {a_type(metadata)}, not a dict",
            fix='pass a dict with names, as in metadata={"epoch": 3}',
        )
    return json.dumps(_plain(metadata, "metadata"))


def from_text(text: str, source: str) -> dict[str, Any]:
    """Return the metadata of a text that `to_text` returned.

    Raises:
        CheckpointError: It is no such text.
    """
    found = from_json(text)
    if not isinstance(found, dict):
        raise CheckpointError(
            f"the metadata of {source!r} is damaged", fix="use another copy of the file"
        )
    return found


def _plain(value: Any, path: str) -> Any:
    """Return a value of Python's types that JSON has, with lists in the place of tuples."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ArgumentError(
                    f"save: {path} has the key {key!r}, which is no name",
                    fix=f"use text: {str(key)!r}",
                )
        return {key: _plain(one, f"{path}[{key!r}]") for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one, f"{path}[{number}]") for number, one in enumerate(value)]
    raise ArgumentError(
        f"save: {path} is {a_type(value)}, which JSON does not have",
        fix="keep numbers, text, lists and dicts there; arrays belong into variables, "
        "or become lists: array.tolist()",
    )
