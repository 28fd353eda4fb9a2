"""Where in the user's code a node was made."""

from __future__ import annotations

import copy
import dataclasses
import linecache
import os
import sys
from contextlib import contextmanager
from types import CodeType, FrameType, TracebackType
from typing import NamedTuple, Protocol

# Frames of `with` helpers, `copy` and `replace` stand between the user's line and our own code.
_OWN = (
    os.path.dirname(os.path.abspath(__file__)) + os.sep,
    contextmanager.__code__.co_filename,
    copy.copy.__code__.co_filename,
    dataclasses.replace.__code__.co_filename,
)


class Place(Protocol):
    """Where an error is: a line of Python, or of something else that people write."""

    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int: ...
    def short(self) -> str:
        """Say `file:line`."""
        ...

    def describe(self) -> str:
        """Say `file:line` with the text that stands there."""
        ...


class Loc(NamedTuple):
    """A place in the user's code, and what graphfw knows of how it came to be there.

    Attributes:
        file: The source file, as Python names it.
        line: The line number, from 1.
        function: The function's name, `<module>` at top level.
        layer: The path of the layer or name scope that was active (`mlp.fc2`), or "".
        grad_of: For a node that differentiation made, the place of the forward node.
        merged: The places of equal nodes that were merged into this one.
    """

    file: str
    line: int
    function: str
    layer: str = ""
    grad_of: Loc | None = None
    merged: tuple[Loc, ...] = ()

    def short(self) -> str:
        """Say `model.py:43`."""
        return f"{os.path.basename(self.file)}:{self.line}"

    def describe(self) -> str:
        """Say `model.py:43 in forward:   logits = h1 @ W2`, the source text where it is at hand."""
        source = linecache.getline(self.file, self.line).strip()
        function = "" if self.function == "<module>" else f" in {self.function}"
        text = f":   {source}" if source else ""
        return f"{display_path(self.file)}:{self.line}{function}{text}"

    def as_gradient(self) -> Loc:
        """Return this place as that of a node which differentiates the one here."""
        return self._replace(grad_of=self._replace(grad_of=None, merged=()), merged=())


UNKNOWN = Loc("<unknown>", 0, "<module>")


def capture(layer: str = "") -> Loc:
    """Return the place of the nearest frame outside the package (some 1.5 µs).

    A line that makes many nodes has one place: each object that stays is work for the garbage
    collector, which walks all of them.
    """
    # As in `user_frame`: who calls this is of the package.
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename in _own_files:
        frame = frame.f_back
    if frame is None:
        return UNKNOWN
    # Which line an instruction is of takes as long to find out as all that is before it in the
    # function. The entry keeps the code alive, so that no other has its id.
    entry = _by_instruction.get((id(frame.f_code), frame.f_lasti))
    return _captured(frame, layer) if entry is None else entry[0].of(layer)


class _Line:
    """A line of code, with its places in all layers that it runs in."""

    __slots__ = ("_layers", "_line")

    def __init__(self, file: str, line: int, function: str) -> None:
        self._line = file, line, function
        self._layers: dict[str, Loc] = {}

    def of(self, layer: str) -> Loc:
        """Return the place in a layer."""
        known = self._layers.get(layer)
        if known is None:
            if len(self._layers) >= _PLACES:
                self._layers.clear()
            known = self._layers[layer] = Loc(*self._line, layer)
        return known


def _captured(found: FrameType, layer: str) -> Loc:
    """Return the place of the nearest frame outside the package, from `found` on, and remember."""
    frame = user_frame(found)
    if frame is None:
        return UNKNOWN
    code: CodeType = frame.f_code
    key = (code.co_filename, frame.f_lineno, code.co_name)
    line = _lines.get(key)
    if line is None:
        if len(_lines) >= _PLACES:
            _lines.clear()
        line = _lines[key] = _Line(*key)
    # Whether the package's own code was written by `dataclass` is not a matter of code alone.
    if frame is found and code.co_filename != "<string>":
        if len(_by_instruction) >= _PLACES:
            _by_instruction.clear()
        _by_instruction[id(code), frame.f_lasti] = line, code
    return line.of(layer)


def user_frame(frame: FrameType | None = None) -> FrameType | None:
    """Return the nearest frame outside the package, if there is one, from a frame on."""
    frame = frame or sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file not in _own_files:
            is_own = file.startswith(_OWN) or _is_generated(frame)
            if not is_own and frame.f_code.co_name != _ACTING:
                return frame
            if is_own and file != "<string>":
                _own_files.add(file)
        frame = frame.f_back
    return None


_ACTING = "__graphfw_function__"
"""The method that acts for the line which a function mode intercepts."""

_own_files: set[str] = set()
"""Files of `_OWN` that were met."""

_lines: dict[tuple[str, int, str], _Line] = {}
_by_instruction: dict[tuple[int, int], tuple[_Line, CodeType]] = {}
_PLACES = 4096
"""So many lines are remembered, and so many layers of each."""


def _is_generated(frame: FrameType) -> bool:
    """Say whether `dataclass` wrote the code: that of the package's classes is its own, too."""
    is_string = frame.f_code.co_filename == "<string>"
    return is_string and str(frame.f_globals.get("__name__")).startswith("graphfw.")


def display_path(file: str) -> str:
    """Return a path relative to the working directory where that is shorter."""
    if not os.path.isabs(file):
        return file
    try:
        relative = os.path.relpath(file)
    except ValueError:  # another drive, on Windows
        return file
    return relative if len(relative) < len(file) else file


def trim_traceback(traceback: TracebackType | None) -> None:
    """Cut a traceback after the user's last frame, in place.

    A mistake in a graph belongs to the user's line; the frames below it are graphfw's own business.
    `GRAPHFW_ERRORS=full` keeps them.
    """
    if os.environ.get("GRAPHFW_ERRORS") == "full":
        return
    last_user: TracebackType | None = None
    while traceback is not None:
        frame = traceback.tb_frame
        if not (frame.f_code.co_filename.startswith(_OWN) or _is_generated(frame)):
            last_user = traceback
        traceback = traceback.tb_next
    if last_user is not None:
        last_user.tb_next = None
