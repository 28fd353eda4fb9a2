"""The work of a step, before anything is measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graphfw.ir.dim import DimLike
from graphfw.ir.tensor import Node
from graphfw.ops.control.region_op import Region
from graphfw.runtime.kernels.steps import Step, Storage

FLOPS, BYTES = 1e11, 2e10
"""The work of a thread in a second, roughly."""

_ITERATION_FLOPS = 1e10
"""The same of a loop, whose iterations wait for one another."""

_LONG = 5e-3
"""Seconds after which somebody waits for a step to end."""

_SHARE = 0.005
"""The fraction of a step's time that a copy of its results may take."""


def is_worth_a_copy(step: Step) -> bool:
    """Return whether a step takes long, and a copy of its results next to no time beside it.

    A run is not ended while variables are written over. So such a step writes to other memory, and
    only the copy writes over variables.
    """
    flops, moved = work_of(step.nodes, step.operands)
    is_loop = any(isinstance(node.op, Region) for node in step.nodes)
    if not (isinstance(flops, int) and isinstance(moved, int)):
        return is_loop  # of any number of iterations; others are as long as their operands
    seconds = flops / (_ITERATION_FLOPS if is_loop else FLOPS) + moved / BYTES
    pairs = zip(step.operands, step.written, strict=True)
    results = {storage for storage, is_new in pairs if is_new}
    _, copied = work_of((), results)
    return seconds > _LONG and isinstance(copied, int) and 2 * copied / BYTES < _SHARE * seconds


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


def ceil(size: DimLike, of: DimLike) -> DimLike:
    """Return a quotient of sizes, rounded up."""
    return -(-size // of)
