"""Arguments of a kind that a function does not take, by the annotations of its own signature.

They are looked at after a call has failed, so that calls which succeed pay nothing. A value that
works where the annotation is narrower, such as an array for a sequence, is no misfit.
"""

from __future__ import annotations

import collections.abc
import inspect
import itertools
import operator
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from inspect import Parameter, Signature
from types import MethodType
from typing import Any, NamedTuple

from graphfw.errors import a_type

_LONG = 60
"""Characters of a value that a message shows; of a longer one it says the type."""
_MANY = 1000
"""Elements of a sequence that are looked at."""
_FEW = 16
_REMEMBERED = 1024
_fitting: set[tuple[Any, ...]] = set()
"""The number of remembered calls of few arguments whose types suffice to know that all fit:
function and types."""
LONGEST = 1024
"""Bits of an int that is shown, and that floats hold: of the largest Python has no text."""
_CLASSES = {
    int: ("an int", "ints"),
    float: ("a float", "floats"),
    complex: ("a number", "numbers"),
    bool: ("True or False", "bools"),
    str: ("a string", "strings"),
    type(None): ("None", "None"),
}
_NUMBERS = (int, float, complex)


class Misfit(NamedTuple):
    """An argument of another kind than its parameter says: `num=(1, 1)`, and what it must be."""

    argument: str
    fix: str


def misfits(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> list[Misfit]:
    """Return the arguments that are of another kind than their parameters say.

    Args:
        function: What was called; its module knows the names in the annotations. Of a function of
            the user's nothing is said: what fails in it may be anything.
        args: The arguments, which fit its signature.
        kwargs: The same.
    """
    if not is_own(function):
        return []
    # Methods of all objects of a class share what is known of their function.
    arguments: Sequence[Any] = args
    if isinstance(function, MethodType):
        function, arguments = function.__func__, (None, *args)
    values = (*arguments, *kwargs.values())
    key = (function, *kwargs, *map(type, values))
    if key in _fitting and not any(map(_is_vast, values)):
        return []
    signature, kinds = _known(function)
    found = []
    by_type = len(key) <= _FEW
    for name, value in signature.bind(*arguments, **kwargs).arguments.items():
        parameter = signature.parameters[name]
        for each in _values(parameter, value):
            if (type(each) in kinds[name] or Any in kinds[name]) and not _is_vast(each):
                continue
            by_type = False
            if not _fits(each, kinds[name]):
                found.append(Misfit(f"{name}={_shown(each)}", _fix(parameter, kinds[name])))
                break
        # Another value of a default's type may not fit.
        by_type = by_type and (value is not parameter.default or value is None)
    if by_type:
        if len(_fitting) >= _REMEMBERED:
            _fitting.clear()
        _fitting.add(key)
    return found


def is_own(function: Callable[..., Any]) -> bool:
    """Return whether a function is graphfw's, or an object that is called."""
    return (getattr(function, "__module__", None) or "").startswith("graphfw.")


@lru_cache(maxsize=1024)
def _known(function: Callable[..., Any]) -> tuple[Signature, dict[str, tuple[Any, ...]]]:
    """Return a function's signature, and the types that each parameter takes."""
    signature, module = inspect.signature(function), function.__module__
    parameters = signature.parameters.items()
    return signature, {n: alternatives(kind_of(p.annotation, module)) for n, p in parameters}


def _fix(parameter: Parameter, kinds: tuple[Any, ...]) -> str:
    text = f"{parameter.name} must be {kinds_in_words(kinds)}"
    if parameter.default is Parameter.empty or parameter.default is None:
        return text
    return f"{text}; where you leave it out, it is {parameter.default!r}"


def _values(parameter: Parameter, value: Any) -> Iterator[Any]:
    if parameter.kind is Parameter.VAR_POSITIONAL:
        yield from value
    elif parameter.kind is Parameter.VAR_KEYWORD:
        yield from value.values()
    elif value is not parameter.default:
        yield value


def kind_of(annotation: Any, module: str) -> Any:
    """Return the type that an annotation stands for; Any where it can't be known here.

    Args:
        annotation: What a parameter or a field is annotated with, as text or not.
        module: Where; one of graphfw's.
    """
    if annotation is Parameter.empty:
        return Any
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, vars(sys.modules[module]))  # the package's own annotations
    except Exception:  # a name that only type checkers import
        return Any


