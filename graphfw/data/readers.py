"""Batches of datasets one after the other, from a position that a checkpoint has kept."""

from __future__ import annotations

import copy
import io
import os
import pickle
import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from importlib import import_module
from itertools import islice
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np

from graphfw.data.indexed import ENDLESS
from graphfw.errors import ArgumentError, DataError, a_type, counted, first_line
from graphfw.utils.packages import package

_THREADS = 8
"""The most threads in which grain makes batches."""
_DEATH = "Worker process was terminated unexpectedly"
"""The beginning of an error of grain when a process has been killed, or has left."""


def read_options() -> Any:
    """Return the numbers of threads and of examples in advance, for grain to read by number."""
    threads = min(os.cpu_count() or 1, _THREADS)
    grain = package("grain", "gf.data.feeds")
    return grain.ReadOptions(num_threads=threads, prefetch_buffer_size=2 * threads)


class Reader(ABC):
    """Reads the batches of a dataset.

    Attributes:
        number: The number of batches before the next one.
        signature: Known properties of the dataset, which must be the same when a run resumes.
    """

    def __init__(self, number: int, signature: Mapping[str, Any], total: int | None) -> None:
        self.number = number
        self.signature = dict(signature)
        self._total = None if total is not None and total > ENDLESS else total

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
        reader = _MapReader(dataset, begin, workers, {"batches": len(dataset)})
    elif workers and _is_sequence(dataset):
        reader = _MapReader(dataset, begin, workers, _signature(dataset))
    elif workers:
        raise ArgumentError(
            f"feeds: workers={workers} make batches by number, and the data is {a_type(dataset)}",
            fix="leave workers out, or give what has batches by number: gf.data.batches, or a "
            "grain.MapDataset",
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


def _signature(dataset: Sequence[Any]) -> Mapping[str, Any]:
    own: Mapping[str, Any] = getattr(dataset, "signature", {"batches": len(dataset)})
    return own


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
        "its contents have changed"
        if name == "contents" and name in known
        else f"{name} is {now.get(name)} and was {known.get(name)}"
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
        super().__init__(begin, _signature(dataset), total)
        self._dataset = dataset

    def _next(self) -> Any:
        if self.number >= len(self._dataset):
            raise StopIteration
        return _item(self._dataset, self.number)


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
    """Reads what grain reads by number, in threads or in processes; see grain's documentation.

    The position is a number of batches, whatever reads them.
    """

    def __init__(
        self, dataset: Sequence[Any], begin: int, workers: int, signature: Mapping[str, Any]
    ) -> None:
        total = len(dataset)
        super().__init__(begin, signature, total)
        self._batches: Iterator[Any] = iter(())
        if begin < total:
            grain = package("grain", "gf.data.feeds")
            source = grain.MapDataset.source(_Guarded(dataset, bool(workers)))
            rest = source.slice(slice(begin, None)) if begin else source
            # With what `filter` has left out, as None: so each batch keeps its number.
            read = rest.to_iter_dataset(read_options(), allow_nones=True)
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
        try:
            return next(self._batches)
        except RuntimeError as error:
            if _DEATH not in str(error):
                raise
            raise DataError(
                f"a process that makes batches has ended: {first_line(error)}",
                fix="-9 is mostly the system's, which was short of memory: use fewer workers, or "
                "smaller batches; see what fails with workers=0",
            ) from error


class _Guarded:
    """A dataset whose errors reach the process that waits for its batches.

    If a process can't send a batch or an error, grain waits for it without an end.
    """

    def __init__(self, dataset: Sequence[Any], in_processes: bool) -> None:
        self._dataset = dataset
        self._in_processes = in_processes

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, number: int) -> Any:
        try:
            batch = _item(self._dataset, number)
        except Exception as error:
            if self._in_processes and not _is_pickled(error):
                lines = "".join(traceback.format_exception(error))
                raise RuntimeError(f"the data raised {type(error).__name__}: {lines}") from None
            raise
        if self._in_processes:
            try:
                _WithoutArrays(io.BytesIO()).dump(batch)
            except Exception as error:  # of any kind
                raise DataError(
                    f"feeds: a batch has what can't be sent between processes: {first_line(error)}",
                    fix="leave it out of the batches, or use workers=0",
                ) from None
        return batch


class _WithoutArrays(ForkingPickler):
    """Pickles all but arrays, which can always be."""

    def persistent_id(self, value: object) -> str | None:
        return "" if isinstance(value, np.ndarray) and not value.dtype.hasobject else None


def _item(dataset: Sequence[Any], number: int) -> Any:
    try:
        return dataset[number]
    except StopIteration as error:  # which would be taken for the end, as in generators
        raise RuntimeError("the data raised StopIteration") from error


def _is_pickled(error: Exception) -> bool:
    """Return whether an exception can be made again in another process."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return False
    return True


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
            self._batches.set_state(_of_form(state, self._batches.get_state()))

    def _next(self) -> Any:
        return next(self._batches)

    def position(self) -> dict[str, Any]:
        # Iterators go on to change what some of them return.
        return super().position() | {"state": copy.deepcopy(self._batches.get_state())}


def _of_form(state: Any, form: Any) -> Any:
    """Return a state with the tuples that another one has: from JSON they come as lists."""
    if isinstance(state, dict) and isinstance(form, dict):
        return {key: _of_form(value, form.get(key)) for key, value in state.items()}
    if isinstance(state, list) and isinstance(form, tuple):
        return tuple(state)
    return state
