"""Many small cases in few tests: pytest takes longer for a test than most cases take."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import pytest

Test = Callable[..., None]


def grouped(
    argument: str, values: Iterable[Any], by: Callable[[Any], str]
) -> Callable[[Test], Test]:
    """Call a test with each of some values, in one item for each group of them.

    All values of a group are tried; the error of one that fails says which it was, and errors of
    several are reported together. A fixture is made once for a group.

    Args:
        argument: The name of the test's argument.
        values: What it is.
        by: Gives a value's group, which is the item's id.
    """
    groups: dict[str, list[Any]] = {}
    for value in values:
        groups.setdefault(by(value), []).append(value)
    assert groups, "there is nothing to test"

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def run(**arguments: Any) -> None:
            failures: list[Exception] = []
            group, skips = arguments.pop(argument), []
            for value in group:
                try:
                    test(**{argument: value}, **arguments)
                except Exception as error:
                    error.add_note(f"{argument}: {value}")
                    failures.append(error)
                except pytest.skip.Exception as skip:
                    skips.append(skip)
            if len(failures) == 1:
                raise failures[0]
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(group)} fail", failures)
            if len(skips) == len(group):
                raise skips[0]

        items = [pytest.param(group, id=name) for name, group in groups.items()]
        return pytest.mark.parametrize(argument, items)(run)

    return decorate


def family(declared: Any) -> str:
    """Return the module that an op is from: the group of a case that it declares."""
    module: str = declared.op_class.__module__
    return module.removeprefix("graphfw.ops.")
