"""Signs of eigenvectors and singular vectors are chosen by native code, not by NumPy.

Where LAPACK finds vectors, `eval` chooses their signs in a dozen of NumPy's functions, which may
take as long as a small decomposition. Here they are ops of the graph, and fused; so is the mean of
a matrix and its transpose, which `eigh` decomposes.
"""

from __future__ import annotations

from collections.abc import Callable

from graphfw.ir.build import emit_all
from graphfw.ir.functions import F
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.linalg.eigen_svd import SVD, EigH
from graphfw.ops.linalg.phases import LEADING
from graphfw.passes.base import NodePass
from graphfw.utils.records import record


@record
class SignsOfVectors(NodePass):
    """Take the choice of signs out of decompositions of real matrices.

    Attributes:
        is_native: Whether an executor has native code for a node as it is.
    """

    is_native: Callable[[Node], bool]
    name = "signs-of-vectors"

    def fits(self, node: Node) -> bool:
        """Return whether signs of a node are chosen: of all columns of U, if they have any."""
        if not isinstance(node.op, EigH | SVD) or node.op.is_raw or self.is_native(node):
            return False
        rows, columns = node.inputs[0].shape[-2:]
        is_known = isinstance(rows, int) and isinstance(columns, int)
        is_paired = isinstance(node.op, EigH) or not node.op.full_matrices or rows == columns
        is_real = not node.inputs[0].dtype.is_complex
        return is_real and is_known and 0 not in (rows, columns) and is_paired

    def replaced(self, node: Node, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        (x,) = inputs
        if isinstance(node.op, SVD):
            u, s, vh = emit_all(SVD(node.op.full_matrices, is_raw=True), x)
            return signed(u, s, vh)
        values, vectors = emit_all(EigH(is_raw=True), 0.5 * x + 0.5 * x.mT)
        return values, vectors * signs(vectors)


def signed(u: Tensor, s: Tensor, vh: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return singular vectors with the signs that `eval` gives."""
    factors = signs(u)
    return u * factors, s, vh * factors.mT


def signs(vectors: Tensor) -> Tensor:
    """Return the signs of the columns' leading elements.  [*B, M, N] -> [*B, 1, N]"""
    sizes = F.abs(vectors)
    bound = LEADING * F.max(sizes, axis=-2, keepdims=True)
    position = F.argmax((sizes >= bound).astype(vectors.dtype), axis=-2, keepdims=True)
    leading = F.take_along_axis(vectors, position, axis=-2)
    result: Tensor = F.where(leading < 0, -1.0, 1.0).astype(vectors.dtype)
    return result
