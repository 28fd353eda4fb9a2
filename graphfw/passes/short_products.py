"""Products of matrices with few columns over a short axis become sums that are written out.

A product of matrices has code of its own, which fills vectors with columns, and loads a row or a
column once for many sums. With rotations or points in space there are few columns and few terms,
and each matrix of a batch is a product of its own. Written out,
`a[:, 0:1] * b[0:1] + a[:, 1:2] * b[1:2]` is an elementwise function of any number of matrices, and
is fused with what stands around it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from graphfw.ir.dim import DimLike
from graphfw.ir.graph import Graph
from graphfw.ir.op import nested
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.args import converted
from graphfw.ops.composed import wide
from graphfw.ops.linalg.products import MatMul
from graphfw.ops.shape.movement import PermuteDims
from graphfw.passes.base import NodePass
from graphfw.utils.records import record

_FEW_TERMS = 8
"""The most terms of a sum that is written out."""

_FEW_BESIDE = 5
"""The same where a product's own code is good at it, which reads along the terms: for a transposed
matrix, and for one column."""

_FEW_ROWS = 4
"""The most rows of the matrices of a batch that may have many columns."""

_VECTOR_BYTES = 64


@record
class ShortProductToSum(NodePass):
    """Multiply matrices as a sum of outer products of few columns and rows."""

    name = "short-product-to-sum"
    hit = "written out"

    def fits(self, node: Node) -> bool:
        return _deciding(node, {}) is not None

    def replaced(self, node: Node, inputs: tuple[Tensor, ...]) -> Tensor:
        a, b = map(wide, inputs)
        terms = [a[..., i : i + 1] * b[..., i : i + 1, :] for i in range(int(a.shape[-1]))]
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return converted(total, node.types[0].dtype)


def sizes_to_know(graph: Graph, sizes: Mapping[DimLike, int]) -> set[DimLike]:
    """Return the symbolic dims of products that are written out where these sizes are known."""
    found: set[DimLike] = set()
    for node in _nodes(graph):
        found.update(_deciding(node, sizes) or ())
    return found & sizes.keys()


def _nodes(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes:
        yield node
        for body in nested(node.op.values):
            yield from _nodes(body.graph)


def _deciding(node: Node, sizes: Mapping[DimLike, int]) -> tuple[DimLike, DimLike] | None:
    """Return the two dims for which a product is written out, or None if it is not.

    Args:
        node: A node.
        sizes: The sizes of symbolic dims.
    """
    if not isinstance(node.op, MatMul):
        return None
    (kind,), (a, b) = node.types, node.inputs
    rows, columns = kind.shape[-2:]
    in_batch = size_of(kind.shape[:-2]) != 1
    height, width, length = (sizes.get(dim, dim) for dim in (rows, columns, a.shape[-1]))
    is_slow = _is_transposed(b) or (width == 1 and not in_batch)
    most = _FEW_BESIDE if is_slow else _FEW_TERMS
    if not isinstance(length, int) or not 0 < length <= most:
        return None
    if isinstance(width, int) and width * kind.dtype.itemsize < _VECTOR_BYTES:
        return a.shape[-1], columns
    if in_batch and isinstance(height, int) and height <= _FEW_ROWS:
        return a.shape[-1], rows
    return None


def _is_transposed(matrix: Tensor) -> bool:
    op = matrix.node.op
    return isinstance(op, PermuteDims) and op.axes[-1] != matrix.ndim - 1
