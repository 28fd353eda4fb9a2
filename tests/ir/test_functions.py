"""`F`, by which graphfw calls public functions that it can't import."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

import graphfw
from graphfw.ir.functions import CALLED, FUNCTIONS, F

SOURCES = sorted(Path(graphfw.__file__).parent.rglob("*.py"))


@functools.cache
def _named_functions() -> list[tuple[str, str]]:
    """Every public function that the source looks up by name, with the place."""
    found = []
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        if not re.search(r"\b(F|CALLED)\s*\.|\b_binary\b", text):
            continue  # most files have none, and trees take long to make
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Attribute(value=ast.Name(id="F" | "CALLED"), attr=name):
                    found.append((name, f"{path.name}:{node.lineno}"))
                case ast.Call(func=ast.Name(id="_binary"), args=[ast.Constant(value=name), *_]):
                    found.append((name, f"{path.name}:{node.lineno}"))
    return found


def test_functions_called_by_name_exist():
    found = _named_functions()
    assert len(found) > 100
    assert [f"{location}: F.{name}" for name, location in found if name not in FUNCTIONS] == []


@pytest.mark.parametrize("functions", [F, CALLED], ids=["F", "CALLED"])
def test_what_is_no_function_is_no_attribute(functions):
    """Doctest asks every object of a module for `__wrapped__`."""
    assert not hasattr(functions, "__wrapped__")


@pytest.mark.smoke
def test_public_functions_have_docstrings():
    for name, function in FUNCTIONS.items():
        assert function.__doc__, name
        assert function.__name__ == name


def test_what_makes_no_tensor_is_declared():
    names = {name for name, _ in _named_functions()}
    results = {name: FUNCTIONS[name].__annotations__["return"] for name in names}
    others = {name for name, result in results.items() if result != "Tensor"}
    assert others == set(type(F).__annotations__)
