"""Tests of all combinations of many values, of which a plain run tries each value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from tests.support.smoke import ELSEWHERE


def surplus(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the items of tests marked `exhaustive` that a plain run leaves out.

    What is left has each value of each `parametrize`, in as few combinations as are found by taking
    the one that has most new values next, and of several the one whose values were taken least.
    `exhaustive(every=n)` leaves each n-th of these: for values that are much alike, as seeds are.
    """
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("exhaustive") and hasattr(item, "callspec"):
            if not any([item.get_closest_marker(mark) for mark in ELSEWHERE]):
                tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    found = []
    for own in tests.values():
        every = own[0].get_closest_marker("exhaustive").kwargs.get("every", 1)
        kept = {id(item) for item in _covering(own)[::every]}
        found += [item for item in own if id(item) not in kept]
    return found


def _covering(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return some of a test's items that have all values among them."""
    left = {number: _values(item) for number, item in enumerate(items)}
    missing = set().union(*left.values())
    taken: Counter[tuple[int | str, str]] = Counter()
    found = []
    while missing:
        best = max(
            left,
            key=lambda number: (len(missing & left[number]), -sum(taken[v] for v in left[number])),
        )
        found.append(items[best])
        values = left.pop(best)
        missing -= values
        taken.update(values)
    return found


def _values(item: pytest.Item) -> set[tuple[int | str, str]]:
    """Return the values of an item's parameters, those of one `parametrize` together."""
    params = dict(item.callspec.params)
    found: set[tuple[int | str, str]] = set()
    for number, mark in enumerate(item.iter_markers("parametrize")):
        names = mark.args[0]
        names = names.replace(",", " ").split() if isinstance(names, str) else names
        found.add((number, repr([params.pop(name) for name in names])))
    return found | {(name, repr(value)) for name, value in params.items()}  # those of fixtures
