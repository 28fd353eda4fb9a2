"""Executors and passes of other packages, found through the packages' entry points."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

from graphfw.errors import GraphfwError, did_you_mean


def names(group: str) -> list[str]:
    """Return the names that installed packages have in a group."""
    return sorted({point.name for point in entry_points(group=group)})


def load(group: str, name: str, what: str, error: type[GraphfwError], hint: str = "") -> Any:
    """Return the object that an entry point names.

    Args:
        group: The group of entry points.
        name: The entry point's name.
        what: The kind of object, as errors name it: "executor".
        error: The class of errors.
        hint: How to correct a name that is not there, where the caller knows.

    Raises:
        GraphfwError: No package has the name, several have it, or the object can't be loaded.
    """
    points = [point for point in entry_points(group=group) if point.name == name]
    if not points:
        known = names(group)
        fix = f"there are: {', '.join(known)}" if known else f"no package has one: pass the {what}"
        fix = hint or did_you_mean(name, known) or fix
        raise error(f'there is no {what} named "{name}"', fix=fix)
    owners = [f"{p.value} of {_package(p)}" for p in points]
    if len({point.value for point in points}) > 1:
        raise error(
            f'several installed packages have a {what} named "{name}": {", ".join(owners)}',
            fix="uninstall one of them",
        )
    try:
        return points[0].load()
    except (ImportError, AttributeError) as failed:
        raise error(f'the {what} "{name}", {owners[0]}, can\'t be loaded: {failed}') from failed


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "an unknown package"
