"""Modules of modules: `Sequential`, `ModuleList`, `ModuleDict`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self, overload

from graphfw.errors import ArgumentError, AxisError, a_type, counted, did_you_mean
from graphfw.hints.calls import explained
from graphfw.ir.tensor import Tensor
from graphfw.nn.module import Module
from graphfw.nn.registration import checked_module


@explained
class _OrderedModules(Module):
    """Modules in a row, found by position; those that were given no names are named "0", "1", …"""

    def __len__(self) -> int:
        return len(self._children)

    def __iter__(self) -> Iterator[Module]:
        return iter(self.children())

    @overload
    def __getitem__(self, index: int) -> Module: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Module | Self:
        """Return a module, or the modules of a slice as a container that shares them.

        Raises:
            AxisError: There is no such module.
        """
        if isinstance(index, slice):
            selected = type(self)()
            for name, module in self.named_children()[index]:
                selected.add_module(name, module)
            return selected
        return self._children[self._name_at(index)]

    def __setitem__(self, index: int, module: Module) -> None:
        self.add_module(self._name_at(index), module)

    def _name_at(self, index: int) -> str:
        names = list(self._children)
        if not -len(names) <= index < len(names):
            raise AxisError(
                f"{type(self).__name__}: index {index} is out of range: "
                f"it has {counted(len(names), 'module')}",
                fix="append adds one at the end",
            )
        return names[index]

    def append(self, module: Module) -> Self:
        """Add a module at the end; return the container itself."""
        number = len(self)
        while str(number) in self._children:  # a slice keeps its modules' names
            number += 1
        self.add_module(str(number), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add modules at the end; return the container itself."""
        if not isinstance(modules, Iterable):
            raise ArgumentError(
                f"{type(self).__name__}: {a_type(modules)} is no list of modules",
                fix=f"write {type(self).__name__}([module])",
            )
        for module in modules:
            self.append(module)
        return self


class Sequential(_OrderedModules):
    """Modules one after the other, each called with what the one before returns.

    Args:
        modules: The modules, or one dict of them by name.
        name: See `Module`.

    Raises:
        ArgumentError: Something is no Module.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     model = gf.nn.Sequential(gf.nn.Linear(4, 8), gf.nn.ReLU(), gf.nn.Linear(8, 2))
    ...     model(gf.placeholder(("batch", 4))).shape
    (batch, 2)
    >>> model[-1].weight.name
    'sequential.2.weight'
    """

    def __init__(self, *modules: Module | Mapping[str, Module], name: str | None = None) -> None:
        super().__init__(name=name)
        only = modules[0] if len(modules) == 1 else None
        if isinstance(only, Mapping):
            for key, value in only.items():
                self.add_module(key, value)
            return
        if isinstance(only, (list, tuple)):
            raise ArgumentError(
                "Sequential: it takes modules one by one, not a list of them",
                fix="write Sequential(*modules)",
            )
        for position, module in enumerate(modules):
            self.append(checked_module("Sequential", f"position {position}", module))

    def forward(self, x: Any) -> Tensor | Any:
        """Call the modules in order."""
        for module in self:
            x = module(x)
        return x


class ModuleList(_OrderedModules):
    """A list of modules, for a module to loop over in its `forward`; a plain list would hide them.

    Args:
        modules: The modules, or a dict of them by name.
        name: See `Module`.

    Raises:
        ArgumentError: Something is no Module.

    >>> import graphfw as gf
    >>> class Tower(gf.nn.Module):
    ...     def __init__(self, depth):
    ...         self.layers = gf.nn.ModuleList(gf.nn.Linear(8, 8) for _ in range(depth))
    ...
    ...     def forward(self, x):
    ...         for layer in self.layers:
    ...             x = x + layer(x)
    ...         return x
    >>> with gf.Graph():
    ...     Tower(2).parameters()[2].name
    'tower.layers.1.weight'
    """

    def __init__(
        self, modules: Iterable[Module] | Mapping[str, Module] = (), *, name: str | None = None
    ) -> None:
        super().__init__(name=name)
        if isinstance(modules, Mapping):
            for key, module in modules.items():
                self.add_module(key, module)
        else:
            self.extend(modules)


@explained
class ModuleDict(Module):
    """A dict of modules by name, for a module to choose from in its `forward`.

    Args:
        modules: The modules by name. Names have no dots, and are none that every module has.
        name: See `Module`.

    Raises:
        ArgumentError: Something is no Module, or a name can't be used.
    """

    def __init__(
        self, modules: Mapping[str, Module] | None = None, *, name: str | None = None
    ) -> None:
        super().__init__(name=name)
        if not isinstance(modules, Mapping | None):
            raise ArgumentError(
                f"ModuleDict: {a_type(modules)} is no dict of modules",
                fix='write ModuleDict({"name": module})',
            )
        for key, module in (modules or {}).items():
            self[key] = module

    def __getitem__(self, key: str) -> Module:
        if key not in self._children:
            raise ArgumentError(
                f"ModuleDict: there is no module {key!r}",
                fix=did_you_mean(key, self._children)
                or f"it has: {', '.join(self._children) or 'none'}",
            )
        return self._children[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        delattr(self, key)

    def __contains__(self, key: object) -> bool:
        return key in self._children

    def __len__(self) -> int:
        return len(self._children)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def keys(self) -> list[str]:
        """Return the names."""
        return list(self._children)

    def values(self) -> list[Module]:
        """Return the modules."""
        return self.children()

    def items(self) -> list[tuple[str, Module]]:
        """Return the names with the modules."""
        return self.named_children()
