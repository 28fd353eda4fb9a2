"""Calls of modules outside of any graph: with arrays, which a `gf.function` runs."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphfw.ir.build import constant
from graphfw.ir.model_graph import ModelGraph
from graphfw.ir.tensor import Tensor
from graphfw.nn.interface import ModuleInterface
from graphfw.utils import nest


def is_run(module: ModuleInterface, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether a call outside of any graph computes its result.

    Without variables and arrays there is nothing to run: the result is a constant tensor, as that
    of any other function.
    """
    if "_function" in vars(module) and _are_arrays(args) and not kwargs:
        return True  # quickly, as most calls are
    leaves = [*nest.leaves((args, kwargs))]
    if any([isinstance(one, Tensor) and not one.graph.is_ambient for one in leaves]):
        return False  # and `forward` says why
    held = module._held_variables()
    if not all([isinstance(variable.graph, ModelGraph) for _, variable in held]):
        return False
    is_array = [hasattr(one, "__array__") and not isinstance(one, Tensor) for one in leaves]
    return any(is_array) or bool(held) or any(m._deferred is not None for m in module.modules())


def run(module: ModuleInterface, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return the result of a call on arrays: arrays, or tensors where it is given tensors."""
    function = vars(module).get("_function")
    if function is None:
        function = ModelGraph.runtime.function(_forward_of(module))
        vars(module)["_function"] = function
    if _are_arrays(args) and not kwargs:
        return function(*args)
    leaves = [*nest.leaves((args, kwargs))]
    if not any([isinstance(one, Tensor) for one in leaves]):
        return function(*args, **kwargs)
    arrays = [one.numpy() if isinstance(one, Tensor) else one for one in leaves]
    args, kwargs = nest.packer((args, kwargs))(iter(arrays))
    result = function(*args, **kwargs)
    made = [one if one is None else constant(one) for one in nest.leaves(result)]
    return nest.packer(result)(iter(made))


def _are_arrays(values: Sequence[Any]) -> bool:
    return all([type(value) is np.ndarray for value in values])


def _forward_of(module: ModuleInterface) -> Any:
    """Return a function that calls a module, which it does not keep alive."""
    known = weakref.ref(module)

    def forward(*args: Any, **kwargs: Any) -> Any:
        called = known()
        assert called is not None  # it is being called
        return called(*args, **kwargs)

    forward.__name__ = forward.__qualname__ = type(module).__name__
    vars(forward)["__signature__"] = inspect.signature(module)
    return forward
