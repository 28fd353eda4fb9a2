"""Carries of a scan that stay in memory, since an iteration changes only some of their elements.

By example: `x = x.at[i].set(f(x[i - 1]))` in each iteration. The kernel reads and writes elements
of the scan's result, into which the first value is copied before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple, TypeAlias

from graphfw.ir.affine import ZERO, Affine, Index, LoopVariable, index_of
from graphfw.ir.body import Body
from graphfw.ir.dim import DimLike
from graphfw.ir.shape import broadcast, size_of
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import Shape
from graphfw.ops.control.scan_op import Scan
from graphfw.ops.shape.gather_scatter import IndexAdd, IndexSet, Putting
from graphfw.passes.fuse_views import contiguous
from graphfw.runtime.kernels.ir import Expr
from graphfw.runtime.kernels.kernel_target import KernelTarget
from graphfw.runtime.kernels.lower_loops import Draft, Stored
from graphfw.runtime.kernels.lower_steps import finished, step
from graphfw.runtime.kernels.lower_values import K, address_at
from graphfw.runtime.kernels.steps import Step

_FEW = 8
"""The most values that a node puts along the dims of its indices."""

ElementOf: TypeAlias = Callable[[Index], Expr]


class MemoryCarry(NamedTuple):
    """A carry that an iteration changes by putting values at indices.

    Attributes:
        storage: The scan's output that the carry lies in.
        puts: The nodes of the body that put values, in order, a few each. Without them the carry
            stays as it was.
        named: The axes along which an index names a position; all axes of one that stays.
    """

    storage: Tensor
    puts: Sequence[Node]
    named: frozenset[int]

    def shape_of_instances(self) -> tuple[DimLike, ...]:
        """Return the shape with 1 for the axes along which positions are named."""
        shape = enumerate(self.storage.shape)
        return tuple([1 if axis in self.named else dim for axis, dim in shape])


def memory_carries(op: Scan, outputs: Sequence[Tensor]) -> dict[int, MemoryCarry]:
    """Return the carries of a scan that stay in memory, by their numbers."""
    found = {}
    for number in range(op.carries):
        puts, storage = _puts(op.body, number), outputs[number]
        if puts is not None:
            axes = [axis for put in puts for axis in named_axes(put)] or range(storage.ndim)
            found[number] = MemoryCarry(storage, puts, frozenset(axes))
    return found


def named_axes(put: Node) -> range:
    """Return the axes along which the indices of a node name positions."""
    assert isinstance(put.op, Putting)
    return range(put.op.axis, put.op.axis + len(put.inputs) - 2)


def numbers_of_puts(put: Node) -> list[Index]:
    """Return the indices of a node's values along the dims of its indices, in order."""
    return [
        tuple([Affine(number, {}) for number in numbers])
        for numbers in product(*[range(int(dim)) for dim in _shape_of_indices(put)])
    ]


def _shape_of_indices(put: Node) -> Shape:
    return broadcast(*[t.shape for t in put.inputs[2:]])


def _are_few(put: Node) -> bool:
    count = size_of(_shape_of_indices(put))
    return isinstance(count, int) and count <= _FEW


def _puts(body: Body, number: int) -> list[Node] | None:
    """Return the nodes by which a carry becomes the next one, or None if others do that too."""
    found: list[Node] = []
    tensor = body.outputs[number]
    while tensor is not body.parameters[1 + number]:
        node = tensor.node
        # Subclasses put otherwise: `max_unpool` at positions within windows.
        if type(node.op) not in (IndexSet, IndexAdd) or not _are_few(node):
            return None
        found.insert(0, node)
        tensor = node.inputs[0]
    return found


def copy_step(storage: Tensor, values: ElementOf, target: KernelTarget) -> Step:
    """Return the step that writes the first value of a carry to where the carry lies.

    Where it lies in the memory of the first value, nothing is copied.

    Args:
        storage: Where the carry lies.
        values: Returns the first value of an element.
        target: What compiles kernels.
    """
    axes = [LoopVariable(f"axis{axis}", dim) for axis, dim in enumerate(storage.shape)]
    index = tuple([ZERO if axis.extent == 1 else index_of(axis) for axis in axes])
    address = address_at(storage, index, 0, contiguous(storage.shape))
    stored = Stored(address, K.cast(values(index), storage.dtype))
    made = step(finished(Draft("rows", axes, None, loops=[[stored]]), target), (), target)
    return replace(made, leaves_rest=bool(made.in_place))
