"""The kernel of a `searchsorted`: binary searches side by side, one in each lane.

All searches take the same steps. In each, `size >> step` of the sorted elements are left, from
`low` on; the middle one is compared, and `low` moves after it or stays. So the steps are the inner
axis of a kernel of the form "columns", and `low` is its carry: no lane branches, and the reads of
all lanes are on their way at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.ir.affine import LoopVariable, index_of
from graphfw.ir.dim import DimLike, dim_min, dim_sum
from graphfw.ir.dtype import int64
from graphfw.ir.tensor import Node
from graphfw.ops.sorting.sort_search import SearchSorted
from graphfw.passes.fuse_nodes import FusionFacts
from graphfw.runtime.kernels.elements import ComputedIndex, ElementAddress, IndexValue, RunTimeSize
from graphfw.runtime.kernels.ir import Carried, Expr, Ref
from graphfw.runtime.kernels.kernel_target import KernelTarget
from graphfw.runtime.kernels.lower_loops import Draft, LoopCarry, Stored
from graphfw.runtime.kernels.lower_steps import finished, step
from graphfw.runtime.kernels.lower_values import K, element_at
from graphfw.runtime.kernels.steps import Step, View
from graphfw.runtime.kernels.views import view

_MOST = 40
"""Bits of the number of sorted elements, where that is known by a run only."""


def search_step(node: Node, facts: FusionFacts, target: KernelTarget) -> Step:
    """Return the step of a `searchsorted` node.

    Args:
        node: The node.
        facts: Of its graph.
        target: What compiles kernels.
    """
    assert isinstance(node.op, SearchSorted)
    known, wanted = [view(tensor, facts) for tensor in node.inputs]
    (size,) = known.shape
    lanes = [LoopVariable(f"lane{axis}", dim) for axis, dim in enumerate(wanted.shape)]
    lanes = lanes or [LoopVariable("one", 1)]
    steps = LoopVariable("step", _bits_of(size))
    element = element_at(_address(wanted, lanes), node.inputs[1].dtype)
    low = Carried(int64, "low")
    left = K.shr(RunTimeSize(int64, size), IndexValue(int64, index_of(steps)))
    next_low = K.add(low, K.shr(K.add(left, 1), 1))
    middle = ComputedIndex(K.sub(next_low, 1), size)
    compared = element_at(_address(known, [middle]), node.inputs[0].dtype)
    moved = K.select(_stands_before(compared, element, node.op.side), next_low, low)
    (found,) = [view(tensor, facts) for tensor in node.outputs]
    draft = Draft(
        "columns",
        lanes,
        [steps],
        loops=[[LoopCarry("low", K.const(0, int64), moved)]],
        after=[Stored(_address(found, lanes), Ref(int64, "low"))],
    )
    return step(finished(draft, target), (node,), target)


def _address(where: View, index: Sequence[LoopVariable]) -> ElementAddress:
    """Return the address of a view's element; one without dims has a variable all the same."""
    strides = tuple(zip(index, where.strides, strict=False))
    return ElementAddress(where.storage, where.offset, strides)


def _stands_before(known: Expr, wanted: Expr, side: str) -> Expr:
    """Return whether an element is inserted after a sorted one; NaN is larger than any number."""
    if not wanted.dtype.is_floating:
        return K.lt(known, wanted) if side == "left" else K.le(known, wanted)
    if side == "left":
        return K.select(K.isnan(wanted), K.eq(known, known), K.lt(known, wanted))
    return K.or_(K.isnan(wanted), K.le(known, wanted))


def _bits_of(size: DimLike) -> DimLike:
    """Return how many bits a number has: so many comparisons tell so many elements apart."""
    if isinstance(size, int):
        return size.bit_length()
    return dim_sum([dim_min(size // (1 << bit), 1) for bit in range(_MOST)])
