"""The native step of eigenvalues and eigenvectors of many small symmetric matrices.

By Jacobi's method: rotations of two rows and columns make one element 0 after the other. A sweep
goes through all; five to eight sweeps are enough. The lanes of vectors are elements of neighbouring
matrices, which take the same steps.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.ir.dtype import DType
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node
from graphfw.ops.elementwise.cast import finfo
from graphfw.ops.linalg.eigen_svd import EigH, EigvalsH
from graphfw.ops.linalg.phases import LEADING
from graphfw.runtime.kernels.steps import Step, View
from graphfw.runtime.numpy_executor.codegen.llvm_module import LlvmModule
from graphfw.runtime.numpy_executor.linalg.elements import Lanes, lanes_of
from graphfw.runtime.numpy_executor.linalg.matrices import MatrixWriter
from graphfw.runtime.numpy_executor.linalg.views import operands_in_order
from graphfw.runtime.planning.work import ceil

_LARGEST = 32
"""Rows of the largest matrices: LAPACK's methods take fewer operations."""

_FEWER = 24
"""Of values in float64 alone, for which LAPACK takes half of them."""

_ANY = 16
"""Up to so many rows, half of the lanes are enough."""

_SWEEPS = 30
"""More than any matrix takes."""

_WORK_ITEM = 1 << 12
"""Changes of vectors in a sweep that a work item makes about, if there are so many."""

_NAMES = ("count", "together", "size")
"""Of matrices, and how many of them a work item has; of the rows of one."""


class EigenCode:
    """Diagonalises symmetric matrices that are copied to scratch memory.

    Operands: values, vectors, if they are wanted, matrices. Params: `_NAMES`, then `VIEW` for
    each.

    Args:
        dtype: Of all operands.
        vectors: Whether eigenvectors are wanted.
    """

    def __init__(self, dtype: DType, *, vectors: bool) -> None:
        self._lanes = Lanes(dtype, many=True)
        self._vectors = vectors

    @property
    def key(self) -> str:
        return f"eigen {self._lanes.dtype.name} {self._vectors}"

    def llvm(self, symbol: str) -> str:
        f = MatrixWriter(LlvmModule(), self._lanes)
        n = f.read_sizes(_NAMES)
        size = f.width = n["size"]
        kinds = [self._lanes.one.stored] * (3 if self._vectors else 2)
        with f.groups(n, kinds) as (values, *vectors, x):
            f.load_mean(x, size)
            if self._vectors:
                f.set_identity(size, first=size)
            self._diagonalise(f, size)
            self._sort(f, size)
            with f.loop("0", size) as line:
                value = f.get(line.index, line.index)
                f.write_element(values, line.index, "0", value)
            if self._vectors:
                self._choose_signs(f, size)
                f.copy_out(vectors[0].transposed, size, size, "0", size)
        return f.work_item(symbol)

    def _diagonalise(self, f: MatrixWriter, size: str) -> None:
        """Make an upper triangle of a symmetric matrix its eigenvalues, by sweeps of rotations.

        Elements that are as small as rounding errors of the largest are 0. A matrix with NaN or
        infinities is refused.
        """
        one, zero = f.lanes.one, f.lanes.one.constant(0)
        largest = f.add(size, size)  # a row with the largest element of a sweep
        f.put(largest, "0", zero)
        checked = [(one.kind, zero)] * 2
        with f.loop("0", size, carried=checked) as row:
            with f.loop(
                row.index, size, carried=[(one.kind, value) for value in row.values]
            ) as column:
                value = f.size_of(f.get(row.index, column.index))
                column.following = [
                    f.larger(value, column.values[0]),
                    one.add(f, column.values[1], one.multiply(f, value, zero)),
                ]
            row.following = column.values
        most, rest = row.values
        f.refuse(f.compare("uno", rest, zero))
        bound = one.multiply(f, most, f.constant(float(finfo(f.lanes.dtype).eps) / 2))
        f.put(largest, "0", most)
        with f.loop("0", str(_SWEEPS)):
            with f.when_any(f.compare("ogt", f.get(largest, "0"), bound)):
                f.put(largest, "0", zero)
                with f.loop("0", size) as row, f.loop(f.add(row.index, "1"), size) as column:
                    self._rotate(f, row.index, column.index, size, largest, bound)
        f.refuse(f.compare("ogt", f.get(largest, "0"), bound))

    def _rotate(self, f: MatrixWriter, p: str, q: str, size: str, largest: str, bound: str) -> None:
        """Make an element 0, if it is not small in all matrices."""
        one = f.lanes.one
        zero, unit, half = [f.constant(x) for x in (0.0, 1.0, 0.5)]
        element = f.get(p, q)
        extent = f.size_of(element)
        with f.when_any(f.compare("ogt", extent, bound)):
            f.put(largest, "0", f.larger(extent, f.get(largest, "0")))
            near, far = f.get(p, p), f.get(q, q)
            is_zero = f.compare("oeq", element, zero)
            ratio = one.multiply(f, half, f.divide(f.subtract(far, near), element))
            length = f.sqrt(f.multiply_add(ratio, ratio, unit))
            tangent = f.divide(unit, one.add(f, f.size_of(ratio), length))
            tangent = f.choose(is_zero, zero, f.with_sign(tangent, ratio))
            cosine = f.divide(unit, f.sqrt(f.multiply_add(tangent, tangent, unit)))
            sine = one.multiply(f, tangent, cosine)
            change = one.multiply(f, tangent, element)
            f.put(p, p, f.subtract(near, change))
            f.put(q, q, one.add(f, far, change))
            f.put(p, q, zero)
            turn = (cosine, sine)
            # The three parts of rows and columns p and q of the upper triangle.
            with f.loop("0", p) as other:
                _turn(f, turn, (other.index, p), (other.index, q))
            with f.loop(f.add(p, "1"), q) as other:
                _turn(f, turn, (p, other.index), (other.index, q))
            with f.loop(f.add(q, "1"), size) as other:
                _turn(f, turn, (p, other.index), (q, other.index))
            if self._vectors:
                rows = [f.add(size, row) for row in (p, q)]
                with f.loop("0", size) as other:
                    _turn(f, turn, (rows[0], other.index), (rows[1], other.index))

    def _sort(self, f: MatrixWriter, size: str) -> None:
        """Bring eigenvalues and their vectors into ascending order."""
        with f.loop("0", size) as row, f.loop(f.add(row.index, "1"), size) as other:
            here, there = [f.get(i, i) for i in (row.index, other.index)]
            smaller = f.compare("olt", there, here)
            with f.when_any(smaller):
                f.put(row.index, row.index, f.choose(smaller, there, here))
                f.put(other.index, other.index, f.choose(smaller, here, there))
                if self._vectors:
                    first, second = [f.add(size, i) for i in (row.index, other.index)]
                    f.exchange_rows(first, second, "0", size, smaller)

    def _choose_signs(self, f: MatrixWriter, size: str) -> None:
        """Make the leading element of each vector positive, as `eval` does."""
        one, zero = f.lanes.one, f.lanes.one.constant(0)
        with f.loop("0", size) as step:
            row = f.add(size, step.index)
            with f.loop("0", size, carried=[(one.kind, zero)]) as column:
                value = f.size_of(f.get(row, column.index))
                column.following = [f.larger(value, column.values[0])]
            bound = one.multiply(f, f.constant(LEADING), column.values[0])
            with f.loop("0", size, carried=[(one.kind, zero)]) as column:
                value = f.get(row, column.index)
                leads = f.both(
                    f.compare("oge", f.size_of(value), bound),
                    f.compare("oeq", column.values[0], zero),
                )
                column.following = [f.choose(leads, value, column.values[0])]
            f.multiply_row(row, "0", size, f.with_sign(one.constant(1), column.values[0]))


