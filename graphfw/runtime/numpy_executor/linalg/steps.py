"""The native steps of equations, inverses and Cholesky's triangles of small matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from graphfw.ir.dim import DimLike, dim_max, dim_min
from graphfw.ir.dtype import DType
from graphfw.ir.shape import broadcast, size_of
from graphfw.ir.tensor import Node
from graphfw.ops.linalg.cholesky_qr import QR, Cholesky, Reflections
from graphfw.ops.linalg.eigen_svd import EigH, EigvalsH
from graphfw.ops.linalg.solve import Inv
from graphfw.ops.linalg.triangular_lu import LU, TriangularEquations
from graphfw.passes.fuse_views import contiguous
from graphfw.runtime.kernels.steps import Step, View
from graphfw.runtime.numpy_executor.codegen import KernelCode
from graphfw.runtime.numpy_executor.codegen.llvm_module import LlvmModule
from graphfw.runtime.numpy_executor.codegen.target import host
from graphfw.runtime.numpy_executor.linalg import algorithms
from graphfw.runtime.numpy_executor.linalg.columns import FEW, ColumnCode
from graphfw.runtime.numpy_executor.linalg.eigen import eigen_steps
from graphfw.runtime.numpy_executor.linalg.elements import Lanes, lanes_of
from graphfw.runtime.numpy_executor.linalg.lu import factor_steps
from graphfw.runtime.numpy_executor.linalg.matrices import MatrixWriter
from graphfw.runtime.numpy_executor.linalg.operands import Source
from graphfw.runtime.numpy_executor.linalg.qr import reflection_steps
from graphfw.runtime.numpy_executor.linalg.triangles import TriangleCode
from graphfw.runtime.numpy_executor.linalg.views import in_order, operands_in_order
from graphfw.runtime.planning.copies import copied
from graphfw.runtime.planning.work import ceil

SMALL = 32
"""Rows of the largest of many matrices: so many lanes of them fit a core's cache."""

SMALL_SINGLE = 64
"""Rows of the largest single one: a larger one is better divided into blocks."""

_COLUMNS = 32
"""Right-hand sides of a work item, for many matrices; a single one has as many vectors."""

_WORK_ITEM = 1 << 15
"""Changes of vectors that a work item makes about, if there are so many."""

Algorithm: TypeAlias = Literal["solve", "inverse", "triangle", "cholesky"]

_NAMES = ("count", "together", "size", "columns", "block", "blocks", "width")
"""Of matrices, and how many of them a work item has; of the rows of one; of right-hand sides, how
many of them a work item has, and of such blocks; of elements between rows in scratch memory."""


class SmallMatrices:
    """Computes with matrices that are copied to scratch memory.

    Operands: output, matrices, right-hand sides, if there are any. Params: `_NAMES`, then `VIEW`
    for each.

    Args:
        dtype: Of all operands.
        algorithm: What is done.
        many: Whether there are many matrices; see `Lanes`.
        upper: Which triangle is solved with.
        unit: Whether its diagonal is taken as ones.
    """

    def __init__(
        self,
        dtype: DType,
        algorithm: Algorithm,
        *,
        many: bool,
        upper: bool = False,
        unit: bool = False,
    ) -> None:
        self._lanes = Lanes(dtype, many=many)
        self._algorithm = algorithm
        self._upper = upper
        self._unit = unit

    @property
    def key(self) -> str:
        lanes = self._lanes
        traits = f"{lanes.many} {self._upper} {self._unit}"
        return f"small matrices {self._algorithm} {lanes.dtype.name} {traits}"

    def llvm(self, symbol: str) -> str:
        f = MatrixWriter(LlvmModule(), self._lanes)
        n = f.read_sizes(_NAMES)
        f.width = n["width"]
        inputs = 2 if self._algorithm in ("solve", "triangle") else 1
        item = f.div("%work_item", n["blocks"])
        left = f.mul(f.rem("%work_item", n["blocks"]), n["block"])
        columns = f.low(n["block"], f.sub(n["columns"], left))
        size = n["size"]
        # The matrices are read from their first columns on.
        firsts = [left, "0", left][: inputs + 1]
        kinds = [self._lanes.one.stored] * len(firsts)
        with f.groups(n, kinds, item=item, columns=firsts) as (target, *sources):
            self._compute(f, size, columns, sources, target)
        return f.work_item(symbol)

    def _compute(
        self, f: MatrixWriter, size: str, columns: str, sources: Sequence[Source], target: Source
    ) -> None:
        if self._algorithm == "cholesky":
            f.load_mean(sources[0], size)
            algorithms.cholesky(f, size)
            _store_transposed(f, target, size)
            return
        end = f.add(size, columns)
        f.copy_in(sources[0], size, size, "0")
        if self._algorithm == "inverse":
            f.set_identity(size, at=size)
        else:
            f.copy_in(sources[1], size, columns, size)
        upper, unit = self._upper, self._unit
        if self._algorithm != "triangle":
            algorithms.eliminate(f, size, end)
            upper = True
        checks = self._algorithm == "triangle"
        algorithms.substitute(f, size, end, upper=upper, unit=unit, checks=checks)
        f.copy_out(target, size, columns, size)


