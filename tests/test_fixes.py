"""Every error that a public function can raise says how to mend the mistake."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import graphfw
from graphfw import errors

PACKAGE = Path(graphfw.__file__).parent
FOLDERS = ("data", "distributions", "models", "nn", "ops", "optim", "train", "transforms")
FILES = sorted(path for folder in FOLDERS for path in PACKAGE.glob(f"{folder}/**/*.py"))
FILES += [
    PACKAGE / "ir" / f"{name}.py"
    for name in ("ambient", "build", "concrete", "dtype", "graph", "literal", "shape", "tensor")
]
FILES += [PACKAGE / "ir" / "in_place.py", PACKAGE / "ir" / "variable.py"]

FIX_INDEX = {"require": 3, "Requirement": 2, "UnknownNameError": 2}
"""The index of the fix among the positional arguments, if it may be one."""

CHECKS = {"demand", *FIX_INDEX, *(set(errors.__all__) - {"GraphErrors", "Operand", "did_you_mean"})}


def without_fix(source: str) -> Iterator[int]:
    """Yield the lines of the checks and errors that have no fix."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        name = node.func.id
        if name not in CHECKS or len(node.args) > FIX_INDEX.get(name, len(node.args)):
            continue
        fixes = [keyword.value for keyword in node.keywords if keyword.arg == "fix"]
        if not fixes or any(isinstance(f, ast.Constant) and not f.value for f in fixes):
            yield node.lineno


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_errors_have_a_fix(path: Path):
    assert list(without_fix(path.read_text(encoding="utf-8"))) == []


def test_the_check_sees_what_is_missing():
    source = """
demand(x > 0, "x must be positive")
demand(x > 0, "x must be positive", fix="")
require(x, "y", [(0, 1)])
raise ShapeError("no")
require(x, "y", (), "do z")
raise Requirement("no", fix=f"do {z}")
"""
    assert list(without_fix(source)) == [2, 3, 4, 5]
