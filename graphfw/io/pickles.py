"""Pickles of tensors, read without running any code.

A pickle is a program for a stack machine, and Python's own `pickle` lets it call any function. This
machine has only the operations that data needs, and the functions that it is given by name; it
refuses everything else. Python's `pickletools` splits the bytes into operations.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Iterator, Mapping
from typing import Any


class PickleRefusedError(Exception):
    """A pickle asks for more than data; the text says for what."""


class PickleError(Exception):
    """A pickle is damaged; the text says how."""


def read_pickle(
    content: bytes, functions: Mapping[str, Any], persistent: Callable[[Any], Any]
) -> Any:
    """Return the object that a pickle describes.

    Args:
        content: The pickle.
        functions: What it may name, by path: functions to call, and values that are no functions.
        persistent: Returns the object of a persistent id.

    Raises:
        PickleRefusedError: It names something else, or has an operation that data does not need.
        PickleError: It is damaged.
    """
    machine = _Machine(functions, persistent)
    try:
        for operation, argument, _ in _operations(content):
            machine.do(operation, argument)
            if operation == "STOP":
                return machine.result()
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise PickleError(f"its pickle is damaged ({error})") from error
    raise PickleError("its pickle is cut short")


def _operations(content: bytes) -> Iterator[tuple[str, Any, int | None]]:
    for operation, argument, position in pickletools.genops(content):
        yield operation.name, argument, position


_MARK = object()
_AS_ARGUMENT = frozenset(
    "INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT UNICODE BINUNICODE "
    "SHORT_BINUNICODE BINUNICODE8 STRING BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES "
    "BINBYTES8".split()
)
"""Operations that push their argument."""
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_NOTHING = frozenset({"PROTO", "FRAME", "STOP"})


class _Machine:
    """The stack and the memory of a pickle that is being read."""

    def __init__(self, functions: Mapping[str, Any], persistent: Callable[[Any], Any]) -> None:
        self._functions, self._persistent = functions, persistent
        self._callable = {id(one) for one in functions.values() if callable(one)}
        self._stack: list[Any] = []
        self._memory: dict[int, Any] = {}

    def result(self) -> Any:
        """Return the object that is left at the end."""
        (result,) = self._stack
        return result

    def do(self, name: str, argument: Any) -> None:
        """Do an operation.

        Raises:
            PickleRefusedError: Data does not need it.
        """
        stack, memory = self._stack, self._memory
        if name in _AS_ARGUMENT:
            stack.append(argument)
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            memory[int(argument)] = stack[-1]
        elif name == "MEMOIZE":
            memory[len(memory)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(memory[int(argument)])
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name == "MARK":
            stack.append(_MARK)
        elif name in _TUPLES:
            stack.append(self._popped(_TUPLES[name]))
        elif name not in _NOTHING:
            self._do_other(name, argument)

    def _do_other(self, name: str, argument: Any) -> None:
        """Do one of the operations that are not so frequent."""
        stack = self._stack
        if name == "TUPLE":
            stack.append(self._since_mark())
        elif name == "GLOBAL":
            stack.append(self._function(argument.replace(" ", ".", 1)))
        elif name == "STACK_GLOBAL":
            stack.append(self._function(".".join(self._popped(2))))
        elif name == "REDUCE":
            function, arguments = self._popped(2)
            if id(function) not in self._callable:
                raise PickleRefusedError(f"it calls an object of type {type(function).__name__}")
            stack.append(function(*arguments))
        elif name in ("BINPERSID", "PERSID"):
            stack.append(self._persistent(stack.pop() if name == "BINPERSID" else argument))
        elif name in ("APPEND", "APPENDS"):
            items = (stack.pop(),) if name == "APPEND" else self._since_mark()
            self._last(list).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = self._popped(2) if name == "SETITEM" else self._since_mark()
            self._last(dict).update(zip(items[::2], items[1::2], strict=True))
        elif name == "BUILD":  # of a state dict, the versions of PyTorch's layers
            stack.pop()
            self._last(dict)
        else:
            raise PickleRefusedError(f"it has the operation {name}, which tensors do not need")

    def _function(self, path: str) -> Any:
        if path not in self._functions:
            raise PickleRefusedError(f"it asks for {path}, which may run code")
        return self._functions[path]

    def _last(self, kind: type) -> Any:
        if not isinstance(self._stack[-1], kind):
            raise PickleError(f"its pickle is damaged (it fills no {kind.__name__})")
        return self._stack[-1]

    def _popped(self, count: int) -> tuple[Any, ...]:
        if count > len(self._stack):
            raise PickleError("its pickle is damaged (its stack is empty)")
        popped = tuple(self._stack[-count:])
        del self._stack[-count:]
        return popped

    def _since_mark(self) -> tuple[Any, ...]:
        items: list[Any] = []
        while (item := self._stack.pop()) is not _MARK:
            items.append(item)
        return tuple(reversed(items))
