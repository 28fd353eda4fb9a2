"""Metrics over a dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphfw.data.feeds import feeds as feeds_of
from graphfw.errors import ArgumentError
from graphfw.hints.calls import explained
from graphfw.ir.tensor import Tensor
from graphfw.runtime.plan import Plan
from graphfw.runtime.session import Session


@explained
def evaluate(
    session: Session,
    metrics: Mapping[str, Tensor],
    data: Any,
    *,
    feeds: Sequence[Tensor | str],
    ahead: int = 2,
) -> dict[str, float]:
    """Return the means of metrics over a dataset, each batch by its number of rows.

    Describe the metrics with the model in evaluation: `model(x, training=False)`.

    Args:
        session: The session.
        metrics: Tensors without dims, by name: the means over a batch.
        data: Batches, as `gf.data.feeds` takes them.
        feeds: The placeholders, in the order of tuples in the data.
        ahead: As for `gf.data.feeds`.

    Raises:
        FeedError: A batch does not fit the placeholders.
        ArgumentError: The data has no batches, or a metric has dims.

    >>> import numpy as np
    >>> import graphfw as gf
    >>> with gf.Graph() as g:
    ...     x = gf.placeholder(("batch",), name="x")
    ...     metrics = {"mean": gf.mean(x)}
    >>> with gf.Session(g) as session:
    ...     data = gf.data.batches({"x": np.arange(5, dtype=np.float32)}, 2)
    ...     gf.train.evaluate(session, metrics, data, feeds=[x])
    {'mean': 2.0}
    """
    plan = session.compile(check_metrics("evaluate", metrics), feeds)
    return mean_over(plan, list(metrics), data, ahead)


def check_metrics(what: str, metrics: Any) -> list[Tensor]:
    """Return metrics, which have no dims.

    Raises:
        ArgumentError: One has, or they have no names.
    """
    if not isinstance(metrics, Mapping):
        raise ArgumentError(
            f"{what}: the metrics have no names", fix='pass a dict, as {"loss": loss}'
        )
    for name, metric in metrics.items():
        if not isinstance(metric, Tensor) or metric.ndim:
            shown = metric.type if isinstance(metric, Tensor) else repr(metric)
            raise ArgumentError(
                f"{what}: the metric {name!r} is {shown}, not a tensor without dims",
                fix="take the mean over the batch: gf.mean(…)",
            )
    return list(metrics.values())


def mean_over(plan: Plan, names: Sequence[str], data: Any, ahead: int) -> dict[str, float]:
    """Return the means of what a plan returns over a dataset; see `evaluate`."""
    rows, found = [], []
    with feeds_of(data, plan, ahead=ahead) as batches:
        for feed in batches:
            arrays = list(feed.values())
            found.append(plan(*arrays))
            rows.append(len(arrays[0]) if arrays[0].ndim else 1)
    if not found:
        raise ArgumentError("evaluate: the data has no batches", fix="pass data with examples")
    values = np.array([[float(value) for value in batch] for batch in found])
    return dict(zip(names, np.average(values, axis=0, weights=rows).tolist(), strict=True))
