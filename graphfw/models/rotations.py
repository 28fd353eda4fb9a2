"""Scalings of rotary embeddings, by which models read longer texts than they were trained with."""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from graphfw.errors import ArgumentError, a_type
from graphfw.hints.calls import explained
from graphfw.ir.literal import Array
from graphfw.ops.composed import demand


@dataclass(frozen=True)
class RotaryScaling(abc.ABC):
    """The base of scalings.

    Attributes:
        factor: The factor by which texts may be longer.
    """

    factor: float

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            fits = isinstance(value, float | int) and value > 0
            message = f"{type(self).__name__}: {field.name} must be a number above 0"
            usual = 8.0 if field.name == "factor" else field.default
            demand(fits, message, fix=f"use {field.name}={usual}")

    @abc.abstractmethod
    def scaled(self, frequencies: Array) -> Array:
        """Return the scaled angles between neighbouring positions.  [pairs] -> [pairs]"""


@explained
@dataclass(frozen=True)
class LinearScaling(RotaryScaling):
    """Positions divided by a factor. S. Chen et al., "Position interpolation", 2023.

    Args:
        factor: The factor.

    Raises:
        ArgumentError: It is no number above 0.
    """

    def scaled(self, frequencies: Array) -> Array:
        """Divide all angles.  [pairs] -> [pairs]"""
        return frequencies / self.factor


@explained
@dataclass(frozen=True)
class Llama3Scaling(RotaryScaling):
    """Slow rotations divided by a factor, and fast ones left as they are.

    A rotation is slow if it makes fewer than `low_freq_factor` turns over `original_max_length`
    tokens, and fast if it makes more than `high_freq_factor`. Between them the divisor is
    interpolated. A. Dubey et al., "The Llama 3 herd of models", 2024; the names are those of its
    configurations.

    Args:
        factor: The factor.
        low_freq_factor: See above.
        high_freq_factor: See above; it is larger.
        original_max_length: The number of tokens of the longest texts of the training.

    Raises:
        ArgumentError: One is no number above 0, or high_freq_factor is not above low_freq_factor.
    """

    factor: float = 8.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_length: int = 8192

    def __post_init__(self) -> None:
        super().__post_init__()
        message = "Llama3Scaling: high_freq_factor is not above low_freq_factor"
        fits = self.high_freq_factor > self.low_freq_factor
        demand(fits, message, fix="use low_freq_factor=1.0, high_freq_factor=4.0")

    def scaled(self, frequencies: Array) -> Array:
        """Divide the slow angles.  [pairs] -> [pairs]"""
        turns = self.original_max_length * frequencies / (2 * math.pi)
        span = self.high_freq_factor - self.low_freq_factor
        fastness = np.clip((turns - self.low_freq_factor) / span, 0, 1)
        scaled: Array = frequencies * (fastness + (1 - fastness) / self.factor)
        return scaled


_KINDS: dict[str, tuple[type[RotaryScaling], dict[str, str]]] = {
    "linear": (LinearScaling, {"factor": "factor"}),
    "llama3": (
        Llama3Scaling,
        {
            "factor": "factor",
            "low_freq_factor": "low_freq_factor",
            "high_freq_factor": "high_freq_factor",
            "original_max_position_embeddings": "original_max_length",
        },
    ),
}
"""Scalings by transformers' words, and their fields by transformers' names."""


def read_rotation(option: str, content: Any) -> dict[str, Any]:
    """Return the fields of a configuration that an option of transformers sets.

    Args:
        option: Its name, for errors.
        content: Its value.

    Raises:
        ArgumentError: It is no dict, its kind is not implemented, or it has unknown entries.
    """
    message = f"{option} is {a_type(content)}, and no dict"
    demand(isinstance(content, Mapping), message, fix="use the value of a model of transformers")
    left = {name: value for name, value in content.items() if value is not None}
    found: dict[str, Any] = {}
    if "rope_theta" in left:
        found["rotary_base"] = left.pop("rope_theta")
    words = [left.pop(name) for name in ("rope_type", "type") if name in left]
    word = words[0] if words else "default"
    if left.get("partial_rotary_factor") == 1:
        del left["partial_rotary_factor"]
    if word != "default":
        if not isinstance(word, str) or word not in _KINDS:
            known = ", ".join(f'"{kind}"' for kind in ("default", *_KINDS))
            raise ArgumentError(
                f"{option} is of the kind {word!r}, which is not implemented",
                fix=f"use a model with one of these: {known}",
            )
        scaling, names = _KINDS[word]
        for name in names:
            message = f"{option} of the kind {word!r} has no {name}"
            demand(name in left, message, fix=f'give it: {{"{name}": …}}')
        values = {own: left.pop(theirs) for theirs, own in names.items()}
        found["rotary_scaling"] = scaling(**values)
    if left:
        name = next(iter(left))
        raise ArgumentError(
            f"{option} has {name}={left[name]!r}, which is not implemented",
            fix="use a model without it",
        )
    return found
