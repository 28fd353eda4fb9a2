"""`TrainingModes`: whether the modules that a build has called were for training, and hooks."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, ClassVar, Protocol


class HasMode(Protocol):
    """A module, of which it says whether calls of it are for training, and its forward hooks."""

    _training: bool
    _forward_hooks: Any


class TrainingModes:
    """The modules that were called while a function was built: were they for training, which hooks.

    The build serves calls for as long as this is so.
    """

    changes: ClassVar[int] = 0
    """The number of times that any module's mode or hooks have been set: while it is the
    same, none has changed."""

    def __init__(self) -> None:
        # By id: a class of the user's may compare. Those that the function makes for itself may go:
        # nobody can set them any more.
        self._found: dict[int, tuple[weakref.ref[HasMode], bool, tuple[Any, ...]]] = {}
        self._seen = -1

    def note(self, modules: Iterable[HasMode]) -> None:
        """Remember modules that are being called."""
        for module in modules:
            self._found[id(module)] = weakref.ref(module), module._training, _hooks(module)

    def hold(self) -> bool:
        """Return whether all modules that are still there are now as they were."""
        now = TrainingModes.changes
        if self._seen != now:
            for known, was_training, hooks in self._found.values():
                module = known()
                if module is None:
                    continue
                if module._training != was_training or _hooks(module) != hooks:
                    return False
            self._seen = now
        return True


def _hooks(module: HasMode) -> tuple[Any, ...]:
    """Return the hooks that a call of a module calls."""
    return tuple([hook for hook in module._forward_hooks if not hook.is_removed])
