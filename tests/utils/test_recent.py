"""Dicts that keep what has come lately."""

from graphfw.utils.recent import Recent


def test_the_oldest_entries_go():
    known = Recent(2)
    for key in "abca":
        known.keep(key, key.upper())
    assert known == {"c": "C", "a": "A"}


def test_what_comes_again_is_the_newest():
    known = Recent(2)
    for key in "aba":
        known.keep(key, 1)
    known.keep("c", 1)
    assert [*known] == ["a", "c"]
