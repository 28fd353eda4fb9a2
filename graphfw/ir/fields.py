"""Ops of a graph's text: fields of the kinds that the ops' annotations say."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Mapping
from typing import Any

from graphfw.errors import ParseError, did_you_mean
from graphfw.hints.kinds import alternatives, is_own, kind_of, kinds_in_words
from graphfw.ir.op import Op, lookup


def op_of(name: str, fields: Mapping[str, Any]) -> Op:
    """Return an op with these fields, as they are written.

    Raises:
        ParseError: There is no such op or field, or a field is of another kind.
    """
    cls = lookup(name)
    fields = {cls.earlier_fields.get(field, field): value for field, value in fields.items()}
    refuse_unknown(name, fields.keys() - set(cls.fields), *cls.fields)
    for field in [f for f in cls.fields if f not in fields and f not in cls._defaults]:
        raise ParseError(f"{name}: field {field!r} is missing")
    kinds = _kinds(cls)
    for field, value in fields.items():
        if not any([_is(value, kind) for kind in kinds[field]]):
            raise ParseError(
                f"{name}: {field}={value!r} does not fit",
                fix=f"{field} must be {kinds_in_words(kinds[field])}",
            )
        if field in ("axis", "axes") and is_own(cls) and _is_below_0(value):
            raise ParseError(f"{name}: {field}={value}", fix="axes are counted from the front")
    return cls(**fields)


def _is_below_0(axes: Any) -> bool:
    return min(axes if isinstance(axes, tuple) else (axes,), default=0) < 0


def refuse_unknown(name: str, unknown: Iterable[str], *known: str) -> None:
    """See that no field is unknown.

    Raises:
        ParseError: One is.
    """
    for field in sorted(unknown):
        raise ParseError(
            f"{name} has no field {field!r}",
            fix=did_you_mean(field, known) or f"it has: {', '.join(known) or 'no fields'}",
        )


_known: dict[type[Op], dict[str, tuple[Any, ...]]] = {}
"""The results of `_kinds` for ops of graphfw."""


def _kinds(cls: type[Op]) -> dict[str, tuple[Any, ...]]:
    """Return the types that each field of an op may have; any, for the ops of users."""
    if cls in _known:
        return _known[cls]
    found: dict[str, tuple[Any, ...]] = dict.fromkeys(cls.fields, (Any,))
    for base in reversed(cls.__mro__):
        if issubclass(base, Op) and is_own(base):
            for field, annotation in base.__annotations__.items():
                if field in found:
                    found[field] = alternatives(kind_of(annotation, base.__module__))
    if is_own(cls):
        _known[cls] = found
    return found


def _is(value: Any, kind: Any) -> bool:
    """Return whether a value is of a kind, exactly: an int is no float, and a bool no int."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        if type(value) is not tuple:
            return False
        if inside[-1] is ...:
            inside = inside[:1] * len(value)
        fits = len(value) == len(inside)
        pairs = zip(value, inside, strict=False)
        return fits and all([any([_is(v, k) for k in alternatives(each)]) for v, each in pairs])
    if origin is typing.Literal:
        return type(value) in (str, int) and value in inside
    if kind in (int, float, bool, str):
        return type(value) is kind
    return kind is Any or not isinstance(kind, type) or isinstance(value, kind)
