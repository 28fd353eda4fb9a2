"""Batches of arrays in memory or in memory-mapped files, shuffled by a seed."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from graphfw.data.indexed import Indexed, integer, permutation
from graphfw.errors import ArgumentError, ShapeError, a_type, counted
from graphfw.hints.calls import explained

Columns: TypeAlias = "Mapping[str, Any] | tuple[Any, ...] | list[Any] | np.ndarray[Any, Any]"
"""Arrays of as many rows each, by name or in order; or one array."""


@explained
def batches(
    columns: Columns,
    size: int,
    *,
    seed: int | None = None,
    epochs: int | None = 1,
    drop_remainder: bool = False,
) -> Batches:
    """Return the batches of some rows of arrays, as a sequence.

    A batch is made when it is asked for, so memory-mapped files may be larger than memory.

    Args:
        columns: Arrays with rows of examples, `[N, …]` each: a dict by the names of placeholders, a
            tuple or list in the order of a plan's feeds, or one array. Batches have the same form.
        size: The number of rows of a batch.
        seed: What the order of the rows is drawn by, another one in each epoch; None leaves the
            rows in their order. The order of an epoch takes 8 bytes of memory a row.
        epochs: How often all rows are gone through; None for no end.
        drop_remainder: Whether an epoch's last rows are left out where they are less than a batch.

    Raises:
        ArgumentError: There are no columns, or a number is none that makes sense.
        ShapeError: The columns have different numbers of rows, or none.

    >>> import numpy as np
    >>> import graphfw as gf
    >>> found = gf.data.batches({"x": np.arange(5)}, 2, seed=0)
    >>> [batch["x"].tolist() for batch in found]
    [[0, 3], [4, 2], [1]]
    """
    return Batches(columns, size, seed=seed, epochs=epochs, drop_remainder=drop_remainder)


class Batches(Indexed[Any]):
    """The batches of arrays; see `batches`.

    Attributes:
        signature: What the order of the examples depends on, for a run that goes on later.
    """

    _items = "batches"

    def __init__(
        self,
        columns: Columns,
        size: int,
        *,
        seed: int | None,
        epochs: int | None,
        drop_remainder: bool,
    ) -> None:
        self._columns = _arrays(columns)
        self._rows = _rows(self._columns)
        self._size = integer("batches", "size", size, 1)
        self._epochs = None if epochs is None else integer("batches", "epochs", epochs, 1)
        self._seed = None if seed is None else integer("batches", "seed", seed, 0)
        kept = self._rows // self._size if drop_remainder else -(-self._rows // self._size)
        if not kept:
            raise ShapeError(
                f"batches: {counted(self._rows, 'row')} make no batch of {self._size}",
                fix="choose a smaller size, or leave drop_remainder out",
            )
        self._in_epoch = kept
        self._order: tuple[int, np.ndarray[Any, Any]] | None = None
        self.signature = {
            "rows": self._rows,
            "size": self._size,
            "seed": self._seed,
            "drop_remainder": bool(drop_remainder),
        }

    def __len__(self) -> int:
        return sys.maxsize if self._epochs is None else self._in_epoch * self._epochs

    def _made(self, number: int) -> Any:
        epoch, index_in_epoch = divmod(number, self._in_epoch)
        first = index_in_epoch * self._size
        rows: Any = slice(first, min(first + self._size, self._rows))
        if self._seed is not None:
            rows = self._permutation(self._seed, epoch)[rows]
        columns = self._columns
        if isinstance(columns, dict):
            return {name: column[rows] for name, column in columns.items()}
        if isinstance(columns, tuple):
            return tuple([column[rows] for column in columns])
        return columns[rows]

    def _permutation(self, seed: int, epoch: int) -> np.ndarray[Any, Any]:
        """Return the order of the rows in an epoch."""
        known = self._order
        if known is None or known[0] != epoch:
            known = self._order = epoch, permutation(seed, (epoch,), self._rows)
        return known[1]

    def __repr__(self) -> str:
        count = "endless" if self._epochs is None else f"{len(self):,}"
        return f"<{count} batches of {self._size} of {counted(self._rows, 'row')}>"


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


def _rows(columns: Any) -> int:
    if not isinstance(columns, dict | tuple):
        return len(columns)
    named = columns if isinstance(columns, dict) else dict(enumerate(columns))
    (first, one), *others = named.items()
    for name, column in others:
        if len(column) != len(one):
            raise ShapeError(
                f"batches: {first!r} has {counted(len(one), 'row')} and {name!r} has {len(column)}",
                fix="give each example a row in every column",
            )
    return len(one)
