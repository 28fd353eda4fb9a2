"""Tests of many cases in one item: none is left out, and who fails is named."""

from __future__ import annotations

import pytest

from tests.support.grouped import grouped


def collected(values, test):
    """Return the items that pytest makes of a test, by their ids."""
    made = grouped("x", values, lambda x: "even" if x % 2 == 0 else "odd")(test)
    (mark,) = made.pytestmark
    return {item.id: (lambda item=item: made(x=item.values[0])) for item in mark.args[1]}


def test_every_case_is_tried_and_the_one_that_fails_is_named():
    seen = []

    def test(x):
        seen.append(x)
        assert x != 2

    items = collected(range(5), test)
    assert [*items] == ["even", "odd"]
    items["odd"]()
    with pytest.raises(AssertionError) as caught:
        items["even"]()
    assert caught.value.__notes__[-1] == "x: 2"
    assert sorted(seen) == [0, 1, 2, 3, 4]


def test_several_failures_are_reported_together():
    def test(x):
        raise ValueError(x)

    with pytest.raises(ExceptionGroup, match="3 of 3 fail") as caught:
        collected(range(5), test)["even"]()
    assert [error.__notes__ for error in caught.value.exceptions] == [["x: 0"], ["x: 2"], ["x: 4"]]


def test_a_skip_hides_no_case():
    def test(x):
        if x < 4:
            pytest.skip("small")
        assert x < 4

    items = collected(range(6), test)
    with pytest.raises(AssertionError):
        items["even"]()
    items = collected(range(4), test)
    with pytest.raises(pytest.skip.Exception, match="small"):
        items["odd"]()
    with pytest.raises(AssertionError, match="nothing to test"):
        collected([], test)
