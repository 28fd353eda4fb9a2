"""The public functions by name, for tensors and gradient rules to call what is defined above them.

`ir` can't import `ops`, and op families must not import each other in circles. Instead each public
function registers itself here, and `F.matmul(x, w)` finds it when it is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from graphfw.ir.modes import OPEN
from graphfw.ir.overrides import Function, overridable
from graphfw.loc import name_in_errors

if TYPE_CHECKING:
    from types import ModuleType

    from graphfw.ir.dtype import DType
    from graphfw.ir.tensor import Tensor

FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""The functions as graphfw itself calls them."""

OVERRIDABLE: dict[str, Callable[..., Any]] = {}
"""The functions as users call them: arguments with `__graphfw_function__` may answer for
themselves."""


def public(function: Function) -> Function:
    """Register a function under its own name, and return it as users call it."""
    name = function.__name__
    if name in FUNCTIONS:
        raise RuntimeError(f"a public function named {name!r} exists already")
    FUNCTIONS[name] = vars(F)[name] = function
    name_in_errors(function)
    OVERRIDABLE[name] = for_users = overridable(function)
    return for_users


class _Functions:
    """Has public functions as attributes: most make a tensor, those that don't are named."""

    array_namespace: Callable[..., ModuleType]
    associative_scan: Callable[..., Any]
    broadcast_arrays: Callable[..., list[Tensor]]
    cond: Callable[..., Any]
    cotangents: Callable[..., list[Any]]
    eigh: Callable[..., tuple[Tensor, Tensor]]
    finfo: Callable[..., Any]
    fori_loop: Callable[..., Any]
    map: Callable[..., Any]
    qr: Callable[..., tuple[Tensor, Tensor]]
    result_type: Callable[..., DType]
    scan: Callable[..., tuple[Any, Any]]
    tangents: Callable[..., tuple[list[Tensor], list[Tensor | None]]]
    topk: Callable[..., tuple[Tensor, Tensor]]
    unstack: Callable[..., Any]
    while_loop: Callable[..., Any]

    def __getattr__(self, name: str) -> Callable[..., Tensor]:
        raise AttributeError(f"no public function is named {name!r}")


class _Called(_Functions):
    """Looks functions up for operators, methods and layers, whose calls modes intercept."""

    def __getattr__(self, name: str) -> Callable[..., Tensor]:
        try:
            return (OVERRIDABLE if OPEN else FUNCTIONS)[name]
        except KeyError:
            raise AttributeError(f"no public function is named {name!r}") from None


F = _Functions()
"""The functions as graphfw itself calls them."""

CALLED = _Called()
"""The functions as operators, methods of tensors, layers and optimisers call them for users."""
