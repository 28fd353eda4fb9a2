"""The native steps of QR decompositions of small matrices, and of panels of large ones.

In scratch memory a matrix is transposed: so what a reflection changes is in rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.ir.dtype import DType
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node
from graphfw.ops.linalg.cholesky_qr import QR
from graphfw.runtime.kernels.steps import Step, View
from graphfw.runtime.numpy_executor.codegen.llvm_module import LlvmModule
from graphfw.runtime.numpy_executor.linalg import algorithms
from graphfw.runtime.numpy_executor.linalg.elements import Lanes, lanes_of, row_distance
from graphfw.runtime.numpy_executor.linalg.matrices import MatrixWriter
from graphfw.runtime.numpy_executor.linalg.views import operands_in_order
from graphfw.runtime.planning.work import ceil

_WORK_ITEM = 1 << 15
"""Changes of vectors that a work item makes about, if there are so many."""

_PANEL = 32
"""Columns of a panel; half as many where there are very many rows."""

_NEAR = 1 << 19
"""Bytes of a panel that a core's cache holds, beside its vectors."""

_NAMES = ("count", "together", "rows", "columns", "inner", "bases", "vectors", "width")
"""Of matrices, and how many of them a work item has; of rows and columns of one, the smaller number
of the two, and columns of Q; the row of scratch memory from which on vectors are, and the distance
of its rows."""


class ReflectionCode:
    """Factors matrices that are copied to scratch memory, by Householder's reflections.

    Operands: Q and R, or vectors, T and R; then the matrices. Params: `_NAMES`, then `VIEW` for
    each.

    Args:
        dtype: Of the matrices.
        many: Whether there are many of them; see `Lanes`.
        is_whole: Whether Q is wanted, not the vectors of reflections.
    """

    def __init__(self, dtype: DType, *, many: bool, is_whole: bool) -> None:
        self._lanes = Lanes(dtype, many=many)
        self._is_whole = is_whole

    @property
    def key(self) -> str:
        return f"qr {self._lanes.dtype.name} {self._lanes.many} {self._is_whole}"

    def llvm(self, symbol: str) -> str:
        f = MatrixWriter(LlvmModule(), self._lanes)
        n = f.read_sizes(_NAMES)
        f.width = n["width"]
        kinds = [self._lanes.one.stored] * (3 if self._is_whole else 4)
        with f.groups(n, kinds) as (*targets, x):
            rows, inner, vectors = n["rows"], n["inner"], n["vectors"]
            f.copy_transposed_in(x, rows, n["columns"])
            algorithms.reflect(f, n["columns"], rows, inner, vectors)
            f.copy_upper_out(targets[-1], n["bases"] if self._is_whole else inner, n["columns"])
            if self._is_whole:
                algorithms.orthonormal(f, n["bases"], rows, inner, vectors)
                f.copy_out(targets[0].transposed, n["bases"], rows, "0")
            else:
                algorithms.join_reflections(f, rows, inner, vectors)
                f.copy_out(targets[0], inner, rows, "0", vectors)
                joined = f.add(f.add(vectors, inner), "1")
                f.copy_out(targets[1].transposed, inner, inner, "0", joined)
        return f.work_item(symbol)


def panel_columns(node: Node, rows: int) -> int:
    """Return the number of columns of a panel of so many rows."""
    is_near = rows * _PANEL * node.inputs[0].dtype.itemsize <= _NEAR
    return _PANEL if is_near else _PANEL // 2


def reflection_steps(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], small: int
) -> list[Step]:
    """Return the steps of a QR decomposition, or of a panel of one; none where it is large.

    Args:
        node: The node.
        inputs: Where the matrices are.
        outputs: Where Q and R go, or the vectors of reflections, T and R.
        small: How many rows and columns the matrices of a QR decomposition may have.
    """
    (x,) = inputs
    dtype, lead, (rows, columns) = x.storage.dtype, x.shape[:-2], x.shape[-2:]
    count, is_whole = size_of(lead), isinstance(node.op, QR)
    if dtype.is_complex or not isinstance(rows, int) or not isinstance(columns, int):
        return []
    if 0 in (count, rows, columns) or (is_whole and max(rows, columns) > small):
        return []
    many = is_whole and count != 1
    inner = min(rows, columns)
    bases = rows if isinstance(node.op, QR) and node.op.complete else inner
    lanes = lanes_of(dtype)
    width = row_distance(rows, dtype, many=many)
    vectors = max(columns, bases if is_whole else 0)
    total = vectors + inner + 1 + (0 if is_whole else inner)
    total = max(total, columns + lanes)  # rows are copied in squares
    groups = max(1, _WORK_ITEM // (rows * columns * inner))
    together = lanes * groups if many else 1
    sizes = (count, together, rows, columns, inner, bases, vectors, width)
    operands = operands_in_order(node, outputs, inputs, lead)
    if operands is None:
        return []
    step = Step(
        nodes=(node,),
        code=ReflectionCode(dtype, many=many, is_whole=is_whole),
        operands=operands.storages,
        written=(*[True] * len(outputs), False),
        params=(*sizes, *operands.params),
        work_items=ceil(count, together),
        scratch=total * width * (lanes if many else 1) * dtype.itemsize,
    )
    return [*operands.copies, step]
