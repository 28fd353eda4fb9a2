"""The location in the user's code at which a node was made."""

from __future__ import annotations

import copy
import dataclasses
import linecache
import os
import sys
from collections.abc import Callable
from contextlib import contextmanager
from types import CodeType, FrameType, TracebackType
from typing import Any, NamedTuple, Protocol

# Frames of `with` helpers, `copy` and `replace` stand between the user's line and our own code.
_OWN = (
    os.path.dirname(os.path.abspath(__file__)) + os.sep,
    contextmanager.__code__.co_filename,
    copy.copy.__code__.co_filename,
    dataclasses.replace.__code__.co_filename,
)


class Location(Protocol):
    """The location of an error: a line of Python, or of another text that people write."""

    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int: ...
    def short(self) -> str:
        """Return `file:line`."""
        ...

    def describe(self) -> str:
        """Return `file:line` with the text that stands there."""
        ...


class Loc(NamedTuple):
    """A location in the user's code, and what graphfw knows of how it came to be there.

    Attributes:
        file: The source file, as Python names it.
        line: The line number, from 1.
        function: The function's name, `<module>` at top level.
        layer: The path of the layer or name scope that was active (`mlp.fc2`), or "".
        grad_of: For a node that differentiation made, the location of the forward node.
        merged: The locations of equal nodes that were merged into this one.
        called: The public function that the line called, or "": `nanmax`, of whose nodes one is a
            `max`. Texts of graphs leave it out.
    """

    file: str
    line: int
    function: str
    layer: str = ""
    grad_of: Loc | None = None
    merged: tuple[Loc, ...] = ()
    called: str = ""

    def short(self) -> str:
        """Return `model.py:43`, or `Cell In[3], line 43`."""
        return _line_text(self.file, os.path.basename(self.file), self.line)

    def describe(self) -> str:
        """Return `model.py:43 in forward:   logits = h1 @ W2`, with the source if there is any."""
        source = self.source()
        function = "" if self.function == "<module>" else f" in {self.function}"
        text = f":   {source}" if source else ""
        return f"{_line_text(self.file, display_path(self.file), self.line)}{function}{text}"

    def source(self) -> str:
        """Return the text of the line; "" where there is none."""
        return linecache.getline(self.file, self.line).strip()

    def as_gradient(self) -> Loc:
        """Return this location as that of a node which differentiates the one here."""
        forward = self._replace(grad_of=None, merged=())
        return self._replace(grad_of=forward, merged=(), called="")

    def unmerged(self) -> Loc:
        """Return the location without what was merged into it, and whatever the line called."""
        return self._replace(merged=(), called="")


UNKNOWN = Loc("<unknown>", 0, "<module>")


def capture(layer: str = "") -> Loc:
    """Return the location of the nearest frame outside the package (some 1.5 µs).

    A line that calls a function which makes many nodes has one location: each object that stays is
    work for the garbage collector, which walks all of them.
    """
    frame: FrameType | None = sys._getframe(1)
    called = ""
    while frame is not None:
        code = frame.f_code
        has_functions = _own_files.get(code.co_filename)
        if has_functions is None:
            # Which line an instruction is of takes as long to find out as all that is before it in
            # the function. The entry keeps the code alive, so that no other has its id.
            entry = _by_instruction.get((id(code), frame.f_lasti))
            return _captured(frame, layer, called) if entry is None else entry[0].of(layer, called)
        if has_functions and (name := _functions.get(id(code))):
            called = called if called and name in _taking_functions else name
        frame = frame.f_back
    return UNKNOWN


class _Line:
    """A line of code, with its locations by the layers it runs in and the functions it calls."""

    __slots__ = ("_line", "_locations")

    def __init__(self, file: str, line: int, function: str) -> None:
        self._line = file, line, function
        self._locations: dict[tuple[str, str], Loc] = {}

    def of(self, layer: str, called: str) -> Loc:
        """Return the location in a layer, where a public function was called."""
        known = self._locations.get((layer, called))
        if known is None:
            if len(self._locations) >= _MOST_LOCATIONS:
                self._locations.clear()
            known = self._locations[layer, called] = Loc(*self._line, layer, called=called)
        return known


