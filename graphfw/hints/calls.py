"""Calls with arguments that a function does not take: what to write instead.

`raise_refusal` replaces the TypeError of such a call. The corrected line comes from the function's
own signature: other frameworks' argument names are translated, dims that were given one by one
become a tuple, and what must be named gets its name.
"""

from __future__ import annotations

import functools
import inspect
from abc import ABCMeta
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from inspect import Parameter, Signature
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from graphfw.errors import CallError, GraphfwError, MemoryLimitError, did_you_mean
from graphfw.hints.devices import executor_for
from graphfw.hints.expressions import Argument, filled
from graphfw.hints.foreign_arguments import (
    COLLECTED,
    MISPLACED,
    SYNONYMS,
    USES,
)
from graphfw.hints.foreign_left_out import why_left_out
from graphfw.hints.kinds import LONGEST, is_own, misfits
from graphfw.hints.public import path_of
from graphfw.hints.written import Written, call_at
from graphfw.loc import user_frame

Target = TypeVar("Target", bound=Callable[..., Any])

FOREIGN = (TypeError, ValueError, AttributeError, ArithmeticError, LookupError, MemoryError)
"""The errors of Python and NumPy where a function can't work with what it is given."""

_BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def explained(target: Target) -> Target:
    """Make a function, or all public methods of a class, print the corrected line of wrong calls.

    Put on public callables. Of a class, what its own body defines is meant, `__init__` included.
    """
    if not isinstance(target, type):
        return cast(Target, _explained(target))
    for name, member in list(vars(target).items()):
        if isinstance(member, FunctionType) and (name == "__init__" or not name.startswith("_")):
            setattr(target, name, _explained(member))
    return target


def _explained(function: Callable[..., Any]) -> Callable[..., Any]:
    is_method = next(iter(inspect.signature(function).parameters), "") == "self"

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except FOREIGN as error:
            if not (is_method and args):
                raise_refusal(error, function, args, kwargs)
            owner, *rest = args
            name = type(owner).__name__ if function.__name__ == "__init__" else function.__name__
            raise_refusal(error, MethodType(function, owner), rest, kwargs, name)

    return call


class ExplainedType(ABCMeta):
    """The class of classes that print the corrected line for arguments that don't fit.

    For those whose subclasses have an `__init__` of their own; others put `explained` on theirs.
    """

    @property
    def __signature__(cls) -> Signature:
        """The signature of making an object: for `inspect`, completion and documentation."""
        own = inspect.signature(cls.__init__)  # type: ignore[misc]  # the class, not an object
        return own.replace(parameters=list(own.parameters.values())[1:])

    if not TYPE_CHECKING:  # which reads the arguments of `__init__` where this is hidden from it

        def __call__(cls, *args, **kwargs):
            """Make an object."""
            init = MethodType(cls.__init__, cls)  # for its signature
            try:
                made = super().__call__(*args, **kwargs)
            except FOREIGN as error:
                if cls.__abstractmethods__:  # of which there are no objects
                    raise
                raise_refusal(error, init, args, kwargs, cls.__name__)
            refuse_kinds(init, args, kwargs, cls.__name__)  # what is kept may only fail later
            return made


def raise_refusal(
    error: Exception,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    name: str = "",
) -> NoReturn:
    """Raise the error of arguments that a function does not take; where it takes them, `error`.

    It does not take arguments that don't fit its signature, nor those of another kind than its
    annotations say.

    Args:
        error: What the call raised, of the types of `FOREIGN`.
        function: What was called.
        args: Its arguments.
        kwargs: The same.
        name: What messages call it; its own name by default.
    """
    if isinstance(error, GraphfwError):
        raise error
    name = name or _name_of(function)
    refuse_mismatch(function, args, kwargs, name)
    try:
        refuse_kinds(function, args, kwargs, name)
    except CallError as refusal:
        raise refusal from error
    # A run that lacks memory has errors of its own, and a feed what its object raises.
    is_described = is_own(function) and not function.__module__.startswith("graphfw.runtime.")
    if isinstance(error, MemoryError) and is_described:
        message = f"{name}: there is not enough memory for what becomes part of the graph"
        raise MemoryLimitError(message, fix="use smaller sizes, or feed the array") from error
    raise error


