"""All ambient state but the open graph: read while a graph is built or a session made, not by runs.

There are two kinds. A *scope* is a `with` block: it holds for the thread or the asyncio task that
enters it (`ir/scopes.py` has the rules). A *process-wide default*, `set_default_…`, holds for all
threads and tasks, those that run already and those to come. A scope goes before a default.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from graphfw.errors import ArgumentError, GraphfwError
from graphfw.hints.calls import explained
from graphfw.ir.dtype import DType, DTypeLike, as_dtype, float32
from graphfw.ir.scopes import Scope, Scoped
from graphfw.ir.scopes import override as override

current_scope: Scoped[str] = Scoped("name_scope", "")
grad_enabled: Scoped[bool] = Scoped("grad_enabled", True)
differentiated: Scoped[tuple[Any, ...]] = Scoped("differentiated", ())
"""The tensors that functions being called now are differentiated with respect to."""
training_flag: Scoped[bool] = Scoped("training", True)
evaluated: Scoped[list[Any] | None] = Scoped("evaluated", None)
"""The layers that were not for training, in the outermost call of a module that is not; or None."""
caller: Scoped[Any] = Scoped("caller", None)
"""The module whose `forward` runs, the innermost one, or None."""
outer_scope: Scoped[str | None] = Scoped("outer_scope", None)
"""The name scope that the outermost module of the current call was called in, or None."""
call_watcher: Scoped[Callable[[Any, Any], None] | None] = Scoped("call_watcher", None)
"""A function that is told each module that is called, with its result; or None."""
explainer: Scoped[Callable[[GraphfwError], None] | None] = Scoped("explainer", None)
"""A function that adds a layer's fix to an error in the layer's own code."""
session_options: Scoped[Mapping[str, Any]] = Scoped("session_options", {})
"""The options of sessions of models and functions that are made outside of graphs."""
_executor: Scoped[str | None] = Scoped("executor", None)
_float_dtype: Scoped[DType | None] = Scoped("dtype", None)


class _ProcessWide:
    """The defaults that all threads and tasks share."""

    executor: str | None = None
    float_dtype: DType = float32


@explained
def name_scope(name: str) -> Scope[str]:
    """Prefix the names of what is made inside, and mark its nodes as one layer.

    Scopes nest with dots: `enc` inside `model` is `model.enc`. `with` gives the full path.

    Raises:
        ArgumentError: The name is empty, has spaces or is no string.

    >>> import graphfw as gf
    >>> with gf.Graph(), gf.name_scope("encoder"):
    ...     w = gf.Variable([1.0, 2.0], name="w")
    >>> w.name
    'encoder.w'
    """
    if not as_name(name) or any(c.isspace() for c in name):
        raise ArgumentError(
            f"name_scope: {name!r} is not a name: it is empty or has spaces",
            fix="use letters, digits and underscores",
        )
    return Scope(current_scope, join_scope(current_scope.get(), name))


def join_scope(outer: str, name: str) -> str:
    """Join a scope path and a name with a dot."""
    own = as_name(name)
    return f"{outer}.{own}" if outer else own


def as_name(name: object) -> str:
    """Return a name, which must be a string.

    Raises:
        ArgumentError: It is no string.
    """
    if not isinstance(name, str):
        raise ArgumentError(f"name={name!r} is no string", fix='use text, such as name="weight"')
    return name


@explained
def no_grad() -> Scope[bool]:
    """Make nodes that no gradient flows through.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     x = gf.placeholder((3,), name="x")
    ...     with gf.no_grad():
    ...         scale = gf.max(x)
    ...     (g,) = gf.grad(gf.sum(x / scale), [x])
    """
    return Scope(grad_enabled, False)


@explained
def training(flag: bool = True) -> Scope[bool]:
    """Set whether calls inside are for training (dropout, batch statistics, augmentations).

    A call is for training unless the innermost flag is False, or `Module.eval` was called. For one
    call, write `model(x, training=False)`.

    Raises:
        ArgumentError: It is neither True nor False.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     drop = gf.nn.Dropout(0.5)
    ...     x = gf.placeholder((3,), name="x")
    ...     with gf.training(False):
    ...         drop(x) is x
    True
    """
    if flag not in (True, False):
        raise ArgumentError(
            f"training: {flag!r} is neither True nor False", fix="write gf.training(False)"
        )
    return Scope(training_flag, bool(flag))


def is_for_training(module: Any = None) -> bool:
    """Return whether a call now is for training: neither `gf.training` nor `eval` says no.

    Args:
        module: The module that is called; None for a function, which the module that calls it
            decides for.
    """
    module = caller.get() if module is None else module
    return training_flag.get() and (module is None or module._training)


def asks_for_training(module: Any = None) -> bool:
    """Return the same, where the answer makes a difference: the outermost call learns of a no."""
    answer = is_for_training(module)
    layers, module = evaluated.get(), caller.get() if module is None else module
    if not answer and layers is not None and module is not None:
        layers.append(module)
    return answer


def get_default_dtype() -> DType:
    """Return the dtype of floats that are given none.

    It is that of the innermost `default_dtype`, else of `set_default_dtype`, else `float32`.
    """
    return _float_dtype.get() or _ProcessWide.float_dtype


@explained
def default_dtype(dtype: DTypeLike) -> Scope[DType | None]:
    """Change the dtype of floats that are given none, for the length of a `with` block.

    Raises:
        ArgumentError: It is not a floating-point dtype.

    >>> import graphfw as gf
    >>> with gf.default_dtype(gf.float64):
    ...     gf.zeros(3).dtype
    graphfw.float64
    """
    return Scope(_float_dtype, _checked_float(dtype))


@explained
def set_default_dtype(dtype: DTypeLike) -> None:
    """Change the dtype of floats that are given none, in the whole process from here on.

    All threads and asyncio tasks see it, those that run already included. Inside of
    `with default_dtype(…)` that block's dtype holds until the block is left.

    Raises:
        ArgumentError: It is not a floating-point dtype.
    """
    _ProcessWide.float_dtype = _checked_float(dtype)


def _checked_float(dtype: DTypeLike) -> DType:
    resolved = as_dtype(dtype)
    if not resolved.is_floating:
        raise ArgumentError(
            f"default_dtype: {resolved.name} is not a floating-point dtype",
            fix="use gf.float32 or gf.float64",
        )
    return resolved


def get_default_executor() -> str:
    """Return the executor of sessions that are given none.

    The innermost `default_executor`, else `set_default_executor`, else the environment variable
    `GRAPHFW_EXECUTOR`, else `"numpy"`.
    """
    return default_executor_with_origin()[0]


def default_executor_with_origin() -> tuple[str, str]:
    """Return the default executor, and what set it: a function or the environment variable."""
    choices = (
        (_executor.get(), "gf.default_executor"),
        (_ProcessWide.executor, "gf.set_default_executor"),
        (os.environ.get("GRAPHFW_EXECUTOR"), "GRAPHFW_EXECUTOR"),
    )
    return next(((name, origin) for name, origin in choices if name), ("numpy", ""))


def scoped_executor() -> str | None:
    """Return the executor of the innermost `default_executor`, or None."""
    return _executor.get()


@explained
def default_executor(name: str) -> Scope[str | None]:
    """Choose the executor of sessions made inside a `with` block, by this thread or task.

    Models and functions that are made inside, and outside of graphs, have it when they run later.

    Raises:
        ArgumentError: It is not a name.

    >>> import graphfw as gf
    >>> with gf.default_executor("meta"):
    ...     gf.get_default_executor()
    'meta'
    """
    return Scope(_executor, _checked_name(name, "default_executor"))


@explained
def set_default_executor(name: str) -> None:
    """Choose the executor of sessions made in the whole process from here on.

    All threads and asyncio tasks see it, those that run already included. Inside of
    `with default_executor(…)` that block's executor holds until the block is left.

    Raises:
        ArgumentError: It is not a name.
    """
    _ProcessWide.executor = _checked_name(name, "set_default_executor")


def _checked_name(name: object, what: str) -> str:
    # Whether there is such an executor is for the session to say: they may be installed later.
    if not isinstance(name, str) or not name:
        raise ArgumentError(
            f"{what}: {name!r} is not the name of an executor",
            fix='use a name, such as "numpy"; gf.reset_default_executor() undoes the choice',
        )
    return name


def reset_default_executor() -> None:
    """Undo `set_default_executor`, in the whole process."""
    _ProcessWide.executor = None
