"""Factorisations of large matrices become those of small ones, triangular solves and products.

An executor has native code for small matrices. A large one is cut in two, again and again:

    x = [a  b^T]    L = [L1   0 ]    L1 = cholesky(a)          (small, or cut again)
        [b  c  ]        [t^T  L2]    t  = L1^-1 b^T            (a triangular solve)
                                     L2 = cholesky(c - t^T t)  (a product, and again the same)

LU decompositions are cut by columns: those of the left half say in which order the rows of the
right half come. Solutions and inverses are triangular solves with an LU decomposition, which those
with a matrix and with its transpose share. So most of the work is in products of matrices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from graphfw.ir.build import emit, emit_all
from graphfw.ir.functions import F
from graphfw.ir.graph import Graph
from graphfw.ir.rebuild import rebuild
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.linalg.cholesky_qr import Cholesky
from graphfw.ops.linalg.solve import Inv, Solve
from graphfw.ops.linalg.triangular_lu import LU, SolveFactor, SolveTriangular
from graphfw.ops.shape.gather_scatter import Gather
from graphfw.ops.shape.movement import PermuteDims
from graphfw.passes.base import Pass
from graphfw.passes.block_reflections import matrix_sizes
from graphfw.utils.records import record

_ROUND = 8
"""Blocks have a multiple of so many rows, so that rows of blocks begin where vectors do."""


@record
class BlockFactorisations(Pass):
    """Factor large matrices block by block.

    Attributes:
        small: How many rows a block has at most, by the node; 0: it is left as it is.
        panel: How many columns a block of an LU decomposition has at most, of any number of rows.
    """

    small: Callable[[Node], int]
    panel: int
    name = "block-factorisations"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        large = {node for node in graph.nodes if self._is_large(node)}
        if not large:
            return graph
        solved = {node.inputs[0] for node in large if isinstance(node.op, Inv | Solve)}
        known: dict[Tensor, _Factors] = {}

        def factors(x: Tensor, small: int) -> _Factors:
            if x not in known:
                known[x] = _lu(x, _Limits(small, self.panel))
            return known[x]

        def rewrite(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | _Factors | None:
            if node not in large:
                return None
            hits[node.op.name] += 1
            (x, *sides), small = inputs, self.small(node)
            if isinstance(node.op, Cholesky):
                return _cholesky(x, matrix_sizes(x)[1], small)
            if isinstance(node.op, LU):
                return factors(x, small)
            right = sides[0] if sides else F.eye(x.shape[-1], dtype=x.dtype)
            whole = node.op.name
            other = node.inputs[0].node
            if _is_transpose(other) and other.inputs[0] in solved:
                (base,) = x.node.inputs
                return _solved_transposed(factors(base, small), right, whole)
            return _solved(factors(x, small), right, whole)

        return rebuild(graph, rewrite)

    def _is_large(self, node: Node) -> bool:
        """Return whether a node factors a matrix of a known size that is large."""
        if not isinstance(node.op, Cholesky | Inv | LU | Solve):
            return False
        rows, columns = node.inputs[0].shape[-2:]
        small = self.small(node)
        if not small or not isinstance(rows, int) or not isinstance(columns, int):
            return False
        if isinstance(node.op, Cholesky):
            return rows > small
        is_one = all([t.ndim == 2 for t in node.inputs]) and 0 not in (rows, columns)
        return is_one and not _Limits(small, self.panel).has(rows, columns)


def _is_transpose(node: Node) -> bool:
    return isinstance(node.op, PermuteDims) and node.op.axes == (1, 0)


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


class _Factors(NamedTuple):
    """An LU decomposition: in which order the rows are the product of the triangles."""

    order: Tensor
    lower: Tensor
    upper: Tensor


class _Limits(NamedTuple):
    """The largest LU decompositions that are not cut.

    Attributes:
        small: How many rows and columns they have,
        panel: or how many columns.
    """

    small: int
    panel: int

    def has(self, rows: int, columns: int) -> bool:
        """Return whether a matrix is not cut."""
        return columns <= self.panel or max(rows, columns) <= self.small


def _lu(x: Tensor, limits: _Limits) -> _Factors:
    """Return the LU decomposition of a matrix.  x: [M, N]"""
    rows, columns = matrix_sizes(x)
    if limits.has(rows, columns):
        return _Factors(*emit_all(LU(), x))
    cut = _half(columns, limits.panel) if columns <= rows else rows
    first = _lu(x[:, :cut], limits)
    right = _taken(x[:, cut:], first.order)
    known, below = first.lower[:cut], first.lower[cut:]
    above = emit(SolveTriangular(unit_diagonal=True), known, right[:cut])
    upper = F.concat([first.upper, above], axis=1)
    if cut == rows:
        return _Factors(first.order, first.lower, upper)
    last = _lu(right[cut:] - below @ above, limits)
    below = _taken(below, last.order)
    zeros = F.zeros((cut, last.lower.shape[1]), dtype=x.dtype)
    lower = [F.concat([known, zeros], axis=1), F.concat([below, last.lower], axis=1)]
    zeros = F.zeros((last.upper.shape[0], cut), dtype=x.dtype)
    upper = F.concat([upper, F.concat([zeros, last.upper], axis=1)], axis=0)
    order = F.concat([first.order[:cut], _taken(first.order[cut:], last.order)], axis=0)
    return _Factors(order, F.concat(lower, axis=0), upper)


def _solved(factors: _Factors, right: Tensor, whole: str) -> Tensor:
    """Return the y with x y = right, given the decomposition of x."""
    sides = _taken(right, factors.order)
    inner = emit(SolveTriangular(unit_diagonal=True), factors.lower, sides)
    return emit(SolveFactor(upper=True, whole=whole), factors.upper, inner)


def _solved_transposed(factors: _Factors, right: Tensor, whole: str) -> Tensor:
    """Return the y with x^T y = right, given the decomposition of x."""
    inner = emit(SolveFactor(whole=whole), factors.upper.mT, right)
    sides = emit(SolveTriangular(upper=True, unit_diagonal=True), factors.lower.mT, inner)
    positions = F.arange(right.shape[0], dtype=factors.order.dtype)
    back = F.zeros_like(factors.order).at[factors.order].set(positions)
    return _taken(sides, back)


def _taken(x: Tensor, order: Tensor) -> Tensor:
    """Return rows in an order: of numbers that are not negative, so that kernels don't ask."""
    return emit(Gather(0, "a row's number is out of range"), x, order)
