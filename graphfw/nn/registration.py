"""The making of modules, and refusals of variables and modules where one would not find them."""

from __future__ import annotations

from types import MethodType
from typing import TYPE_CHECKING, Any

from graphfw.errors import ArgumentError, a_type
from graphfw.hints.calls import FOREIGN, ExplainedType, raise_refusal, refuse_kinds
from graphfw.hints.names import Answering
from graphfw.ir import ambient
from graphfw.ir.concrete import describe
from graphfw.ir.graph import current_graph
from graphfw.ir.in_place import change_of
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Update, Variable
from graphfw.nn.interface import ModuleInterface

CONTAINERS = (list, tuple, set, frozenset, dict)
"""The types of plain containers, in which a module does not look for variables and modules."""


class ModuleBase(Answering):
    """The base of `Module` only, by which a module is recognised."""


class ModuleType(ExplainedType):
    """Runs `__init__` in the scope of the module that is being made.

    So the variables that two modules of a class make don't get one name, even before the modules
    are attached to anything. An `ABCMeta`, so that modules can be abstract base classes.
    """

    if not TYPE_CHECKING:  # which reads the arguments of `__init__` where this is hidden from it

        def __call__(cls, *args, **kwargs):
            """Make a module."""
            module = cls.__new__(cls, *args, **kwargs)
            changes = module._names.changed
            init = MethodType(cls.__init__, module)
            with ambient.override(ambient.current_scope, module.path):
                try:
                    cls.__init__(module, *args, **kwargs)
                except FOREIGN as error:
                    raise_refusal(error, init, args, kwargs, cls.__name__)
            refuse_kinds(init, args, kwargs, cls.__name__)  # options may only fail in calls
            # Again: a container that was empty when it was assigned may not be so now.
            for name, value in vars(module).items():
                if isinstance(value, CONTAINERS) and name not in ("_children", "_variables"):
                    refuse_hidden(module, name, value)
            # Again: its submodules, which had names when it got one, may have freed a better one.
            if module._parent is None and not module._is_named and module._names.changed != changes:
                module._names.free(module._attribute)
                module._become_root()
            module._names.note_made(module)
            return module


def refuse_hidden(module: ModuleInterface, name: str, value: Any) -> None:
    """See that no variable or module hides in a plain container, where it would not be found.

    What the module has under another name, too, is found there.
    """
    todo, seen = [value], set()
    found: set[int] = set()
    while todo:
        item = todo.pop()
        if isinstance(item, (Variable, ModuleBase)):
            held = [variable for _, variable in module._held_variables()]
            found = found or {id(one) for one in (*module.modules(), *held)}
            if id(item) in found:
                continue
            kind, plain = type(item).__name__, type(value).__name__
            better = "ModuleDict({…})" if isinstance(value, dict) else "ModuleList([…])"
            raise ArgumentError(
                f"{type(module).__name__}.{name} is a plain {plain} with a {kind} in it, "
                "whose variables the module would not find",
                fix=f"use gf.nn.{better}"
                if isinstance(item, ModuleBase)
                else "assign each variable to an attribute of its own",
            )
        if isinstance(item, CONTAINERS) and id(item) not in seen:
            seen.add(id(item))
            todo.extend(item.values() if isinstance(item, dict) else item)


def refuse_loss(module: ModuleInterface, name: str, value: Any) -> None:
    """See that nobody replaces a variable or a submodule by what is neither, but for None.

    Raises:
        ArgumentError: The module would lose it.
    """
    if value is None:
        return
    kind, new = type(module).__name__, a_type(value)
    owner = "module" if current_graph().is_ambient else "self"
    variable = module._variables.get(name)
    if variable is not None:
        fix = (
            f"write {change_of(variable, f'{owner}.{name}', 'value')}; "
            f"for another variable {owner}.{name} = gf.Variable(value)"
        )
        if isinstance(value, Update):
            fix = f"write gf.update({owner}.{name}, value) by itself: the variable stays the same"
        raise ArgumentError(
            f"{kind}.{name} is a Variable, which the module would lose for {new}",
            operands=[describe(name, variable)],
            fix=fix,
        )
    held = type(dict(module.named_children())[name]).__name__
    fix = f"give the result another name, such as y = {owner}.{name}(x)"
    if not isinstance(value, Tensor):
        fix = f"assign a Module or None, or write `del {owner}.{name}` before"
    raise ArgumentError(
        f"{kind}.{name} is a {held}, which the module would lose for {new}", fix=fix
    )


def checked_module(owner: str, path: str, value: Any) -> Any:
    """Return a value that should be a module.

    Raises:
        ArgumentError: It is none; for a class or a function, with what to write instead.
    """
    if isinstance(value, ModuleBase):
        return value
    fix = "a function is no layer: use a layer such as gf.nn.ReLU(), or write a Module"
    if isinstance(value, type) and issubclass(value, ModuleBase):
        fix = f"make one: {value.__name__}(…)"
    elif not callable(value):
        fix = "pass modules alone, such as gf.nn.Linear(8, 2)"
    shown = getattr(value, "__name__", repr(value))
    raise ArgumentError(f"{owner}: {shown} (at {path}) is no Module", fix=fix)
