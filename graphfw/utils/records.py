"""`record`: what `dataclass(frozen=True)` makes, sooner.

A dataclass compiles each of its methods, up to seven, by itself: a quarter of a millisecond. Of
over a hundred classes that is a fifth of what importing the package takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform, overload

_Class = TypeVar("_Class", bound="type[Any]")


@overload
def record(cls: _Class, /) -> _Class: ...
@overload
def record(*, eq: bool) -> Callable[[_Class], _Class]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: Any = None, /, *, eq: bool = True) -> Any:
    """Make a class what `dataclass(frozen=True, eq=eq)` makes it.

    Fields are those of a dataclass, for `dataclasses.fields` and `replace`, too.

    >>> @record
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> Point(1) == Point(1, 0), Point(2, y=3)
    (True, Point(x=2, y=3))
    """
    return _made(cls, eq) if cls is not None else lambda cls: _made(cls, eq)


def _made(cls: Any, eq: bool) -> Any:
    inherits = any(["__dataclass_params__" in vars(base) for base in cls.__mro__[1:]])
    # It finds the fields, with those of the bases, and writes no methods, but for those that refuse
    # changes: of what inherits from frozen ones it wants to write them itself.
    dataclass(init=False, repr=False, eq=False, match_args=False, frozen=inherits)(cls)
    cls.__dataclass_params__.frozen = True
    found = fields(cls)
    methods = {
        **_compiled(cls, found, eq),
        "__repr__": _repr([one.name for one in found if one.repr]),
        "__setattr__": _refuse,
        "__delattr__": _refuse,
        "__match_args__": tuple([one.name for one in found if not one.kw_only]),
    }
    for name, method in methods.items():
        if name not in cls.__dict__:
            setattr(cls, name, method)
    return cls


def _compiled(cls: Any, found: Sequence[Field[Any]], eq: bool) -> dict[str, Any]:
    """Return the methods that run often, compiled together."""
    known: dict[str, Any] = {"__absent": MISSING, "__put": object.__setattr__}
    parameters: dict[bool, list[str]] = {False: ["self"], True: []}
    lines: list[str] = []
    for one in found:
        name = parameter = value = one.name
        if one.default is not MISSING:
            known[f"default_{name}"] = one.default
            parameter = f"{name}=default_{name}"
        elif one.default_factory is not MISSING:
            known[f"default_{name}"] = one.default_factory
            parameter = f"{name}=__absent"
            value = f"default_{name}() if {name} is __absent else {name}"
        parameters[bool(one.kw_only)].append(parameter)
        lines.append(f" __put(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    named = ["*", *parameters[True]] if parameters[True] else []
    text = [f"def __init__({', '.join([*parameters[False], *named])}):", *lines, " pass"]
    if eq:
        own = "".join([f"self.{one.name}," for one in found if one.compare])
        others = own.replace("self.", "other.")
        text += [
            "def __eq__(self, other):",
            " if other.__class__ is not self.__class__: return NotImplemented",
            f" return ({own}) == ({others})",
            f"def __hash__(self): return hash(({own}))",
        ]
    methods: dict[str, Any] = {}
    # Errors' locations skip code of the package, which this name marks.
    exec("\n".join(text), {**known, "__name__": cls.__module__}, methods)
    return methods


def _repr(names: list[str]) -> Callable[[Any], str]:
    def text(self: Any) -> str:
        inside = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
        return f"{type(self).__qualname__}({inside})"

    return text


def _refuse(self: object, name: str, *value: object) -> None:
    raise FrozenInstanceError(f"cannot change {name!r} of a {type(self).__name__}")
