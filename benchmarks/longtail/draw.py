"""Sizes, dtypes and layouts, drawn by a seed."""

from __future__ import annotations

import math
import random
from typing import TypeVar

T = TypeVar("T")

FULL, QUICK, TINY = "full", "quick", "tiny"
"""Sizes: as people run them; from the lower end of each range; as tests run them."""

_QUICK_FRACTION = 0.65
"""The share of each range, on a logarithmic scale, that quick runs draw from."""


class Draw:
    """The parameters of one workload: the same seed and name give the same ones.

    Args:
        seed: Of the run.
        name: The workload's; what one draws changes nothing for the others.
        scale: `FULL`, `QUICK` or `TINY`.
    """

    def __init__(self, seed: int, name: str, scale: str = FULL) -> None:
        self.scale = scale
        self._random = random.Random(f"{seed}/{name}")

    def size(self, low: int, high: int, multiple: int = 1, least: int = 1) -> int:
        """Return a size from a range, as likely small as large on a logarithmic scale.

        Half of them are multiples of 16 where they can be, as programmers like them, the others
        come as they fall. A quick run has the smaller part of the range, a tiny one square roots.

        Args:
            low, high: The range of a full run.
            multiple: What the size is a multiple of.
            least: The smallest that makes sense, which tiny sizes keep to.
        """
        fraction, is_round = self._random.random(), self._random.random() < 0.5
        if self.scale != FULL:
            fraction *= _QUICK_FRACTION
        found = math.exp(math.log(low) + fraction * (math.log(high) - math.log(low)))
        if self.scale == TINY:
            return _rounded(max(math.sqrt(found), least), multiple)
        if is_round and low >= 16:
            multiple = math.lcm(multiple, 16)
        return min(max(_rounded(found, multiple), _up(low, multiple)), max(high, multiple))

    def choice(self, *options: T) -> T:
        """Return one of the options."""
        return options[int(self._random.random() * len(options))]


def _rounded(value: float, multiple: int) -> int:
    return max(1, round(value / multiple)) * multiple


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
