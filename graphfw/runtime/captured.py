"""`Captured`: the layers, optimisers and functions that a Python function finds by name."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import CellType, CodeType, FunctionType
from typing import Any, NamedTuple

from graphfw.hints.names import Answering
from graphfw.ir.variable import Variable

_FUNCTIONS = (FunctionType, functools.partial)


class _Name(NamedTuple):
    """A global name that a function uses, or an attribute that a method does.

    Attributes:
        namespace: The globals or attributes that have the name.
        name: The name.
        value: A function that returns its former object, or None if that no longer exists.
    """

    namespace: Mapping[str, Any]
    name: str
    value: Callable[[], Any]


class _Enclosed(NamedTuple):
    """A variable of an enclosing function.

    Attributes:
        variable: Its cell.
        value: A function that returns its former object, or None if that no longer exists.
    """

    variable: CellType
    value: Callable[[], Any]


class Captured:
    """The objects that a function, and functions it calls, find by their names.

    The names are globals, variables of closures, and attributes of a method's object.

    A build uses these objects. In a notebook the cell that defines a model may be run again: then
    the name stands for another model, and the function must be built again.

    Args:
        fn: The function.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._names: list[_Name] = []
        self._enclosed: list[_Enclosed] = []
        for scope, name in names_of(fn):
            value = value_of(scope, name)
            if not _is_guarded(value):
                continue
            if isinstance(scope, CellType):
                self._enclosed.append(_Enclosed(scope, _reference(value)))
            else:
                self._names.append(_Name(scope, name, _reference(value)))

    @classmethod
    def of(cls, fn: Callable[..., Any]) -> Captured | None:
        """Return the objects that a function finds by its names; None where there are none."""
        found = cls(fn)
        return found if found._names or found._enclosed else None

    def hold(self) -> bool:
        """Return whether the names stand for the same objects as before."""
        for namespace, name, value in self._names:
            if namespace.get(name) is not value():
                return False
        for variable, value in self._enclosed:
            if value_of(variable) is not value():
                return False
        return True

    def has_other_state(self) -> bool:
        """Return whether a name stands for another layer, variable or optimiser than before."""
        now = [(n.namespace.get(n.name), n.value()) for n in self._names]
        now += [(value_of(c.variable), c.value()) for c in self._enclosed]
        return any(
            new is not old and not (isinstance(new, _FUNCTIONS) and isinstance(old, _FUNCTIONS))
            for new, old in now
        )


def names_of(fn: Callable[..., Any]) -> Iterator[tuple[Mapping[str, Any] | CellType, str]]:
    """Yield the names that a function, and functions it calls, find objects by.

    Each comes after the globals or attributes that have it, or the cell of an enclosing function.
    """
    todo: list[Any] = [fn]
    module = ""
    seen: set[FunctionType] = set()
    while todo:
        found = todo.pop()
        while isinstance(found, functools.partial):
            found = found.func
        namespaces = [_attributes(getattr(found, "__self__", None))]
        found = getattr(found, "__func__", found)
        if not isinstance(found, FunctionType) or found in seen:
            continue
        if seen and found.__module__ != module:  # a library's
            continue
        module = found.__module__
        seen.add(found)
        namespaces.append(found.__globals__)
        names = dict.fromkeys(_global_names(found.__code__))
        scopes: list[tuple[Mapping[str, Any] | CellType, str]] = []
        scopes += zip(found.__closure__ or (), found.__code__.co_freevars, strict=True)
        scopes += [(namespace, name) for name in names for namespace in namespaces]
        for scope, name in scopes:
            value = value_of(scope, name)
            if value is not None:
                yield scope, name
            if _is_guarded(value):
                todo.append(value)


def value_of(scope: Mapping[str, Any] | CellType, name: str = "") -> Any:
    """Return the object that a name stands for; None where there is none."""
    if isinstance(scope, CellType):
        try:
            return scope.cell_contents
        except ValueError:  # it is empty
            return None
    return scope.get(name)


def _is_guarded(value: Any) -> bool:
    return isinstance(value, (Answering, Variable, *_FUNCTIONS))


def _attributes(owner: object) -> Mapping[str, Any]:
    """Return the attributes of a method's object; none of a module, which tracks its changes."""
    return {} if isinstance(owner, Answering) else getattr(owner, "__dict__", {})


def _reference(value: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(value)
    except TypeError:  # a class of the user's with slots
        return lambda: value


def _global_names(code: CodeType) -> Iterator[str]:
    """Yield the names of globals in a function's code, and in functions that it defines."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)
