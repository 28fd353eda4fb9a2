"""Forks: what a child finds of what the other threads of its parent were at.

A forked child has a copy of all memory, but of the threads only the one that has forked. The others
are gone in the middle of what they did, between two bytecodes or inside of a native call, and locks
that they held would stay held for ever. So whoever owns a lock, or what native code changes, uses
one of these:

- `renewed_lock()`: in the child nobody holds it, but for the thread that has forked. What it guards
  is made aside and put in its place by one assignment, so that what a thread had not finished is
  not there.
- `with uncut():` for what is not Python's, as a compiler is, or is short and takes several steps. A
  fork waits until nobody is inside; who comes meanwhile waits for the fork.
- `told(owner)`: for arrays that runs write over in place. A fork waits for such a run to end, and
  no other one begins meanwhile.

All locks are reentrant: a thread may fork, in a signal handler, while it holds any of them.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar
from weakref import ref

from graphfw.ir import locks
from graphfw.ir.locks import RLock

_MOMENT = 0.0002
"""Seconds between two looks at whether arrays are written over."""

_PACKAGES = ("graphfw", "llvmlite", "networkx")
"""What is imported when it is first needed, by whatever thread needs it."""


class Overwritten(Protocol):
    """An owner of arrays that runs write over in place."""

    def keep(self, holder: object) -> None:
        """Let no run that begins from now on write over them."""

    def unpin(self, holder: object) -> None:
        """End `keep`."""

    def is_written(self) -> bool:
        """Say whether a run of another thread, begun before `keep`, is writing over them."""

    def after_fork(self) -> None:
        """Forget, in the child, the runs of threads that are not there."""


T = TypeVar("T")


class _Alive(Generic[T]):
    """Objects, as long as they live: no callbacks, since an interrupt inside of one is lost."""

    def __init__(self) -> None:
        self._refs: list[ref[T]] = []
        self._room = 64

    def add(self, added: T) -> None:
        with _adding:
            if len(self._refs) >= self._room:
                self._refs = [each for each in self._refs if each() is not None]
                self._room = 64 + 2 * len(self._refs)
            self._refs.append(ref(added))

    def __iter__(self) -> Iterator[T]:
        return iter([found for each in self._refs if (found := each()) is not None])


_adding = locks.reentrant()
_owners: _Alive[Overwritten] = _Alive()
_renewed: _Alive[RLock] = _Alive()
_renewed.add(_adding)
_uncut: _Alive[RLock] = _Alive()
_last: list[RLock] = []
_forking = locks.reentrant()
"""Held during a fork, and while `_uncut` is added to."""


class _Mine(threading.local):
    """What belongs to a thread.

    Attributes:
        uncut: Held while a fork has to wait.
        forks: The forks that it is at: a signal handler may fork inside of one.
    """

    def __init__(self) -> None:
        self.forks: list[_Fork] = []
        self.uncut: RLock = locks.reentrant()
        with _forking:
            _uncut.add(self.uncut)


_mine = _Mine()


def renewed_lock() -> RLock:
    """Return a reentrant lock that in a child only the thread that has forked can hold."""
    lock = locks.reentrant()
    _renewed.add(lock)
    return lock


def uncut() -> RLock:
    """Return a lock of this thread's own, to be held for a moment in which a fork has to wait.

    Inside, no thread is waited for that may want to come inside, too.
    """
    return _mine.uncut


def last_waited_for(lock: RLock) -> None:
    """Make forks wait until nobody holds a lock of a library, under which nothing is waited for."""
    if lock not in _last:
        _last.append(lock)


def told(owner: Overwritten) -> None:
    """Tell an owner of forks, as long as it lives."""
    _owners.add(owner)


def in_child(call: Callable[[], object]) -> None:
    """Have a function called in each forked child."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=call)


class _Fork:
    """A fork that is under way, and what is kept for it."""

    def __init__(self) -> None:
        self._taken: list[RLock] = []
        self._owners: list[Overwritten] = []

    def prepare(self) -> None:
        """Wait until a copy of the memory is of use."""
        self._take(_forking)
        self._owners = [*_owners]
        for owner in self._owners:
            owner.keep(self)
        for owner in self._owners:
            while owner.is_written():
                time.sleep(_MOMENT)
        for lock in _uncut:
            self._take(lock)
        while True:
            for name in _imported_elsewhere():
                with suppress(Exception):  # the thread that imports it is told
                    importlib.import_module(name)
            for lock in _last:
                self._take(lock)
            if not _imported_elsewhere():
                return
            for _ in _last:  # who imports may be waiting for it
                self._release()

    def end(self) -> None:
        """Let everybody go on."""
        for owner in self._owners:
            owner.unpin(self)
        while self._taken:
            self._release()

    def _take(self, lock: RLock) -> None:
        self._taken.append(lock)  # first: an interrupt may come between, or instead
        lock.acquire()

    def _release(self) -> None:
        with suppress(RuntimeError):  # it was not taken
            self._taken.pop().release()


def _before() -> None:
    fork = _Fork()
    _mine.forks.append(fork)
    fork.prepare()


def _after() -> None:
    if _mine.forks:  # none where a thread was forking already when this was imported
        _mine.forks.pop().end()


def _after_in_child() -> None:
    for owner in _owners:
        owner.after_fork()
    for lock in (*_renewed, *_locks_of_properties()):
        if lock.acquire(blocking=False):  # nobody holds it, or this thread
            lock.release()
        else:
            lock._at_fork_reinit()  # as Python's own library does it
    _after()


def _imported_elsewhere() -> list[str]:
    """Return the modules that other threads are importing, each under a lock of its own."""
    # Private, and the only place that knows it.
    known: dict[str, Any] = importlib._bootstrap._module_locks  # type: ignore[attr-defined]
    me = threading.get_ident()
    locks = [lock for ref in [*known.values()] if (lock := ref()) is not None]
    return [
        lock.name
        for lock in locks
        if lock.owner not in (None, me) and lock.name.partition(".")[0] in _PACKAGES
    ]


def _locks_of_properties() -> Iterator[RLock]:
    """Yield what cached properties hold, before Python 3.12, while one is computed."""
    if sys.version_info >= (3, 12):
        return
    modules = [module for name, module in sys.modules.items() if name.startswith("graphfw")]
    kinds = {k for module in modules for k in vars(module).values() if isinstance(k, type)}
    for kind in kinds:
        for value in vars(kind).values():
            if isinstance(value, cached_property):
                yield vars(value)["lock"]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)
