"""Metrics over a dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphfw.errors import ArgumentError
from graphfw.hints.calls import explained
from graphfw.ir.tensor import Tensor
from graphfw.runtime.functions import Function
from graphfw.runtime.session import Session
from graphfw.train.computations import Computation, computation
from graphfw.utils import nest


@explained
def evaluate(
    session: Session | Function,
    metrics: Mapping[str, Tensor] | None = None,
    data: Any = None,
    *,
    feeds: Sequence[Tensor | str] | None = None,
    ahead: int = 2,
) -> dict[str, float]:
    """Return the means of metrics over a dataset, each batch by its number of rows.

    Describe the metrics with the model in evaluation: `model(x, training=False)`.

    Args:
        session: The session; or a `gf.function` that returns a dict of metrics, or one as the loss.
        metrics: Tensors without dims, by name: the means over a batch. Not with a function.
        data: Batches, as `gf.data.feeds` takes them.
        feeds: The placeholders, in the order of tuples in the data. Not with a function.
        ahead: As for `gf.data.feeds`.

    Raises:
        FeedError: A batch does not fit the placeholders, or the function's parameters.
        ArgumentError: The data has no batches, or a metric has dims.

    >>> import numpy as np
    >>> import graphfw as gf
    >>> with gf.Graph() as g:
    ...     x = gf.placeholder(("batch",), name="x")
    ...     metrics = {"mean": gf.mean(x)}
    >>> data = gf.data.batches({"x": np.arange(5, dtype=np.float32)}, 2)
    >>> with gf.Session(g) as session:
    ...     gf.train.evaluate(session, metrics, data, feeds=[x])
    {'mean': 2.0}
    >>> gf.train.evaluate(gf.function(lambda x: {"mean": gf.mean(x)}), data=data)
    {'mean': 2.0}
    """
    return mean_over(computation("evaluate", session, metrics, feeds), data, ahead)


def mean_over(metrics: Computation, data: Any, ahead: int) -> dict[str, float]:
    """Return the means of metrics over a dataset; see `evaluate`."""
    rows, found = [], []
    with metrics.feeds(data, ahead=ahead) as batches:
        for feed in batches:
            found.append(metrics.metrics(feed))
            first = next(nest.leaves(feed))
            rows.append(len(first) if first.ndim else 1)
    if not found:
        raise ArgumentError("evaluate: the data has no batches", fix="pass data with examples")
    values = np.array([[float(value) for value in batch] for batch in found])
    means = np.average(values, axis=0, weights=rows).tolist()
    return dict(zip(metrics.names, means, strict=True))
