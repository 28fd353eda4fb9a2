"""Sequences whose items are made when they are asked for, and the orders that seeds draw."""

from __future__ import annotations

import zlib
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, TypeVar, overload

import numpy as np

from graphfw.errors import ArgumentError
from graphfw.hints.names import Answering

T = TypeVar("T")

ENDLESS = 1 << 53
"""Datasets without an end say that they have the largest length, or a fraction of it in batches."""


class Indexed(Sequence[T], Answering):
    """A sequence that makes its items by number."""

    _answers_as = "Batches"
    _items: ClassVar[str]
    """The noun of its items, for errors."""

    @abstractmethod
    def _made(self, number: int) -> T:
        """Return an item; the number is one of those below the length."""

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self._made(number) for number in range(*index.indices(len(self)))]
        number = index + len(self) if index < 0 else index
        if not 0 <= number < len(self):
            raise IndexError(f"there are {len(self)} {self._items}, and none is number {index}")
        return self._made(number)

    def __iter__(self) -> Iterator[T]:
        # `Sequence` would take an IndexError of the data itself for the end.
        for number in range(len(self)):
            yield self._made(number)


def integer(what: str, name: str, value: Any, least: int) -> int:
    """Return an argument that is an integer.

    Raises:
        ArgumentError: It is none, or smaller than `least`.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ArgumentError(
            f"{what}: {name}={value!r} is no integer of at least {least}",
            fix=f"write {name}={max(least, 32 * least)}",
        )
    return int(value)


def permutation(seed: int, key: tuple[int, ...], count: int) -> np.ndarray[Any, Any]:
    """Return the numbers below `count` in an order that a seed and a key draw."""
    bits = np.random.Philox(np.random.SeedSequence([seed, *key]))
    return np.random.Generator(bits).permutation(count)


def fingerprint(*contents: object) -> int:
    """Return a number that other contents hardly have: of numbers, texts and lists of these."""
    return zlib.crc32(repr(contents).encode())
