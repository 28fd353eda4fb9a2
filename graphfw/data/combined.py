"""Datasets of grain that combine examples: mixtures of datasets, and sequences packed into rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphfw.data.examples import are_examples
from graphfw.data.indexed import integer
from graphfw.data.readers import read_options
from graphfw.errors import ArgumentError, DataError, a_type, counted
from graphfw.hints.calls import explained
from graphfw.utils.packages import package


@explained
def mixed(
    datasets: Sequence[Any],
    weights: Sequence[float] | None = None,
    *,
    seed: int | None = None,
    epochs: int | None = 1,
) -> Any:
    """Mix the examples of datasets by weights.  -> a `MapDataset` of grain

    The examples of each dataset are spread evenly: of any 100 in a row, a dataset with a weight of
    0.3 has about 30. The mixture ends when a dataset is used up. It has examples by number, so
    `gf.data.batches` takes it, as do `map`, `filter` and `batch` of grain.

    Args:
        datasets: Datasets that give examples by `data[i]` and have a `len`.
        weights: The shares of the datasets, positive; they need not add up to 1. Equal by default.
        seed: The seed of the order of each dataset, which differs in each epoch; None leaves the
            examples in their order.
        epochs: The number of passes that each dataset may make; None for no end.

    Raises:
        ImportError: The package grain is missing.
        ArgumentError: There are no datasets, one has no examples, or an argument makes no sense.

    >>> import graphfw as gf
    >>> found = gf.data.mixed([range(4), range(100, 110)], weights=[1, 2])
    >>> list(found)
    [0, 100, 101, 1, 102, 103, 2, 104, 105, 3, 106, 107]
    """
    grain = package("grain", "gf.data.mixed")
    if not isinstance(datasets, list | tuple) or not datasets:
        raise ArgumentError(
            "mixed: there are no datasets", fix="pass a list of them: gf.data.mixed([a, b], [1, 2])"
        )
    epochs = None if epochs is None else integer("mixed", "epochs", epochs, 1)
    seed = None if seed is None else integer("mixed", "seed", seed, 0)
    sources = [_source(grain, f"mixed: dataset {i}", data) for i, data in enumerate(datasets)]
    if seed is not None:
        sources = [source.shuffle(seed=seed + i) for i, source in enumerate(sources)]
    if epochs != 1:
        sources = [source.repeat(epochs) for source in sources]
    return grain.MapDataset.mix(sources, _weights(weights, len(sources)))


def _source(grain: Any, what: str, data: Any) -> Any:
    """Return a dataset as a `MapDataset`."""
    if not are_examples(data):
        raise ArgumentError(
            f"{what} is {a_type(data)}, which does not give examples by number",
            fix="pass what has len(data) and data[i]: gf.data.images, a list of dicts, a dataset",
        )
    if not len(data):
        raise ArgumentError(f"{what} has no examples", fix="leave it out, or look at its files")
    return data if isinstance(data, grain.MapDataset) else grain.MapDataset.source(data)


def _weights(weights: Any, count: int) -> list[float]:
    if weights is None:
        return [1.0] * count
    found = list(weights)
    if len(found) != count:
        raise ArgumentError(
            f"mixed: there are {counted(count, 'dataset')} and {counted(len(found), 'weight')}",
            fix="give each dataset a weight",
        )
    for weight in found:
        is_number = isinstance(weight, int | float | np.number) and math.isfinite(weight)
        if not is_number or weight <= 0:
            raise ArgumentError(
                f"mixed: the weight {weight!r} is no positive number",
                fix="leave out datasets that are not to be read",
            )
    return [float(weight) for weight in found]


@explained
def packed(
    dataset: Any,
    length: int | Mapping[str, int],
    *,
    bins: int = 64,
    split: bool = False,
) -> Any:
    """Pack short sequences into rows of one length.  -> an `IterDataset` of grain

    For a column `x` of the examples, a row has `x` `[length, …]`, padded with 0 at its end;
    `x_segment_ids` `[length]` int32, which numbers the row's sequences from 1 and is 0 for padding;
    and `x_positions` `[length]` int32, the positions within the own sequence. Attention within
    sequences is a mask: `ids[:, None, :, None] == ids[:, None, None, :]` for `x_segment_ids`.
    Batches are made by `batch(32)` of the result.

    Args:
        dataset: Examples by number, as for `gf.data.batches`, or a dataset of grain. Examples are
            dicts; columns without dims are left out.
        length: The length of all columns, or of each by its name; columns not named are left out.
        bins: The number of rows that are filled at once. Each sequence goes into the first row with
            room for it (first-fit bin packing); if there is none, all rows are returned. More bins
            leave less padding.
        split: Whether sequences continue in the next row, so that all rows are full. `bins` then
            has no effect.

    Raises:
        ImportError: The package grain is missing.
        ArgumentError: It is no dataset of dicts, or an argument makes no sense.
        DataError: A sequence is longer than a row, and not split; or an example lacks a column:
            raised when the example is read.

    >>> import graphfw as gf
    >>> examples = [{"x": [1, 2, 3]}, {"x": [4]}, {"x": [5, 6]}]
    >>> row, _ = gf.data.packed(examples, 5)
    >>> row["x"].tolist(), row["x_segment_ids"].tolist(), row["x_positions"].tolist()
    ([1, 2, 3, 4, 0], [1, 1, 1, 2, 0], [0, 1, 2, 0, 0])
    """
    grain = package("grain", "gf.data.packed")
    bins = integer("packed", "bins", bins, 1)
    if not isinstance(dataset, grain.IterDataset):
        dataset = _source(grain, "packed: the data", dataset)
    if isinstance(dataset, grain.MapDataset):
        dataset = dataset.to_iter_dataset(read_options())
    lengths = _lengths(dataset, length)
    checked = dataset.map_with_index(_Sequences(lengths, split))
    if split:
        return grain.experimental.ConcatThenSplitIterDataset(checked, length_struct=lengths)
    return grain.experimental.FirstFitPackIterDataset(
        checked, length_struct=lengths, num_packing_bins=bins, shuffle_bins=False
    )


def _lengths(dataset: Any, length: Any) -> dict[str, int]:
    """Return the length of each column: where one is given for all, of those of an example."""
    if isinstance(length, Mapping):
        if not length:
            raise ArgumentError("packed: length names no columns", fix='write {"x": 512}')
        return {name: integer("packed", "length", size, 1) for name, size in length.items()}
    size = integer("packed", "length", length, 1)
    first = next(iter(dataset), None)
    if first is None:
        raise ArgumentError("packed: the data has no examples", fix="look at its files")
    if not isinstance(first, Mapping):
        raise ArgumentError(
            f"packed: the examples are {a_type(first)}", fix='give dicts by name: {"x": array, …}'
        )
    found = {name: size for name, value in first.items() if np.ndim(value)}
    if not found:
        raise ArgumentError(
            "packed: no column of the examples has a dim", fix="give sequences: arrays [N, …]"
        )
    return found


class _Sequences:
    """Takes the sequences of an example; processes of grain pickle it."""

    def __init__(self, lengths: Mapping[str, int], split: bool) -> None:
        self._lengths = lengths
        self._split = split

    def __call__(self, index: int, example: Any) -> dict[str, Any]:
        found = {}
        for name, length in self._lengths.items():
            if not isinstance(example, Mapping) or name not in example:
                has = ", ".join(map(str, example)) if isinstance(example, Mapping) else "no names"
                raise DataError(
                    f"packed: example {index} has no {name!r}; it has {has}",
                    fix="give all examples the same names, or name the columns: length={…}",
                )
            array = np.asarray(example[name])
            if not array.ndim:
                raise DataError(
                    f"packed: {name!r} of example {index} has no dims",
                    fix="give sequences: arrays [N, …]",
                )
            if len(array) > length and not self._split:
                raise DataError(
                    f"packed: {name!r} of example {index} has {len(array):,} elements, and a row "
                    f"{length:,}",
                    fix="cut it in the dataset, choose a larger length, or pass split=True",
                )
            found[name] = array
        return found
