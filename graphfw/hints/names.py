"""Names that a module or an object does not have: what to write instead."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from inspect import signature
from opcode import opname
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn

from graphfw.errors import CallError, UnknownImportError, UnknownNameError, a_type, did_you_mean
from graphfw.hints import public
from graphfw.hints.calls import ExplainedType, correction, in_other_form, shown_arguments
from graphfw.hints.expressions import Argument, filled, plain
from graphfw.hints.foreign_arguments import USES
from graphfw.hints.foreign_left_out import why_left_out
from graphfw.hints.lookup import Answer, beyond, look_up, look_up_within
from graphfw.hints.written import Written, attribute_of, call_around, call_at, name_after
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
    hidden = _hide_submodules(module, names) if path != "gf" else {}

    def getattribute(name: str) -> Any:
        if name in hidden and _looked_up(sys._getframe(1)) == "IMPORT_FROM":
            return hidden[name]
        if lazy is not None and (found := lazy(name)) is not None:
            return found
        if name.startswith("_"):  # Python looks for many of these, which nobody writes
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
        _raise_missing(path, names, name, sys._getframe(1))

    def directory() -> list[str]:
        return sorted(names)

    return getattribute, directory


def hints_for_internal(path: str, module: str) -> None:
    """Let a module of the package's own answer for another framework's: `gf.utils.data`."""

    def getattribute(name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
        _raise_missing(path, (), name, sys._getframe(1))

    vars(sys.modules[module])["__getattr__"] = getattribute


def _raise_missing(path: str, names: Sequence[str], name: str, asking: FrameType) -> NoReturn:
    """Raise the error of a name that a module does not have, for the frame that asks for it."""
    how, summary = _looked_up(asking), f"{path} has no name {name!r}"
    frame = user_frame() if how in _WRITTEN else None
    written = call_around(frame) if frame else None
    within = name_after(frame) if frame else ""
    called = call_around(frame, f".{within}") if frame and within else None

    def find_fix() -> str:
        answer = look_up(name, path)
        near = "" if answer else did_you_mean(name, names, 0.7)
        # `gf.functional.relu` asks for `functional`, and means `relu`.
        if within and name.islower() and not near:
            inner = look_up_within(within, name, path)
            if inner:
                return _fix(inner, called)
        known = "; ".join(filter(None, [near, beyond(name, path)]))
        return _fix(answer, written) or known or f"see dir({path if names else 'gf'})"

    if how != "IMPORT_FROM":
        raise UnknownNameError(summary, name, find_fix)
    raised = UnknownImportError(summary, fix=find_fix())
    raised.name = name
    raise raised


def _hide_submodules(module: str, names: Sequence[str]) -> dict[str, ModuleType]:
    """Take the modules that a package consists of out of what its users see, and return them.

    `gf.optim.adam` would be a module, and no mistake of who looks for Optax's optimiser. An import
    of `graphfw.optim.adam` finds it.
    """
    package = vars(sys.modules[module])
    hidden = {
        name: value
        for name, value in package.items()
        if isinstance(value, ModuleType)
        and value.__name__ == f"{module}.{name}"
        and name not in names
    }
    for name in hidden:
        del package[name]
    return hidden


_WRITTEN = ("IMPORT_FROM", "LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR")
"""The instructions that `from graphfw import cat`, `gf.cat`, `x.view(…)`, `x.grad = None` are.

By `hasattr` and `getattr` libraries ask for names: that is no mistake, and must not take long.
"""


def _looked_up(frame: FrameType) -> str:
    """Return Python's instruction that a frame runs: an import hides an AttributeError."""
    return opname[frame.f_code.co_code[frame.f_lasti]] if frame.f_lasti >= 0 else ""


Kind = Literal[
    "Tensor",
    "Module",
    "Optimizer",
    "Distribution",
    "Selection",
    "Session",
    "Graph",
    "Plan",
    "Report",
    "Function",
    "Config",
    "Trainer",
    "Training",
    "Checkpoints",
    "Batches",
    "Schedule",
]
"""The kinds of objects for whose attributes there are tables."""


