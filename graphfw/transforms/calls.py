"""A call of a user's function that is differentiated, forward or backward."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any, NamedTuple

from graphfw.errors import ArgumentError, DTypeError, GradientError, ShapeError, a_type, counted
from graphfw.ir import ambient
from graphfw.ir.build import admitted, emit
from graphfw.ir.concrete import describe
from graphfw.ir.functions import F
from graphfw.ir.graph import current_graph
from graphfw.ir.modes import as_called
from graphfw.ir.tensor import Tensor
from graphfw.ops.composed import callback, demand
from graphfw.ops.creation.inputs import IdentityOp
from graphfw.ops.structures import Structure
from graphfw.transforms import forward
from graphfw.transforms.grad import cotangents, stand_in
from graphfw.utils import nest


class DifferentiatedCall(NamedTuple):
    """A call of a function that is differentiated.

    Attributes:
        what: The transform that made it, as errors name it.
        arguments: The arguments.
        xs: What the function was called with in their place.
        ys: What it returned.
        aux: What it handed on, in a tuple, which is empty where it can't.
    """

    what: str
    arguments: Structure
    xs: list[Tensor]
    ys: Structure
    aux: tuple[Any, ...]

    @classmethod
    def of(
        cls, what: str, fn: Any, primals: tuple[Any, ...], has_aux: bool = False
    ) -> DifferentiatedCall:
        """Call the function.

        Raises:
            ArgumentError: It takes or returns something other than tensors.
            GradientError: No argument is a float.
        """
        fn = callback(what, "fn", fn, "fn(*primals)")
        arguments = _structure(what, primals, "is called with")
        if not any(t.dtype.is_inexact for t in arguments.tensors):
            raise GradientError(
                f"{what}: no argument is a floating-point tensor",
                operands=[describe("x", t) for t in arguments.tensors[:2]],
                fix="give floats, for example 3.0 for 3",
            )
        # New tensors: what fn takes from around it is constant, and equal arguments are two.
        with ambient.override(ambient.grad_enabled, True):
            xs = [emit(IdentityOp(), t) for t in arguments.tensors]
            seen = (*ambient.differentiated.get(), *xs)
            with ambient.override(ambient.differentiated, seen):
                returned = as_called(fn)(*arguments.pack(xs))
        aux: tuple[Any, ...] = ()
        if has_aux:
            demand(
                isinstance(returned, tuple) and len(returned) == 2,
                f"{what}: has_aux=True, and fn returns {a_type(returned)}, not a pair",
                fix="return (result, aux)",
            )
            returned, *aux = returned
        ys = _structure(what, returned, "returns")
        demand(
            bool(ys.tensors),
            f"{what}: fn returns {a_type(returned)} and no tensor",
            fix="return tensors, or nested tuples, lists and dicts of tensors",
        )
        admitted_ys = [admitted(t, current_graph(), what) for t in ys.tensors]
        return cls(what, arguments, xs, ys._replace(tensors=admitted_ys), tuple(aux))

    @property
    def result(self) -> Any:
        """The function's result, for the caller."""
        return self.ys.pack([_outward(t) for t in self.ys.tensors])

    def cotangents(self, value: Any) -> list[Tensor | None]:
        """Return the cotangents that the user gives, one for each result.

        Raises:
            ArgumentError, GradientError, ShapeError, DTypeError: They don't fit.
        """
        return self._matched("the cotangents", value, "fn's result", self.ys)

    def tangents(self, value: Any) -> list[Tensor | None]:
        """Return the tangents that the user gives, one for each argument.

        Raises:
            ArgumentError, GradientError, ShapeError, DTypeError: They don't fit.
        """
        return self._matched("the tangents", value, "the primals", self.arguments)

    def _matched(
        self, label: str, value: Any, other: str, structure: Structure
    ) -> list[Tensor | None]:
        example = structure.pack(structure.tensors)
        mark = object()
        found, wanted = [nest.key(nest.packer(v)(repeat(mark)), str) for v in (value, example)]
        leaves = list(nest.leaves(value))
        demand(
            found == wanted,
            f"{self.what}: {label} and {other} have different structures: "
            f"{len(leaves)} and {counted(len(structure.tensors), 'tensor')}",
            fix="use the same nesting of tuples, lists and dicts, with the same keys",
        )
        pairs = zip(leaves, nest.leaves(example), strict=True)
        return [self._fitting(label, leaf, own) for leaf, own in pairs if own is not None]

    def _fitting(self, label: str, leaf: Any, own: Tensor) -> Tensor | None:
        if leaf is None:
            return None
        if not own.dtype.is_inexact:
            raise GradientError(
                f"{self.what}: {label} have an entry for {own.dtype.name} values, which have no "
                "derivative",
                operands=[describe("x", own)],
                fix="pass None in its place, or make the values floats",
            )
        value: Tensor = admitted(F.asarray(leaf, like=own), current_graph(), self.what)
        if value.type == own.type:
            return value
        message = f"{self.what}: {label} have {value.type} where {own.type} belongs"
        operands = [describe("x", own), describe("given", value)]
        if value.shape != own.shape:
            fix = "give it the same shape; gf.broadcast_to repeats"
            raise ShapeError(message, operands=operands, fix=fix)
        fix = f"convert it: gf.astype(x, gf.{own.dtype.name})"
        raise DTypeError(message, operands=operands, fix=fix)

    def pull(self, seeds: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Return the arguments' cotangents for those of the result; None for an integer."""
        if self._is_poisoned:
            return [stand_in(x) for x in self.xs]
        ends = [(y, ct) for y, ct in zip(self.ys.tensors, seeds, strict=True) if ct is not None]
        found = cotangents([y for y, _ in ends], self.xs, [ct for _, ct in ends])
        return [_or_zeros(x, ct) for x, ct in zip(self.xs, found, strict=True)]

    def push(
        self, seeds: Sequence[Tensor | None], keeps: bool = False
    ) -> tuple[Sequence[Tensor], list[Tensor | None]]:
        """Return the result, and its tangents for those of the arguments; None for an integer.

        With `keeps` loops of the function are not made again for the tangents, where they need not.
        """
        ys = self.ys.tensors
        if self._is_poisoned:
            return ys, [stand_in(y) for y in ys]
        with ambient.override(ambient.grad_enabled, True):  # tangents come of gradients
            ys, found = forward.tangents(ys, self.xs, seeds, keeps)
            tangents = [_or_zeros(y, t) for y, t in zip(ys, found, strict=True)]
        return [_outward(y) for y in ys], [None if t is None else _outward(t) for t in tangents]

    @property
    def _is_poisoned(self) -> bool:
        return any(t.graph.is_poisoned(t.node) for t in (*self.xs, *self.ys.tensors))


def _structure(what: str, value: Any, does: str) -> Structure:
    """Return the structure of what a function takes or returns."""
    try:
        return Structure.of(value)
    except DTypeError as error:
        raise ArgumentError(
            f"{what}: fn {does} something other than tensors: {error.summary}",
            fix="use tensors, or nested tuples, lists and dicts of tensors",
        ) from None


def _or_zeros(x: Tensor, value: Tensor | None) -> Tensor | None:
    """Return the derivative of a tensor, zeros where nothing reaches it; None for an integer."""
    if value is not None or not x.dtype.is_inexact:
        return value
    return F.zeros(x.shape, dtype=x.dtype)


def _outward(x: Tensor) -> Tensor:
    """Return a result as it is seen outside, where nothing may be differentiated under no_grad."""
    if ambient.grad_enabled.get() or not x.dtype.is_inexact:
        return x
    return F.stop_gradient(x)
