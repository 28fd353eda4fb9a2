"""Layers that find a size in their first call, and make their variables there.

`make_or_wait` is called by `__init__`: with the size, the layer's `_make` makes the variables at
once. With None in its place the first call does: `_find_size` sets the attribute from the arguments
of the call, and then comes `_make`. Until then, what asks for variables is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from graphfw.errors import ArgumentError, GraphError, UnknownNameError
from graphfw.ir.graph import current_graph
from graphfw.ir.model_graph import ModelGraph
from graphfw.ir.owners import owners
from graphfw.nn.interface import DeferredVariables as DeferredVariables
from graphfw.nn.interface import ModuleInterface


def make_or_wait(module: ModuleInterface, argument: str, size: Any, *options: Any) -> None:
    """Make the variables of a layer by its `_make(*options)`: in the first call if size is None.

    Args:
        module: The layer.
        argument: What the size is called.
        size: The size, or None.
        options: The layer's other arguments for its variables.
    """
    if size is None:
        vars(module)["_deferred"] = DeferredVariables(argument, options)
    else:
        module._make(*options)


def make_deferred(
    module: ModuleInterface,
    deferred: DeferredVariables,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> None:
    """Make the variables of a layer in its first call.

    Raises:
        GraphError: The call is not in the graph of the layer, to which its variables belong.
        ArgumentError: An attribute that the call makes was assigned before.
    """
    name, argument = type(module).__name__, deferred.argument
    own, here = module._names.graph.root, current_graph().root
    if not isinstance(own, ModelGraph) and here is not own and not here.succeeds(own):
        raise GraphError(
            f"{name}: its first call finds {argument} and makes its variables, and is not in its "
            "graph",
            why=owners(own, here),
            fix=f"call it first inside `with` of its graph, or give {argument} as an int",
        )
    held, assigned = dict(module._held_variables()), {*vars(module)}
    given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    module._find_size(next(iter(given.values()), None))
    with own if isinstance(own, ModelGraph) else nullcontext():
        module._make(*deferred.options)
    vars(module)["_deferred"] = None
    now = dict(module._held_variables())
    for attribute in [*held, *[one for one in now if one in assigned]]:
        if now.get(attribute) is not held.get(attribute):
            raise ArgumentError(
                f"{name}.{attribute} was assigned before the first call, which makes it",
                fix=f"assign it after the call, or give {argument} as an int",
            )


def refuse_deferred(modules: Sequence[ModuleInterface]) -> None:
    """See that all layers have their variables.

    Raises:
        GraphError: One makes them in its first call, and was not called yet.
    """
    for module in modules:
        deferred = module._deferred
        if deferred is not None:
            raise GraphError(
                f"{type(module).__name__}: {_waits(module, deferred)}",
                fix=_fix(deferred),
            )


def refuse_attribute(module: ModuleInterface, name: str) -> None:
    """See that an attribute that a layer lacks is none that its first call makes.

    Raises:
        UnknownNameError: It is.
    """
    deferred = vars(module).get("_deferred")
    if deferred is not None and name in _annotated(type(module)):
        message = f"{type(module).__name__} has no {name} yet: {_waits(module, deferred)}"
        raise UnknownNameError(message, name, lambda: _fix(deferred))


def _waits(module: ModuleInterface, deferred: DeferredVariables) -> str:
    return f'"{module.path}" finds {deferred.argument} and makes its variables in its first call'


def _fix(deferred: DeferredVariables) -> str:
    return f"call the model before, model(x), or give {deferred.argument} as an int"


def _annotated(kind: type) -> set[str]:
    return {name for one in kind.__mro__ for name in vars(one).get("__annotations__", ())}
