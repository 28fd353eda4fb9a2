"""Tests that are marked `exhaustive`: a plain run has each value, and `-m slow` has the rest."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from tests.support.exhaustive import surplus

EXHAUSTIVE = pytest.mark.exhaustive.mark


def items(name, *marks, **params):
    """Return the items of a test, one for each combination of its parameters' values.

    Args:
        name: The test's name.
        marks: What it is marked with.
        params: Values; those of `a__b` are pairs for one `parametrize` of both.
    """
    marked = {mark.name: mark for mark in marks}
    parametrized = [pytest.mark.parametrize(given.replace("__", ", "), []) for given in params]
    found = []
    for values in itertools.product(*params.values()):
        own = {}
        for given, value in zip(params, values, strict=True):
            names = given.split("__")
            own.update(zip(names, value if len(names) > 1 else [value], strict=True))
        found.append(
            SimpleNamespace(
                nodeid=f"tests/test_it.py::{name}[{values}]",
                callspec=SimpleNamespace(params=own),
                get_closest_marker=lambda mark: marked.get(mark),
                iter_markers=lambda name: [mark.mark for mark in parametrized],
            )
        )
    return found


def kept(own):
    """Return the parameters of the items that a plain run has."""
    left_out = surplus(own)
    return [item.callspec.params for item in own if item not in left_out]


def test_each_value_is_kept_in_turns_with_the_others():
    own = items("test", EXHAUSTIVE, a=range(6), b="xyz", c=[False, True])
    found = kept(own)
    assert {params["a"] for params in found} == set(range(6))
    assert [sum(params["b"] == b for params in found) for b in "xyz"] == [2, 2, 2]
    assert [sum(params["c"] == c for params in found) for c in (False, True)] == [3, 3]
    assert len(found) == 6
    assert found == kept(own), "each of pytest's workers finds the same"


def test_values_of_one_parametrize_belong_together():
    own = items("test", EXHAUSTIVE, m__n=[(1, 2), (2, 1), (1, 1), (2, 2)], dtype="xy")
    assert [(p["m"], p["n"]) for p in kept(own)] == [(1, 2), (2, 1), (1, 1), (2, 2)]
    assert sorted(p["dtype"] for p in kept(own)) == ["x", "x", "y", "y"]


def test_tests_that_are_not_marked_or_have_one_value_each_are_whole():
    both = items("test_a", a=range(3), b=range(3)) + items("test_b", EXHAUSTIVE, a=range(5))
    assert surplus(both) == []
    plain = SimpleNamespace(nodeid="tests/test_it.py::test", get_closest_marker=lambda mark: True)
    assert surplus([plain]) == []


def test_of_values_that_are_alike_some_are_kept():
    own = items("test", pytest.mark.exhaustive(every=4).mark, seed=range(10))
    assert [params["seed"] for params in kept(own)] == [0, 4, 8]


def test_what_is_slow_stands_for_nothing():
    own = items("test", EXHAUSTIVE, a=range(2), b=range(2))
    slow = items("test", EXHAUSTIVE, pytest.mark.slow.mark, a=range(2, 4), b=range(2))
    assert len(surplus(slow + own)) == 2
    assert surplus(slow) == []


def test_tests_of_one_name_in_several_classes_are_several():
    first = items("TestA::test", EXHAUSTIVE, a=range(3), b=range(3))
    second = items("TestB::test", EXHAUSTIVE, a=range(3), b=range(3))
    assert len(surplus(first + second)) == 12
