"""Calls outside of any graph, with arrays: of modules, and of functions of modules."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from graphfw.errors import GradientError
from graphfw.ir import ambient
from graphfw.ir.build import constant
from graphfw.ir.concrete import describe
from graphfw.ir.graph import current_graph
from graphfw.ir.model_graph import ModelGraph
from graphfw.ir.tensor import Tensor
from graphfw.ir.walk import ancestors
from graphfw.nn.interface import ModuleInterface
from graphfw.nn.registration import ModuleBase
from graphfw.utils import nest

Function = TypeVar("Function", bound=Callable[..., Any])


def is_run(module: ModuleInterface, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether a call outside of any graph computes its result.

    Without variables and arrays there is nothing to run: the result is a constant tensor, as that
    of any other function.
    """
    if vars(module).get("_functions") and _are_arrays(args) and not kwargs:
        return True  # quickly, as most calls are
    leaves = [*nest.leaves((args, kwargs))]
    if any([isinstance(one, Tensor) and not one.graph.is_ambient for one in leaves]):
        return False  # and `forward` says why
    held = module._held_variables()
    if not all([isinstance(variable.graph, ModelGraph) for _, variable in held]):
        return False
    is_array = [hasattr(one, "__array__") and not isinstance(one, Tensor) for one in leaves]
    return any(is_array) or bool(held) or any(m._deferred is not None for m in module.modules())


def run(
    module: ModuleInterface,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    fn: Callable[..., Any] | None = None,
) -> Any:
    """Return the result of a call on arrays: arrays; or tensors, if an argument is a tensor.

    Args:
        module: The module.
        args: The arguments, without the module.
        kwargs: The arguments by name.
        fn: A function of the module and the arguments, or None for the module's own call.
    """
    functions = vars(module).setdefault("_functions", {})
    function = functions.get(fn)
    if function is None:
        functions[fn] = function = ModelGraph.runtime.function(_call_of(module, fn))
    if _are_arrays(args) and not kwargs:
        return function(*args)
    leaves = [*nest.leaves((args, kwargs))]
    tensors = [one for one in leaves if isinstance(one, Tensor)]
    if not tensors:
        return function(*args, **kwargs)
    _check_gradients(tensors)
    arrays = [one.numpy() if isinstance(one, Tensor) else one for one in leaves]
    args, kwargs = nest.packer((args, kwargs))(iter(arrays))
    result = function(*args, **kwargs)
    made = [one if one is None else constant(one) for one in nest.leaves(result)]
    return nest.packer(result)(iter(made))


def _check_gradients(tensors: Sequence[Tensor]) -> None:
    """See that a result, which is a constant, needs no gradient.

    Raises:
        GradientError: An argument depends on what a function is differentiated with respect to.
    """
    seen = {x.node for x in ambient.differentiated.get()}
    if seen and not seen.isdisjoint(ancestors(tensors)):
        raise GradientError(
            "outside of graphs a layer's result is a constant, which has no gradient",
            operands=[describe("x", tensors[0])],
            fix="differentiate in a function with @gf.function above it, and call that with arrays",
        )


def runs_outside(fn: Function) -> Function:
    """Let a function whose first argument is a model compute its result outside of any graph."""

    @functools.wraps(fn)
    def call(model: Any, *args: Any, **kwargs: Any) -> Any:
        is_outside = isinstance(model, ModuleBase) and current_graph().is_ambient
        if is_outside and is_run(cast(ModuleInterface, model), args, kwargs):
            return run(cast(ModuleInterface, model), args, kwargs, fn)
        return fn(model, *args, **kwargs)

    return cast(Function, call)


def _are_arrays(values: Sequence[Any]) -> bool:
    return all([type(value) is np.ndarray for value in values])


def _call_of(module: ModuleInterface, fn: Callable[..., Any] | None) -> Callable[..., Any]:
    """Return a function that calls a module, which it does not keep alive, or `fn` with it."""
    known = weakref.ref(module)

    def call(*args: Any, **kwargs: Any) -> Any:
        called = known()
        assert called is not None  # it is being called
        return called(*args, **kwargs) if fn is None else fn(called, *args, **kwargs)

    call.__name__ = call.__qualname__ = type(module).__name__ if fn is None else fn.__name__
    signature = inspect.signature(module if fn is None else functools.partial(fn, None))
    vars(call)["__signature__"] = signature
    return call
