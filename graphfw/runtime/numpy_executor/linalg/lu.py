"""The native step of LU decompositions with few columns, or of small matrices."""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.ir.dtype import DType
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node
from graphfw.runtime.kernels.steps import Step, View
from graphfw.runtime.numpy_executor.codegen.llvm_module import LlvmModule
from graphfw.runtime.numpy_executor.linalg import algorithms
from graphfw.runtime.numpy_executor.linalg.elements import Lanes, lanes_of, row_distance
from graphfw.runtime.numpy_executor.linalg.matrices import MatrixWriter
from graphfw.runtime.numpy_executor.linalg.views import operands_in_order
from graphfw.runtime.planning.work import ceil

PANEL = 32
"""Columns of the largest single matrix, of any number of rows."""

_WORK_ITEM = 1 << 15
"""Changes of vectors that a work item makes about, if there are so many."""

_NAMES = ("count", "together", "rows", "columns", "inner", "width")
"""Of matrices, and how many of them a work item has; of rows and columns of one, and the smaller
number of the two; of elements between rows in scratch memory."""


class FactorCode:
    """Factors matrices that are copied to scratch memory.

    Operands: order, lower triangles, upper triangles, matrices. Params: `_NAMES`, then `VIEW` for
    each.

    Args:
        dtype: Of the matrices.
        many: Whether there are many of them; see `Lanes`.
    """

    def __init__(self, dtype: DType, *, many: bool) -> None:
        self._lanes = Lanes(dtype, many=many)

    @property
    def key(self) -> str:
        return f"lu {self._lanes.dtype.name} {self._lanes.many}"

    def llvm(self, symbol: str) -> str:
        f = MatrixWriter(LlvmModule(), self._lanes)
        n = f.read_sizes(_NAMES)
        f.width = n["width"]
        numbers = f.mul(f.add(n["columns"], n["inner"]), n["width"])
        kinds = ["i64", *[self._lanes.one.stored] * 3]
        with f.groups(n, kinds) as (order, lower, upper, x):
            f.copy_transposed_in(x, n["rows"], n["columns"])
            with f.loop("0", n["rows"]) as line:
                f.put_number(f.add(numbers, line.index), f.number(line.index))
            multiples = n["columns"]
            algorithms.factor(f, n["rows"], n["columns"], n["inner"], multiples, numbers)
            with f.loop("0", n["rows"]) as line:
                value = f.get_number(f.add(numbers, line.index))
                f.write_number(order, line.index, value)
            f.copy_out(lower.transposed, n["inner"], n["rows"], "0", multiples)
            f.copy_upper_out(upper, n["inner"], n["columns"])
        return f.work_item(symbol)


def factor_steps(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], small: int
) -> list[Step]:
    """Return the steps of an LU decomposition; none where it is large, or of unknown size.

    Args:
        node: The node.
        inputs: Where the matrices are.
        outputs: Where the order of rows and the triangles go.
        small: How many rows and columns a matrix may have; a single one may have more rows.
    """
    (x,) = inputs
    dtype, lead, (rows, columns) = x.storage.dtype, x.shape[:-2], x.shape[-2:]
    count = size_of(lead)
    many = count != 1
    if dtype.is_complex or not isinstance(rows, int) or not isinstance(columns, int):
        return []
    fits = max(rows, columns) <= small or (not many and columns <= PANEL)
    if not fits or 0 in (count, rows, columns):
        return []
    order, lower, upper = outputs
    column = View(order.storage, order.offset, (*order.shape, 1), (*order.strides, 1))
    lanes, inner = lanes_of(dtype), min(rows, columns)
    width = row_distance(rows, dtype, many=many)
    total = max(columns + inner + 1, columns + lanes)  # rows are copied in squares
    groups = max(1, _WORK_ITEM // (rows * columns * inner))
    together = lanes * groups if many else 1
    operands = operands_in_order(node, (column, lower, upper), inputs, lead)
    if operands is None:
        return []
    step = Step(
        nodes=(node,),
        code=FactorCode(dtype, many=many),
        operands=operands.storages,
        written=(True, True, True, False),
        params=(count, together, rows, columns, inner, width, *operands.params),
        work_items=ceil(count, together),
        scratch=total * width * (lanes if many else 1) * dtype.itemsize,
    )
    return [*operands.copies, step]