def alternatives(kind: Any) -> tuple[Any, ...]:
    """Return the types of a union; of any other type, itself."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return typing.get_args(kind)
    return (type(None) if kind is None else kind,)


def _fits(value: Any, kinds: tuple[Any, ...]) -> bool:
    return any(_fits_one(value, kind) for kind in kinds)


def _fits_one(value: Any, kind: Any) -> bool:
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return isinstance(value, str | int | None) and value in inside
    if origin is collections.abc.Callable:
        return callable(value)
    if isinstance(origin, type) and origin is not type:
        return _fits_generic(value, origin, inside)
    if kind is Any:
        return not _is_vast(value)
    if not isinstance(kind, type):
        return True  # a type variable
    if kind in _NUMBERS or kind is bool:
        return _is_number(value, kind)
    return isinstance(value, kind)


def _fits_generic(value: Any, origin: type, inside: tuple[Any, ...]) -> bool:
    """Return whether a value is a sequence, a mapping or a tuple of the right elements."""
    if issubclass(origin, collections.abc.Mapping):
        return hasattr(value, "keys")
    if not issubclass(origin, collections.abc.Iterable):
        return isinstance(value, origin)
    if isinstance(value, (str, bytes)) or hasattr(value, "keys"):
        return False
    elements = [alternatives(kind) for kind in inside if kind is not ...]
    if hasattr(value, "node"):  # those of a tensor are numbers, and tensors
        known = {kind for kinds in elements for kind in kinds}
        return not known or any([k in (*_NUMBERS, Any) or hasattr(k, "node") for k in known])
    try:
        found = iter(value)
    except TypeError:  # also of an array without dims
        return False
    if not hasattr(value, "__len__"):
        return not issubclass(origin, collections.abc.Sized)
    size = len(value)
    if issubclass(origin, tuple) and inside[-1:] != (...,) and size != len(inside):
        return False
    if size > _MANY or not elements:
        return True
    return all(map(_fits, found, itertools.cycle(elements)))


def _is_number(value: Any, kind: type) -> bool:
    """Return whether a value works as a number; that of a tensor is known to graphfw only."""
    if hasattr(value, "node"):
        return True
    kind_of_array = getattr(getattr(value, "dtype", None), "kind", "")
    is_other = isinstance(value, (str, bytes, type)) or kind_of_array in ("M", "m", "O", "S", "U")
    if is_other or getattr(value, "ndim", 0) > 0 or _is_vast(value):
        return False
    try:
        if kind in (int, bool):
            operator.index(value)
        elif kind is float:
            float(value)
        else:
            complex(value)
    except Exception:  # whatever a class of the user's raises
        return kind is bool and type(value).__name__ == "bool"
    return True


def kinds_in_words(kinds: tuple[Any, ...]) -> str:
    """Say what values of some kinds are: `an int, a sequence of ints or None`."""
    *most, last = _names(kinds)
    return f"{', '.join(most)} or {last}" if most else last


def _names(kinds: tuple[Any, ...], number: int = 0) -> list[str]:
    """Return the names of kinds, each once; in the plural where `number` is 1."""
    if any(getattr(kind, "__name__", "") == "DType" for kind in kinds):
        others = [k for k in kinds if k is type(None) or typing.get_origin(k) is tuple]
        return [("a dtype", "dtypes")[number], *_names(tuple(others), number)]
    return list(dict.fromkeys([_word(kind, number) for kind in kinds]))


def _word(kind: Any, number: int = 0) -> str:
    """Say what a kind is; in the plural where `number` is 1."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if kind in _CLASSES:
        return _CLASSES[kind][number]
    if origin is typing.Literal:
        *most, last = [f'"{choice}"' for choice in inside]
        return f"{', '.join(most)} or {last}" if most else last
    if origin is collections.abc.Callable:
        return ("a function", "functions")[number]
    if isinstance(origin, type) and issubclass(origin, collections.abc.Mapping):
        return ("a dict", "dicts")[number]
    if origin is not None:
        elements = [n for each in inside[:1] for n in _names(alternatives(each), 1)]
        known = f" of {' or '.join(elements)}" if "values" not in elements else ""
        name = "tuple" if origin is tuple else "sequence"
        return (f"a {name}{known}", f"{name}s")[number]
    if kind is Any or not isinstance(kind, type):
        return ("a value", "values")[number]
    name = kind.__name__ if kind.__name__ not in ("Tensor", "Dim") else kind.__name__.lower()
    return (f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}", f"{name}s")[number]


def _is_vast(value: Any) -> bool:
    """Return whether it is an int that no float holds: of the largest Python has no text."""
    return isinstance(value, int) and value.bit_length() > LONGEST


def _shown(value: Any) -> str:
    """Return a value's text, or what it is where that is long."""
    if _is_vast(value):
        return f"an int of {value.bit_length():,} bits"
    if hasattr(value, "node"):
        return "a tensor"
    try:
        text = repr(value)
    except Exception:  # of a class of the user's
        return a_type(value)
    is_short = len(text) <= _LONG and "\n" not in text and " at 0x" not in text
    return text if is_short else a_type(value)