def refuse_mismatch(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], name: str
) -> None:
    """See that arguments fit a function's signature.

    Args:
        function: What was called.
        args: Its arguments.
        kwargs: The same.
        name: What messages call it.

    Raises:
        CallError: They don't. It has the corrected line.
    """
    signature = inspect.signature(function)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as mismatch:
        signature = _signature_of_calls(function) or signature
        written = _as_written(function, name, args, kwargs)
        callee = written.callee if written else path_of(name, function) or name
        positional, keywords = _arguments(written, args, kwargs, signature)
        owner = getattr(function, "__self__", None)
        is_method = owner is not None and function.__name__ != "__init__"
        of = [_owner(owner, written)] if is_method else []
        fix = in_other_form(name, [*of, *positional], keywords)
        fix = fix or correction(callee, signature, positional, keywords)
        use = USES.get(name) or USES.get(path_of(name, function), "")
        use = use if fix.startswith("its arguments are") else ""
        raise CallError(f"{name}: {mismatch}", fix="; ".join(filter(None, [fix, use]))) from None


def _signature_of_calls(function: Callable[..., Any]) -> Signature | None:
    """Return the signature of a model's calls, whose `forward` failed: it has `training` as well.

    None for other functions.
    """
    called = getattr(function, "__self__", None)
    found: Signature | None = getattr(called, "__signature__", None)
    return found if _name_of(function) == "forward" else None


def in_other_form(
    name: str, positional: Sequence[Argument], keywords: Mapping[str, Argument]
) -> str:
    """Return the line for another library's call of what graphfw has by that name, or ""."""
    tables: Any = import_module("graphfw.hints.tables")
    return filled(tables.FORMS.get(name, ()), positional, keywords)


def refuse_kinds(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    name: str,
) -> None:
    """See that arguments are of the kinds that a function's annotations say.

    Args:
        function: Of graphfw's; of any other nothing is known.
        args: Its arguments, which fit its signature.
        kwargs: The same.
        name: What messages call it.

    Raises:
        CallError: They are not.
    """
    wrong = misfits(function, args, kwargs)
    if wrong:
        passed = ", ".join([each.argument for each in wrong])
        fix = "; ".join([each.fix for each in wrong])
        raise CallError(f"{name}: {passed} {'does' if len(wrong) == 1 else 'do'} not fit", fix=fix)


def correction(
    callee: str,
    signature: Signature,
    positional: Sequence[Argument],
    keywords: Mapping[str, Argument],
) -> str:
    """Return the corrected line of a call with arguments that don't fit, or advice.

    Args:
        callee: What the corrected line calls it.
        signature: What it takes.
        positional: What it was given.
        keywords: The same.
    """
    name = callee.rpartition(".")[2]
    attempt = _Correction(signature, name)
    line = attempt.line(callee, positional, keywords)
    if line:
        return "; ".join([line, *attempt.reasons])
    listed = shown_arguments(signature)
    known = list(signature.parameters)
    unknown = [k for k in keywords if k not in known and not why_left_out(k, name)]
    near = [did_you_mean(k, known, 0.6) for k in unknown]
    return "; ".join([*attempt.reasons, *filter(None, near[:1])] or [listed])


def shown_arguments(signature: Signature) -> str:
    """List the arguments that a function takes."""
    marks: dict[Any, str] = dict(zip(_VARIADIC, ("*", "**"), strict=True))
    known = [f"{marks.get(p.kind, '')}{p.name}" for p in signature.parameters.values()]
    return f"its arguments are: {', '.join(known) or 'none'}"


