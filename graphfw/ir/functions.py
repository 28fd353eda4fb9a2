"""The public functions by name, for tensors and gradient rules to call what is defined above them.

`ir` can't import `ops`, and op families must not import each other in circles. Instead each public
function registers itself here, and `F.matmul(x, w)` finds it when it is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

FUNCTIONS: dict[str, Callable[..., Any]] = {}

Function = TypeVar("Function", bound=Callable[..., Any])


def public(function: Function) -> Function:
    """Register a function under its own name."""
    name = function.__name__
    if name in FUNCTIONS:
        raise RuntimeError(f"a public function named {name!r} exists already")
    FUNCTIONS[name] = function
    return function


class _Functions:
    """Looks public functions up as attributes."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        try:
            return FUNCTIONS[name]
        except KeyError:
            raise AttributeError(f"no public function is named {name!r}") from None


F = _Functions()
