"""Products with a matrix move below slices that are read of their rows.

`(x @ w + b)[:, -1]` is `x[:, -1] @ w + b`: a language model that reads a prompt computes the logits
of the last position only. Each row of a product is a sum of the same terms by itself, though with
few rows it may be added in another order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from graphfw.ir.build import emit
from graphfw.ir.graph import Graph
from graphfw.ir.rebuild import live_nodes, rebuild
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.walk import users
from graphfw.ops.linalg.products import MatMul
from graphfw.ops.shape.gather_scatter import Slice
from graphfw.passes.base import Pass
from graphfw.passes.sink_elementwise import ResultView, is_elementwise, usual_size, view_of
from graphfw.utils.records import record

_LEAST = 2
"""The least number of times that a result is larger than the slice that is read of it."""

_DEPTH = 32
"""The most operations that move together."""


@record
class SinkProductsBelowSlices(Pass):
    """Compute only those rows of products that are read."""

    name = "sink-products-below-slices"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        if not any(map(_is_of_few_rows, graph.nodes)):
            return graph
        nodes = live_nodes(graph)
        movable = _movable(graph, nodes)
        if not any([n.inputs[0].node in movable for n in nodes if _is_of_few_rows(n)]):
            return graph

        def rewrite(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
            if not _is_of_few_rows(node) or node.inputs[0].node not in movable:
                return None
            hits["sunk"] += 1
            (old,), (new,) = node.inputs, inputs
            return _rows(ResultView(node.op, old.shape), old, new, movable)

        return rebuild(rebuild(graph, rewrite))  # twice: the whole results go


def _is_of_few_rows(node: Node) -> bool:
    """Return whether a node reads few rows, and these as a whole."""
    op = node.op
    if not isinstance(op, Slice) or len(op.starts) < 2:
        return False
    shape = node.inputs[0].shape
    is_whole = (op.starts[-1], op.lengths[-1], op.steps[-1]) == (0, shape[-1], 1)
    return is_whole and _LEAST * usual_size(op.lengths) <= usual_size(shape)


def _movable(graph: Graph, nodes: Collection[Node]) -> Collection[Node]:
    """Return products with a matrix, and elementwise functions of such, with a single reader."""
    kept = {tensor.node for tensor in graph.outputs}
    readers = users(nodes)
    depths: dict[Node, int] = {}
    for node in nodes:
        if len(readers[node]) != 1 or node in kept:
            continue
        is_product = isinstance(node.op, MatMul) and node.inputs[1].ndim == 2
        if not (is_product or is_elementwise(node)):
            continue
        shape = node.inputs[0].shape if is_product else node.types[0].shape
        operands = node.inputs[:1] if is_product else node.inputs
        rows = [t.node for t in operands if t.node in depths and t.shape == shape]
        depth = 1 + max([depths[row] for row in rows], default=0)
        if (is_product or rows) and depth <= _DEPTH:
            depths[node] = depth
    return depths.keys()


def _rows(view: ResultView, old: Tensor, new: Tensor, movable: Collection[Node]) -> Tensor:
    """Return some rows of a tensor; of products only these are computed.

    Args:
        view: The slice that reads them, of a result that the tensor is broadcast to.
        old: The tensor.
        new: The same tensor in the graph that is made.
        movable: The nodes whose results can be computed row by row.
    """
    node, operands = old.node, new.node.inputs
    if node not in movable or old.shape != view.shape:
        return view_of(view, new)[0]
    if not isinstance(node.op, MatMul):
        pairs = zip(node.inputs, operands, strict=True)
        return emit(node.op, *[_rows(view, own, made, movable) for own, made in pairs])
    assert isinstance(view.op, Slice)
    (rows, matrix), shape = operands, node.inputs[0].shape
    lengths = (*view.op.lengths[:-1], shape[-1])
    own = ResultView(Slice(view.op.starts, lengths, view.op.steps), shape)
    return emit(node.op, _rows(own, node.inputs[0], rows, movable), matrix)
