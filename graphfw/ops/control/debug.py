"""Looking at values while a graph runs: `print`, `check`, `breakpoint`."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping, Sequence
from string import Formatter
from typing import Any, ClassVar, TypeAlias

import numpy as np

from graphfw.errors import DTypeError, ExecutionError, a_type, counted
from graphfw.ir import concrete
from graphfw.ir.build import emit, emit_all
from graphfw.ir.functions import public
from graphfw.ir.graph import current_graph
from graphfw.ir.literal import Array
from graphfw.ir.op import op
from graphfw.ir.tensor import Tensor
from graphfw.loc import capture, user_frame
from graphfw.ops.args import TensorLike, as_tensor, is_whole
from graphfw.ops.composed import demand
from graphfw.ops.control.checkpoint_ops import Barrier
from graphfw.ops.control.effects import Effect, call_number, happens

__all__ = ["breakpoint", "check", "print"]

Fragments: TypeAlias = tuple[tuple[str, int | None, str], ...]
"""A text with fields for values: what stands before each, its number, how to write it."""


@op("print")
class Print(Effect):
    """Write values to the standard output.

    Attributes:
        fragments: The text.
        summarize: How many elements to write at both ends of an axis; None for all.
    """

    fragments: Fragments
    summarize: int | None
    earlier_fields: ClassVar[dict[str, str]] = {"parts": "fragments"}

    def happen(self, arrays: Sequence[Array]) -> None:
        sys.stdout.write(_text(self.fragments, arrays, self.summarize) + "\n")
        sys.stdout.flush()


@public
def print(
    fmt: str | TensorLike, /, *tensors: TensorLike, summarize: int | None = 3, **named: TensorLike
) -> Tensor | None:
    """Print values each time the graph runs; nothing needs to use the result.

    In which runs, is said in docs/debugging.md: in those that compute what the values are made of.
    Outside of any graph it prints at once. The order of several prints in one run is not fixed.

    Args:
        fmt: A text with a field for each tensor, as `str.format` has them: "loss {:.3f}". Without
            it the tensors are printed in a row, with their names.
        tensors: What to print.
        summarize: Of axes longer than twice this, so many elements are shown at both ends; None
            shows all.
        named: Tensors for fields with names: "loss {loss}".

    Returns:
        The first tensor, None if there is none.

    Raises:
        ArgumentError: The fields and the tensors don't match, or can't be written like that.

    >>> import graphfw as gf
    >>> with gf.Graph() as g:
    ...     x = gf.placeholder((3,), name="x")
    ...     y = x * 2
    ...     total = gf.print("total {:.1f} of {}", gf.sum(y), y)
    >>> with gf.Session(g) as session:
    ...     value = session.run(y, {x: [1.0, 2.0, 3.0]})
    total 12.0 of [2. 4. 6.]
    """
    is_text = isinstance(fmt, str)
    values = [as_tensor(t) for t in (tensors if is_text else (fmt, *tensors))]
    text = fmt if isinstance(fmt, str) else " ".join(map(_location_of, values))
    values += [as_tensor(t) for t in named.values()]
    is_count = summarize is None or (is_whole(summarize) and summarize > 0)
    demand(is_count, f"print: summarize={summarize!r} is no number of elements", fix="use 3")
    effect = Print(call_number(), _fragments("print", text, values, list(named)), summarize)
    fields = {number for _, number, _ in effect.fragments if number is not None}
    demand(
        len(fields) == len(values),
        f"print: {text!r} has fields for {len(fields)} of {counted(len(values), 'value')}",
        fix="write {} for each",
    )
    _happening(effect, values, "gf.print")
    return values[0] if values else None


@op("check")
class Check(Effect):
    """Stop the run with an error if an element of the first input is false.

    Attributes:
        fragments: The error's text; its values are the other inputs.
    """

    fragments: Fragments
    earlier_fields: ClassVar[dict[str, str]] = {"parts": "fragments"}
    labels = ("condition",)

    def happen(self, arrays: Sequence[Array]) -> None:
        condition, *values = arrays
        wrong = int(condition.size - np.count_nonzero(condition))
        if not wrong:
            return
        summary = _text(self.fragments, values, 3)
        if condition.ndim:
            first = np.unravel_index(int(condition.argmin()), condition.shape)
            index = ", ".join(map(str, first))
            summary += (
                f" (wrong at {wrong} of {counted(condition.size, 'element')}, first at [{index}])"
            )
        raise ExecutionError(
            summary, fix="feed values for which it holds; gf.Session(g, debug=True) shows all nodes"
        )


@public
def check(
    condition: TensorLike, message: str, /, *values: TensorLike, **named: TensorLike
) -> Tensor:
    """Stop each run in which an element of a condition is false, before any variable changes.

    It is checked in the runs in which `gf.print` would print, and wherever the result is used.

    Args:
        condition: Bools of any shape.
        message: What the error says, with fields for the values, as in `gf.print`.
        values: Tensors for its fields; the error shows the ranges of the first two, with or
            without a field.
        named: Tensors for fields with names.

    Returns:
        The first of the values, else the condition: what is computed of it is computed only where
        the check holds.

    Raises:
        DTypeError: The condition is not of bools.
        ArgumentError: A field has no value.
        ExecutionError: When the graph runs: the condition does not hold.

    >>> import graphfw as gf
    >>> with gf.Graph() as g:
    ...     x = gf.placeholder(("n",), name="x")
    ...     y = gf.log(gf.check(x > 0, "x must be positive", x))
    >>> with gf.Session(g) as session:
    ...     session.run(y, {x: [1.0, -2.0]})  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    graphfw.errors.ExecutionError: x must be positive (wrong at 1 of 2 elements, first at [1])
    """
    said = as_tensor(condition)
    demand(
        said.dtype.is_bool,
        f"check: the condition is {said.dtype.name}, not bool",
        {"condition": said},
        fix="compare, as in x > 0",
        error=DTypeError,
    )
    demand(
        isinstance(message, str),
        f"check: the message is {a_type(message)}, not a string",
        fix='write gf.check(x > 0, "x must be positive")',
    )
    tensors = [as_tensor(t) for t in (*values, *named.values())]
    effect = Check(call_number(), _fragments("check", message, tensors, list(named)))
    token = _happening(effect, [said, *tensors], "gf.check")
    first = tensors[0] if tensors else said
    return first if token is None else emit_all(Barrier(1), first, token)[0]


@op("breakpoint")
class Breakpoint(Effect):
    """Stop in Python's debugger.

    Attributes:
        names: What the values are called there.
        file: The user's file.
        line: The line there.
    """

    names: tuple[str, ...]
    file: str
    line: int

    def happen(self, arrays: Sequence[Array]) -> None:
        # The debugger stops in a frame that has nothing but the values, and shows the user's line.
        frame = {**dict(zip(self.names, arrays, strict=True)), "__stop__": sys.breakpointhook}
        exec(compile("\n" * (self.line - 1) + "__stop__()", self.file, "exec"), frame)


@public
def breakpoint(*tensors: TensorLike, **named: TensorLike) -> Tensor | None:
    """Stop in Python's debugger each time the graph runs, with the tensors' values as NumPy arrays.

    They have the names of the variables that hold the tensors here, or are called x0, x1, …;
    changing them changes nothing. It happens in the runs in which `gf.print` would print. As with
    Python's own, `PYTHONBREAKPOINT` names another debugger, and with `PYTHONBREAKPOINT=0` nothing
    stops.

    Args:
        tensors: What to look at.
        named: More of them, with names of their own.

    Returns:
        The first tensor, None if there is none.
    """
    frame = user_frame()
    here = {} if frame is None else frame.f_locals
    names = [_name_of(t, here) or f"x{number}" for number, t in enumerate(tensors)]
    values = [as_tensor(t) for t in (*tensors, *named.values())]
    loc = capture()
    effect = Breakpoint(call_number(), (*names, *named), loc.file, loc.line)
    _happening(effect, values, "gf.breakpoint")
    return values[0] if values else None


def _name_of(value: object, variables: Mapping[str, object]) -> str:
    found = (name for name, held in variables.items() if held is value and name.isidentifier())
    return next(found, "")


def _happening(effect: Effect, values: Sequence[Tensor], what: str) -> Tensor | None:
    """Let an effect happen with the current graph; outside of any, now, without a token."""
    if current_graph().is_ambient:
        effect.happen([concrete.value_of(t, what) for t in values])
        return None
    token = emit(effect, *values)
    happens([token])
    return token


# Texts.


def _location_of(tensor: Tensor) -> str:
    name = tensor.name.replace("{", "{{").replace("}", "}}")
    return f"{name} {{}}" if name else "{}"


def _fragments(what: str, text: str, values: Sequence[Tensor], names: Sequence[str]) -> Fragments:
    """Take a text apart; the last values are those of the names.

    Raises:
        ArgumentError: A field has no value.
    """
    unnamed = len(values) - len(names)
    numbers = {name: unnamed + i for i, name in enumerate(names)}
    fragments: list[tuple[str, int | None, str]] = []
    automatic = itertools.count()
    try:
        found = list(Formatter().parse(text))
    except ValueError as error:
        found = []
        demand(False, f"{what}: can't read the text {text!r}: {error}", fix="write {{ for a {")
    for before, name, spec, conversion in found:
        number = None
        if name is not None:
            key = name or str(next(automatic))
            number = int(key) if key.isdecimal() and int(key) < unnamed else numbers.get(key)
            demand(
                number is not None and not conversion and "{" not in (spec or ""),
                f"{what}: there is no value for the field {{{name}}} of {text!r}",
                fix="write {} for each tensor, {:.3f} for three digits",
            )
        if number is not None:
            _check_spec(what, spec or "", values[number])
        fragments.append((before, number, spec or ""))
    return tuple(fragments)


def _check_spec(what: str, spec: str, value: Tensor) -> None:
    try:
        _element(np.zeros((), value.dtype.dtype)[()], spec)
    except ValueError as error:
        demand(
            False,
            f"{what}: {value.dtype.name} can't be written as {{:{spec}}}: {error}",
            {"value": value},
            fix="use {}, or {:.3f} for floats",
        )


def _text(fragments: Fragments, arrays: Sequence[Array], summarize: int | None) -> str:
    pieces = []
    for before, number, spec in fragments:
        pieces.append(before)
        if number is not None:
            pieces.append(_written(np.asarray(arrays[number]), spec, summarize))
    return "".join(pieces)


def _written(array: Array, spec: str, summarize: int | None) -> str:
    if not array.ndim:
        return _element(array[()], spec)
    return np.array2string(
        array,
        threshold=sys.maxsize if summarize is None else 0,
        edgeitems=summarize or 3,
        formatter={"all": lambda value: _element(value, spec)} if spec else None,
    )


def _element(value: Any, spec: str) -> str:
    # What NumPy has no Python number for, bfloat16, is written as a float.
    item = value.item() if hasattr(value, "item") else float(value)
    return format(item, spec) if spec else str(value)
