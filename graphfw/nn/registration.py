"""Refusals of variables and modules where a module would not find them."""

from __future__ import annotations

from typing import Any

from graphfw.errors import ArgumentError
from graphfw.hints.names import Answering
from graphfw.ir.variable import Variable
from graphfw.nn.interface import ModuleInterface

CONTAINERS = (list, tuple, set, frozenset, dict)
"""The types of plain containers, in which a module does not look for variables and modules."""


class ModuleBase(Answering):
    """The base of `Module` only, by which a module is recognised."""


def refuse_hidden(module: ModuleInterface, name: str, value: Any) -> None:
    """See that no variable or module hides in a plain container, where it would not be found.

    What the module has under another name, too, is found there.
    """
    todo, seen = [value], set()
    found: set[int] = set()
    while todo:
        item = todo.pop()
        if isinstance(item, Variable) or isinstance(item, ModuleBase):
            found = found or {id(one) for one in (*module.modules(), *module.variables())}
            if id(item) in found:
                continue
            kind, plain = type(item).__name__, type(value).__name__
            better = "ModuleDict({…})" if isinstance(value, dict) else "ModuleList([…])"
            raise ArgumentError(
                f"{type(module).__name__}.{name} is a plain {plain} with a {kind} in it, "
                "whose variables the module would not find",
                fix=f"use gf.nn.{better}"
                if isinstance(item, ModuleBase)
                else "assign each variable to an attribute of its own",
            )
        if isinstance(item, CONTAINERS) and id(item) not in seen:
            seen.add(id(item))
            todo.extend(item.values() if isinstance(item, dict) else item)
