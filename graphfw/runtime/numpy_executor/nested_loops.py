"""Bodies with loops inside that leave Python too.  `nested_loops.ll` has the offsets."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from graphfw.ir.literal import Array
from graphfw.runtime.numpy_executor.engine import compile_codes
from graphfw.runtime.numpy_executor.loops import Iterations, IterationWork, loop_address
from graphfw.runtime.numpy_executor.native import text_of
from graphfw.runtime.numpy_executor.runner import Record, Run, runner_address

_ADDRESSES, _COPIES, _STRETCH, _LOOP = range(4)


class NestedLoopsCode:
    """The function `i64 (ptr chain, ptr nothing)` that goes through a chain.

    See `nested_loops.ll`.
    """

    key = "chain"

    def llvm(self, symbol: str) -> str:
        return text_of("nested_loops.ll", symbol=symbol)


class IndirectAddress(NamedTuple):
    """An address: so many bytes after the address that a word in memory holds."""

    word: int
    offset: int

    def offset_by(self, nbytes: int) -> IndirectAddress:
        """Return the source so many bytes after."""
        return IndirectAddress(self.word, self.offset + nbytes)


class NestedLoops:
    """The computation of a body in an iteration, link by link."""

    def __init__(self) -> None:
        self._links: list[tuple[int, int, int]] = []
        self._held: list[object] = []
        self._loops: list[Iterations] = []

    def source_of(self, array: Array) -> IndirectAddress:
        """Return where an array is, which stays as it is."""
        held = np.require(array, requirements=["C", "A"])
        self._held.append(held)
        return IndirectAddress(self._laid([held.ctypes.data]), 0)

    def add_stretch(self, record: Record) -> None:
        """Compute native steps."""
        self._links.append((_STRETCH, ctypes.addressof(record), 0))
        self._held.append(record)

    def add_addresses(self, pairs: Sequence[tuple[IndirectAddress, int]]) -> None:
        """Write where sources are to words in memory."""
        rows = [(source.word, source.offset, target) for source, target in pairs]
        self._links.append((_ADDRESSES, self._laid([*chain.from_iterable(rows)]), len(rows)))

    def add_copies(self, copies: Sequence[tuple[IndirectAddress, IndirectAddress, int]]) -> None:
        """Copy from sources to targets, so many bytes each."""
        rows = [(*source, *target, nbytes) for source, target, nbytes in copies]
        self._links.append((_COPIES, self._laid([*chain.from_iterable(rows)]), len(rows)))

    def add_loop(self, iterations: Iterations) -> None:
        """Make the iterations of a loop, the addresses of whose arrays have been written."""
        self._links.append((_LOOP, iterations.here, 0))
        self._loops.append(iterations)

    def work(self, run: Run) -> IterationWork:
        """Return a loop's argument, with the body's tables."""
        links = self._laid([*chain.from_iterable(self._links)])
        here = self._laid([len(self._links), links, runner_address(), loop_address()])
        return IterationWork(_address(), here, run, tuple(self._loops), self)

    def _laid(self, words: Sequence[int]) -> int:
        array = np.array(words, np.int64)
        self._held.append(array)
        return array.ctypes.data


_known: list[int] = []


def _address() -> int:
    if not _known:
        _known.extend(compile_codes([NestedLoopsCode()]))
    return _known[0]
