"""`pytest -m smoke`: something of each file, and nothing that takes long."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from tests.support.smoke import chosen


def item(file, name, *marks):
    return SimpleNamespace(path=Path(file), name=name, get_closest_marker=lambda m: m in marks)


def test_the_first_of_each_file_or_those_that_are_marked():
    items = [
        item("a.py", "long", "slow"),
        item("a.py", "first"),
        item("a.py", "second"),
        item("b.py", "first"),
        item("b.py", "marked", "smoke"),
        item("b.py", "too", "smoke"),
        item("b.py", "not here", "smoke", "gpu"),
        item("c.py", "only", "bench"),
    ]
    found = [(made.path.name, made.name) for made in chosen(items)]
    assert found == [("a.py", "first"), ("b.py", "marked"), ("b.py", "too")]
