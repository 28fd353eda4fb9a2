"""Batches of examples of different lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphfw.data.examples import check_names
from graphfw.data.indexed import integer
from graphfw.errors import ArgumentError, DataError, a_type
from graphfw.hints.calls import explained


@explained
def padded(
    examples: Sequence[Mapping[str, Any]],
    *,
    value: float = 0,
    multiple_of: int = 1,
    lengths: str | None = None,
) -> dict[str, Any]:
    """Stack examples to a batch, the shorter ones padded at their end.

    Arrays are padded along their first dim to the longest one of their name. Pass it as the
    function that makes batches: `gf.data.batches(examples, 32, collate_fn=gf.data.padded)`, and
    `dataset.batch(32, batch_fn=gf.data.padded)` of grain. A graph with a symbolic dim is
    compiled once for all lengths. Still, `multiple_of` saves memory, which is kept for each size.

    Args:
        examples: Dicts of arrays or numbers, of the same names.
        value: The number to pad with.
        multiple_of: The lengths of batches are multiples of it.
        lengths: The name of a column of the lengths before padding, int64; none by default.

    Raises:
        DataError: The examples have different names, or dims that differ beyond the first.
        ArgumentError: There are no examples, or an argument makes no sense.

    >>> import graphfw as gf
    >>> found = gf.data.padded([{"x": [1, 2, 3]}, {"x": [4]}], multiple_of=4, lengths="length")
    >>> found["x"].tolist(), found["length"].tolist()
    ([[1, 2, 3, 0], [4, 0, 0, 0]], [3, 1])
    """
    multiple_of = integer("padded", "multiple_of", multiple_of, 1)
    if not examples or not all([isinstance(example, Mapping) for example in examples]):
        what = a_type(examples[0]) if examples else "none"
        raise ArgumentError(
            f"padded: the examples are {what}", fix='give dicts by name: [{"x": array}, …]'
        )
    names = list(examples[0])
    check_names("padded", examples, range(len(examples)))
    found: dict[str, Any] = {}
    counts: np.ndarray[Any, Any] | None = None
    for name in names:
        arrays = [np.asarray(example[name]) for example in examples]
        found[name], own = _stacked(name, arrays, value, multiple_of)
        counts = own if counts is None else counts
    if lengths is not None:
        if lengths in found or counts is None:
            raise ArgumentError(
                f"padded: lengths={lengths!r} can't be added: "
                + ("there are no dims" if counts is None else "the examples have that name"),
                fix="choose another name, or leave lengths out",
            )
        found[lengths] = counts
    return found


def _stacked(
    name: str, arrays: Sequence[Any], value: float, multiple_of: int
) -> tuple[Any, np.ndarray[Any, Any] | None]:
    """Return arrays as one, and their lengths, if they have dims."""
    first = arrays[0]
    for array in arrays:
        if array.ndim != first.ndim or array.shape[1:] != first.shape[1:]:
            raise DataError(
                f"padded: one {name!r} is {list(first.shape)} and another {list(array.shape)}",
                fix="only first dims may differ: resize or crop the examples before",
            )
    if not first.ndim:
        return np.stack(arrays), None
    counts = np.array([len(array) for array in arrays], np.int64)
    longest = -(-int(counts.max()) // multiple_of) * multiple_of
    made = np.full((len(arrays), longest, *first.shape[1:]), value, np.result_type(*arrays))
    for row, array in zip(made, arrays, strict=True):
        row[: len(array)] = array
    return made, counts
