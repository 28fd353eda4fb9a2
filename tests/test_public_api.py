"""The public names and their signatures: a change is a decision, made by `pytest --update-api`."""

from __future__ import annotations

import difflib
import enum
import functools
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import graphfw as gf
from tests.support import names_page, native_page

SNAPSHOT = Path(__file__).parent / "public_api.txt"
MODULES = {
    "graphfw": gf,
    "graphfw.distributions": gf.distributions,
    "graphfw.errors": gf.errors,
    "graphfw.extend": gf.extend,
    "graphfw.fft": gf.fft,
    "graphfw.linalg": gf.linalg,
    "graphfw.models": gf.models,
    "graphfw.nn": gf.nn,
    "graphfw.nn.augment": gf.nn.augment,
    "graphfw.nn.init": gf.nn.init,
    "graphfw.nn.metrics": gf.nn.metrics,
    "graphfw.optim": gf.optim,
    "graphfw.optim.schedules": gf.optim.schedules,
    "graphfw.optim.transforms": gf.optim.transforms,
    "graphfw.random": gf.random,
    "graphfw.special": gf.special,
    "graphfw.testing": gf.testing,
    "graphfw.tree": gf.tree,
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
    for name, value in sorted(own_members(cls).items()):
        if name.startswith("_"):
            continue
        if isinstance(value, property):
            yield f"{path}.{name}: property"
        elif isinstance(value, (staticmethod, classmethod)) or inspect.isfunction(value):
            yield f"{path}.{name}{signature(getattr(cls, name))}"


def own_members(cls: type) -> dict[str, object]:
    """Return the members of a class and of its bases up to the first public one."""
    public = _public_classes() - {cls}
    first = next((n for n, base in enumerate(cls.__mro__) if base in public), None)
    frames = [base for base in cls.__mro__[:first] if base.__module__.startswith("graphfw.")]
    return {name: value for base in reversed(frames) for name, value in vars(base).items()}


@functools.cache
def _public_classes() -> frozenset[type]:
    values = [getattr(module, name) for module in MODULES.values() for name in module.__all__]
    return frozenset(value for value in values if inspect.isclass(value))


def signature(value: object) -> str:
    """Return parameters without annotations: their names, order and defaults.

    An enum's are Python's own, and differ between its versions.
    """
    if inspect.isclass(value) and issubclass(value, enum.Enum):
        return ""
    try:
        parsed = inspect.signature(value)  # type: ignore[arg-type]  # it is callable
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


@pytest.mark.parametrize("page", [names_page, native_page], ids=lambda page: page.PAGE.name)
def test_generated_pages_are_current(request, page):
    now = page.text()
    if request.config.getoption("--update-api"):
        page.PAGE.write_text(now, "utf-8")
    is_current = page.PAGE.read_text("utf-8") == now
    assert is_current, f"{page.PAGE.name} is to be written anew: run `pytest --update-api`"


def test_what_the_page_says_to_write_can_be_computed():
    x, v = gf.asarray([[0.5, 0.25], [0.75, 1.0]]), gf.asarray([1.0, 2.0, 3.0])
    given = {"gf": gf, **dict.fromkeys("abcr", x), "n": 2, "size": 6, "shape": (2, 3), "delta": 1.0}
    for path, rows in names_page.OTHERWISE.items():
        both = (v, v) if path == "scipy.signal" else (x, x)
        for expression in filter(None, rows.values()):
            assert eval(expression, {**given, **dict(zip("xy", both, strict=True))}) is not None


@pytest.mark.parametrize("path", MODULES)
def test_every_public_name_says_what_it_is(path):
    module = MODULES[path]
    silent = [
        name
        for name in module.__all__
        if callable(getattr(module, name)) and not inspect.getdoc(getattr(module, name))
    ]
    assert not silent
