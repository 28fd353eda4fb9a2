"""Some tests of each file: what `pytest -m smoke` runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

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
