"""Batches of datasets one after the other, from a position that a checkpoint has kept."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from importlib import import_module
from itertools import islice
from typing import Any

from graphfw.errors import ArgumentError, a_type, counted

_THREADS = 8
"""The most threads in which grain makes batches."""
_ENDLESS = 1 << 53
"""Datasets without an end say that they have the largest length, or a fraction of it in batches."""


class Reader(ABC):
    """Reads the batches of a dataset.

    Attributes:
        number: How many batches are before the next one, from the dataset's begin.
        signature: What is known of the dataset, which must be the same when a run goes on.
    """

    def __init__(self, number: int, signature: Mapping[str, Any], total: int | None) -> None:
        self.number = number
        self.signature = dict(signature)
        self._total = None if total is not None and total > _ENDLESS else total

    def read(self) -> Any:
        """Return the next batch.

        Raises:
            StopIteration: There is none.
        """
        batch = self._next()
        self.number += 1
        return batch

    @abstractmethod
    def _next(self) -> Any:
        """Return the next batch, or raise StopIteration."""

    def position(self) -> dict[str, Any]:
        """Return the position of the next batch, from which `reader_of` goes on."""
        return {"batches": self.number, "data": self.signature}

    def left(self) -> int | None:
        """Return the number of batches to come; None where nobody knows, or there is no end."""
        return None if self._total is None else max(self._total - self.number, 0)


def reader_of(dataset: Any, position: Mapping[str, Any] | None, workers: int) -> Reader:
    """Return a reader of a dataset, which goes on at a position.

    Raises:
        ArgumentError: It is no dataset, or the position is none of it, or it takes no workers.
    """
    grain = sys.modules.get("grain")  # who has not imported it has no dataset of it
    begin = _begin(position)
    reader: Reader
    if grain is not None and isinstance(dataset, grain.MapDataset):
        reader = _MapReader(grain, dataset, begin, workers)
    elif workers:
        raise ArgumentError(
            f"feeds: workers={workers} make the batches of a grain.MapDataset, and the data is "
            f"{a_type(dataset)}",
            fix="leave workers out, or make one: grain.MapDataset.source(dataset)",
        )
    elif grain is not None and isinstance(dataset, grain.IterDataset):
        reader = _StateReader(dataset, begin, (position or {}).get("state"))
    elif _is_sequence(dataset):
        reader = _SequenceReader(dataset, begin)
    elif isinstance(dataset, Iterable) and not isinstance(dataset, str | bytes | Mapping):
        reader = _IterableReader(dataset, begin)
    else:
        raise ArgumentError(
            f"feeds: the data is {a_type(dataset)}, which gives no batches one by one",
            fix="make batches of arrays: gf.data.batches(data, 32)",
        )
    if position is not None:
        _check_signature(position.get("data"), reader.signature)
    return reader


def _is_sequence(dataset: Any) -> bool:
    if isinstance(dataset, str | bytes | Mapping):
        return False
    return hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")


def _begin(position: Any) -> int:
    """Return the number of batches before a position."""
    if position is None:
        return 0
    number = position.get("batches") if isinstance(position, Mapping) else None
    if type(number) is not int or number < 0:
        raise ArgumentError(
            f"feeds: position={position!r} is none that feeds had",
            fix="pass feeds.position of an earlier run, which session.save may keep in its "
            "metadata",
        )
    return number


def _check_signature(before: Any, now: Mapping[str, Any]) -> None:
    if before == now:
        return
    known = before if isinstance(before, Mapping) else {}
    changes = [
        f"{name} is {now.get(name)} and was {known.get(name)}"
        for name in dict.fromkeys([*known, *now])
        if known.get(name) != now.get(name)
    ]
    raise ArgumentError(
        f"feeds: the position is of other data: {', '.join(changes)}",
        fix="go on with the data of the earlier run, or leave position out to begin anew",
    )


class _SequenceReader(Reader):
    """Reads what has a length and gives batches by number."""

    def __init__(self, dataset: Sequence[Any], begin: int) -> None:
        total = len(dataset)
        super().__init__(begin, getattr(dataset, "signature", {"batches": total}), total)
        self._dataset = dataset

    def _next(self) -> Any:
        if self.number >= len(self._dataset):
            raise StopIteration
        return self._dataset[self.number]


class _IterableReader(Reader):
    """Reads what can only be gone through: to go on, what was read before is read and left."""

    def __init__(self, dataset: Iterable[Any], begin: int) -> None:
        # A loader says how many batches it has.
        total = len(dataset) if isinstance(dataset, Sized) else None
        super().__init__(begin, {"kind": type(dataset).__name__}, total)
        self._batches: Iterator[Any] = iter(dataset)
        skipped = sum([1 for _ in islice(self._batches, begin)])
        if skipped < begin:
            raise ArgumentError(
                f"feeds: the position is after {counted(begin, 'batch', 'batches')}, and the data "
                f"has {skipped}",
                fix="go on with the data of the earlier run, or leave position out to begin anew",
            )

    def _next(self) -> Any:
        return next(self._batches)


class _MapReader(Reader):
    """Reads a `MapDataset`, in threads or in processes; see grain's documentation.

    The position is a number of batches, whatever reads them.
    """

    def __init__(self, grain: Any, dataset: Any, begin: int, workers: int) -> None:
        total = len(dataset)
        super().__init__(begin, {"batches": total}, total)
        threads = min(os.cpu_count() or 1, _THREADS)
        options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=2 * threads)
        self._batches: Iterator[Any] = iter(())
        if begin < total:
            rest = dataset.slice(slice(begin, None)) if begin else dataset
            # With what `filter` has left out, as None: so each batch keeps its number.
            read = rest.to_iter_dataset(options, allow_nones=True)
            if workers:
                _mark_flags_as_parsed()
                read = read.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))
            self._batches = iter(read)

    def read(self) -> Any:
        batch = None
        while batch is None:
            batch = super().read()
        return batch

    def _next(self) -> Any:
        return next(self._batches)


def _mark_flags_as_parsed() -> None:
    """Let grain start processes in a program that does not begin with absl's `app.run`."""
    flags = import_module("absl.flags").FLAGS  # which comes with grain
    if not flags.is_parsed():
        flags.mark_as_parsed()


class _StateReader(Reader):
    """Reads an `IterDataset`, whose iterator has a state of its own."""

    def __init__(self, dataset: Any, begin: int, state: Any) -> None:
        super().__init__(begin, {"kind": type(dataset).__name__}, None)
        self._batches = iter(dataset)
        if begin:
            self._batches.set_state(state)

    def _next(self) -> Any:
        return next(self._batches)

    def position(self) -> dict[str, Any]:
        return super().position() | {"state": self._batches.get_state()}
