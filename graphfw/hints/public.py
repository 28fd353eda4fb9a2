"""The public modules and their names, as they register themselves."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

PUBLIC: dict[str, tuple[str, Sequence[str]]] = {}
"""The public modules by the names that users write (`gf.nn`): the module's path, and its names.

In the order in which a name is looked for: what comes first is what is meant.
"""

_ORDER = (
    "gf",
    "gf.nn",
    "gf.random",
    "gf.linalg",
    "gf.fft",
    "gf.special",
    "gf.optim",
    "gf.optim.schedules",
    "gf.distributions",
    "gf.models",
)


def register(path: str, module: str, names: Sequence[str]) -> None:
    """Add a module to those that names are looked for in."""
    PUBLIC[path] = (module, names)


def paths() -> list[str]:
    """Return the public modules, those first whose names are likelier to be meant."""
    return sorted(PUBLIC, key=lambda p: (_ORDER.index(p) if p in _ORDER else len(_ORDER), p))


def everything() -> Iterator[tuple[str, str]]:
    """Yield each public name with the path of its module."""
    for path in paths():
        for name in PUBLIC[path][1]:
            yield path, name


def find(path: str) -> Any:
    """Return the object at a public path (`gf.nn.Linear`), or None."""
    module, _, name = path.rpartition(".")
    if module not in PUBLIC or name not in PUBLIC[module][1]:
        return None
    return getattr(sys.modules[PUBLIC[module][0]], name, None)


def path_of(name: str, function: Callable[..., Any]) -> str:
    """Return the public path of a function or class; "" where it is not public."""
    for path, known in everything():
        if known == name:
            found = find(f"{path}.{name}")
            if function in (found, getattr(found, "__wrapped__", None)):
                return f"{path}.{name}"
    return ""
