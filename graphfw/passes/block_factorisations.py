"""Factorisations of large matrices become those of small ones, triangular solves and products.

An executor has native code for small matrices. A large one is cut in two, again and again:

    x = [a  b^T]    L = [L1   0 ]    L1 = cholesky(a)          (small, or cut again)
        [b  c  ]        [t^T  L2]    t  = L1^-1 b^T            (a triangular solve)
                                     L2 = cholesky(c - t^T t)  (a product, and again the same)

So most of the work is in products of matrices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from graphfw.ir.build import emit
from graphfw.ir.functions import F
from graphfw.ir.graph import Graph
from graphfw.ir.rebuild import rebuild
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.linalg.cholesky_qr import Cholesky
from graphfw.ops.linalg.triangular_lu import SolveTriangular
from graphfw.passes.base import Pass
from graphfw.utils.records import record

_ROUND = 8
"""Blocks have a multiple of so many rows, so that rows of blocks begin where vectors do."""


@record
class BlockFactorisations(Pass):
    """Factor large matrices block by block.

    Attributes:
        small: How many rows a block has at most, by the node; 0: it is left as it is.
    """

    small: Callable[[Node], int]
    name = "block-factorisations"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        if not any([isinstance(node.op, Cholesky) for node in graph.nodes]):
            return graph

        def rewrite(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
            if not isinstance(node.op, Cholesky):
                return None
            (x,) = inputs
            size, small = x.shape[-1], self.small(node)
            if not small or not isinstance(size, int) or size <= small:
                return None
            hits["cholesky"] += 1
            return _cholesky(x, size, small)

        return rebuild(graph, rewrite)


def _cholesky(x: Tensor, size: int, small: int) -> Tensor:
    """Return the lower triangle L with x' = L L^T, x' the mean of x and its transpose.

    x: [*B, M, M] -> [*B, M, M]
    """
    if size <= small:
        return emit(Cholesky(), x)
    cut = _half(size, small)
    return _joined(
        (x[..., :cut, :cut], _mean(x[..., :cut, cut:], x[..., cut:, :cut]), x[..., cut:, cut:]),
        (cut, size - cut),
        small,
    )


def _joined(quarters: Sequence[Tensor], sizes: tuple[int, int], small: int) -> Tensor:
    """Return such a triangle, given the upper left, upper right and lower right quarter of x'."""
    left, right, below = quarters
    rows, others = sizes
    first = _cholesky(left, rows, small)
    solved = emit(SolveTriangular(), first, right)
    if others <= small:
        last = _cholesky(below - solved.mT @ solved, others, small)
    else:
        # The lower left quarter of what is left is not needed.
        cut = _half(others, small)
        near, far = solved[..., :cut], solved[..., cut:]
        right = _mean(below[..., :cut, cut:], below[..., cut:, :cut])
        left = below[..., :cut, :cut] - near.mT @ near
        corner = below[..., cut:, cut:] - far.mT @ far
        last = _joined((left, right - near.mT @ far, corner), (cut, others - cut), small)
    upper = F.concat([first, F.zeros_like(solved)], axis=-1)
    lower = F.concat([solved.mT, last], axis=-1)
    result: Tensor = F.concat([upper, lower], axis=-2)
    return result


def _mean(above: Tensor, below: Tensor) -> Tensor:
    """Return the mean of a block and of the transpose of the one at the mirrored position."""
    result: Tensor = 0.5 * above + 0.5 * below.mT
    return result


def _half(size: int, small: int) -> int:
    """Return where rows are cut: about in the middle, so that all blocks are about as large."""
    blocks = -(-size // small)
    rows = -(-size // blocks)
    rows = -(-rows // _ROUND) * _ROUND
    return rows * (-(-blocks // 2))
