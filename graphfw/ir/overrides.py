"""`__graphfw_function__`, by which objects of other classes answer for graphfw's public functions.

Where a public function gets an argument that is no tensor but has this method, the method is called
instead, as `argument.__graphfw_function__(func, types, args, kwargs)`:

- `func` is the public function, such as `gf.add`; `args` and `kwargs` are what it was called with;
- `types` are the types of all arguments that have the method, also of those in lists and tuples.

What it returns is what the call returns. With NotImplemented the next argument is asked, those of
subclasses first. NumPy's `__array_function__` and PyTorch's `__torch_function__` are alike.

The modes that are open (`ir/modes.py`) are asked before the arguments.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from graphfw.errors import DTypeError
from graphfw.hints.calls import FOREIGN, raise_refusal
from graphfw.ir.modes import OPEN, ask_modes, is_intercepted

_NAME = "__graphfw_function__"

Function = TypeVar("Function", bound=Callable[..., Any])


class OverriddenError(DTypeError):
    """An object that is to become a tensor answers for itself.

    It ends the public function, whose caller then asks the argument. So calls with tensors pay for
    no search among their arguments.
    """


def check(value: object) -> None:
    """See that a value which is to become a tensor does not answer for itself.

    Raises:
        OverriddenError: It does.
    """
    if hasattr(value, _NAME):
        raise OverriddenError(
            f"a {type(value).__name__} can't become a tensor here: it has {_NAME}",
            fix="pass what it holds",
        )


def overridable(function: Function) -> Function:
    """Return the function with arguments asked that answer for themselves."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if OPEN and is_intercepted():
            types = tuple(dict.fromkeys(map(type, _overriding(args, kwargs))))
            return ask_modes(call, types, args, kwargs)
        try:
            return function(*args, **kwargs)
        except OverriddenError:
            asked = _overriding(args, kwargs)
            # Within another public function that was given such arguments, the user called that.
            if not asked or _is_within_another():
                raise
        except FOREIGN as error:
            raise_refusal(error, function, args, kwargs)
        return _answer(call, asked, args, kwargs)

    return cast(Function, call)


def _is_within_another() -> bool:
    """Return whether the caller, a `call`, was called by one that has arguments to ask, too."""
    caller = sys._getframe(1)
    frame = caller.f_back
    asking = (_answer.__code__, ask_modes.__code__)
    while frame is not None and frame.f_code not in asking:
        if frame.f_code is caller.f_code:
            own = frame.f_locals
            if _overriding(own["args"], own["kwargs"]):
                return True
        frame = frame.f_back
    return False


def _overriding(args: Iterable[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the arguments that answer for themselves, those in lists and tuples among them."""
    return list(_searched([*args, *kwargs.values()]))


def _searched(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _searched(value)
        elif hasattr(value, _NAME):
            yield value


def _answer(
    function: Callable[..., Any], asked: Sequence[Any], args: Any, kwargs: Mapping[str, Any]
) -> Any:
    """Ask the arguments one after the other, one of each type."""
    first: dict[type, Any] = {}
    for value in asked:
        first.setdefault(type(value), value)
    types = tuple(first)
    # The sort is stable: only subclasses go before their bases, which have shorter orders.
    for cls in sorted(types, key=lambda cls: -sum(issubclass(cls, other) for other in types)):
        result = getattr(first[cls], _NAME)(function, types, args, kwargs)
        if result is not NotImplemented:
            return result
    names = ", ".join(cls.__name__ for cls in types)
    raise TypeError(
        f"{function.__name__}: {_NAME} of {names} returned NotImplemented: no type of these "
        "arguments knows what to do with the others"
    )
