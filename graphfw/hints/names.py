"""Names that a module or an object does not have: what to write instead."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from inspect import signature
from opcode import opname
from types import FrameType
from typing import Any

from graphfw.errors import UnknownImportError, UnknownNameError, did_you_mean
from graphfw.hints import public
from graphfw.hints.calls import Argument, correction, shown_arguments
from graphfw.hints.written import call_around
from graphfw.loc import user_frame


def hints_for_module(
    path: str, module: str, names: Sequence[str], lazy: Callable[[str], Any] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a public module's `__getattr__` and `__dir__`.

    Args:
        path: What users write for it: `gf.nn`.
        module: Its name.
        names: Its public names.
        lazy: Returns what is made when it is first used, and None for other names.
    """
    public.register(path, module, names)

    def getattribute(name: str) -> Any:
        if lazy is not None and (found := lazy(name)) is not None:
            return found
        if name.startswith("_"):  # Python looks for many of these, which nobody writes
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
        frame = sys._getframe(1)
        kind = UnknownImportError if _is_import(frame) else UnknownNameError
        summary, fix = _answer(path, name)
        raised = kind(summary, fix=fix)
        raised.name = name
        raise raised

    def directory() -> list[str]:
        return sorted(names)

    return getattribute, directory


def _is_import(frame: FrameType) -> bool:
    """Say whether a frame runs `from graphfw import name`, which hides an AttributeError."""
    return frame.f_lasti >= 0 and opname[frame.f_code.co_code[frame.f_lasti]] == "IMPORT_FROM"


def _answer(path: str, name: str) -> tuple[str, str]:
    """Return the summary and the fix of an error about a name that a module does not have."""
    target, text = resolve(name)
    if target:
        return f"{path} has no name {name!r}: it is {target} here", _usage(target)
    if text:
        return f"{path} has no name {name!r}", text
    known = public.PUBLIC[path][1]
    return f"{path} has no name {name!r}", did_you_mean(name, known, 0.7) or f"see dir({path})"


def resolve(name: str) -> tuple[str, str]:
    """Return the public path of what another framework calls by a name, or what to write.

    Both are "" for a name that is not known.
    """
    foreign = import_module("graphfw.hints.foreign_names")
    for path, known in public.everything():
        if known == name:
            return f"{path}.{name}", ""
    if name in foreign.RENAMED:
        return foreign.RENAMED[name], ""
    if name in foreign.INSTEAD:
        return "", foreign.INSTEAD[name]
    same = name.lower().replace("_", "")
    for path, known in public.everything():
        if known.lower().replace("_", "") == same:
            return f"{path}.{known}", ""
    return "", ""


def _usage(target: str) -> str:
    """Return the user's own call with another function, or how that function is called."""
    found = public.find(target)
    if not callable(found):
        return f"write {target}"
    taken = signature(found)
    frame = user_frame()
    written = call_around(frame) if frame else None
    if written is not None:
        positional = [Argument.of_text(text) for text in written.positional]
        keywords = {name: Argument.of_text(text) for name, text in written.keywords.items()}
        line = correction(target, taken, positional, keywords)
        if line.startswith(f"{target}("):
            return line
    return f"write {target}(…); {shown_arguments(taken)}"
