"""`ModuleVariables`: the variables of a module and its submodules, and which of them train."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, TypeAlias

from graphfw.errors import ArgumentError
from graphfw.hints.calls import explained
from graphfw.ir import ambient
from graphfw.ir.variable import Variable
from graphfw.nn.deferred import refuse_deferred
from graphfw.utils.patterns import name_choice

Patterns: TypeAlias = str | Sequence[str] | None
"""A pattern of names or several: a name, a scope as "encoder", or a name with * as "*.bias"."""


@explained
class ModuleVariables:
    """The base of `Module` that finds its variables, and freezes them."""

    _variables: dict[str, Variable]

    def named_modules(self) -> list[tuple[str, Any]]:
        """Return the module and all modules in it with their paths."""
        raise NotImplementedError

    def named_variables(self) -> list[tuple[str, Variable]]:
        """Return all variables, trainable or not, each once, with names relative to this module.

        Raises:
            GraphError: A layer makes its variables in its first call, and was not called yet.
        """
        refuse_deferred([module for _, module in self.named_modules()])
        return self._held_variables()

    def _held_variables(self) -> list[tuple[str, Variable]]:
        """Return the variables that are made, each once, with names relative to this module."""
        found: dict[int, tuple[str, Variable]] = {}
        for path, module in self.named_modules():
            for name, variable in module._variables.items():
                found.setdefault(id(variable), (ambient.join_scope(path, name), variable))
        return list(found.values())

    def variables(self) -> list[Variable]:
        """Return all variables, trainable or not, each once."""
        return [variable for _, variable in self.named_variables()]

    def named_parameters(
        self, only: Patterns = None, ignore: Patterns = None
    ) -> list[tuple[str, Variable]]:
        """Return the variables of `parameters`, with names relative to this module."""
        chosen = self._chosen("named_parameters", only, ignore)
        return [(name, v) for name, v in chosen if v.is_trained]

    def parameters(self, only: Patterns = None, ignore: Patterns = None) -> list[Variable]:
        """Return the variables that are trained, each once, for optimisers.

        Frozen variables are left out.

        Args:
            only: Variables to return, by names relative to this module: names, scopes ("encoder"),
                or names with * ("*.bias").
            ignore: Variables to leave out, in the same way.

        Raises:
            ArgumentError: A pattern fits no variable of the module, or is none.
            GraphError: A layer makes its variables in its first call, and was not called yet.

        >>> import graphfw as gf
        >>> with gf.Graph():
        ...     model = gf.nn.Sequential(gf.nn.Linear(4, 8), gf.nn.Linear(8, 2))
        >>> [v.name for v in model.parameters("0")]
        ['sequential.0.weight', 'sequential.0.bias']
        >>> [v.name for v in model.parameters(ignore="*.bias")]
        ['sequential.0.weight', 'sequential.1.weight']
        """
        return [v for _, v in self._chosen("parameters", only, ignore) if v.is_trained]

    def buffers(self) -> list[Variable]:
        """Return the variables that are not trainable, each once: running statistics and such."""
        return [v for v in self.variables() if not v.trainable]

    def freeze(self, only: Patterns = None, ignore: Patterns = None) -> Self:
        """Leave trainable variables as they are in training, until `unfreeze`; return the module.

        This affects training steps that are described from now on, by `minimize` in a graph or by
        the first call of a function: `parameters` and `minimize` leave frozen variables out.
        Variables that are not trainable, such as running statistics, are still updated; a call with
        `training=False` keeps them.

        Args:
            only: Variables to freeze, by names relative to this module: names, scopes ("encoder"),
                or names with * ("*.bias"). All by default.
            ignore: Variables to leave as they are, in the same way.

        Raises:
            ArgumentError: A pattern fits no variable of the module, or is none.
            GraphError: A layer makes its variables in its first call, and was not called yet.

        >>> import graphfw as gf
        >>> with gf.Graph():
        ...     model = gf.nn.Sequential(gf.nn.Linear(4, 8), gf.nn.Linear(8, 2))
        >>> [v.name for v in model.freeze(ignore="1").parameters()]
        ['sequential.1.weight', 'sequential.1.bias']
        """
        return self._set_frozen("freeze", only, ignore, True)

    def unfreeze(self, only: Patterns = None, ignore: Patterns = None) -> Self:
        """Undo `freeze`, for training steps that are described from now on; return the module.

        Args:
            only: Variables to train again, as for `freeze`.
            ignore: Variables to leave as they are.

        Raises:
            ArgumentError, GraphError: As `freeze`.
        """
        return self._set_frozen("unfreeze", only, ignore, False)

    def _set_frozen(self, what: str, only: Patterns, ignore: Patterns, is_frozen: bool) -> Self:
        for _, variable in self._chosen(what, only, ignore):
            if variable.trainable:
                variable.is_frozen = is_frozen
        return self

    def _chosen(self, what: str, only: Patterns, ignore: Patterns) -> list[tuple[str, Variable]]:
        """Return the variables that patterns choose, with names relative to this module."""
        named = self.named_variables()
        if only is None and ignore is None:
            return named
        kind = type(self).__name__
        choice = name_choice(f"{kind}.{what}", only, ignore)
        of = f"variable of {kind}"
        chosen = choice.chosen([name for name, _ in named], of, ArgumentError)
        return [(name, variable) for name, variable in named if name in chosen]
