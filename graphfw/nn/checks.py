"""Checks of layers' arguments, and explanations of the errors that layers run into."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from graphfw.errors import ArgumentError, GraphfwError, ShapeError
from graphfw.ir import ambient
from graphfw.ir.dim import Dim
from graphfw.ops.args import is_whole
from graphfw.ops.composed import demand


def checked_size(layer: str, what: str, value: Any) -> int:
    """Return a number of features or the like as an int.

    Raises:
        ArgumentError: It is no int, or below 1.
    """
    text = f"{layer}: {what}={value!r}"
    why = "no int"
    if isinstance(value, Dim):
        why = "a dim that is not known yet; weights have fixed sizes"
    demand(is_whole(value), f"{text} is {why}", fix=f"give {what} as an int")
    size = operator.index(value)
    demand(size >= 1, f"{text} must be 1 or more", fix=f"use {what}={-size or 1}")
    return size


_FAR = 10_000


def near_divisor(count: int, *sizes: int) -> int:
    """Return the common divisor of sizes that is nearest to a count; rather the smaller one.

    Far away from the count none is looked for.
    """
    whole = math.gcd(*sizes)
    for distance in range(_FAR):
        for near in (count - distance, count + distance):
            if near >= 1 and whole % near == 0:
                return near
    return math.gcd(count, whole)


class called:
    """Enters the name scope of a layer's call; errors that leave it name the innermost layer."""

    __slots__ = ("_outer", "_scope")

    def __init__(self, outer: str, scope: str) -> None:
        """Note the scope that the layer is called in, and the layer's own."""
        self._outer = outer
        self._scope = scope

    def __enter__(self) -> None:
        ambient.outer_scope.enter_within(self._outer, self)
        try:
            ambient.current_scope.enter_within(self._scope, self)
        except BaseException:  # an interrupt
            ambient.outer_scope.leave(self)
            raise

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        ambient.current_scope.leave(self)
        ambient.outer_scope.leave(self)
        if isinstance(error, GraphfwError):
            error.layer = error.layer or self._scope


@contextmanager
def explained(fix: Callable[[], str]) -> Iterator[None]:
    """Give shape errors that come up inside a fix, where the function has one to say.

    Where that of a layer and that of a part of it both do, it is the layer's.
    """
    around = ambient.explainer.get()

    def explain(error: GraphfwError) -> None:
        if isinstance(error, ShapeError):
            error.fix = fix() or error.fix
        if around is not None:
            around(error)

    # Type rules ask the explainer before they raise or collect; other checks just raise.
    with ambient.override(ambient.explainer, explain):
        try:
            yield
        except ShapeError as error:
            explain(error)
            raise


def refuse_freezing(module: Any, name: str) -> None:
    """See that nobody freezes a module by what only its class would know of."""
    if name in ("trainable", "requires_grad") and not hasattr(type(module), name):
        raise ArgumentError(
            f"{type(module).__name__}.{name} would change nothing: "
            "an optimiser is told what to train",
            fix="leave it out: minimize(loss, parameters) with parameters = "
            f'[v for v in model.parameters() if not v.name.startswith("{module.path}.")]',
        )
