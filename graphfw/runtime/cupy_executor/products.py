"""Matrix products as steps: operands as they lie where cuBLASLt takes them so, else copied."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from graphfw.ir.dim import DimLike, always_ge
from graphfw.ir.dtype import DType, bfloat16, float16, float32, float64
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node
from graphfw.passes.fuse_views import contiguous
from graphfw.runtime.cupy_executor.codegen import CudaCode
from graphfw.runtime.kernels.lower import with_batch
from graphfw.runtime.kernels.steps import Step, View
from graphfw.runtime.limits import Precision
from graphfw.runtime.planning.copies import copied

_DTYPES = (float16, bfloat16, float32, float64)


class Sizes(NamedTuple):
    """The run-time integers of a product: lengths, and distances in elements.

    Attributes:
        m: Rows of a.
        n: Columns of b.
        k: Columns of a.
        batch: How many products.
        a: Where a begins in its storage.
        a_lead: From row to row of a; where it lies across, from column to column.
        a_batch: From one a to the next; 0: they are all the same.
        b: As of a.
        b_lead: As of a.
        b_batch: As of a.
    """

    m: DimLike
    n: DimLike
    k: DimLike
    batch: DimLike
    a: DimLike
    a_lead: DimLike
    a_batch: DimLike
    b: DimLike
    b_lead: DimLike
    b_batch: DimLike


@dataclass(frozen=True)
class ProductCode:
    """A batch of products a @ b, by cuBLASLt. Operands: a, b, the result; params: `Sizes`.

    Attributes:
        dtype: Of all three; 16-bit floats are added up in float32.
        a_across: Whether a lies column by column.
        b_across: Whether b does.
        precision: See `Options`.
    """

    dtype: DType
    a_across: bool
    b_across: bool
    precision: Precision

    @property
    def key(self) -> str:
        """All of it."""
        return repr(self)


class _Operand(NamedTuple):
    """A batch of matrices as cuBLASLt takes it."""

    view: View
    is_across: bool
    lead: DimLike
    batch: DimLike


def product_steps(node: Node, inputs: Sequence[View], precision: Precision) -> list[Step]:
    """Return the steps of a matrix product, or nothing where it is none for cuBLASLt."""
    (out,) = node.outputs
    if out.dtype not in _DTYPES or any(t.dtype is not out.dtype for t in node.inputs):
        return []
    *dims, rows, columns = out.shape
    steps: list[Step] = []
    a, b = [_operand(with_batch(one, dims), node, steps) for one in inputs]
    depth, batch = a.view.shape[-1], size_of(dims)
    if b.batch == 0 and _is_tall(a, dims, rows):  # all rows as those of one matrix
        rows, batch = rows * batch, 1
    step = Step(
        nodes=(node,),
        code=ProductCode(out.dtype, a.is_across, b.is_across, precision),
        operands=(a.view.storage, b.view.storage, out),
        written=(False, False, True),
        params=Sizes(
            *(rows, columns, depth, batch),
            *(a.view.offset, a.lead, a.batch),
            *(b.view.offset, b.lead, b.batch),
        ),
        cells=1,
    )
    return [*steps, step]


def _operand(view: View, node: Node, steps: list[Step]) -> _Operand:
    """Return an operand, copied first if it lies otherwise than cuBLASLt takes it."""
    found = _as_it_lies(view)
    if found is None:
        step, temp = copied(view, (node,), "an operand of a product", CudaCode)
        steps.append(step)
        found = _as_it_lies(View(temp, 0, view.shape, contiguous(view.shape)))
        assert found is not None
    return found


def _as_it_lies(view: View) -> _Operand | None:
    *dims, rows, columns = view.shape
    *batch_strides, down, along = view.strides
    batch = _joined(dims, batch_strides)
    if batch is None:
        return None
    if (along == 1 or columns == 1) and (rows == 1 or _leads(down, view)):
        return _Operand(view, False, columns if rows == 1 else down, batch)
    if (down == 1 or rows == 1) and (columns == 1 or _leads(along, view)):
        return _Operand(view, True, rows if columns == 1 else along, batch)
    return None


def _leads(stride: DimLike, view: View) -> bool:
    """Whether a stride leads on to other elements, if there are any."""
    return always_ge(stride, 0) and (stride != 0 or size_of(view.shape) == 0)


def _joined(dims: Sequence[DimLike], strides: Sequence[DimLike]) -> DimLike | None:
    """Return the one distance that leads from matrix to matrix, if there is one."""
    real = [(dim, s) for dim, s in zip(dims, strides, strict=True) if dim != 1]
    if all(stride == 0 for _, stride in real):
        return 0
    for (_, stride), (dim, inner) in pairwise(real):
        if stride != inner * dim:
            return None
    last = real[-1][1]
    return last if always_ge(last, 0) else None


def _is_tall(a: _Operand, dims: Sequence[DimLike], rows: DimLike) -> bool:
    """Whether the matrices of a batch lie below each other like one."""
    return not a.is_across and size_of(dims) != 1 and a.batch == rows * a.lead


def alignment(nbytes: int) -> int:
    """Return to what an address so far from a well aligned one is aligned.

    >>> alignment(0), alignment(8), alignment(6)
    (16, 8, 2)
    """
    return math.gcd(nbytes, 16)
