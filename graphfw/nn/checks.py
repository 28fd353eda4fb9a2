"""Checks of layers' arguments, and explanations of the errors that layers run into."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from graphfw.errors import ArgumentError, GraphfwError, ShapeError, counted
from graphfw.ir import ambient
from graphfw.ir.dim import Dim
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import is_whole
from graphfw.ops.composed import demand


def checked_size(layer: str, what: str, value: Any) -> int:
    """Return a number of features or the like as an int.

    Raises:
        ArgumentError: It is no int, or below 1.
    """
    if type(value) is int and value >= 1:  # quickly, what is right
        return value
    text = f"{layer}: {what}={value!r}"
    why = "no int"
    if isinstance(value, Dim):
        why = "a dim that is not known yet; weights have fixed sizes"
    demand(is_whole(value), f"{text} is {why}", fix=f"give {what} as an int")
    size = operator.index(value)
    demand(size >= 1, f"{text} must be 1 or more", fix=f"use {what}={-size or 1}")
    return size


def size_or_none(layer: str, what: str, value: Any) -> int | None:
    """Return a number of features or the like as an int; None where the first call finds it.

    Raises:
        ArgumentError: It is neither an int from 1 up nor None.
    """
    return None if value is None else checked_size(layer, what, value)


def channel_axis(layer: str, what: str, axis: int | None, x: Tensor) -> int:
    """Return the axis of the channels of x: the last one where none is given.

    Raises:
        ShapeError: None is given, and x has more than two dims: a default would take the wrong axis
            of somebody's images or sequences in silence.
    """
    demand(
        axis is not None or x.ndim <= 2,
        f"{layer}: x has {counted(x.ndim, 'dim')}, and the axis of its {what} is not given",
        {"x": x},
        fix=f"write {layer}(…, axis=1) for [N, C, *S], axis=-1 for [N, *S, C]",
        error=ShapeError,
    )
    return -1 if axis is None else axis


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

    __slots__ = ("_layer", "_outer", "_scope")

    def __init__(self, layer: Any, outer: str, scope: str) -> None:
        """Note the layer, the scope that it is called in, and the layer's own."""
        self._layer = layer
        self._outer = outer
        self._scope = scope

    def __enter__(self) -> None:
        ambient.outer_scope.enter_within(self._outer, self)
        try:
            ambient.current_scope.enter_within(self._scope, self)
            ambient.caller.enter_within(self._layer, self)
        except BaseException:  # an interrupt
            ambient.current_scope.leave(self)
            ambient.outer_scope.leave(self)
            raise

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        ambient.caller.leave(self)
        ambient.current_scope.leave(self)
        ambient.outer_scope.leave(self)
        if isinstance(error, GraphfwError):
            error.layer = error.layer or self._scope


class explained:
    """Gives shape errors that come up inside a fix, where the function has one to say.

    Where a layer and a submodule of it both have a fix, it is the layer's.
    """

    __slots__ = ("_around", "_fix")

    def __init__(self, fix: Callable[[], str]) -> None:
        """Note the function."""
        self._fix = fix
        self._around = ambient.explainer.get()

    def explain(self, error: GraphfwError) -> None:
        """Give an error the fix."""
        if isinstance(error, ShapeError):
            error.fix = self._fix() or error.fix
        if self._around is not None:
            self._around(error)

    # Type rules ask the explainer before they raise or collect; other checks just raise.

    def __enter__(self) -> None:
        ambient.explainer.enter_within(self.explain, self)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        ambient.explainer.leave(self)
        if isinstance(error, ShapeError):
            self.explain(error)


def check_mode(what: str, mode: Any) -> None:
    """See that what `train` and the attribute `training` are set to is a bool.

    Raises:
        ArgumentError: It is none.
    """
    if not isinstance(mode, bool):
        raise ArgumentError(f"{what}={mode!r} must be True or False", fix="write train() or eval()")


def refuse_freezing(module: Any, name: str) -> None:
    """See that nobody freezes a module by what only its class would know of."""
    if name in ("trainable", "requires_grad") and not hasattr(type(module), name):
        raise ArgumentError(
            f"{type(module).__name__}.{name} would change nothing: modules are frozen by a call",
            fix="write module.freeze(), and module.unfreeze() to train it again",
        )
