"""Every error graphfw raises: what is wrong, on whose line, with which operands, how to mend it.

An error is a record first and a text second: `summary`, `operands`, `why`, `at` and `fix` are
fields, and `str(error)` lays them out in at most a handful of lines. Each class also derives from
the builtin that a Python user expects, so `except ValueError` keeps working.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral

from graphfw.loc import Loc, Location, capture, known_names

__all__ = [
    "ArgumentError",
    "AxisError",
    "CallError",
    "CheckpointError",
    "ConcreteValueError",
    "DTypeError",
    "ExecutionError",
    "ExecutorError",
    "FeedError",
    "FetchError",
    "GradientError",
    "GraphError",
    "GraphErrors",
    "GraphfwError",
    "MemoryLimitError",
    "Operand",
    "ParseError",
    "PassError",
    "RunTimeoutError",
    "SessionError",
    "ShapeError",
    "UnknownImportError",
    "UnknownNameError",
    "VerifyError",
    "did_you_mean",
]


_UNNAMED_DIM = re.compile(r"(?<![\w\"'])_(?:dim(?:_\d+)?|([A-Za-z]\w*)_(\d+))\b(?![\"'])")
"""The symbol of a dim `None`: `_x_0` for dim 0 of the placeholder "x", `_dim` without a name."""


def type_text(text: str) -> str:
    """Return a type as it is shown: dims without a name as what is written for them, None.

    >>> type_text("float32[_x_0, 784]")
    'float32[None, 784]'
    """
    return _UNNAMED_DIM.sub("None", text)


@dataclass(frozen=True)
class Operand:
    """One input of the operation that failed, as the user made it."""

    label: str
    name: str
    type: str
    made_by: str
    loc: Loc | None = None
    layer: str = ""
    follows: bool = False
    """Whether it comes from a mistake that its graph has collected already."""

    def cells(self) -> tuple[str, ...]:
        """Return the columns of this operand's line."""
        where = self.loc.short() if self.loc else ""
        layer = f"layer {self.layer}" if self.layer else ""
        name = f'"{self.name}"' if self.name else ""
        return (self.label, name, type_text(self.type), self.made_by, where, layer)


class GraphfwError(Exception):
    """The base of all graphfw errors.

    Args:
        summary: One sentence: what is wrong, with the values that show it.
        operands: The tensors involved, one line each.
        why: The chain of facts that makes it wrong, when the operands' types alone don't show it.
        at: Where in the user's code it happened; by default the line that is running now.
        fix: What to write instead.

    Attributes:
        layer: The path of the layer whose call raised it, or "".
    """

    layer = ""

    def __init__(
        self,
        summary: str,
        *,
        operands: Sequence[Operand] = (),
        why: str = "",
        at: Location | None = None,
        fix: str = "",
    ) -> None:
        if at is None:
            at = capture()
            summary = renamed(summary, at.called)
        self.summary = self._written(summary)
        super().__init__(self.summary)
        self.operands = tuple(operands)
        self.why = self._written(why)
        self.at: Location = at
        self.fix = self._written(fix)

    def __str__(self) -> str:
        lines = [self._written(self.summary), *_columns([o.cells() for o in self.operands])]
        if self.why:
            lines.append(f"  why  {self._written(self.why)}")
        layer = f"   (layer {self.layer})" if self.layer else ""
        lines.append(f"  at   {self.at.describe()}{layer}")
        if self.fix:
            lines.append(f"  fix  {self._written(self.fix)}")
        return "\n".join(lines)

    def _written(self, text: str) -> str:
        """Return a sentence as it is shown: `x.shape[0]` for `_x_0`."""
        # Most have no underscore: `hasattr` makes errors that must not cost the time of a search.
        return _UNNAMED_DIM.sub(_as_size, text) if "_" in text else text

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders (multiprocessing, pytest-xdist): keep the fields.
        fields = dict(self.__dict__)
        if isinstance(self, (AttributeError, ImportError)):
            fields["name"] = self.name  # which these keep outside of their dict
        return (_restore, (type(self), self.args, fields))


def _as_size(symbol: re.Match[str]) -> str:
    return f"{symbol[1]}.shape[{symbol[2]}]" if symbol[1] else "None"


def renamed(summary: str, called: str) -> str:
    """Return a sentence on a function or an op as one on the function that the user called.

    >>> renamed("max: axis 0 has size 0", "nanmax")
    'nanmax: axis 0 has size 0'
    """
    name, colon, rest = summary.partition(": ")
    return f"{called}: {rest}" if called and colon and name in known_names else summary


def _restore(
    cls: type[GraphfwError], args: tuple[object, ...], fields: dict[str, object]
) -> GraphfwError:
    error = cls.__new__(cls, *args)
    error.args = args
    for field, value in fields.items():
        setattr(error, field, value)
    return error


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Align cells; a column that is empty everywhere takes no room."""
    if not rows:
        return []
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    widths[0] = max(widths[0], 3)
    return [
        ("  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True) if w)).rstrip()
        for row in rows
    ]


class ShapeError(GraphfwError, ValueError):
    """Shapes don't fit."""


class AxisError(ShapeError, IndexError):
    """An axis or a static index is out of range."""


class DTypeError(GraphfwError, TypeError):
    """Dtypes don't fit."""


