"""The passes that a session is given besides its executor's."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from graphfw.errors import ArgumentError, a_type
from graphfw.passes.base import Pass

GROUP = "graphfw.passes"
"""The group of entry points by which passes of other packages are found."""


def checked_passes(passes: Sequence[Pass | str]) -> tuple[Pass, ...]:
    """Return passes, with those that are given by name loaded.

    Raises:
        ArgumentError: It is no sequence of passes, or no package has a pass of a name.
    """
    if isinstance(passes, (str, Pass)) or not isinstance(passes, Sequence):
        raise ArgumentError(
            f"Session: passes={passes!r} is no list of passes", fix="write passes=[…]"
        )
    return tuple([_checked(one) for one in passes])


def named(name: str, hint: str = "") -> Pass:
    """Return the pass that an installed package has under a name.

    Args:
        name: The name.
        hint: How to correct a name that is not there, where the caller knows.

    Raises:
        ArgumentError: No package has a pass of the name.
    """
    # Not at the top: few sessions are given names, and reading packages' metadata is slow.
    entry_points = import_module("graphfw.runtime.entry_points")
    one = entry_points.load(GROUP, name, "pass", ArgumentError, hint)
    return _checked(one() if isinstance(one, type) and issubclass(one, Pass) else one)


def _checked(wanted: Any) -> Pass:
    one = named(wanted) if isinstance(wanted, str) else wanted
    if isinstance(one, Pass):
        return one
    if isinstance(one, type) and issubclass(one, Pass):
        fix = f"make one: {one.__name__}()"
    else:
        fix = "derive a class from gf.extend.Pass, or put rules into a gf.extend.RuleSet"
    raise ArgumentError(f"Session: passes has {a_type(one)}, which is no pass", fix=fix)
