"""`ModuleInterface`: a module as its helpers see it, which are below the class `Module`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar

from graphfw.ir.variable import Variable
from graphfw.nn.torch_rules import TorchRule

P = ParamSpec("P")
ResultT_co = TypeVar("ResultT_co", covariant=True)


class HasForward(Protocol[P, ResultT_co]):
    """A module as type checkers see its calls: they take and return what its `forward` does."""

    def forward(self, *args: P.args, **kwargs: P.kwargs) -> ResultT_co:
        """Add its nodes to the graph."""


class DeferredVariables(NamedTuple):
    """Variables that a layer makes in its first call.

    Attributes:
        argument: The argument for their size, which was None.
        options: The layer's other arguments for them.
    """

    argument: str
    options: tuple[Any, ...]


class ModuleInterface(Protocol):
    """A `Module`, as far as its calls, names and saved states are concerned."""

    _training: bool
    _deferred: DeferredVariables | None
    _names: Any
    _forward_hooks: Any
    _variables: dict[str, Variable]

    @property
    def path(self) -> str:
        """Return where it stands."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call `forward` in its name scope."""

    def _find_size(self, x: Any) -> None:
        """Set the size that was not given, from the first argument of the first call."""

    def _make(self, *options: Any) -> None:
        """Make the variables."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Add its nodes to the graph."""

    def modules(self) -> Sequence[ModuleInterface]:
        """Return it and all modules in it."""

    def named_modules(self) -> Sequence[tuple[str, ModuleInterface]]:
        """Return the same with their paths."""

    def named_children(self) -> Sequence[tuple[str, ModuleInterface]]:
        """Return its submodules by name."""

    def named_variables(self) -> Sequence[tuple[str, Variable]]:
        """Return all variables in it by name."""

    def _held_variables(self) -> Sequence[tuple[str, Variable]]:
        """Return the variables that have been made, by name."""

    def from_torch(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return PyTorch's names and arrays as it has them."""

    def to_torch(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return its names and arrays as PyTorch has them."""

    def _torch_rules(self) -> Sequence[TorchRule]:
        """Return the differences between PyTorch's entries and its own."""
