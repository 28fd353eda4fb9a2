"""Nested structures of tensors, as functions take and return them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from graphfw.errors import ArgumentError, DTypeError, GraphfwError, Operand, ShapeError, counted
from graphfw.ir.concrete import describe
from graphfw.ir.dim import always_le
from graphfw.ir.functions import F
from graphfw.ir.shape import can_broadcast, shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import TensorType
from graphfw.ops.args import as_tensor
from graphfw.utils import nest


class Structure(NamedTuple):
    """Tensors in a nested structure: tuples, lists, named tuples, dicts; None holds nothing.

    Attributes:
        tensors: In order.
        pack: Puts as many values into the same structure.
        shape: What is equal for equal structures.
    """

    tensors: list[Tensor]
    pack: Callable[[Sequence[Any]], Any]
    shape: nest.TreeStructure

    @classmethod
    def of(cls, value: Any) -> Structure:
        """Return the structure of a value; what is no tensor becomes a constant."""
        tensors = [as_tensor(leaf) for leaf in nest.leaves(value) if leaf is not None]
        shape = nest.TreeStructure(value)
        return cls(tensors, shape.pack, shape)

    @property
    def kinds(self) -> list[TensorType]:
        """The tensors' types."""
        return [t.type for t in self.tensors]


def demand_equal(
    what: str,
    one: tuple[str, Structure],
    two: tuple[str, Structure],
    shape_fix: Callable[[Tensor, Tensor], str],
) -> None:
    """Raise an error that shows both lines unless two results have the same types.

    `shape_fix` says what to do about two tensors of different shapes.
    """
    (first, a), (second, b) = one, two
    if a.shape != b.shape:
        raise ArgumentError(
            f"{what}: {first} and {second} have different structures: "
            f"{len(a.tensors)} and {counted(len(b.tensors), 'tensor')}",
            fix="return the same nesting of tuples, lists and dicts, with the same keys",
        )
    for x, y in zip(a.tensors, b.tensors, strict=True):
        if x.type == y.type:
            continue
        error: type[GraphfwError] = DTypeError if x.shape == y.shape else ShapeError
        if x.shape != y.shape:
            fix = shape_fix(x, y)
        else:
            wider = F.result_type(x.dtype, y.dtype)
            fix = f"use one dtype in both: gf.astype(x, gf.{wider.name})"
        operands: list[Operand] = [describe(first, x), describe(second, y)]
        raise error(
            f"{what}: {first} is {x.type}, {second} is {y.type}", operands=operands, fix=fix
        )


def one_shape(x: Tensor, y: Tensor) -> str:
    """Return how two branches can have results of one shape."""
    if can_broadcast(x.shape, y.shape) or can_broadcast(y.shape, x.shape):
        wide = y.shape if can_broadcast(x.shape, y.shape) else x.shape
        return f"return one shape from both: gf.broadcast_to(value, {wide})"
    return "return one shape from both: pad the smaller with gf.pad, or slice the larger"


def one_carry(first: Tensor, after: Tensor) -> str:
    """Return how the carry of a loop can keep its shape."""
    pairs = zip(first.shape, after.shape, strict=False)
    if first.ndim == after.ndim and all([always_le(a, b) for a, b in pairs]):
        grown = "a carry can't grow: start with an array of the final size and write with "
        return f"{grown}gf.index_set, or in gf.scan return what is added as y: ys stacks it"
    return f"start with, and return, one shape: {shape_text(first.shape)}"
