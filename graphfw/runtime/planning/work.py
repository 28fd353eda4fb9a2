"""How much a step has to do, before anything is measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graphfw.ir.dim import DimLike
from graphfw.ir.tensor import Node
from graphfw.runtime.kernels.steps import Storage


def work_of(nodes: Sequence[Node], operands: Iterable[Storage]) -> tuple[DimLike, DimLike]:
    """Return the floating-point operations of some nodes, and the bytes of what they are done to.

    Args:
        nodes: The nodes.
        operands: What is read and written.
    """
    flops: DimLike = 0
    for node in nodes:
        flops = flops + node.op.cost(node.types, *[t.type for t in node.inputs]).flops
    moved: DimLike = 0
    for storage in set(operands):
        moved = moved + storage.size * storage.dtype.itemsize
    return flops, moved
