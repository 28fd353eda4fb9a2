"""Some tests of each file: what `pytest -m smoke` runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

import pytest

ELSEWHERE = ("slow", "gpu", "bench")
"""The marks of tests that a plain run leaves out, too."""


def chosen(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the tests of a file that are marked `smoke`, or its first one where none is."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        if not any([item.get_closest_marker(mark) for mark in ELSEWHERE]):
            files.setdefault(item.path, []).append(item)
    found = []
    for own in files.values():
        found += [item for item in own if item.get_closest_marker("smoke")] or own[:1]
    return found


class OnlyChosen:
    """Keeps pytest from making tests that are none of `chosen`.

    A function with parameters makes hundreds. To make all of a file takes longer than to import it.
    Marks are those of functions: of modules, classes and single parameters none is looked at.
    """

    def __init__(self) -> None:
        self._wanted: dict[pytest.Collector, Callable[[Any], bool]] = {}
        self._found: set[pytest.Collector] = set()

    @pytest.hookimpl(specname="pytest_pycollect_makeitem", tryfirst=True)
    def pytest_leave_out(
        self, collector: pytest.Collector, name: str, obj: Any
    ) -> list[pytest.Item] | None:
        """Make nothing of a function that is not chosen; otherwise it is for others to say."""
        if not (name.startswith("test") and inspect.isfunction(obj)):
            return None
        module = collector.getparent(pytest.Module)
        if module not in self._wanted:
            self._wanted[module] = self._wanted_of(module)
        return None if self._wanted[module](obj) else []

    @pytest.hookimpl(specname="pytest_pycollect_makeitem", wrapper=True)
    def pytest_note(self, collector: pytest.Collector) -> Generator[None, Any, Any]:
        """Note in which modules there is a test that can be chosen."""
        made = yield
        for item in made if isinstance(made, list) else []:
            if not any([item.get_closest_marker(mark) for mark in ELSEWHERE]):
                self._found.add(collector)
        return made

    def _wanted_of(self, module: pytest.Module) -> Callable[[Any], bool]:
        """Return the function that says which functions of a module tests are made of."""
        functions = [v for v in vars(module.obj).values() if inspect.isfunction(v)]
        if any([_is_marked(one) for one in functions]):
            return _is_marked
        classes = [c for c in vars(module.obj).values() if inspect.isclass(c)]
        if any([c.__name__.startswith("Test") for c in classes]):
            return lambda function: True  # the tests of a class are made last, and may come first
        return lambda function: module not in self._found


def _is_marked(function: Any) -> bool:
    names = [mark.name for mark in getattr(function, "pytestmark", ())]
    return "smoke" in names and not any([mark in names for mark in ELSEWHERE])
