"""`FunctionMode`: a `with` block in which an object of the user's answers for public functions.

What is intercepted is what users and layers call. What graphfw computes by itself is not: a mode is
off while a function that it intercepted runs, and in gradient rules, batching rules and passes.
Functions that users pass, such as the body of `gf.scan`, are theirs: for them it is on again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar, cast

from graphfw.hints.calls import FOREIGN, explained, raise_refusal
from graphfw.ir.scopes import Scoped, override
from graphfw.loc import name_in_errors

Function = TypeVar("Function", bound=Callable[..., Any])

OPEN: list[FunctionMode] = []
"""The blocks that are open anywhere in the process: while there are none, calls look no further."""


class FunctionMode:
    """A `with` block that intercepts graphfw's functions: the base for classes of your own.

    Inside the block each call of a public function calls `__graphfw_function__` instead. That goes
    for functions without tensors among their arguments, such as `gf.zeros`, for the operators and
    methods of tensors, and for what layers call. While the method runs, the mode is off, so it may
    call `func` and other functions. Modes nest: the outer one intercepts what the inner one calls.
    A mode is a scope: it holds for the thread or task that enters it.

    >>> import graphfw as gf
    >>> class Names(gf.FunctionMode):
    ...     def __graphfw_function__(self, func, types, args, kwargs):
    ...         print(func.__name__)
    ...         return func(*args, **kwargs)
    >>> with Names():
    ...     y = gf.ones(3) * 2
    ones
    multiply
    """

    @explained
    def __init__(self) -> None:
        pass

    def __graphfw_function__(
        self,
        func: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """Return the call's result; NotImplemented leaves it to the next mode, or `func`.

        Args:
            func: The public function that was called, such as `gf.add`.
            types: The types of those arguments that have `__graphfw_function__` themselves.
            args: The positional arguments of the call.
            kwargs: Its keyword arguments.
        """
        return func(*args, **kwargs)

    def __enter__(self) -> FunctionMode:
        OPEN.append(self)
        try:
            _modes.enter(self, self)
            return self
        except BaseException:  # an interrupt
            OPEN.pop()
            raise

    def __exit__(self, *error: object) -> None:
        _modes.leave(self)
        OPEN.pop()


class _Call(NamedTuple):
    """A call that is being answered, in place of the modes of the blocks further out.

    Attributes:
        left: The modes that functions ask now, innermost first.
        function: What was called; None if that is no public function.
        around: The modes of the code that called it, which functions in its arguments ask.
        is_asked: Whether a mode is being asked; else the function runs.
    """

    left: tuple[FunctionMode, ...] = ()
    function: Callable[..., Any] | None = None
    around: tuple[FunctionMode, ...] = ()
    is_asked: bool = False


_NOBODY = _Call()
_modes: Scoped[FunctionMode | _Call] = Scoped("function_modes", _NOBODY)


def is_intercepted() -> bool:
    """Return whether a public function that is called here goes through `ask_modes`."""
    state = _modes.get()
    return not isinstance(state, _Call) or bool(state.left) or state.is_asked


def active_modes() -> tuple[FunctionMode, ...]:
    """Return the modes that a function asks which is called here, innermost first."""
    found: list[FunctionMode] = []
    if OPEN:
        for state in _modes.values():
            if isinstance(state, _Call):
                return (*found, *state.left)
            found.append(state)
    return tuple(found)


def ask_modes(
    function: Callable[..., Any],
    types: tuple[type, ...],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Any:
    """Return a call's result from the innermost mode, or else the next one, or the function."""
    state, modes = _modes.get(), active_modes()
    around = modes
    if isinstance(state, _Call) and state.is_asked and state.function is function:
        around = state.around  # the mode that was asked calls the function itself
    for number, mode in enumerate(modes, 1):
        with override(_modes, _Call(modes[number:], function, around, is_asked=True)):
            result = mode.__graphfw_function__(function, types, args, kwargs)
        if result is not NotImplemented:
            return result
    with override(_modes, _Call((), function, around)):
        return function(*args, **kwargs)


def interceptable(function: Function) -> Function:
    """Return a public function that modes intercept, and that explains arguments that don't fit.

    For those that `ir.functions.public` does not register, which includes both.
    """
    name_in_errors(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if OPEN and is_intercepted():
            return ask_modes(call, (), args, kwargs)
        try:
            return function(*args, **kwargs)
        except FOREIGN as error:
            raise_refusal(error, function, args, kwargs)

    return cast(Function, call)


def without_modes() -> override[FunctionMode | _Call]:
    """Shut out all modes, for what graphfw computes by itself."""
    return override(_modes, _NOBODY)


def unintercepted(function: Function) -> Function:
    """Return a function in which no mode intercepts what is called, but by what it is passed.

    For functions that users pass to it, it uses `as_called`.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not OPEN:
            return function(*args, **kwargs)
        with override(_modes, _Call(around=active_modes())):
            return function(*args, **kwargs)

    return cast(Function, call)


def as_called(function: Function, to: str = "") -> Function:
    """Return a function that a user has passed to a function of graphfw's which runs.

    It asks the modes of the code that has called this one.

    Args:
        function: What was passed.
        to: The public function that it was passed to, if it is one. Where another public function
            is composed of that, the argument is no user's.
    """
    state = _modes.get() if OPEN else _NOBODY
    if not isinstance(state, _Call) or not state.around:
        return function
    if to and (state.function is None or state.function.__name__ != to):
        return function
    modes = _Call(state.around)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with override(_modes, modes):
            return function(*args, **kwargs)

    return cast(Function, call)


class ByIdentity:
    """A mode as part of a key: equal to itself only, whatever `__eq__` its class has."""

    __slots__ = ("mode",)

    def __init__(self, mode: FunctionMode) -> None:
        self.mode = mode

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByIdentity) and self.mode is other.mode

    def __hash__(self) -> int:
        return id(self.mode)


def modes_key() -> tuple[ByIdentity, ...]:
    """Return the modes that a trace's functions ask, for its key."""
    return tuple(map(ByIdentity, active_modes())) if OPEN else ()
