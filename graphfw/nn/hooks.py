"""Forward hooks: functions of the user's that are called after a module's `forward`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from graphfw.ir.training_modes import TrainingModes
from graphfw.ir.variable import Variable
from graphfw.nn.interface import ModuleInterface
from graphfw.ops.composed import callback

Hook: TypeAlias = Callable[[Any, tuple[Any, ...], Any], Any]
"""Called as `fn(module, args, output)`; returns another output, or None for that."""


class OutputChange(Protocol):
    """A change of what a module's `forward` returns, as modules keep it."""

    @property
    def is_removed(self) -> bool:
        """Return whether it is one no more."""

    def changed(self, module: Any, args: tuple[Any, ...], output: Any) -> Any:
        """Return the output as it changes it."""

    def variables(self) -> Sequence[Variable]:
        """Return the variables that it computes with, if the module has not got them itself."""


class ForwardHook:
    """A function that a module calls after `forward`, until it is removed.

    It knows nothing of the module: a module that is dropped is gone at once, and frees its name.
    """

    def __init__(self, fn: Hook) -> None:
        self._fn: Hook | None = fn

    @property
    def is_removed(self) -> bool:
        """Whether it was removed."""
        return self._fn is None

    def remove(self) -> None:
        """Call the function no more, in calls from now on; a second time, do nothing."""
        self._fn = None
        TrainingModes.changes += 1

    def changed(self, module: ModuleInterface, args: tuple[Any, ...], output: Any) -> Any:
        """Return the output as the function changes it."""
        if self._fn is None:
            return output
        fn = callback("register_forward_hook", "fn", self._fn, "fn(module, args, output)")
        result = fn(module, args, output)
        return output if result is None else result

    def variables(self) -> Sequence[Variable]:
        """Return no variables: those of the function are not known."""
        return ()

    def __deepcopy__(self, memo: dict[int, Any]) -> ForwardHook:
        """Return a hook of the same function: what that refers to is not copied."""
        copied = memo[id(self)] = ForwardHook.__new__(ForwardHook)
        copied._fn = self._fn
        return copied

    def __enter__(self) -> ForwardHook:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        name = "removed" if self._fn is None else getattr(self._fn, "__name__", repr(self._fn))
        return f"<ForwardHook {name}>"


def set_hooks(module: ModuleInterface, hooks: Sequence[Any]) -> None:
    """Give a module other hooks, for calls from now on; functions that call it are built again."""
    vars(module)["_forward_hooks"] = tuple(hooks)
    TrainingModes.changes += 1


def hooked(
    module: ModuleInterface, args: Sequence[Any], kwargs: Mapping[str, Any], output: Any
) -> Any:
    """Return the output of a module's `forward` as its hooks change it, in order."""
    given = inspect.signature(module.forward).bind(*args, **kwargs).args
    for hook in module._forward_hooks:
        output = hook.changed(module, given, output)
    return output
