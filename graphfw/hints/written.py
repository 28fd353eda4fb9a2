"""The user's call as it is written in the source, for the corrected line."""

from __future__ import annotations

import ast
import itertools
import linecache
from types import CodeType, FrameType
from typing import NamedTuple, TypeAlias

Range: TypeAlias = tuple[int, int, int, int]
"""First line, last line, first column, column after the last; columns count bytes."""


class Written(NamedTuple):
    """A call's expression: what is called, and the text of each argument, of `*shape` with it."""

    callee: str
    positional: tuple[str, ...]
    keywords: tuple[tuple[str, str], ...]
    """Names with texts."""


def call_at(frame: FrameType) -> Written | None:
    """Return the call that a frame is in, or None where its source or its position is unknown.

    Calls with `**kwargs` count as unknown, for the names of their arguments are not written there.
    """
    span = _range_at(frame)
    return _parsed(frame.f_code, span) if span else None


def call_around(frame: FrameType, after: str = "") -> Written | None:
    """Return the call of the attribute that a frame looks up, as in `gf.cat(…)`; otherwise None.

    Args:
        frame: The frame.
        after: What follows the attribute in what is called: `.relu` in `gf.functional.relu(x)`.
    """
    attribute = _range_at(frame)
    if attribute is None:
        return None
    for span in _ranges_around(frame.f_code, attribute):
        written = _parsed(frame.f_code, span)
        if written is not None:
            source = _source(frame.f_code, attribute) + after
            return written if source == written.callee else None
    return None


def name_after(frame: FrameType) -> str:
    """Return the attribute of what a frame looks up: `relu` in `gf.functional.relu`; or ""."""
    attribute = _range_at(frame)
    if attribute is None:
        return ""
    source = _source(frame.f_code, attribute)
    for span in _ranges_around(frame.f_code, attribute):
        before, _, name = _source(frame.f_code, span).rpartition(".")
        if before == source and name.isidentifier():
            return name
    return ""


def _ranges_around(code: CodeType, attribute: Range) -> list[Range]:
    """Return the ranges of the expressions that begin with an attribute, the shortest first."""
    first, last, start, end = attribute
    ends = {
        (line, stop)
        for begin, line, column, stop in code.co_positions()
        if begin == first and column == start and line is not None and stop is not None
    }
    return [(first, line, start, stop) for line, stop in sorted(ends) if (line, stop) > (last, end)]


def attribute_of(frame: FrameType, name: str) -> str:
    """Return the expression that a frame looks an attribute up of: `x + 1` in `(x + 1).T`."""
    span = _range_at(frame)
    if span is None:
        return ""
    try:
        found = ast.parse(f"({_source(frame.f_code, span)})", mode="eval").body
    except SyntaxError:
        return ""
    found = found.func if isinstance(found, ast.Call) else found
    if isinstance(found, ast.Attribute) and found.attr == name:
        return ast.unparse(found.value)
    return ""


def _range_at(frame: FrameType) -> Range | None:
    if frame.f_lasti < 0:
        return None
    positions = itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None)
    line, last, start, end = next(positions, (None, None, None, None))
    if line is None or last is None or start is None or end is None:
        return None
    return line, last, start, end


def _source(code: CodeType, span: Range) -> str:
    first, last, start, end = span
    lines = [linecache.getline(code.co_filename, n).encode() for n in range(first, last + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    return b"".join(lines).decode(errors="replace")


def _parsed(code: CodeType, span: Range) -> Written | None:
    try:
        call = ast.parse(f"({_source(code, span)})", mode="eval").body
    except SyntaxError:
        return None
    if not isinstance(call, ast.Call):
        return None
    keywords = tuple([(k.arg, ast.unparse(k.value)) for k in call.keywords if k.arg is not None])
    if len(keywords) < len(call.keywords):
        return None
    return Written(ast.unparse(call.func), tuple(map(ast.unparse, call.args)), keywords)