class Answering:
    """A base of models and others: attributes that they lack say what to write instead."""

    __slots__ = ()

    _answers_as: ClassVar[Kind]

    if not TYPE_CHECKING:  # which reports unknown attributes only where this is hidden from it

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):  # a property, from whose code an AttributeError came
                return object.__getattribute__(self, name)
            raise_unknown(self, self._answers_as, name)


def raise_unknown(owner: object, kind: Kind, name: str) -> NoReturn:
    """Raise the error of an attribute that an object does not have.

    Args:
        owner: The object.
        kind: What it is, for the tables.
        name: The attribute's name.
    """
    if name.startswith("_"):  # Python and libraries look for many of these, which nobody writes
        raise AttributeError(
            f"{type(owner).__name__!r} object has no attribute {name!r}", name=name, obj=owner
        )
    frame = user_frame()
    is_written = frame is not None and _looked_up(frame) in _WRITTEN
    of = attribute_of(frame, name) if frame is not None and is_written else ""
    written = call_around(frame) if frame is not None and is_written else None

    def find_fix() -> str:
        answer = look_up(name, kind)
        known = [n for n in dir(owner) if not n.startswith("_")]
        near = "" if answer else did_you_mean(name, known, 0.7)
        return _fix(answer, written, of or "x") or near

    raise UnknownNameError(f"{a_type(owner)} has no attribute {name!r}", name, find_fix)


class UnchangingType(ExplainedType):
    """The class of `Unchanging`, whose methods stay where a frozen dataclass writes its own."""

    def __setattr__(cls, name: str, value: Any) -> None:
        if name not in ("__setattr__", "__delattr__"):
            super().__setattr__(name, value)


class Unchanging(Answering, metaclass=UnchangingType):
    """A base of frozen dataclasses: who sets a field is told what to write instead.

    A subclass that is no dataclass may have further attributes.
    """

    if not TYPE_CHECKING:  # which knows dataclasses that are frozen

        def __setattr__(self, name, value):
            _refuse_change(self, name)
            object.__setattr__(self, name, value)

        def __delattr__(self, name):
            _refuse_change(self, name)
            object.__delattr__(self, name)


def _refuse_change(owner: Any, name: str) -> None:
    """Raise the error of a frozen dataclass that is changed."""
    if "__dataclass_fields__" in vars(type(owner)) or name in owner.__dataclass_fields__:
        raise_unset(owner, owner._answers_as, name)


def raise_unset(owner: object, kind: Kind, name: str) -> NoReturn:
    """Raise the error of an attribute that is set and can't be: `x.shape = (3, 4)`.

    Args:
        owner: The object.
        kind: What it is, for the tables.
        name: The attribute's name.
    """
    tables: Any = import_module("graphfw.hints.tables")
    of = attribute_of(frame, name) if (frame := user_frame()) else ""
    calls, texts = tables.SET[kind]
    fix = _expression(calls.get(name, ()), Written("", (of or "x",), ())) or texts.get(name, "")
    options = list(signature(type(owner)).parameters)
    if not fix and name in options:
        fix = texts["*"].format(name=name)
    elif not fix:
        fix = did_you_mean(name, options)
    who = "tensors don't change" if kind == "Tensor" else f"{a_type(owner)} doesn't change"
    raise UnknownNameError(f"{who}: {name} can't be set", name, lambda: fix)


def raise_not_called(name: str) -> NoReturn:
    """Raise the error of a call of a tensor's attribute that is a value: `x.size(0)`."""
    tables: Any = import_module("graphfw.hints.tables")
    calls = tables.VALUES[name]
    line = _expression(calls, _with_owner(_call(call_at), name))
    fix = line or f"write {calls[0][1]} for {plain(calls[0][0])}"
    raise CallError(f"{name}: a tensor has it as a value, and not as a method", fix=fix)


