"""`ModuleInterface`: a module as its helpers see it, which are below the class `Module`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from graphfw.ir.variable import Variable
from graphfw.nn.torch_rules import TorchRule


class ModuleInterface(Protocol):
    """A `Module`, as far as its calls, names and saved states are concerned."""

    training: bool
    _variables: dict[str, Variable]

    @property
    def path(self) -> str:
        """Return where it stands."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Add its nodes to the graph."""

    def modules(self) -> Sequence[ModuleInterface]:
        """Return it and all modules in it."""

    def named_children(self) -> Sequence[tuple[str, ModuleInterface]]:
        """Return its submodules by name."""

    def named_variables(self) -> Sequence[tuple[str, Variable]]:
        """Return all variables in it by name."""

    def parameters(self) -> Sequence[Variable]:
        """Return the parameters that are trained."""

    def from_torch(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return PyTorch's names and arrays as it has them."""

    def to_torch(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return its names and arrays as PyTorch has them."""

    def _torch_rules(self) -> Sequence[TorchRule]:
        """Return the differences between PyTorch's entries and its own."""
