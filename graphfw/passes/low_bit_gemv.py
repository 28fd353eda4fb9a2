"""Products of one row with a matrix in few bits (gemv) become reductions.

Weights in 8 or 16 bits are widened to the dtype of their product, and scaled. In a product with one
row each of them is read once, and reading is all that takes time: as a sum of products the row is
fused with what widens them, so that no wide matrix is ever written, and only the few bits are read.
The products are added up in another order. That is for what the code of a product can't compute
where it multiplies it (`numpy_executor.matmul.sources`): matrices that are put together of blocks
with scales of their own, batches, unknown sizes, and what others read, too.
"""

from __future__ import annotations

from collections import Counter

from graphfw.ir.dtype import float32, float64
from graphfw.ir.functions import F
from graphfw.ir.graph import Graph
from graphfw.ir.op import ELEMENTWISE
from graphfw.ir.rebuild import live_nodes, rebuild
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.linalg.products import MatMul
from graphfw.ops.shape.movement import PermuteDims
from graphfw.passes.base import Pass
from graphfw.passes.rematerialise import is_view
from graphfw.utils.records import record

_LONG = 8
"""The most nodes between the bits of a matrix and its product."""


@record
class GemvToReduction(Pass):
    """Multiply one row, or one column, by a matrix in few bits as a sum of products."""

    name = "gemv-to-reduction"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        nodes = live_nodes(graph)
        uses = Counter([*graph.outputs, *[t for node in nodes for t in node.inputs]])
        sides = {node: side for node in nodes if (side := _side(node, uses)) is not None}
        if not sides:
            return graph

        def rewrite(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
            if node not in sides:
                return None
            hits["summed"] += 1
            a, b = inputs
            return _summed(a, b, sides[node])

        return rebuild(graph, rewrite)


def _side(node: Node, uses: Counter[Tensor]) -> int | None:
    """Return which operand of a product of one row or one column is a matrix in few bits."""
    if not isinstance(node.op, MatMul) or node.types[0].dtype not in (float32, float64):
        return None
    (shape,) = [kind.shape for kind in node.types]
    for side, axis in ((1, -2), (0, -1)):
        matrix = node.inputs[side]
        is_row = shape[axis] == 1 and size_of(matrix.shape[:-2]) == size_of(shape[:-2])
        if is_row and _is_widened(matrix) and not _is_left_to_product(matrix, uses):
            return side
    return None


def _is_widened(matrix: Tensor) -> bool:
    """Return whether a tensor comes of fewer bytes, element by element."""
    size, nbytes, steps = size_of(matrix.shape), 0, 0
    left, seen = [matrix], {matrix}
    while left:
        tensor = left.pop()
        node = tensor.node
        if is_view(node) or (ELEMENTWISE in node.op.traits and node.inputs):
            steps += 1
            found = [t for t in node.inputs if t not in seen]
            left += found
            seen.update(found)
        elif size_of(tensor.shape) == size:
            nbytes += tensor.dtype.itemsize
    return 0 < nbytes < matrix.dtype.itemsize and steps <= _LONG


def _is_left_to_product(matrix: Tensor, uses: Counter[Tensor]) -> bool:
    """Return whether a product computes the elements as it multiplies them."""
    if matrix.ndim != 2 or not all(isinstance(dim, int) for dim in matrix.shape):
        return False
    size, left = size_of(matrix.shape), [matrix]
    if isinstance(matrix.node.op, PermuteDims):
        left = [*matrix.node.inputs]
    while left:
        tensor = left.pop()
        if ELEMENTWISE in tensor.node.op.traits and tensor.node.inputs:
            if uses[tensor] > 1:
                return False
            left += tensor.node.inputs
        elif is_view(tensor.node) and size_of(tensor.shape) == size:
            return False
    return True


def _summed(a: Tensor, b: Tensor, side: int) -> Tensor:
    """Return a product of one row (side 1), or of one column, as a sum."""
    if side == 0:
        return F.swapaxes(_summed(F.swapaxes(b, -1, -2), F.swapaxes(a, -1, -2), side=1), -1, -2)
    source = b.node
    *batch, rows, columns = range(b.ndim)
    if isinstance(source.op, PermuteDims) and source.op.axes == (*batch, columns, rows):
        return F.swapaxes(F.sum(source.inputs[0] * a, axis=-1, keepdims=True), -1, -2)
    return F.sum(b * F.swapaxes(a, -1, -2), axis=-2, keepdims=True)
