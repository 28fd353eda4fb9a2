"""Batches of arrays and of examples that are read by number, shuffled by a seed."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphfw.data.examples import CollateFn, Examples, are_examples
from graphfw.data.indexed import ENDLESS, Indexed, fingerprint, integer, permutation
from graphfw.errors import ArgumentError, ShapeError, a_type, counted
from graphfw.hints.calls import explained

_WINDOW = 64
"""The number of batches whose rows are sorted by length together."""


@explained
def batches(
    data: Any,
    size: int,
    *,
    seed: int | None = None,
    epochs: int | None = 1,
    drop_remainder: bool = False,
    collate_fn: CollateFn | None = None,
    lengths: Sequence[int] | np.ndarray[Any, Any] | None = None,
) -> Batches:
    """Return the batches of some rows of arrays, or of examples of a dataset, as a sequence.

    A batch is made when it is asked for, so files may be larger than memory.

    Args:
        data: Arrays with rows of examples, `[N, …]` each: a dict by the names of placeholders, a
            tuple or list in the order of a plan's feeds, or one array. Or a dataset that has
            `data[i]` and a `len`: a list of dicts, `gf.data.images`, a map-style dataset of
            PyTorch, one of Hugging Face, a `MapDataset` of grain. Examples are dicts, tuples or
            arrays. Batches have the form of the columns or examples.
        size: The number of rows of a batch.
        seed: The seed of the order of the rows, which differs in each epoch; None leaves the rows
            in their order. The order of an epoch takes 8 bytes of memory a row.
        epochs: The number of passes over all rows; None for no end.
        drop_remainder: Whether an epoch's last rows are left out where they are less than a batch.
        collate_fn: A function that makes a batch of a list of examples, such as `gf.data.padded`;
            by default arrays of one shape are stacked.
        lengths: The length of each example, `[N]`: batches then have examples of similar lengths,
            so `gf.data.padded` pads little. The rows of every 64 batches in an epoch's order are
            sorted by length; with a seed, batches are shuffled after that.

    Raises:
        ArgumentError: There are no columns, or a number is none that makes sense.
        ShapeError: The columns have different numbers of rows, or none.
        DataError: Examples don't make a batch: raised when the batch is made.

    >>> import numpy as np
    >>> import graphfw as gf
    >>> found = gf.data.batches({"x": np.arange(5)}, 2, seed=0)
    >>> [batch["x"].tolist() for batch in found]
    [[0, 3], [4, 2], [1]]
    >>> examples = [{"x": [1, 2]}, {"x": [3, 4]}]
    >>> gf.data.batches(examples, 2)[0]["x"].tolist()
    [[1, 2], [3, 4]]
    """
    return Batches(
        data,
        size,
        seed=seed,
        epochs=epochs,
        drop_remainder=drop_remainder,
        collate_fn=collate_fn,
        lengths=lengths,
    )


class Batches(Indexed[Any]):
    """The batches of arrays or of examples; see `batches`.

    Attributes:
        signature: The values that the order of the examples depends on, for a run that resumes.
    """

    _items = "batches"

    def __init__(
        self,
        data: Any,
        size: int,
        *,
        seed: int | None,
        epochs: int | None,
        drop_remainder: bool,
        collate_fn: CollateFn | None,
        lengths: Sequence[int] | np.ndarray[Any, Any] | None,
    ) -> None:
        self._source = _source(data, collate_fn)
        self._size = integer("batches", "size", size, 1)
        self._epochs = None if epochs is None else integer("batches", "epochs", epochs, 1)
        self._seed = None if seed is None else integer("batches", "seed", seed, 0)
        rows = self._source.rows
        self._lengths = None if lengths is None else _lengths(lengths, rows)
        if self._seed is not None and rows >= ENDLESS:
            raise ArgumentError(
                "batches: the data has no end, so a seed can't draw its order",
                fix="shuffle it before it repeats, and leave seed out",
            )
        kept = rows // self._size if drop_remainder else -(-rows // self._size)
        if not kept:
            raise ShapeError(
                f"batches: {counted(rows, 'row')} make no batch of {self._size}",
                fix="choose a smaller size, or leave drop_remainder out",
            )
        self._in_epoch = kept
        self._order: tuple[int, np.ndarray[Any, Any]] | None = None
        self.signature = {
            "rows": rows,
            "size": self._size,
            "seed": self._seed,
            "drop_remainder": bool(drop_remainder),
            **self._source.signature,
        }
        if self._lengths is not None:
            self.signature["lengths"] = fingerprint(self._lengths.tobytes())

    def __len__(self) -> int:
        return sys.maxsize if self._epochs is None else self._in_epoch * self._epochs

    def _made(self, number: int) -> Any:
        epoch, index_in_epoch = divmod(number, self._in_epoch)
        first = index_in_epoch * self._size
        rows: Any = slice(first, min(first + self._size, self._source.rows))
        if self._seed is not None or self._lengths is not None:
            rows = self._order_of(epoch)[rows]
        return self._source.taken(rows)

    def _order_of(self, epoch: int) -> np.ndarray[Any, Any]:
        """Return the order of the rows in an epoch."""
        known = self._order
        if known is None or known[0] != epoch:
            rows = self._source.rows
            order = np.arange(rows)
            if self._seed is not None:
                order = permutation(self._seed, (epoch,), rows)
            if self._lengths is not None:
                self._sort(order, self._lengths, epoch)
            known = self._order = epoch, order
        return known[1]

    def _sort(self, order: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any], epoch: int) -> None:
        """Bring rows of similar lengths together, and shuffle the whole batches of these."""
        window = _WINDOW * self._size
        for first in range(0, len(order), window):
            rows = order[first : first + window]
            rows[:] = rows[np.argsort(lengths[rows], kind="stable")]
        if self._seed is not None:
            whole = len(order) // self._size
            batches = order[: whole * self._size].reshape(whole, self._size)
            batches[:] = batches[permutation(self._seed, (epoch, 1), whole)]

    def __repr__(self) -> str:
        count = "endless" if self._epochs is None else f"{len(self):,}"
        return f"<{count} batches of {self._size} of {counted(self._source.rows, 'row')}>"


def _lengths(lengths: Any, rows: int) -> np.ndarray[Any, Any]:
    found = np.asarray(lengths)
    if found.shape != (rows,) or found.dtype.kind not in "iuf":
        raise ArgumentError(
            f"batches: lengths is {list(found.shape)} of {found.dtype}, and the data has "
            f"{counted(rows, 'row')}",
            fix="give the length of each example: [len(example) for example in data]",
        )
    return found


def _source(data: Any, collate_fn: CollateFn | None) -> _Columns | Examples:
    if are_examples(data):
        return Examples(data, collate_fn)
    if collate_fn is not None:
        raise ArgumentError(
            "batches: collate_fn is for examples, and the data is arrays",
            fix="leave collate_fn out, or pass a dataset that gives examples by number",
        )
    return _Columns(data)


class _Columns:
    """Arrays with the same rows."""

    def __init__(self, columns: Any) -> None:
        self._arrays = _arrays(columns)
        named = _named(self._arrays)
        self.rows = _rows(named)
        kinds = [(name, str(column.dtype), column.shape[1:]) for name, column in named.items()]
        ends = [column[[0, -1]].tobytes() for column in named.values() if self.rows]
        self.signature = {"contents": fingerprint(kinds, ends)}

    def taken(self, rows: slice | np.ndarray[Any, Any]) -> Any:
        """Return some rows as a batch."""
        columns = self._arrays
        if isinstance(columns, dict):
            return {name: column[rows] for name, column in columns.items()}
        if isinstance(columns, tuple):
            return tuple([column[rows] for column in columns])
        return columns[rows]


def _arrays(columns: Any) -> dict[str, Any] | tuple[Any, ...] | Any:
    """Return columns as a dict, a tuple, or an array."""
    if isinstance(columns, Mapping):
        found: Any = {name: _array(repr(name), column) for name, column in columns.items()}
    elif isinstance(columns, tuple | list):
        found = tuple([_array(f"column {i}", column) for i, column in enumerate(columns)])
    else:
        return _array("the data", columns)
    if not found:
        raise ArgumentError("batches: there are no columns", fix='pass {"x": array, …}')
    return found


def _array(what: str, column: Any) -> Any:
    array = column if isinstance(column, np.ndarray) else np.asarray(column)
    if array.dtype.kind not in "biufcV":
        raise ArgumentError(
            f"batches: {what} is {a_type(column)} of {array.dtype}, which are no numbers",
            fix="convert it to an array of numbers, in which rows are examples",
        )
    if not array.ndim:
        raise ShapeError(f"batches: {what} is one number", fix="pass arrays with a row an example")
    return array


def _named(columns: Any) -> dict[Any, Any]:
    if isinstance(columns, dict):
        return columns
    return dict(enumerate(columns if isinstance(columns, tuple) else (columns,)))


def _rows(named: dict[Any, Any]) -> int:
    (first, one), *others = named.items()
    for name, column in others:
        if len(column) != len(one):
            raise ShapeError(
                f"batches: {first!r} has {counted(len(one), 'row')} and {name!r} has {len(column)}",
                fix="give each example a row in every column",
            )
    return len(one)
