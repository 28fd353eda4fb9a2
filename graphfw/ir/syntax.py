"""The words that the text of a graph is made of: strings, values, arrays, types and locations.

What they look like is said in `printer`; `parser` puts them together.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from graphfw.errors import ParseError, did_you_mean
from graphfw.ir.arrays import as_given, has_overflowed, misfit
from graphfw.ir.dim import DimLike
from graphfw.ir.dim_text import dim_of
from graphfw.ir.dtype import BY_NAME, DType
from graphfw.ir.literal import Array
from graphfw.ir.types import TensorType, parse_type, split
from graphfw.loc import Loc

STRING = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
"""A pattern for a Python string on one line."""

_STRING_OR_COMMENT = re.compile(rf"{STRING}|#")
# A reference stands at the start or after ( , = and so differs from the % and @ between operands.
_REFERENCE = re.compile(r"(?:^|(?<=[(,=]))\s*([%@][\w?]+)")


def split_comment(line: str) -> tuple[str, str]:
    """Return a line's code and its comment, without the #."""
    for match in _STRING_OR_COMMENT.finditer(line):
        if match[0] == "#":
            return line[: match.start()].strip(), line[match.end() :].strip()
    return line.strip(), ""


def mask(code: str) -> str:
    """Blank out what is inside strings, so that the signs that are left are the statement's own."""
    return re.sub(STRING, lambda m: f'"{"_" * (len(m[0]) - 2)}"', code)


def string(text: str) -> str:
    """Return the string that a Python literal stands for."""
    value = value_of(_expression(text))
    if not isinstance(value, str):
        raise ParseError(f"{text} is no string")
    return value


def types_of(text: str) -> tuple[TensorType, ...]:
    """Return the types written as `float32[n]` or `(float32[n], int64[n])`."""
    if not text.startswith("("):
        return (_type(text),)
    return tuple([_type(entry) for entry in split(text[1:].removesuffix(")"))])


def _type(text: str) -> TensorType:
    try:
        return parse_type(text)
    except ValueError as error:  # of a dim
        raise error if isinstance(error, ParseError) else ParseError(str(error)) from None


# Values.


def call(arguments: str) -> tuple[list[ast.expr], dict[str, ast.expr]]:
    """Split `%0, axes=(1,), name="y"` into what stands alone and what has a name."""
    pieces, position = [], 0
    for match in _REFERENCE.finditer(mask(arguments)):
        # Python has no word for a reference: it travels as bytes, which no field can hold.
        pieces += [arguments[position : match.start(1)], f'b"{match[1]}"']
        position = match.end()
    parsed = _expression(f"call({''.join(pieces)}{arguments[position:]})")
    if not isinstance(parsed, ast.Call) or not isinstance(parsed.func, ast.Name):
        raise ParseError(f"({arguments}) is no list of arguments")
    fields: dict[str, ast.expr] = {}
    for keyword in parsed.keywords:
        if keyword.arg is None:
            raise ParseError("** is not allowed")
        if keyword.arg in fields:
            raise ParseError(f"{keyword.arg} is given twice")
        fields[keyword.arg] = keyword.value
    return parsed.args, fields


