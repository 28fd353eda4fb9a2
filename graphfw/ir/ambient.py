"""All ambient state, in one place: read while a graph is built or a session made, not by runs.

Everything is a context variable, so that threads and asyncio tasks each have their own, and every
`with` restores what was there before, on exceptions too.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ContextDecorator
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Generic, TypeVar

from graphfw.errors import ArgumentError, GraphfwError
from graphfw.ir.dtype import DType, DTypeLike, as_dtype, float32

if TYPE_CHECKING:
    from graphfw.ir.graph import Graph

T = TypeVar("T")

graph_stack: ContextVar[tuple[Graph, ...]] = ContextVar("graphfw.graph", default=())
"""The graphs of the `with` blocks that are open here, innermost last."""
current_scope: ContextVar[str] = ContextVar("graphfw.scope", default="")
grad_enabled: ContextVar[bool] = ContextVar("graphfw.grad_enabled", default=True)
training_flag: ContextVar[bool] = ContextVar("graphfw.training", default=True)
outer_scope: ContextVar[str | None] = ContextVar("graphfw.outer_scope", default=None)
"""The name scope that the outermost module of the current call was called in, or None."""
explainer: ContextVar[Callable[[GraphfwError], None] | None] = ContextVar(
    "graphfw.explainer", default=None
)
"""What adds to an error that a layer's own code runs into: the layer knows the fix."""
_executor: ContextVar[tuple[str, str] | None] = ContextVar("graphfw.executor", default=None)
"""The name of the default executor, and what set it."""
_float_dtype: ContextVar[DType] = ContextVar("graphfw.dtype", default=float32)


class override(ContextDecorator, Generic[T]):
    """Sets a context variable for the length of a `with` block, or of a function it decorates.

    No generator: one that an interrupt leaves behind would be resumed when it is collected, in
    whatever context that happens.
    """

    def __init__(self, variable: ContextVar[T], value: T) -> None:
        self._variable = variable
        self._value = value
        self._tokens: list[Token[T]] = []

    def __enter__(self) -> T:
        self._tokens.append(self._variable.set(self._value))
        return self._value

    def __exit__(self, *error: object) -> None:
        self._variable.reset(self._tokens.pop())

    def _recreate_cm(self) -> override[T]:
        return override(self._variable, self._value)  # a decorated function may call itself


def name_scope(name: str) -> override[str]:
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
    return override(current_scope, join_scope(current_scope.get(), name))


def join_scope(outer: str, name: str) -> str:
    """Join a scope path and a name with a dot."""
    own = as_name(name)
    return f"{outer}.{own}" if outer else own


def as_name(name: object) -> str:
    """Return what is given as a name.

    Raises:
        ArgumentError: It is no string.
    """
    if not isinstance(name, str):
        raise ArgumentError(f"name={name!r} is no string", fix='use text, such as name="weight"')
    return name


def no_grad() -> override[bool]:
    """Make nodes that no gradient flows through.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     x = gf.placeholder((3,), name="x")
    ...     with gf.no_grad():
    ...         scale = gf.max(x)
    ...     (g,) = gf.grad(gf.sum(x / scale), [x])
    """
    return override(grad_enabled, False)


def training(flag: bool = True) -> override[bool]:
    """Say whether layers made or called inside are for training (dropout, batch statistics)."""
    return override(training_flag, bool(flag))


def get_default_dtype() -> DType:
    """Return the dtype of floats that are given none, `float32` unless changed."""
    return _float_dtype.get()


def default_dtype(dtype: DTypeLike) -> override[DType]:
    """Change the dtype of floats that are given none, for the length of a `with` block.

    Raises:
        ArgumentError: It is not a floating-point dtype.

    >>> import graphfw as gf
    >>> with gf.default_dtype(gf.float64):
    ...     gf.zeros(3).dtype
    graphfw.float64
    """
    return override(_float_dtype, _checked_float(dtype))


def set_default_dtype(dtype: DTypeLike) -> None:
    """Change the dtype of floats that are given none, in this thread or task from here on.

    Raises:
        ArgumentError: It is not a floating-point dtype.
    """
    _float_dtype.set(_checked_float(dtype))


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
    named = os.environ.get("GRAPHFW_EXECUTOR")
    given = (named, "GRAPHFW_EXECUTOR") if named else ("numpy", "")
    return _executor.get() or given


def default_executor(name: str) -> override[tuple[str, str] | None]:
    """Choose the executor of sessions made inside a `with` block.

    Raises:
        ArgumentError: It is not a name.

    >>> import graphfw as gf
    >>> with gf.default_executor("meta"):
    ...     gf.get_default_executor()
    'meta'
    """
    return override(_executor, (_checked_name(name, "default_executor"), "gf.default_executor"))


def set_default_executor(name: str) -> None:
    """Choose the executor of sessions made in this thread or task from here on.

    Raises:
        ArgumentError: It is not a name.
    """
    _executor.set((_checked_name(name, "set_default_executor"), "gf.set_default_executor"))


def _checked_name(name: object, what: str) -> str:
    # Whether there is such an executor is for the session to say: they may be installed later.
    if not isinstance(name, str) or not name:
        raise ArgumentError(
            f"{what}: {name!r} is not the name of an executor",
            fix='use a name, such as "numpy"; gf.reset_default_executor() undoes the choice',
        )
    return name


def reset_default_executor() -> None:
    """Undo `set_default_executor`."""
    _executor.set(None)