def _captured(found: FrameType, layer: str, called: str) -> Loc:
    """Return and remember the location of the first frame outside the package, from `found`."""
    frame, called = _searched(found, called)
    if frame is None:
        return UNKNOWN
    code: CodeType = frame.f_code
    key = (code.co_filename, frame.f_lineno, code.co_name)
    line = _lines.get(key)
    if line is None:
        if len(_lines) >= _MOST_LOCATIONS:
            _lines.clear()
        line = _lines[key] = _Line(*key)
    # Whether the package's own code was written by `dataclass` is not a matter of code only.
    if frame is found and code.co_filename != "<string>":
        if len(_by_instruction) >= _MOST_LOCATIONS:
            _by_instruction.clear()
        _by_instruction[id(code), frame.f_lasti] = line, code
    return line.of(layer, called)


def user_frame() -> FrameType | None:
    """Return the nearest frame outside the package, if there is one."""
    return _searched(sys._getframe(1))[0]


def _searched(frame: FrameType | None, called: str = "") -> tuple[FrameType | None, str]:
    """Return the nearest frame outside the package, and the public function that it called.

    Args:
        frame: Where the search begins.
        called: The public function that was met last.
    """
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        has_functions = _own_files.get(file)
        if has_functions is None:
            is_own = file.startswith(_OWN) or _is_generated(frame)
            if not is_own and code.co_name != _ACTING:
                return frame, called
            if is_own and file != "<string>":
                _own_files[file] = False
        elif has_functions and (name := _functions.get(id(code))):
            # What a function computes itself has its name, not what one in its arguments does.
            called = called if called and name in _taking_functions else name
        frame = frame.f_back
    return None, called


def name_in_errors(function: Callable[..., Any]) -> None:
    """Let errors of what a public function makes, and of its runs, name that function."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code: CodeType = function.__code__
    hints = [str(hint) for hint in function.__annotations__.values()]
    if code.co_name != function.__name__ or "Op" in hints:
        return  # one body of many functions, or of `apply`: what it makes has the name of its op
    if ".transforms." in function.__module__:
        return  # what they make, the rules of other functions' ops make
    is_random = function.__module__.startswith("graphfw.ops.random.")
    name = f"random.{code.co_name}" if is_random else code.co_name
    _functions[id(code)] = name
    _own_files[code.co_filename] = True
    known_names.add(name)
    if any("Callable" in hint for hint in hints):
        _taking_functions.add(name)


known_names: set[str] = set()
"""The names of public functions and of ops: an error's summary begins with one of them."""

_functions: dict[int, str] = {}
"""The names of public functions by the ids of their code, which lives as long as they do."""

_taking_functions: set[str] = set()
"""The names of functions that are given functions of the user's."""


_ACTING = "__graphfw_function__"
"""The method that acts for the line which a function mode intercepts."""

_own_files: dict[str, bool] = {}
"""Files of `_OWN` that were met, and whether they define functions of `_functions`."""

_lines: dict[tuple[str, int, str], _Line] = {}
_by_instruction: dict[tuple[int, int], tuple[_Line, CodeType]] = {}
_MOST_LOCATIONS = 4096
"""The number of remembered lines, and of layers of each line."""


def _is_generated(frame: FrameType) -> bool:
    """Return whether `dataclass` wrote the code: that of the package's classes is its own, too."""
    is_string = frame.f_code.co_filename == "<string>"
    return is_string and str(frame.f_globals.get("__name__")).startswith("graphfw.")


def _line_text(file: str, shown: str, line: int) -> str:
    """Return `shown:line`; for a cell of a notebook its number, as IPython's tracebacks have it."""
    cell = cell_of(file)
    return f"{cell}, line {line}" if cell else f"{shown}:{line}"


def cell_of(file: str) -> str:
    """Return `Cell In[3]` for the file name that IPython has given to a cell; "" for another."""
    # Not in IPython's oldest versions, nor in what else is called a shell.
    name_of = getattr(getattr(_shell(), "compile", None), "format_code_name", None)
    known = None if name_of is None else name_of(file)
    return "" if known is None else " ".join(known)


def running_cell() -> int | None:
    """Return the number of the notebook's cell that runs; None outside of notebooks."""
    number = getattr(_shell(), "execution_count", None)
    return number if isinstance(number, int) else None


def _shell() -> Any:
    """Return IPython's shell, if there is one in this process: in a notebook, or a prompt."""
    find = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return None if find is None else find()


def name_fix(first: Loc, now: Loc) -> str:
    """Return the advice about a name that is taken.

    Args:
        first: The line that has given it.
        now: The line that gives it again: the same one, if a notebook's cell is run again.
    """
    fix = "give each its own name, or use gf.name_scope"
    if first.source() != now.source() or not (cell_of(first.file) and cell_of(now.file)):
        return fix
    return f"{fix}; a cell that is run again should make the graph, too: with gf.Graph() as g"


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
