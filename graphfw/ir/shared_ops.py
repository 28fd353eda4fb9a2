"""Ops of equal fields as one object."""

from __future__ import annotations

from typing import Any, TypeVar

from graphfw.ir.op import Op, infer_as

OneOp = TypeVar("OneOp", bound=Op)

_shared: dict[tuple[Any, ...], Any] = {}
_SHARED = 1024
"""The number of ops that `shared` remembers."""


def shared(cls: type[OneOp], *values: Any) -> OneOp:
    """Return the op of some fields, one object for many nodes.

    It remembers the types that it has inferred. Tuples among its fields that are equal must be
    alike: of dims, or of ints that were checked.
    """
    key = (cls, values, *map(type, values))
    try:
        known: OneOp | None = _shared.get(key)
    except TypeError:  # one has no hash
        return cls(*values)
    if known is None:
        known = cls(*values)
        infer_as(known, {})
        if len(_shared) >= _SHARED:
            _shared.clear()
        _shared[key] = known
    return known
