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
- `register(owner)`: for arrays that runs write over in place. A fork waits for such a run to end,
and
  no other one begins meanwhile.

All locks are reentrant: a thread may fork, in a signal handler, while it holds any of them.

Interrupts come here as everywhere, but what Python calls around a fork cannot raise: Python tells
of the error, drops it and leaves out the rest of the function, or all of it, since an interrupt
that came while the kernel copied the process is raised at the first bytecode. So

- each function is called twice, and does the second time what an interrupt has left undone;
- between two bytecodes nothing is taken and not noted, or noted and not taken;
- Ctrl-C is caught where possible, the work is done all the same, and after the fork it comes again.
"""

from __future__ import annotations

import functools
import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from operator import methodcaller
from typing import Any, Generic, Protocol, TypeVar
from weakref import ref

from graphfw.utils import locks
from graphfw.utils.locks import RLock

_MOMENT = 0.0002
"""Seconds between two looks at whether arrays are written over."""

_LATER = 0.01
"""Seconds until Ctrl-C comes again: sooner it might cut off what others have called at a fork."""

_PACKAGES = ("graphfw", "llvmlite", "networkx")
"""Packages that are imported when they are first needed, by whatever thread needs them."""


class Overwritten(Protocol):
    """An owner of arrays that runs write over in place."""

    def keep(self, holder: object) -> None:
        """Let no run that begins from now on write over them."""

    def unpin(self, holder: object) -> None:
        """End `keep`, or do nothing where it has not begun."""

    def is_written(self) -> bool:
        """Return whether a run of another thread, begun before `keep`, is writing over them."""

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
    """The data of a thread.

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


def register(owner: Overwritten) -> None:
    """Tell an owner of forks, as long as it lives."""
    _owners.add(owner)


def in_child(call: Callable[[], object]) -> None:
    """Have a function called in each forked child: twice, since an interrupt may cut one short."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=call)
        os.register_at_fork(after_in_child=call)


_take = methodcaller("acquire")
_give_back = methodcaller("release")


class _Fork:
    """A fork that is under way, and what is kept for it.

    Attributes:
        is_known: Whether both calls before the fork have been made.
        is_ended: Whether everybody goes on.
    """

    def __init__(self) -> None:
        self.is_known = self.is_ended = False
        self._is_prepared = False
        self._taken: list[RLock] = []
        self._owners: list[Overwritten] = []

    def prepare(self) -> None:
        """Wait until a copy of the memory is of use; from the start, where it was interrupted."""
        if not self._is_prepared:
            self._release(len(self._taken))
            self._wait()
            self._is_prepared = True

    def end(self) -> None:
        """Let everybody go on, where that has not been done."""
        for owner in self._owners:
            owner.unpin(self)
        self._release(len(self._taken))
        self.is_ended = True

    def _wait(self) -> None:
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
                with suppress(Exception):  # the thread that imports it gets the error
                    importlib.import_module(name)
            for lock in _last:
                self._take(lock)
            if not _imported_elsewhere():
                return
            self._release(len(_last))  # who imports may be waiting for it

    def _take(self, lock: RLock) -> None:
        # One call of functions that are no Python: no interrupt between the lock and its note.
        self._taken.extend(filter(_take, (lock,)))

    def _release(self, count: int) -> None:
        for _ in range(count):
            next(map(_give_back, iter(self._taken.pop, None)))  # no interrupt between, as above


_interrupts: list[KeyboardInterrupt] = []
"""The interrupts that are to come again."""


def _insist(call: Callable[[], None]) -> None:
    """Call a function until it is not interrupted by Ctrl-C."""
    while True:
        try:
            return call()
        except KeyboardInterrupt as interrupt:
            _interrupts.append(interrupt)


def _catching() -> Iterator[None]:
    """Catch Ctrl-C that came while the process was copied, each time that it is gone on with.

    It is raised at the first bytecode: a generator's is where it has stopped, inside of `try`.
    """
    while True:
        try:
            while True:
                yield
        except KeyboardInterrupt as interrupt:
            _interrupts.append(interrupt)


def _let_interrupts_come() -> None:
    if _interrupts:
        _interrupts.clear()  # first: an interrupt while the timer starts does not stop it
        timer = threading.Timer(_LATER, _interrupt)
        timer.daemon = True
        timer.start()


def _interrupt() -> None:
    main = threading.main_thread().ident
    if main is not None and callable(signal.getsignal(signal.SIGINT)):  # else it ends the process
        signal.pthread_kill(main, signal.SIGINT)  # it also ends a sleep


def _before() -> None:
    fork = _Fork()
    _mine.forks.append(fork)
    _insist(fork.prepare)


def _before_again() -> None:
    if not _mine.forks or _mine.forks[-1].is_known:  # another one, which a signal handler is inside
        _mine.forks.append(_Fork())
    fork = _mine.forks[-1]
    _insist(fork.prepare)
    fork.is_known = True


def _after() -> None:
    _drop_ended()  # what a signal handler's has left
    _end()


def _after_again() -> None:
    _end()
    _drop_ended()
    # On a loaded machine it may come again while its timer starts: here it would be lost.
    _insist(_let_interrupts_come)


def _end() -> None:
    if _mine.forks:  # none where a thread was forking already when this was imported
        _insist(_mine.forks[-1].end)


def _drop_ended() -> None:
    while _mine.forks and _mine.forks[-1].is_ended:
        _mine.forks.pop()


def _renew() -> None:
    for owner in _owners:
        owner.after_fork()
    for lock in (*_renewed, *_locks_of_properties()):
        if not lock._is_owned():  # by this thread
            lock._at_fork_reinit()  # as Python's own library does it


def _after_in_child() -> None:
    _interrupts.clear()  # they are the parent's
    _insist(_renew)
    _after()


def _after_in_child_again() -> None:
    _insist(_renew)
    _after_again()


def _imported_elsewhere() -> list[str]:
    """Return the modules that other threads are importing, each under a lock of its own."""
    # Private, and the only position that knows it.
    known: dict[str, Any] = importlib._bootstrap._module_locks  # type: ignore[attr-defined]  # private
    me = threading.get_ident()
    locks = [lock for ref in [*known.values()] if (lock := ref()) is not None]
    return [
        lock.name
        for lock in locks
        if lock.owner not in (None, me) and lock.name.partition(".")[0] in _PACKAGES
    ]


def _locks_of_properties() -> Iterator[RLock]:
    """Yield the locks of cached properties, held before Python 3.12 while one is computed."""
    if sys.version_info >= (3, 12):
        return
    modules = [module for name, module in sys.modules.items() if name.startswith("graphfw")]
    kinds = {k for module in modules for k in vars(module).values() if isinstance(k, type)}
    for kind in kinds:
        for value in vars(kind).values():
            if isinstance(value, cached_property):
                yield vars(value)["lock"]


if hasattr(os, "register_at_fork"):
    catch = functools.partial(next, _catching(), None)
    catch()  # as far as its `try`
    # What is registered last is called first before a fork, and last after it.
    os.register_at_fork(before=_before_again, after_in_parent=catch)
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)
    os.register_at_fork(after_in_parent=_after_again, after_in_child=_after_in_child_again)
