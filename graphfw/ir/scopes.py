"""Values that hold for the length of a `with` block: `Scoped` variables, `Scope`, `override`.

Each thread and each asyncio task has its own scopes; a task or thread that is given a copy of the
context inherits those that are open. A context variable holds the innermost entry of a chain.

Blocks need not be left in the order in which they were entered: leaving one removes its own entry,
wherever in the chain it stands. In a context where it was not entered, there is nothing to remove.

A scope that a generator enters holds while the generator runs. While the generator is suspended at
a `yield`, nobody sees the scope, neither who iterates it nor the tasks that were started meanwhile.
A generator that is there to hold a scope open for others is excepted: that of a
`contextlib.contextmanager`, or of a pytest fixture or hook.

A generator may run, and leave its scope, in another thread or task than it entered it in. So its
blocks are also found by its frame: where the generator runs they are put on top of the chain that
is there, and the thread or task that it began in does not see them meanwhile. One that is left
counts nowhere from then on.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import FrameType
from typing import Any, Generic, TypeAlias, TypeVar, cast

from graphfw.errors import ArgumentError

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., Any])

_GENERATOR = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
_HOLDERS = frozenset({"contextlib", "_pytest", "pluggy", "pytest_asyncio"})
"""The packages that run generators in order to hold their scopes open."""
_ENTERING = frozenset({"__enter__", "__exit__", "__aenter__", "__aexit__"})
_CONTEXTLIB = vars(contextlib)
_RESUME, _AFTER_AWAIT = dis.opmap["RESUME"], 3  # the argument of RESUME, in its lowest two bits


Home: TypeAlias = tuple[int, weakref.ref[Any] | None]
"""A thread, and the asyncio task in it."""


class Owner:
    """The generator that has entered a block.

    Attributes:
        frame: Its frame; None once it has left the block, in whatever thread or task.
    """

    __slots__ = ("frame",)

    def __init__(self, frame: FrameType) -> None:
        self.frame: FrameType | None = frame

    def runs(self) -> bool:
        """Return whether the generator runs, or waits in an `await`."""
        frame = self.frame
        # A frame has a caller while it runs.
        return frame is not None and (frame.f_back is not None or _is_awaiting(frame))


class Entry(Generic[T]):
    """One `with` block that is open, as a link of the chain of them.

    Attributes:
        value: What holds inside.
        below: The entry that was innermost before.
        scope: The context manager, by which leaving finds the entry.
        owner: The generator that entered the block, or None.
        home: Where the entry was put on the chain, if it has an owner: see `_here`.
        outside: The frame that entered the block, where the entry is guarded and has no owner.
        is_guarded: Whether this entry, or one below it, has an owner.
    """

    __slots__ = ("below", "home", "is_guarded", "outside", "owner", "scope", "value")

    def __init__(
        self,
        value: T,
        below: Entry[T] | None,
        scope: object,
        outside: FrameType | None = None,
        owner: Owner | None = None,
        home: Home | None = None,
    ) -> None:
        is_guarded = owner is not None or (below is not None and below.is_guarded)
        self.value = value
        self.below = below
        self.scope = scope
        self.owner = owner
        self.home = home
        self.is_guarded: bool = is_guarded
        # A frame keeps its variables alive; that of an owner is let go with the block.
        self.outside = outside if is_guarded and owner is None else None

    def on(self, below: Entry[T] | None) -> Entry[T]:
        """Return a copy on another chain, or with other entries below it."""
        return Entry(self.value, below, self.scope, self.outside, self.owner, self.home)

    def is_open(self) -> bool:
        """Return whether the block is open for the code that asks.

        A generator's is where the generator runs, and in tasks and threads that it has started.
        What it has been begun by goes on without it while it runs elsewhere.
        """
        owner = self.owner
        if owner is None:
            return True
        frame = owner.frame
        if frame is None or not owner.runs():
            return False
        return _is_on_stack(frame) or not _is_here(self.home)


class Scoped(Generic[T]):
    """A variable that `override` gives another value for the length of a `with` block."""

    __slots__ = ("_default", "_owned", "_top")

    def __init__(self, name: str, default: T) -> None:
        self._default = default
        self._top: ContextVar[Entry[T] | None] = ContextVar(f"graphfw.{name}", default=None)
        self._owned: dict[FrameType, list[Entry[T]]] = {}  # the open blocks of each generator

    def get(self) -> T:
        """Return the value of the innermost block that is open here, or the default."""
        top = self._adopted() if self._owned else self._top.get()
        if top is None:
            return self._default
        if not top.is_guarded:
            return top.value
        return next(self.values(), self._default)

    def values(self) -> Iterator[T]:
        """Yield the values of all blocks that are open here, innermost first."""
        top = self._adopted() if self._owned else self._top.get()
        held = [entry for entry in _chain(top) if entry.is_open()]
        # A generator's own block lies inside of those that the code around it has entered since.
        index = 0
        while index < len(held):
            inner = index
            for other in range(index + 1, len(held)):
                if _is_around(held[inner], held[other]):
                    inner = other
            held.insert(index, held.pop(inner))
            yield held[index].value
            index += 1

    def enter(self, value: T, scope: object) -> T:
        """Let a value hold until `leave` is called with the same context manager; return it.

        The method of the context manager that calls this is the one that the `with` block calls.
        """
        return self._enter(value, scope)

    def enter_within(self, value: T, scope: object) -> T:
        """Do as `enter` does, faster, for a block of graphfw's own: no user's `yield` is in it."""
        top = self._top.get()
        if self._owned or (top is not None and top.is_guarded):
            return self._enter(value, scope)
        try:
            self._top.set(Entry(value, top, scope))
            return value
        except BaseException:  # an interrupt that comes right after `set`: the block is not begun
            self._top.set(top)
            raise

    def _enter(self, value: T, scope: object) -> T:
        top = self._adopted() if self._owned else self._top.get()
        frame = _acting(sys._getframe(3))
        owner = Owner(frame) if frame is not None and frame.f_code.co_flags & _GENERATOR else None
        try:
            below = top if top is None or top.owner is None else _still_open(top)
            entry = Entry(value, below, scope, frame, owner, None if owner is None else _here())
            if frame is not None and owner is not None:
                self._owned.setdefault(frame, []).append(entry)
            self._top.set(entry)
            return value
        except BaseException:  # an interrupt, as above
            self._top.set(top)
            if frame is not None and owner is not None:
                self._disown(frame, owner)
            raise

    def _adopted(self) -> Entry[T] | None:
        """Return the chain, with the blocks of generators that run here and began elsewhere."""
        top = self._top.get()
        here = {entry.owner for entry in _chain(top)}
        missing = {
            frame: away
            for frame, entries in [*self._owned.items()]
            if frame.f_back is not None and (away := [e for e in entries if e.owner not in here])
        }
        if not missing:
            return top
        # What the code around the generators has entered lies below, for it was entered before.
        for frame in reversed([frame for frame in _stack() if frame in missing]):
            for entry in missing[frame]:
                top = entry.on(_still_open(top))
                top.home = _here()
        self._top.set(top)
        return top

    def leave(self, scope: object) -> None:
        """Undo the innermost `enter` of a context manager.

        A generator's block is over wherever the generator runs when it leaves it. Another block is
        over in the thread or task that leaves it; where it was not entered, there is nothing to do.
        """
        top = self._top.get()
        if top is not None and top.scope is scope and top.owner is None:
            below = top.below
            self._top.set(below if below is None or below.owner is None else _still_open(below))
            return
        entries = list(_chain(top))
        # Several generators may have entered the same context manager: each leaves its own block.
        frame = _acting(sys._getframe(2))
        owned = reversed(self._owned.get(frame, ())) if frame is not None else ()
        of_scope = (entry for entry in (*owned, *entries) if entry.scope is scope)
        found = next(of_scope, None)
        if found is None:
            return
        # Where entries below it have been left since, this context has a copy of the entry.
        of_block = (i for i, e in enumerate(entries) if e is found or _is_same(e, found))
        index = next(of_block, None)
        if found.owner is not None and found.owner.frame is not None:
            self._disown(found.owner.frame, found.owner)
        if index is None:  # it was entered in another thread or task
            return
        chain = entries[index].below
        for e in reversed(entries[:index]):
            chain = e.on(chain)
        self._top.set(_still_open(chain))

    def _disown(self, frame: FrameType, owner: Owner) -> None:
        """Note that a generator has left a block, and let go of its frame."""
        owner.frame = None
        left = [entry for entry in self._owned.get(frame, ()) if entry.owner is not owner]
        if left:
            self._owned[frame] = left
        else:
            self._owned.pop(frame, None)


class override(Generic[T]):
    """Sets a scoped variable for the length of a `with` block of graphfw's own.

    No generator: one that an interrupt leaves behind would be resumed when it is collected, in
    whatever context that happens.
    """

    def __init__(self, variable: Scoped[T], value: T) -> None:
        self._variable = variable
        self._value = value

    def __enter__(self) -> T:
        return self._variable.enter_within(self._value, self)

    def __exit__(self, *error: object) -> None:
        self._variable.leave(self)


class Scope(override[T]):
    """Sets a scoped variable for the length of a user's `with` block, or of a decorated function.

    The block may be in a generator, and it may be left out of order.
    """

    def __enter__(self) -> T:
        return self._variable.enter(self._value, self)

    def __call__(self, function: Function) -> Function:
        """Return the function with the value holding in its calls.

        A generator or a coroutine function has it hold while its body runs.

        Raises:
            ArgumentError: It is an asynchronous generator function.
        """
        if inspect.isasyncgenfunction(function):
            raise ArgumentError(
                f"a scope can't decorate {function.__name__}: it is an asynchronous generator",
                fix="write the `with` block inside of the function",
            )

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with Scope(self._variable, self._value):
                return function(*args, **kwargs)

        @functools.wraps(function)
        def iterate(*args: Any, **kwargs: Any) -> Any:
            with Scope(self._variable, self._value):
                return (yield from function(*args, **kwargs))

        @functools.wraps(function)
        async def wait(*args: Any, **kwargs: Any) -> Any:
            with Scope(self._variable, self._value):
                return await function(*args, **kwargs)

        if inspect.isgeneratorfunction(function):
            return cast(Function, iterate)
        return cast(Function, wait if inspect.iscoroutinefunction(function) else call)


def _chain(entry: Entry[T] | None) -> Iterator[Entry[T]]:
    while entry is not None:
        yield entry
        entry = entry.below


def _still_open(entry: Entry[T] | None) -> Entry[T] | None:
    """Return an entry without what lies on top of it and was left in another thread or task."""
    while entry is not None and entry.owner is not None and entry.owner.frame is None:
        entry = entry.below
    return entry


def _is_same(entry: Entry[Any], other: Entry[Any]) -> bool:
    """Return whether two entries are of one block, which a generator has entered."""
    return entry.owner is not None and entry.owner is other.owner


def _acting(frame: FrameType | None) -> FrameType | None:
    """Return the frame of the `with` statement that a frame enters or leaves.

    Methods of context managers, and generators that are context managers, act for another frame.
    """
    while frame is not None:
        code = frame.f_code
        if code.co_flags & _GENERATOR:
            if not _holds_open(frame):
                return frame
        elif code.co_name not in _ENTERING and frame.f_globals is not _CONTEXTLIB:
            return frame
        frame = frame.f_back
    return None


def _holds_open(generator: FrameType) -> bool:
    """Return whether a running generator is there to hold its scopes open for others."""
    frame: FrameType | None = generator
    while frame is not None and frame.f_code.co_flags & _GENERATOR:  # each runs the one inside
        frame = frame.f_back
    module = "" if frame is None else str(frame.f_globals.get("__name__"))
    return module.partition(".")[0] in _HOLDERS


def _is_awaiting(frame: FrameType) -> bool:
    """Return whether a suspended frame waits in an `await`, and not at a `yield`.

    The instruction that goes on says so: see `RESUME` in Python's `dis`. Before Python 3.13 the
    frame's last instruction is the one before it.
    """
    code, at = frame.f_code.co_code, frame.f_lasti
    if at + 3 < len(code) and code[at] != _RESUME:
        at += 2
    return code[at] == _RESUME and code[at + 1] & 3 == _AFTER_AWAIT


def _stack() -> Iterator[FrameType]:
    """Yield the frames that run in this thread, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_on_stack(frame: FrameType) -> bool:
    return any(frame is other for other in _stack())


def _task() -> Any:
    """Return the asyncio task that runs in this thread, or None."""
    asyncio = sys.modules.get("asyncio")  # a task can't be there before it is imported
    loop = None if asyncio is None else asyncio._get_running_loop()
    return None if asyncio is None or loop is None else asyncio.current_task(loop)


def _here() -> Home:
    task = _task()
    return threading.get_ident(), None if task is None else weakref.ref(task)


def _is_here(home: Home | None) -> bool:
    if home is None or home[0] != threading.get_ident():
        return False
    return (None if home[1] is None else home[1]()) is _task()


def _is_around(entry: Entry[Any], other: Entry[Any]) -> bool:
    """Return whether an entry was made by code that runs the generator that another belongs to."""
    outside = entry.outside if entry.owner is None else entry.owner.frame
    owner = other.owner
    if outside is None or owner is None or owner.frame is None:
        return False
    frame = owner.frame.f_back
    while frame is not None and frame is not outside:
        frame = frame.f_back
    return frame is not None
