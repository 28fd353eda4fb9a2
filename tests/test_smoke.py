"""`pytest -m smoke`: something of each file, and nothing that takes long."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests.support.smoke import OnlyChosen, chosen


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


class Module:
    """As pytest has modules, so far as the plugin looks at them."""

    def __init__(self):
        self.obj = ModuleType("one")

    def getparent(self, kind):
        return self


def made(*functions):
    """Return the names of the functions of a module that tests are made of."""
    module = Module()
    vars(module.obj).update({function.__name__: function for function in functions})
    plugin, found = OnlyChosen(), []
    for function in functions:
        name, marks = function.__name__, [m.name for m in getattr(function, "pytestmark", ())]
        if plugin.pytest_leave_out(module, name, function) is None:
            noting = plugin.pytest_note(module)
            next(noting)
            with pytest.raises(StopIteration):
                noting.send([item("one.py", name, *marks)])
            found.append(name)
    return found


def test_what_is_not_chosen_is_not_made():
    def test_first(): ...

    def test_second(): ...

    @pytest.mark.slow
    def test_slow(): ...

    @pytest.mark.smoke
    def test_marked(): ...

    @pytest.mark.gpu
    @pytest.mark.smoke
    def test_elsewhere(): ...

    class TestGroup: ...

    assert made(test_slow, test_first, test_second) == ["test_slow", "test_first"]
    assert made(test_first, test_marked, test_elsewhere) == ["test_marked"]
    assert made(test_first, test_second, test_elsewhere) == ["test_first"]
    # The tests of a class are made last, whichever come first.
    every = made(test_first, test_second, TestGroup)
    assert every == ["test_first", "test_second", "TestGroup"]
