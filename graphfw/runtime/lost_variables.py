"""Refusals of functions that put a tensor of one build where they have found a variable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from graphfw.errors import ArgumentError
from graphfw.hints.names import Answering
from graphfw.ir.concrete import describe
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Variable
from graphfw.runtime.captured import names_of, value_of
from graphfw.utils import nest

_MOST = 1000
"""The number of entries of a container that is taken to be one of data."""


class _Held(NamedTuple):
    """A variable that a function finds.

    Attributes:
        expression: The expression that leads to it, such as `params['w']`.
        variable: The variable.
        now: A function that returns what the expression stands for now.
    """

    expression: str
    variable: Variable
    now: Callable[[], Any]


@contextmanager
def keeping_variables(
    fn: Callable[..., Any], name: str, arguments: Mapping[str, Any]
) -> Iterator[None]:
    """See that a function that is called in the block replaces no variable by a tensor.

    Args:
        fn: The function.
        name: What it is called.
        arguments: Its arguments, by the names of its parameters.

    Raises:
        ArgumentError: It does: what it finds by names, in dicts, lists and the user's own objects
            is looked at. The tensor lasts for one build, and later calls don't put it there.
    """
    held = [*_held(fn, arguments)]
    yield
    for expression, variable, now in held:
        tensor = now()
        if type(tensor) is Tensor:
            raise ArgumentError(
                f"{name} assigns a tensor to {expression}, which is a Variable",
                operands=[describe(expression, variable)],
                why="the tensor lasts for one build, and later calls don't assign it",
                at=tensor.node.loc,
                fix=f"write gf.update({expression}, value), which each call does",
            )


def _held(fn: Callable[..., Any], arguments: Mapping[str, Any]) -> Iterator[_Held]:
    todo: list[tuple[str, Callable[[], Any]]] = []
    todo += [(name, partial(arguments.get, name)) for name in arguments]
    todo += [(name, partial(value_of, scope, name)) for scope, name in names_of(fn)]
    seen: set[int] = set()
    while todo:
        expression, now = todo.pop()
        value = now()
        if isinstance(value, Variable):
            yield _Held(expression, value, now)
        if isinstance(value, Answering) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, (dict, list, tuple)) and len(value) <= _MOST:
            todo += [
                (expression + nest.accessor(value, key), partial(_item, value, key))
                for key, _ in nest.children(value)
            ]
        elif type(value).__module__ == fn.__module__:  # no library's
            own = getattr(value, "__dict__", {})
            todo += [(f"{expression}.{key}", partial(own.get, key)) for key in own]


def _item(container: Any, key: Any) -> Any:
    """Return an item of a dict, list or tuple; None where there is none any more."""
    if isinstance(container, dict):
        return container.get(key)
    return container[key] if key < len(container) else None