class ArgumentError(GraphfwError, ValueError):
    """A plain argument (a rate, a size, a mode) has a value that makes no sense."""


class CallError(ArgumentError, TypeError):
    """A function or a class is called with arguments that its signature does not take."""


class UnknownNameError(GraphfwError, AttributeError):
    """A module or an object has no attribute of this name.

    Args:
        summary: As for `GraphfwError`.
        name: The name.
        find_fix: Returns what to write instead. It is asked when somebody looks: `hasattr` makes
            an error that nobody does.
    """

    def __init__(self, summary: str, name: str, find_fix: Callable[[], str]) -> None:
        super().__init__(summary)
        self.name = name
        self._find_fix: Callable[[], str] | None = find_fix

    @property
    def fix(self) -> str:
        """The fix: a line to write instead."""
        if self._find_fix is not None:
            self._fix, self._find_fix = self._written(self._find_fix()), None
        return self._fix

    @fix.setter
    def fix(self, text: str) -> None:
        self._fix, self._find_fix = text, None

    def __reduce__(self) -> tuple[object, ...]:
        self.fix = self.fix  # what finds it can't be pickled
        return super().__reduce__()


class UnknownImportError(GraphfwError, ImportError):
    """A module has no name that can be imported like this."""


class GraphError(GraphfwError, RuntimeError):
    """A graph is built or used in a way that it can't be."""


class GraphErrors(GraphError):
    """All independent mistakes of one build, collected by `Graph(collect_errors=True)`."""

    def __init__(self, errors: Sequence[GraphfwError]) -> None:
        self.errors = tuple(errors)
        super().__init__(f"{counted(len(self.errors), 'mistake')} in this graph")

    def __str__(self) -> str:
        paragraphs = [self.summary]
        for number, error in enumerate(self.errors, 1):
            paragraphs.append(f"[{number}] {type(error).__name__}: {error}")
        return "\n".join(paragraphs)


class ConcreteValueError(GraphfwError, TypeError):
    """A value was asked of a tensor that has none until a session runs."""


class FeedError(GraphfwError, ValueError):
    """A feed is missing, unknown, or of the wrong shape or dtype."""


class FetchError(GraphfwError, ValueError):
    """A fetch is not a tensor, variable or update of the session's graph."""


class GradientError(GraphfwError, ValueError):
    """A gradient doesn't exist or isn't defined."""


class SessionError(GraphfwError, RuntimeError):
    """A session is closed or used in a way that it can't be."""


class ExecutorError(GraphfwError, RuntimeError):
    """An executor is unknown or can't work on this machine."""


class ExecutionError(GraphfwError, RuntimeError):
    """An operation failed while a session ran it.

    Attributes:
        names_node: Whether it says already which node failed: the innermost one does.
        iteration: In which iteration of the loop around that, while it is not known which loop it
            is.
    """

    names_node = False
    iteration: int | None = None


class MemoryLimitError(ExecutionError, MemoryError):
    """A run would take more memory than its session may, or than there is."""


class RunTimeoutError(ExecutionError, TimeoutError):
    """A run has taken longer than its `timeout`; the variables are as they were before."""


class DistributedError(ExecutionError):
    """Another process of the mesh failed, or does not do the same as this one.

    No variable has changed, in any of the processes.
    """


class ShardingError(GraphfwError, ValueError):
    """Dims are split over processes in a way that contradicts itself, or that an op can't keep."""


class PassError(GraphfwError, RuntimeError):
    """A compiler pass failed or broke the graph."""


class VerifyError(GraphfwError, RuntimeError):
    """A graph breaks one of the rules that every graph obeys, or a run gives other values."""


class ParseError(GraphfwError, ValueError):
    """A graph's text can't be read."""

    def _written(self, text: str) -> str:
        return text  # it quotes the graph's text


class CheckpointError(GraphfwError, ValueError):
    """A checkpoint can't be written, read, or matched with the graph."""


class DataError(GraphfwError, ValueError):
    """A file of examples can't be read, or has what no array can hold."""


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """Return `did you mean "…"?` for the nearest known name, or an empty string.

    `cutoff` is how alike the names must be, from 0 to 1.

    >>> did_you_mean("axes", ["axis", "dtype"])
    'did you mean "axis"?'
    """
    names = list(known)
    same = [other for other in names if other.lower() == name.lower()]
    near = same or difflib.get_close_matches(name, names, n=1, cutoff=cutoff)
    return f'did you mean "{near[0]}"?' if near else ""


def counted(count: object, noun: str, plural: str = "") -> str:
    """Return `1 value` or `2 values`: a number with its noun.

    Args:
        count: The number; what is no integer, such as a symbolic size, is taken for many.
        noun: The noun.
        plural: Its plural, where that is not the noun with an s.

    >>> counted(1, "value"), counted(1200, "value"), counted(2, "axis", "axes")
    ('1 value', '1,200 values', '2 axes')
    """
    number = f"{count:,}" if isinstance(count, Integral) else str(count)
    return f"{number} {noun if number == '1' else plural or f'{noun}s'}"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message: of libraries' they can be long."""
    return str(error).strip().partition("\n")[0][:200]


def a_type(value: object) -> str:
    """Return `an int`, `a list` or `the class int`: what a value is, with the article.

    >>> a_type(3), a_type([])
    ('an int', 'a list')
    >>> a_type(int)
    'the class int'
    """
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