def _turn(
    f: MatrixWriter, turn: tuple[str, str], first: tuple[str, str], last: tuple[str, str]
) -> None:
    """Rotate two elements."""
    one, (cosine, sine) = f.lanes.one, turn
    x, y = f.get(*first), f.get(*last)
    less = f.negative(one.multiply(f, sine, y))
    f.put(*first, f.multiply_add(cosine, x, less))
    f.put(*last, f.multiply_add(cosine, y, one.multiply(f, sine, x)))


def is_small_eigen(node: Node) -> bool:
    """Whether there is native code for a node: the eigenvalues of many small symmetric matrices."""
    if not isinstance(node.op, EigH | EigvalsH):
        return False
    x = node.inputs[0]
    size, count, lanes = x.shape[-1], size_of(x.shape[:-2]), lanes_of(x.dtype)
    largest = _LARGEST if isinstance(node.op, EigH) or x.dtype.itemsize == 4 else _FEWER
    if x.dtype.is_complex or not isinstance(size, int) or not 0 < size <= largest:
        return False
    return not isinstance(count, int) or count >= (lanes // 2 if size <= _ANY else lanes)


def eigen_steps(node: Node, inputs: Sequence[View], outputs: Sequence[View]) -> list[Step]:
    """Return the step of eigenvalues of matrices; none where there are few, or they are large."""
    (x,) = inputs
    dtype, lead, size = x.storage.dtype, x.shape[:-2], x.shape[-1]
    if not is_small_eigen(node):
        return []
    assert isinstance(size, int)
    count, lanes, vectors = size_of(lead), lanes_of(dtype), isinstance(node.op, EigH)
    groups = max(1, _WORK_ITEM // size**3)
    together = lanes * groups
    values = outputs[0]
    column = View(values.storage, values.offset, (*values.shape, 1), (*values.strides, 1))
    operands = operands_in_order(node, (column, *outputs[1:]), inputs, lead)
    if operands is None:
        return []
    step = Step(
        nodes=(node,),
        code=EigenCode(dtype, vectors=vectors),
        operands=operands.storages,
        written=(*[True] * len(outputs), False),
        params=(count, together, size, *operands.params),
        work_items=ceil(count, together),
        scratch=(2 * size + 1) * size * lanes * dtype.itemsize,
        can_fail=True,
    )
    return [*operands.copies, step]
