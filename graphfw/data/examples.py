"""Examples that are read one by one, by number, and batches of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from graphfw.errors import ArgumentError, DataError, a_type

CollateFn: TypeAlias = "Callable[[list[Any]], Any]"
"""A function from a list of examples to a batch, such as `gf.data.padded`."""

_NOTED = 8
"""The most numbers of examples that a note lists."""


def are_examples(data: Any) -> bool:
    """Return whether data gives examples by number, and is no array or structure of arrays."""
    if isinstance(data, list):
        return bool(data) and isinstance(data[0], Mapping)
    if isinstance(data, str | bytes | Mapping | tuple) or hasattr(data, "__array__"):
        return False
    return hasattr(data, "__getitem__") and hasattr(data, "__len__")


class Examples:
    """The rows of a dataset that gives examples by number, as PyTorch's map-style datasets do.

    Where the dataset has `__getitems__`, as those of Hugging Face do, it reads a batch at once.
    """

    def __init__(self, dataset: Any, collate_fn: CollateFn | None) -> None:
        if collate_fn is not None and not callable(collate_fn):
            raise ArgumentError(
                f"batches: collate_fn is {a_type(collate_fn)}",
                fix="pass a function of a list of examples, such as gf.data.padded",
            )
        self._dataset = dataset
        self._collate_fn = collate_fn
        self.rows = len(dataset)
        own = getattr(dataset, "signature", None)
        self.signature = dict(own) if isinstance(own, Mapping) else {}

    def taken(self, rows: slice | np.ndarray[Any, Any]) -> Any:
        """Return some rows as a batch."""
        numbers = range(self.rows)[rows] if isinstance(rows, slice) else rows.tolist()
        found = self._read(numbers)
        if self._collate_fn is None:
            return stacked(found, numbers)
        with _noted("batched", numbers):
            return self._collate_fn(found)

    def _read(self, numbers: Sequence[int]) -> list[Any]:
        together = getattr(self._dataset, "__getitems__", None)
        if together is not None:
            with _noted("read", numbers):
                return list(together(list(numbers)))
        found = []
        for number in numbers:
            with _noted("read", (number,)):
                found.append(self._dataset[number])
        return found


@contextmanager
def _noted(verb: str, numbers: Sequence[int]) -> Iterator[None]:
    """Note in an exception which examples it is of."""
    try:
        yield
    except Exception as error:
        shown = ", ".join(map(str, numbers[:_NOTED])) + ", …" * (len(numbers) > _NOTED)
        one = len(numbers) == 1
        what, was = ("example", "was") if one else ("examples", "were")
        error.add_note(f"raised while {what} {shown} of the data {was} {verb}")
        raise


def stacked(examples: Sequence[Any], numbers: Sequence[int]) -> Any:
    """Return a batch of examples, in their form: a dict, a tuple or one array.

    Args:
        examples: Dicts of the same names, tuples of one length, or arrays; of equal shapes.
        numbers: The number of each in its dataset, for errors.

    Raises:
        DataError: The examples differ in names, lengths or shapes, or are no numbers or texts.
    """
    first = examples[0]
    if isinstance(first, Mapping):
        check_names("batches", examples, numbers)
        return {
            name: _stacked(repr(name), [example[name] for example in examples], numbers)
            for name in first
        }
    if not isinstance(first, tuple | list):
        return _stacked("the data", examples, numbers)
    for example, number in zip(examples, numbers, strict=True):
        if not isinstance(example, tuple | list) or len(example) != len(first):
            raise DataError(
                f"batches: example {numbers[0]} has {len(first)} arrays, and example {number} is "
                f"{_form(example)}",
                fix="give all examples the same form",
            )
    columns = zip(*examples, strict=True)
    return tuple([_stacked(f"array {i}", column, numbers) for i, column in enumerate(columns)])


def check_names(what: str, examples: Sequence[Any], numbers: Sequence[int]) -> None:
    """Check that examples are dicts of the same names.

    Raises:
        DataError: One is none, or has other names.
    """
    names = examples[0].keys()
    for example, number in zip(examples, numbers, strict=True):
        if not isinstance(example, Mapping) or example.keys() != names:
            raise DataError(
                f"{what}: example {numbers[0]} has {', '.join(map(str, names))}, and example "
                f"{number} {_form(example)}",
                fix="give all examples the same names",
            )


def _form(example: Any) -> str:
    if isinstance(example, Mapping):
        return f"has {', '.join(map(str, example)) or 'no names'}"
    if isinstance(example, tuple | list):
        return f"{a_type(example)} of {len(example)}"
    return a_type(example)


def _stacked(what: str, values: Sequence[Any], numbers: Sequence[int]) -> np.ndarray[Any, Any]:
    arrays = [_array(what, value, number) for value, number in zip(values, numbers, strict=True)]
    for array, number in zip(arrays, numbers, strict=True):
        if array.shape != arrays[0].shape:
            raise DataError(
                f"batches: {what} is {list(arrays[0].shape)} in example {numbers[0]} and "
                f"{list(array.shape)} in example {number}",
                fix="resize, crop or pad them to one shape; collate_fn=gf.data.padded pads dicts",
            )
    return np.stack(arrays)


def _array(what: str, value: Any, number: int) -> np.ndarray[Any, Any]:
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged lists, or a library's own
        raise DataError(
            f"batches: {what} of example {number} is no array: {error}",
            fix="convert it to an array of numbers in the dataset",
        ) from error
    if array.dtype.kind == "O":
        raise DataError(
            f"batches: {what} of example {number} is {a_type(value)}, which is no array of numbers",
            fix="convert it in the dataset, or leave it out of the examples",
        )
    return array
