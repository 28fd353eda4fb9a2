"""Singular values of matrices that are not square are found from a QR decomposition's triangle.

    x = Q R,  R = U S Vh:   x = (Q U) S Vh

LAPACK does so only where there are about twice as many rows as columns, with a decomposition of its
own. A matrix with fewer rows than columns is treated as its transpose is.
"""

from __future__ import annotations

from collections.abc import Callable

from graphfw.ir.build import emit, emit_all
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.linalg.cholesky_qr import QR
from graphfw.ops.linalg.eigen_svd import SVD, SVDVals
from graphfw.passes.base import NodePass
from graphfw.passes.signs_of_vectors import signed
from graphfw.utils.records import record

_LONGER = 1.8
"""The least ratio of rows to columns, or of columns to rows."""


@record
class SVDByQR(NodePass):
    """Decompose matrices that are not square as Q R first.

    Attributes:
        is_native: Whether an executor has native code for QR decompositions of a node's input.
    """

    is_native: Callable[[Node], int]
    name = "svd-by-qr"

    def fits(self, node: Node) -> bool:
        is_reduced = isinstance(node.op, SVD) and not (node.op.full_matrices or node.op.is_raw)
        if not (is_reduced or isinstance(node.op, SVDVals)) or not self.is_native(node):
            return False
        rows, columns = node.inputs[0].shape[-2:]
        if not isinstance(rows, int) or not isinstance(columns, int):
            return False
        return 0 < min(rows, columns) * _LONGER <= max(rows, columns)

    def replaced(self, node: Node, inputs: tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
        (x,) = inputs
        rows, columns = node.inputs[0].shape[-2:]
        is_tall = rows >= columns
        q, r = emit_all(QR(), x if is_tall else x.mT)
        if isinstance(node.op, SVDVals):
            return emit(SVDVals(), r)
        u, s, vh = emit_all(SVD(False, is_raw=True), r if is_tall else r.mT)
        return signed(q @ u, s, vh) if is_tall else signed(u, s, vh @ q.mT)
