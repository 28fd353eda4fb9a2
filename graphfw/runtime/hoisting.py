"""Values that are computed once for many runs, and again when variables have other contents.

`planning/hoist.py` finds the steps. An executor says by its `HoistBackend` where the values are,
how they are computed there, and what waits for what meanwhile.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, Protocol, TypeVar

from graphfw.utils import forks

Sources = TypeVar("Sources", contravariant=True)
Memory = TypeVar("Memory")


class HoistBackend(Protocol[Sources, Memory]):
    """The hoisting that an executor adds; it is called by one thread at a time."""

    @property
    def is_constant(self) -> bool:
        """Whether the values are made of constants only."""
        ...

    def memory(self, sources: Sources, before: Memory | None) -> Memory:
        """Return memory for the values.

        Args:
            sources: What they are computed from.
            before: The memory of earlier values, or None; to be returned again where no run needs
                these any more and there is something to gain by it.
        """
        ...

    def compute(self, memory: Memory, sources: Sources, *, is_new: bool) -> None:
        """Compute the values.

        Args:
            memory: Where they go.
            sources: What they are computed from.
            is_new: Whether earlier runs have not read the memory.
        """
        ...


class _Newest(NamedTuple, Generic[Memory]):
    """Values, and the version of the contents that they are made of; None of none."""

    version: int | None
    memory: Memory


class HoistedValues(Generic[Sources, Memory]):
    """The values of a program that are computed once, for the newest contents of its variables.

    Args:
        backend: The executor's functions.
    """

    def __init__(self, backend: HoistBackend[Sources, Memory]) -> None:
        self._backend = backend
        self._lock = forks.renewed_lock()
        self._newest: _Newest[Memory] | None = None

    def version_of(self, version: int) -> int:
        """Return the version that values are kept under: one and the same for constants."""
        return 0 if self._backend.is_constant else version

    def provide(self, sources: Sources, version: int) -> Memory:
        """Return the values, computed anew where they are out of date.

        Args:
            sources: What they are computed from.
            version: Another number when that may be different; see `Executable`.
        """
        version = self.version_of(version)
        with self._lock:
            newest = self._newest
            if newest is None or newest.version != version:
                before = None if newest is None else newest.memory
                memory = self._backend.memory(sources, before)
                if memory is before:  # where this fails, it leaves some of both there
                    self._newest = _Newest(None, memory)
                self._backend.compute(memory, sources, is_new=memory is not before)
                newest = self._newest = _Newest(version, memory)
            return newest.memory

    def forget(self, version: int) -> None:
        """Let go of the values of a version that does not come again, if these are the newest."""
        with self._lock:
            if self._newest is not None and self._newest.version == version:
                self._newest = None