def raise_dtype_called(dtype: str) -> NoReturn:
    """Raise the error of a call of a dtype, as NumPy and JAX convert by it."""
    written = _call(call_at)
    shown = "x" if written is None or len(written.positional) != 1 else written.positional[0]
    fix = f"gf.asarray({shown}, dtype=gf.{dtype})"
    raise CallError(f"{dtype}: a dtype is no function", fix=fix)


def _with_owner(written: Written | None, name: str) -> Written | None:
    """Return the call of a method with the object that it is called of as the first argument."""
    if written is None or not written.callee.endswith(f".{name}"):
        return None
    of = written.callee.removesuffix(f".{name}")
    return written._replace(positional=(of, *written.positional))


def raise_unmade(name: str, target: str) -> NoReturn:
    """Raise the error of a class that users make no objects of, but call a function instead."""
    written = _call(call_at)
    fits = written is not None and len(written.positional) == 1
    line = _usage(target, written if fits else None)
    raise CallError(f"{name}: tensors are made by functions, not by their class", fix=line)


def hint_for_call(name: str) -> str:
    """Return the fix for a call of NumPy's function of a name, or ""."""
    return _fix(look_up(name), _call(call_at))


def _call(find: Callable[[FrameType], Written | None]) -> Written | None:
    """Return the call that the user's line makes."""
    frame = user_frame()
    return find(frame) if frame else None


@functools.cache
def _fix(answer: Answer, written: Written | None, of: str = "") -> str:
    """Return the text of a fix, with the user's own arguments where they can be seen.

    Args:
        answer: What is known of the name.
        written: The call as the user wrote it.
        of: The expression that the name is an attribute of, if that is an object's.
    """
    if of:
        rest = written or Written("", (), ())
        written = Written(rest.callee, (of, *rest.positional), rest.keywords)
    if answer.target:
        line = _usage(answer.target, written)
    elif answer.calls:
        call, expression = answer.calls[0]
        line = _expression(answer.calls, written) or answer.text
        line = line or f"write {expression} for {plain(call)}"
    else:
        line = answer.text
    return "; ".join(filter(None, [line, answer.remark]))


def _expression(calls: Sequence[tuple[str, str]], written: Written | None) -> str:
    """Return the expression of the first call of a table that the user's fits, or ""."""
    call = written or Written("", (), ())
    positional = [Argument.of_text(text) for text in call.positional]
    keywords = {name: Argument.of_text(text) for name, text in call.keywords}
    line = filled(calls, positional, keywords)
    reasons = [f"without {n}=: {why}" for n in keywords if (why := why_left_out(n))]
    if line or not reasons:
        return line
    line = filled(calls, positional, {n: a for n, a in keywords.items() if not why_left_out(n)})
    return "; ".join([line, *reasons]) if line else ""


def _usage(target: str, written: Written | None) -> str:
    """Return the user's own call with another function, or how that function is called."""
    found = public.find(target)
    if not callable(found) or hasattr(found, "itemsize"):  # a number or a dtype
        return f"write {target}"
    taken = signature(found)
    if written is not None and not any(text.startswith("*") for text in written.positional):
        tables: Any = import_module("graphfw.hints.tables")
        order = tables.ORDERS.get(written.callee.rpartition(".")[2], ())
        positional = [Argument.of_text(text) for text in written.positional[len(order) :]]
        named = [*zip(order, written.positional, strict=False), *written.keywords]
        keywords = {name: Argument.of_text(text) for name, text in named}
        line = in_other_form(target.rpartition(".")[2], positional, keywords)
        if line:
            return line
        line = correction(target, taken, positional, keywords)
        if line.startswith(f"{target}("):
            return line
    use = USES.get(target.rpartition(".")[2], "")
    return "; ".join(filter(None, [f"write {target}(…)", shown_arguments(taken), use]))