class _Correction:
    """One attempt to make arguments fit a signature."""

    def __init__(self, signature: Signature, name: str) -> None:
        parameters = signature.parameters.values()
        self.signature = signature
        self.name = name
        self.slots = [p for p in parameters if p.kind in _BY_POSITION]
        self.named = [p for p in parameters if p.kind is Parameter.KEYWORD_ONLY]
        self.takes_any_number = any(p.kind is Parameter.VAR_POSITIONAL for p in parameters)
        self.by_slot: dict[str, str] = {}
        self.by_name: dict[str, str] = {}
        self.rest: list[str] = []
        self.reasons: list[str] = []

    def line(
        self, callee: str, positional: Sequence[Argument], keywords: Mapping[str, Argument]
    ) -> str:
        """Return the corrected call, or "" where there is none that is certain."""
        positional = self._without_misplaced(positional, keywords)
        positional, keywords = self._with_shape_first(positional, keywords)
        if not (self._assign(positional) and self._translate(keywords)):
            return ""
        texts: list[str] = []
        for slot in self.slots:
            if slot.name not in self.by_slot:
                continue
            skipped = len(texts) < self.slots.index(slot)
            if skipped and slot.kind is Parameter.POSITIONAL_ONLY:
                return ""
            value = self.by_slot[slot.name]
            texts.append(f"{slot.name}={value}" if skipped else value)
        texts += self.rest
        texts += [f"{name}={value}" for name, value in self.by_name.items()]
        return f"{callee}({', '.join(texts)})" if self._fits() else ""

    def _fits(self) -> bool:
        count = len([s for s in self.slots if s.name in self.by_slot])
        missing = [
            p.name
            for p in (*self.slots[count:], *self.named)
            if p.default is Parameter.empty and p.name not in {**self.by_slot, **self.by_name}
        ]
        return not missing

    def _without_misplaced(
        self, positional: Sequence[Argument], keywords: Mapping[str, Argument]
    ) -> Sequence[Argument]:
        """Leave out what stands in the place of an argument that is given by its name, too."""
        if not positional or not self.slots:
            return positional
        first = self.slots[0].name
        is_passed = any(first in (name, *SYNONYMS.get(name, ())) for name in keywords)
        if not is_passed or first not in MISPLACED:
            return positional
        self.reasons.append(MISPLACED[first].format(positional[0].text))
        return positional[1:]

    def _with_shape_first(
        self, positional: Sequence[Argument], keywords: Mapping[str, Argument]
    ) -> tuple[Sequence[Argument], Mapping[str, Argument]]:
        """Put a shape that is given by its name before the arguments that others put before it."""
        first = self.slots[0].name if self.slots else ""
        passed = [name for name in keywords if first in (name, *SYNONYMS.get(name, ()))]
        if first != "shape" or not positional or not passed:
            return positional, keywords
        rest = {name: argument for name, argument in keywords.items() if name != passed[0]}
        return [keywords[passed[0]], *positional], rest

    def _assign(self, positional: Sequence[Argument]) -> bool:
        """Give arguments without a name the parameters that they are for."""
        passed, extra = list(positional), []
        if len(passed) > len(self.slots) and not self.takes_any_number:
            at = next((i for i, s in enumerate(self.slots) if s.name in COLLECTED), None)
            if at is None or passed[at].is_sequence:
                passed, extra = passed[: len(self.slots)], passed[len(self.slots) :]
            else:
                passed, extra = self._collect(at, passed)
                if len(passed) > len(self.slots):
                    return False
        for slot, argument in zip(self.slots, passed, strict=False):
            self.by_slot[slot.name] = argument.text
        self.rest = [a.text for a in passed[len(self.slots) :]]
        return all([self._name(argument) for argument in extra])

    def _collect(self, at: int, passed: list[Argument]) -> tuple[list[Argument], list[Argument]]:
        """Join the elements of a tuple or list that were given one by one."""
        is_list = COLLECTED[self.slots[at].name] == "list"
        stop = at
        while stop < len(passed) and _is_element(passed[stop], is_list):
            stop += 1
        after = len(self.slots) - at - 1
        required = [s for s in self.slots[at + 1 :] if s.default is Parameter.empty]
        stop = min(stop, len(passed) - len(required))
        inside = ", ".join([a.text for a in passed[at:stop]])
        joined = Argument(f"[{inside}]" if is_list else f"({inside})")
        tail = passed[stop:]
        return [*passed[:at], joined, *tail[:after]], tail[after:]

    def _name(self, argument: Argument) -> bool:
        """Give an argument that must be named its name, in the order of the signature."""
        free = [p for p in self.named if p.name not in self.by_name]
        if isinstance(argument.value, bool):
            free = [p for p in free if isinstance(p.default, bool)]
        elif argument.is_dtype:
            free = [p for p in free if p.name == "dtype"]
        elif argument.is_array and self.slots:  # which is no option
            return False
        else:
            by_kind = ("dtype", "device")  # nobody gives a device without its name
            free = [p for p in free if not isinstance(p.default, bool) and p.name not in by_kind]
        if free:
            self.by_name[free[0].name] = argument.text
        return bool(free)

    def _translate(self, keywords: Mapping[str, Argument]) -> bool:
        """Give named arguments the names that they have here."""
        known = self.signature.parameters
        for name, argument in keywords.items():
            taken = {**self.by_slot, **self.by_name, **{k: "" for k in keywords if k != name}}
            wanted = [name, *SYNONYMS.get(name, ())]
            own = next((n for n in wanted if n in known and n not in taken), "")
            why = "" if own else why_left_out(name, self.name)
            if why:
                device = executor_for(argument.value) if isinstance(argument.value, str) else ""
                why = device if name == "device" and device else why
                self.reasons.append(f"without {name}=: {why}")
                continue
            if not own:
                near = did_you_mean(name, [n for n in known if n not in taken], 0.75)
                own = near.partition('"')[2].rpartition('"')[0]
            if not own:
                return False
            if known[own].kind is Parameter.POSITIONAL_ONLY:
                self.by_slot[own] = argument.text
            else:
                self.by_name[own] = argument.text
        return True


