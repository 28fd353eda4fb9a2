"""Variants of a program for feeds that are not C-contiguous.

The program takes such feeds too: it copies them first. When it has copied much, the next run
compiles a variant; runs with feeds of the same layouts use it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from graphfw.ir import time_limits
from graphfw.ir.literal import Array
from graphfw.ir.op import ALIAS
from graphfw.runtime.executor import Executable
from graphfw.runtime.feed_layouts import FeedLayout, layout_of
from graphfw.runtime.program import Program
from graphfw.utils import forks

_COPIED = 1 << 19
"""Bytes of feeds, for each node that computes, that are copied before a variant is compiled.

Copying eight times as many takes as long as compiling. But a program that has run a few times with
feeds of a layout is likely to go on, and a loop's first runs are those that people time.
"""

_VARIANTS = 8
"""Feeds of further layouts are always copied: what runs with many layouts does not compile."""

_KNOWN = 1024
"""Combinations of sizes and strides that are remembered."""

Layouts: TypeAlias = "tuple[FeedLayout | None, ...]"


@dataclass(eq=False)
class _Variant:
    """A variant, or what will be one.

    Attributes:
        copied: Bytes of feeds that runs have copied.
        executable: The variant, once it is compiled.
        is_refused: Whether there will be none.
    """

    copied: int = 0
    executable: Executable | None = None
    is_refused: bool = False


class _Known(NamedTuple):
    """Feeds of some sizes and strides.

    Attributes:
        layouts: Their layouts; None for all that are C-contiguous.
        measured: Their measured strides.
        nbytes: Bytes of those that are not C-contiguous.
        numbers: Which those are.
    """

    layouts: Layouts | None
    measured: tuple[int, ...] = ()
    nbytes: int = 0
    numbers: tuple[int, ...] = ()


class FeedVariants:
    """The variants of a program.

    Args:
        program: The program.
        load: Compiles the program for feeds of some layouts; it may raise an `OverflowError`.
    """

    def __init__(self, program: Program, load: Callable[[Layouts], Executable]) -> None:
        self._count = len(program.feeds)
        nodes = [node for node in program.source.nodes if node.inputs]
        self._patience = _COPIED * len([node for node in nodes if ALIAS not in node.op.traits])
        self._load = load
        self._known: dict[tuple[tuple[int, ...], ...], _Known] = {}
        self._variants: dict[Layouts, _Variant] = {}
        self._lock = forks.renewed_lock()

    def of(
        self, inputs: Sequence[Array], sizes: tuple[int, ...]
    ) -> tuple[Executable, tuple[int, ...]] | None:
        """Return the variant for the feeds of a run, and the sizes that it takes.

        Returns:
            None where the program itself runs.
        """
        feeds = inputs[: self._count]
        key = (sizes, *[array.strides for array in feeds])
        known = self._known.get(key)
        if known is None:
            known = _known(feeds)
            if len(self._known) < _KNOWN:
                self._known[key] = known
        if known.layouts is None:
            return None
        for number in known.numbers:
            if not feeds[number].flags.aligned:
                return None
        executable = self._variant(known.layouts, known.nbytes)
        return None if executable is None else (executable, (*sizes, *known.measured))

    def _variant(self, layouts: Layouts, nbytes: int) -> Executable | None:
        variant = self._variants.get(layouts)
        if variant is not None and variant.executable is not None:
            return variant.executable
        # One run compiles; others that go on meanwhile copy.
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if variant is None:
                if len(self._variants) >= _VARIANTS:
                    return None
                variant = self._variants.setdefault(layouts, _Variant())
            variant.copied += nbytes
            is_due = variant.copied > self._patience and not variant.is_refused
            # Compiling is no part of a run's time.
            if variant.executable is None and is_due and time_limits.seconds_left() is None:
                try:
                    variant.executable = self._load(layouts)
                except OverflowError:  # strides of more than 64 bits
                    variant.is_refused = True
            return variant.executable
        finally:
            self._lock.release()


def _known(feeds: Sequence[Array]) -> _Known:
    layouts: list[FeedLayout | None] = [None] * len(feeds)
    numbers = [number for number, array in enumerate(feeds) if not array.flags.c_contiguous]
    measured: list[int] = []
    for number in numbers:
        array = feeds[number]
        found = layout_of(array.shape, array.strides, array.itemsize)
        if found is None:
            return _Known(None)
        layouts[number] = found[0]
        measured += found[1]
    if not numbers:
        return _Known(None)
    nbytes = sum([feeds[number].nbytes for number in numbers])
    return _Known(tuple(layouts), tuple(measured), nbytes, tuple(numbers))


def first_elements(inputs: Sequence[Array], layouts: Layouts) -> list[Array]:
    """Return the inputs of a run, of strided feeds the first elements alone, which are contiguous.

    Native code finds the others by the feeds' strides.
    """
    found = [*inputs]
    for number, layout in enumerate(layouts):
        if layout is not None:
            array = found[number]
            found[number] = array[(slice(1),) * array.ndim]
    return found
