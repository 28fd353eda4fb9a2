"""Helpers of the tests of branches and loops."""

from __future__ import annotations

from typing import Any

import numpy as np

import graphfw as gf


def run(fetches: Any, feeds: dict[Any, Any]) -> Any:
    graph = next(iter(feeds)).graph
    with gf.Session(graph) as session:
        return session.run(fetches, feeds)


def assert_equal(a: Any, b: Any, tolerance: float = 1e-10) -> None:
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)