def _store_transposed(f: MatrixWriter, target: Source, size: str) -> None:
    """Store upper triangles as lower ones, and zeros above."""
    zero = f.lanes.one.constant(0)
    with f.loop("0", size) as row:
        after = f.add(row.index, "1")
        with f.loop("0", after) as column:
            value = f.get(column.index, row.index)
            f.write_element(target, row.index, column.index, value)
        with f.loop(after, size) as column:
            f.write_element(target, row.index, column.index, zero)


def small_rows(node: Node) -> int:
    """Return how many rows a matrix of a node may have; 0 where there is no native code for it."""
    x = node.inputs[0]
    if x.dtype.is_complex:
        return 0
    return SMALL_SINGLE if size_of(x.shape[:-2]) == 1 else SMALL


def small_matrix_steps(node: Node, inputs: Sequence[View], outputs: Sequence[View]) -> list[Step]:
    """Return the steps of a node; none where its matrices are large, or of unknown size."""
    if isinstance(node.op, LU):
        return factor_steps(node, inputs, outputs, small_rows(node))
    if isinstance(node.op, EigH | EigvalsH):
        return eigen_steps(node, inputs, outputs)
    if isinstance(node.op, QR | Reflections):
        return reflection_steps(node, inputs, outputs, small_rows(node))
    (output,) = outputs
    dtype, size = output.storage.dtype, inputs[0].shape[-1]
    lead = broadcast(*[x.shape[:-2] for x in inputs])
    count = size_of(lead)
    if dtype.is_complex or 0 in (count, size):
        return []
    many, columns = count != 1, output.shape[-1]
    is_small = isinstance(size, int) and size <= small_rows(node)
    if isinstance(node.op, TriangularEquations) and not (many and is_small):
        return triangle_steps(node, node.op, inputs, output)
    if not is_small:
        return []
    lanes = lanes_of(dtype)
    algorithm, upper, unit = _algorithm_of(node)
    sides = 0 if algorithm == "cholesky" else columns
    block = columns
    if algorithm in ("solve", "triangle"):
        block = sides = dim_max(1, dim_min(columns, _COLUMNS if many else lanes * _COLUMNS))
    blocks = ceil(columns, block)
    width = size + sides
    # Whole vectors reach beyond a row.
    width = width if many else lanes * (ceil(width, lanes) + 1)
    groups = dim_max(1, _WORK_ITEM // (size * size * dim_max(1, size + sides)))
    together = lanes * groups if many else 1
    sizes = (count, together, size, columns, block, blocks, width)
    operands = operands_in_order(node, outputs, inputs, lead)
    if operands is None:
        return []
    code = SmallMatrices(dtype, algorithm, many=many, upper=upper, unit=unit)
    step = Step(
        nodes=(node,),
        code=code,
        operands=operands.storages,
        written=(True, *[False] * len(inputs)),
        params=(*sizes, *operands.params),
        work_items=ceil(count, together) * blocks,
        scratch=(size + 1) * width * (lanes if many else 1) * dtype.itemsize,
        can_fail=True,
    )
    return [*operands.copies, step]


def _algorithm_of(node: Node) -> tuple[Algorithm, bool, bool]:
    op = node.op
    if isinstance(op, TriangularEquations):
        return "triangle", op.upper, op.unit_diagonal
    if isinstance(op, Cholesky):
        return "cholesky", True, False
    return ("inverse" if isinstance(op, Inv) else "solve"), True, False


def triangle_steps(
    node: Node, op: TriangularEquations, inputs: Sequence[View], output: View
) -> list[Step]:
    """Return the steps that solve with triangles of any size, matrix by matrix."""
    lead, (size, columns) = output.shape[:-2], output.shape[-2:]
    is_few = isinstance(columns, int) and 0 < columns <= FEW
    lying, copies = in_order(node, output, lead)
    if copies or not (is_few or lying.strides[-1] == 1):
        return []
    views = [lying]
    for number, x in enumerate(inputs):
        lying, more = in_order(node, x, lead)
        copies += more
        is_dense = 1 in lying.strides[1:] if is_few else lying.strides[-1] == 1
        is_small = isinstance(size, int) and size <= SMALL_SINGLE
        if number == 0 and not is_dense and (is_few or not is_small):
            # Of each row, a line of cache would have to be fetched for every element.
            step, temp = copied(lying, (node,), "rows of a triangle", KernelCode)
            lying = View(temp, 0, lying.shape, contiguous(lying.shape))
            copies.append(step)
        views.append(lying)
    make = few_columns_step if is_few else many_columns_step
    return [*copies, make(node, op, views)]


def few_columns_step(node: Node, op: TriangularEquations, views: Sequence[View]) -> Step:
    """Return the step that solves for a few columns."""
    output, matrix, _ = views
    dtype, (count, size, columns) = output.storage.dtype, output.shape
    assert isinstance(columns, int)
    code = ColumnCode(
        dtype,
        columns,
        upper=op.upper,
        unit=op.unit_diagonal,
        by_columns=matrix.strides[-1] != 1,
    )
    params = [size]
    for view in views:
        params += [view.offset, *view.strides]
    return Step(
        nodes=(node,),
        code=code,
        operands=tuple([view.storage for view in views]),
        written=(True, False, False),
        params=tuple(params),
        work_items=count,
        scratch=size * columns * dtype.itemsize,
        can_fail=True,
    )


def many_columns_step(node: Node, op: TriangularEquations, views: Sequence[View]) -> Step:
    """Return the step that solves for vectors of columns."""
    dtype, (count, size, columns) = views[0].storage.dtype, views[0].shape
    lanes, vectors = lanes_of(dtype), 2 if host().vector_bytes == 64 else 1
    # An item has a vector at least; of few columns, as many as leave each thread some.
    block = lanes * dim_max(1, dim_min(vectors, columns // (2 * lanes)))
    blocks = ceil(columns, block)
    params: list[DimLike] = [size, columns, block, blocks]
    for number, view in enumerate(views):
        apart, row, column = view.strides
        offset = view.offset
        if op.upper:
            offset = offset + (size - 1) * (row + (column if number == 1 else 0))
            row = -row
            column = -column if number == 1 else column
        params += [offset, apart, row, column]
    return Step(
        nodes=(node,),
        code=TriangleCode(dtype, unit=op.unit_diagonal, vectors=vectors),
        operands=tuple([view.storage for view in views]),
        written=(True, False, False),
        params=tuple(params),
        work_items=count * blocks,
        scratch=size * vectors * 64,
        can_fail=True,
    )
