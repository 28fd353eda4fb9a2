"""`TrainingModes`: whether the modules that a build has called were for training."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import ClassVar, Protocol


class HasMode(Protocol):
    """A module, of which it says whether calls of it are for training."""

    training: bool


class TrainingModes:
    """The modules that were called while a function was built, and whether they were for training.

    The build serves calls for as long as this is so.
    """

    changes: ClassVar[int] = 0
    """The number of times that any module's `training` has been set: while it is the same, none has
    changed."""

    def __init__(self) -> None:
        # By id: a class of the user's may compare. Those that the function makes for itself may go:
        # nobody can set them any more.
        self._found: dict[int, tuple[weakref.ref[HasMode], bool]] = {}
        self._seen = -1

    def note(self, modules: Iterable[HasMode]) -> None:
        """Remember modules that are being called."""
        for module in modules:
            self._found[id(module)] = weakref.ref(module), module.training

    def hold(self) -> bool:
        """Return whether all modules that are still there are now as they were."""
        now = TrainingModes.changes
        if self._seen != now:
            for known, was_training in self._found.values():
                module = known()
                if module is not None and module.training != was_training:
                    return False
            self._seen = now
        return True