def _expression(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ParseError(f"can't read {text.removeprefix('call')}: {reason}") from None


def reference(value: ast.expr) -> str:
    """Return `%3` or `@9c0e`, or "" for any other expression."""
    match value:
        case ast.Constant(bytes(word)):
            return word.decode("latin-1")
    return ""


def shown(value: ast.expr) -> str:
    """Return an expression as it was written, nearly, for errors."""
    return reference(value) or ast.unparse(value)


def value_of(node: ast.expr) -> Any:
    """Return the value of a field."""
    match node:
        case ast.Constant(None | bool() | int() | float() | str() as value):
            return value
        case ast.Tuple(items):
            return tuple([value_of(item) for item in items])
        case ast.Attribute(ast.Name("dtype"), name):
            if name not in BY_NAME:
                raise ParseError(f"{name} is no dtype", fix=did_you_mean(name, BY_NAME))
            return BY_NAME[name]
        case ast.Attribute(ast.Name("float"), "inf" | "nan" as name):
            return float(name)
        case ast.Call(ast.Name("slice"), [start, stop, step], []):
            return slice(value_of(start), value_of(stop), value_of(step))
        case ast.Call(ast.Name("complex"), [real, imag], []):
            return complex(_real(real), _real(imag))
        case ast.Call(ast.Name("opaque"), _, _):
            raise ParseError(f"{shown(node)} is a value that has no text")
        case ast.UnaryOp(ast.USub(), operand) if not _is_dim(operand):
            return -_real(operand)
    if not _is_dim(node):
        raise ParseError(f"{shown(node)} is no value of a field", fix=_VALUE_FIX)
    return _dim(node)


_VALUE_FIX = "write ints, floats, strings, tuples, slice(…), dims, dtype.float32, True, False, None"


def _is_dim(node: ast.expr) -> bool:
    match node:
        case ast.Name() | ast.BinOp() | ast.UnaryOp() | ast.Call(ast.Name("max" | "min")):
            return True
        case ast.Subscript(ast.Tuple()):
            return True
    return False


def _dim(node: ast.expr) -> DimLike:
    try:
        try:
            return dim_of(node)
        except (ValueError, ZeroDivisionError) as error:
            text = f"cannot read the size {shown(node)!r}: {error}"
            raise ParseError(text, fix=_VALUE_FIX) from None
    except RecursionError:
        raise ParseError("a size is nested too deeply to be read", fix=_VALUE_FIX) from None


def _real(node: ast.expr) -> int | float:
    value = value_of(node)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ParseError(f"{shown(node)} is no number")
    return value


def array_of(node: ast.expr, kind: TensorType) -> Array:
    """Return the array of nested lists of numbers; `[]` is any array without elements."""
    if not kind.is_static:
        raise ParseError(f"{kind} has no fixed size, so no value of it can be written")
    empty = kind.size == 0 and isinstance(node, ast.List) and not node.elts
    try:
        leaves = [] if empty else list(_leaves(node, kind, 0))
        with np.errstate(over="raise"):
            array = np.array(leaves, kind.dtype.dtype)
    except (OverflowError, FloatingPointError) as error:
        raise ParseError(f"a value does not fit {kind.dtype.name}: {error}") from None
    # NumPy refuses what is beyond its own dtypes; ml_dtypes wraps around, saturates or makes NaN.
    given, _ = as_given(leaves)
    if misfit(given, kind.dtype) is not None or has_overflowed(given, array, kind.dtype):
        raise ParseError(f"a value does not fit {kind.dtype.name}")
    array = array.reshape(kind.shape)
    array.flags.writeable = False
    return array


def _leaves(node: ast.expr, kind: TensorType, axis: int) -> Iterator[Any]:
    if axis == kind.ndim:
        value = value_of(node)
        types = _elements(kind.dtype)
        if type(value) not in types:
            raise ParseError(f"{shown(node)} is no element of {kind}")
        yield types[-1](value)
        return
    if not isinstance(node, ast.List) or len(node.elts) != kind.shape[axis]:
        raise ParseError(f"the value does not have the shape of {kind}")
    for item in node.elts:
        yield from _leaves(item, kind, axis + 1)


def _elements(dtype: DType) -> tuple[type, ...]:
    """Return the types of Python's whose values stand for elements; the last holds all of them."""
    if dtype.is_bool:
        return (bool,)
    if dtype.is_complex:
        return (int, float, complex)
    return (int, float) if dtype.holds_floats else (int,)


# Locations.

_FILE = rf'{STRING}|[^"|]+?'
_WORD = rf'{STRING}|[^\s",|]+'
_LOCATION = re.compile(rf"({_FILE}):(\d+)(?: in ({_WORD}))?(?:, layer ({_WORD}))?")


def loc_of(comment: str) -> Loc | None:
    """Return the location that a comment names; None for a comment of another kind."""
    locations: list[Loc] = []
    for note in _between_bars(comment):
        what = note if not locations else note.removeprefix("also ").removeprefix("grad of ")
        if locations and note == "grad":
            locations[-1] = locations[-1].as_gradient()
            continue
        match = _LOCATION.fullmatch(what)
        if match is None:
            return None
        file, line, function, layer = match.groups()
        location = Loc(_word(file), int(line), _word(function or "<module>"), _word(layer or ""))
        if note.startswith("grad of ") and locations:
            locations[-1] = locations[-1]._replace(grad_of=location)
        else:
            locations.append(location)
    return locations[0]._replace(merged=tuple(locations[1:]))


def _between_bars(comment: str) -> Iterator[str]:
    start = 0
    for match in re.finditer(r"\||$", mask(comment)):
        yield comment[start : match.start()].strip()
        start = match.end()


def _word(text: str) -> str:
    return string(text) if text.startswith('"') else text
