"""The public names and their signatures: a change is a decision, made by `pytest --update-api`."""

from __future__ import annotations

import difflib
import enum
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import graphfw as gf

SNAPSHOT = Path(__file__).parent / "public_api.txt"
MODULES = {
    "graphfw": gf,
    "graphfw.errors": gf.errors,
    "graphfw.extend": gf.extend,
    "graphfw.fft": gf.fft,
    "graphfw.linalg": gf.linalg,
    "graphfw.nn": gf.nn,
    "graphfw.nn.init": gf.nn.init,
    "graphfw.nn.metrics": gf.nn.metrics,
    "graphfw.optim": gf.optim,
    "graphfw.optim.schedules": gf.optim.schedules,
    "graphfw.random": gf.random,
}


def described() -> Iterator[str]:
    """Yield a line for each public name, and for each public method of a class."""
    for path, module in MODULES.items():
        for name in sorted(module.__all__):
            value = getattr(module, name)
            if isinstance(value, ModuleType):
                yield f"{path}.{name}"
            elif inspect.isclass(value):
                yield f"{path}.{name}{signature(value)}"
                yield from members(f"{path}.{name}", value)
            elif callable(value):
                yield f"{path}.{name}{signature(value)}"
            else:
                yield f"{path}.{name} = {value!r}"


def members(path: str, cls: type) -> Iterator[str]:
    for name, value in sorted(vars(cls).items()):
        if name.startswith("_"):
            continue
        if isinstance(value, property):
            yield f"{path}.{name}: property"
        elif isinstance(value, (staticmethod, classmethod)) or inspect.isfunction(value):
            yield f"{path}.{name}{signature(getattr(cls, name))}"


def signature(value: object) -> str:
    """Return parameters without annotations: their names, order and defaults.

    An enum's are Python's own, and differ between its versions.
    """
    if inspect.isclass(value) and issubclass(value, enum.Enum):
        return ""
    try:
        parsed = inspect.signature(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""
    bare = [p.replace(annotation=p.empty) for p in parsed.parameters.values()]
    return str(inspect.Signature(bare))


def test_public_names_and_signatures(request):
    now = "\n".join(described()) + "\n"
    if request.config.getoption("--update-api"):
        SNAPSHOT.write_text(now, "utf-8")
    then = SNAPSHOT.read_text("utf-8")
    changes = [
        line
        for line in difflib.unified_diff(then.splitlines(), now.splitlines(), lineterm="", n=0)
        if line[:1] in "+-" and line[:3] not in ("+++", "---")
    ]
    assert not changes, "the public API changed: run `pytest --update-api` if that is meant"


@pytest.mark.parametrize("path", MODULES)
def test_every_public_name_says_what_it_is(path):
    module = MODULES[path]
    silent = [
        name
        for name in module.__all__
        if callable(getattr(module, name)) and not inspect.getdoc(getattr(module, name))
    ]
    assert not silent
