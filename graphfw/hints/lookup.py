"""The search for the name or the expression that graphfw has for another framework's name."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from importlib import import_module
from typing import Any, NamedTuple

from graphfw.hints import public


class Answer(NamedTuple):
    """The answer to a name that does not exist; false where nothing is known.

    Attributes:
        target: The public path of what is meant: `gf.concat`.
        calls: Or calls by that name, with the expression to write for each.
        text: Or what to do, also for calls that are none of these.
        remark: What is to be said besides.
    """

    target: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    text: str = ""
    remark: str = ""

    def __bool__(self) -> bool:
        return bool(self.target or self.calls or self.text)


_OWN_SENSE = {
    "gf.distributed": "gf.distributed",
    "gf.distributions": "gf.distributions",
    "gf.errors": "gf.errors",
    "gf.nn.init": "gf.nn.init",
    "gf.onnx": "gf.onnx",
    "gf.optim.schedules": "gf.optim",
    "gf.tree": "gf.tree",
}
"""Modules whose names are common words, with where these are meant: `linear` is no schedule."""


@functools.cache
def look_up(name: str, owner: str = "gf") -> Answer:
    """Return the answer to a name that an owner does not have.

    Args:
        name: What another framework calls it.
        owner: Where it was looked for: a public module, or a kind of object such as "Tensor".
    """
    tables: Any = import_module("graphfw.hints.tables")
    calls, texts = tables.OF_OWNERS.get(owner, ({}, {}))
    if name in calls or name in texts:
        return Answer(calls=tuple(calls.get(name, ())), text=texts.get(name, ""))
    if owner != "Tensor" and not owner.startswith("gf"):  # functions are no methods of the others
        return Answer()
    found = (
        _by_name(tables, name, owner)
        or _by_rule(tables, name, owner)
        or _by_letters(tables, name, owner)
    )
    if not found:
        fitting = (t for pattern, t in tables.PATTERNS.items() if fnmatchcase(name, pattern))
        found = Answer(text=next(fitting, ""))
    return found


def look_up_within(name: str, module: str, owner: str) -> Answer:
    """Return the answer to a name in a module that an owner does not have: `functional.relu`."""
    tables: Any = import_module("graphfw.hints.tables")
    calls, texts = tables.OF_OWNERS.get(f"{owner}.{module}", ({}, {}))
    return look_up(name, f"{owner}.{module}" if name in calls or name in texts else owner)


def beyond(name: str, owner: str) -> str:
    """Return how to call SciPy's function of a name, if that is in a module like SciPy's, or ""."""
    tables: Any = import_module("graphfw.hints.tables")
    module = tables.BEYOND.get(owner)
    call = f"gf.host_call(scipy.{module}.{name}, x.type, x, pure=True)"
    return f"if it is SciPy's: {call}" if module else ""


def renamed(name: str) -> str:
    """Return the public path of what graphfw calls otherwise than others do, or ""."""
    tables: Any = import_module("graphfw.hints.tables")
    target: str = tables.RENAMED.get(name, "")
    return target


def meant_option(value: object, words: Sequence[str]) -> str:
    """Return the word that another framework's option, or a slip of the pen, stands for, or ""."""
    tables: Any = import_module("graphfw.hints.foreign_arguments")
    said = str(value).lower()
    meant = [word for word in tables.OPTIONS.get(said, ()) if word in words]
    same = [word for word in words if word.lower() == said]
    return next(iter(meant or same or difflib.get_close_matches(said, words, n=1)), "")


def _by_name(tables: Any, name: str, owner: str) -> Answer:
    """Look a name up as it is."""
    here = [path for path, known in _seen_from(owner) if known == name]
    if here:
        return Answer(target=f"{here[0]}.{name}")
    text = tables.TEXTS.get(name, "").replace("{name}", name)
    if name in tables.CALLS:
        return Answer(calls=tuple(tables.CALLS[name]), text=text)
    if name in tables.RENAMED:
        return Answer(target=tables.RENAMED[name])
    return Answer(text=text)


def _by_rule(tables: Any, name: str, owner: str) -> Answer:
    """Look a name up without what rules say that another framework's names have besides."""
    for form, bare in tables.RULES:
        if not re.fullmatch(form, name):
            continue
        other = re.sub(f"^(?:{form})$", bare, name)
        found = _by_name(tables, other, owner) or _by_rule(tables, other, owner)
        if found.target.startswith("gf.nn.init.") and name.endswith("_"):
            return Answer(text=f"write gf.Variable({found.target}, shape=…)")
        if found and name.endswith("_"):
            return found._replace(remark=_NO_CHANGE)
        if found:
            return found
    return Answer()


_NO_CHANGE = "tensors don't change: use the result; gf.update changes variables"


def _by_letters(tables: Any, name: str, owner: str) -> Answer:
    """Look a name up whatever its capital letters and underscores."""
    same = _letters(name)
    spelt = next((f"{p}.{n}" for p, n in _seen_from(owner) if _letters(n) == same), "")
    if spelt:
        return Answer(target=spelt)
    foreign = (*tables.RENAMED, *tables.CALLS, *tables.TEXTS)
    meant = next((n for n in foreign if len(n) > _FEW and _letters(n) == same), "")
    return _by_name(tables, meant, owner) if meant else Answer()


_FEW = 6
"""Letters of a name which may be another word in other capitals."""


def _letters(name: str) -> str:
    return name.lower().replace("_", "")


@functools.cache
def _seen_from(owner: str) -> list[tuple[str, str]]:
    """Return the public names that may be meant of an owner, those of the owner itself first."""
    names = [
        (path, name)
        for path, name in public.everything()
        if owner.startswith(_OWN_SENSE.get(path, ""))
    ]
    return sorted(names, key=lambda found: not found[0].startswith(owner))