def _is_element(argument: Argument, of_list: bool) -> bool:
    """Return whether an argument may be a tensor of a list, or a dim of a shape."""
    if of_list:
        return not isinstance(argument.value, (int, type(None))) and not argument.is_dtype
    is_other = isinstance(argument.value, (bool, str, float, type(None)))
    return not (is_other or argument.is_dtype or argument.is_sequence)


def _as_written(
    function: Callable[..., Any], name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Written | None:
    """Return the call in the user's source, if that is the call of this function."""
    frame = user_frame()
    written = call_at(frame) if frame else None
    if frame is None or written is None:
        return None
    is_spread = any(text.startswith("*") for text in written.positional)
    if is_spread or len(written.positional) != len(args):
        return None
    if dict(written.keywords).keys() != kwargs.keys():
        return None
    last = written.callee.rpartition(".")[2]
    # Under another name it may be called through a name of the user's.
    found = {**frame.f_globals, **frame.f_locals}.get(written.callee)
    is_it = last in (name, _name_of(function)) or (
        found is not None and _is_called(found, function)
    )
    is_it = is_it or _name_of(function) == "forward"  # of a model, which may be any expression
    return written if is_it else None


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _is_called(found: Any, function: Callable[..., Any]) -> bool:
    inner = [found, getattr(found, "__wrapped__", None), getattr(found, "__func__", None)]
    return any(f is function for f in inner) or getattr(found, "forward", None) == function


def _arguments(
    written: Written | None,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    signature: Signature,
) -> tuple[list[Argument], dict[str, Argument]]:
    """Return the arguments with what they are written as, or what stands for it."""
    if written is not None:
        texts: Iterable[str] = written.positional
        named: Mapping[str, str] = dict(written.keywords)
    else:
        texts = [_text(a, _stand_in(i, a, signature, kwargs)) for i, a in enumerate(args)]
        named = {name: _text(value, name) for name, value in kwargs.items()}
    positional = [Argument(text, value) for text, value in zip(texts, args, strict=True)]
    return positional, {name: Argument(named[name], value) for name, value in kwargs.items()}


def _stand_in(index: int, value: Any, signature: Signature, kwargs: Mapping[str, Any]) -> str:
    """Return a name for a positional argument of which the text is unknown.

    It is the function's own name, or `x1`, `x2` and so on where that can't be meant: for one of
    too many arguments, one that is given by its name, too, and an array in the place of several.
    """
    names = [name for name, p in signature.parameters.items() if p.kind in _BY_POSITION]
    name = names[index] if index < len(names) else ""
    is_one_of_many = name == "arrays" and hasattr(value, "shape")
    return name if name and name not in kwargs and not is_one_of_many else f"x{index + 1}"


def _owner(value: Any, written: Written | None) -> Argument:
    """Return the object whose method is called as an argument of the function of that name."""
    text = written.callee.rpartition(".")[0] if written is not None else ""
    return Argument(text or _text(value, "x"), value)


def _text(value: Any, name: str) -> str:
    """Return the text of a value whose expression is unknown."""
    is_long = isinstance(value, int) and value.bit_length() > LONGEST
    if value is None or (isinstance(value, (bool, int, float, str)) and not is_long):
        return repr(value)
    own = getattr(value, "name", None)
    if isinstance(own, str) and own.isidentifier():
        return own if hasattr(value, "node") else f"gf.{own}"
    is_simple = isinstance(value, (list, tuple)) and all(isinstance(v, int) for v in value)
    return repr(value) if is_simple else name
