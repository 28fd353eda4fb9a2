"""Matrix products as steps: operands as they lie where cuBLASLt takes them so, else copied."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from graphfw.ir.dim import DimLike, always_ge
from graphfw.ir.dtype import DType, bfloat16, float16, float32, float64
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.linalg.fused_matmul import FusedProduct
from graphfw.passes.fuse_views import contiguous
from graphfw.runtime.cupy_executor.codegen import CudaCode
from graphfw.runtime.cupy_executor.fallback_kernels import unfused_steps
from graphfw.runtime.kernels.lower import with_batch
from graphfw.runtime.kernels.steps import Step, Storage, Temp, View
from graphfw.runtime.kernels.views import is_whole
from graphfw.runtime.limits import Precision
from graphfw.runtime.planning.copies import copied, put

_DTYPES = (float16, bfloat16, float32, float64)

ALIGNED = 16
"""The bytes that kernels of cuBLASLt access at once, where rows begin at multiples of it."""

RESULT = 2
"""The index of a product's result among its operands."""


class ProductSizes(NamedTuple):
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
        residual: Where what is added begins in its storage.
        residual_lead: From row to row of it.
        result: Where the result begins in its storage.
        result_lead: From row to row of it; 0: one after the other.
        result_batch: From one result to the next; 0: one after the other.
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
    residual: DimLike = 0
    residual_lead: DimLike = 0
    result: DimLike = 0
    result_lead: DimLike = 0
    result_batch: DimLike = 0


@dataclass(frozen=True)
class ProductCode:
    """A batch of products a @ b, by cuBLASLt.

    Operands: a, b, the result; with `op` what its others are, then what its other results are, then
    what else `fallback` reads and writes. Params: `ProductSizes`.

    Attributes:
        dtype: Of a and b; products of 16-bit floats are added up in float32.
        out: Of all else.
        a_across: Whether a lies column by column.
        b_across: Whether b does.
        precision: See `Options`.
        op: What else is to be done; then it is one product.
        fallback: What does it after the `plain` product, where cuBLASLt does not.
        apart: Which operand the plain product goes to then, in a row.
    """

    dtype: DType
    out: DType
    a_across: bool
    b_across: bool
    precision: Precision
    op: FusedProduct | None = None
    fallback: tuple[Step, ...] = field(default=(), compare=False, repr=False)
    apart: int = field(default=RESULT, compare=False, repr=False)

    @property
    def key(self) -> str:
        """All of it."""
        return repr(self)

    @property
    def title(self) -> str:
        """The step's name in reports: what is done, in order."""
        if self.op is None:
            return "matmul"
        words = {"residual": self.op.residual, "bias": self.op.bias}
        words |= {self.op.activation: bool(self.op.activation), "sums": self.op.sums}
        return " ".join(["matmul", *[name for name, is_there in words.items() if is_there]])

    @property
    def operands(self) -> tuple[str, ...]:
        """The names of the operands, without those of `fallback`."""
        if self.op is None:
            return ("a", "b", "result")
        return ("a", "b", "result", *self.op.others, *self.op.results[1:])

    @property
    def is_exact(self) -> bool:
        """Whether cuBLASLt does the rest as exactly as the product.

        NVIDIA says nothing about its GELU: so it is taken for results of 16 bits, and in TF32.
        """
        is_gelu = self.op is not None and self.op.activation.startswith("gelu")
        return not is_gelu or self.out.is_low_precision or self.precision == "high"

    @property
    def plain(self) -> ProductCode:
        """The operations that cuBLASLt always does: the product, and what is added to it."""
        assert self.op is not None
        op = FusedProduct(residual=True, widens=self.op.widens) if self.op.residual else None
        return replace(self, op=op, fallback=(), apart=RESULT)


class _GemmOperand(NamedTuple):
    """A batch of matrices as cuBLASLt takes it."""

    view: View
    is_across: bool
    lead: DimLike
    batch: DimLike


def product_steps(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], precision: Precision
) -> list[Step]:
    """Return the steps of a `matmul`, or nothing where it is none for cuBLASLt."""
    out = node.outputs[0]
    if out.dtype not in _DTYPES or any(t.dtype is not out.dtype for t in node.inputs):
        return []
    target = _result(outputs[0])
    if target is None or not (is_whole(target.view) or always_ge(node.inputs[0].shape[-1], 1)):
        return []
    *dims, rows, columns = out.shape
    steps: list[Step] = []
    a, b = [_operand(with_batch(one, dims), node, steps) for one in inputs]
    depth, batch = a.view.shape[-1], size_of(dims)
    if b.batch == 0 and _is_tall(a, dims, rows) and _is_tall(target, dims, rows):
        rows, batch = rows * batch, 1  # all rows as those of one matrix
    step = Step(
        nodes=(node,),
        code=ProductCode(out.dtype, out.dtype, a.is_across, b.is_across, precision),
        operands=(a.view.storage, b.view.storage, target.view.storage),
        written=(False, False, True),
        params=ProductSizes(
            *(rows, columns, depth, batch),
            *(a.view.offset, a.lead, a.batch),
            *(b.view.offset, b.lead, b.batch),
            result=target.view.offset,
            result_lead=target.lead,
            result_batch=target.batch,
        ),
        work_items=1,
    )
    return [*steps, step]


def fused_product_steps(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], precision: Precision
) -> list[Step]:
    """Return the steps of a `fused_product`: one product, of all rows of all batches.

    Nothing where a result's rows do not lie like those of one matrix.
    """
    op = node.op
    assert isinstance(op, FusedProduct)
    *dims, rows, columns = node.types[0].shape
    target = _result(outputs[0])
    if target is None or not (size_of(dims) == 1 or _is_tall(target, dims, rows)):
        return []
    if not all(map(is_whole, outputs[1:])):
        return []
    steps: list[Step] = []
    input_of = dict(zip(("a", "b", *op.others), inputs, strict=True))
    a = _rows_of(input_of.pop("a"), node, steps, may_lie_across=size_of(dims) == 1)
    b = _operand(input_of["b"], node, steps)
    made = {name: view.storage for name, view in zip(op.results, outputs, strict=True)}
    storages: dict[str, Storage] = {"a": a.view.storage, "b": b.view.storage, **made}
    params = ProductSizes(
        *(size_of((*dims, rows)), columns, a.view.shape[-1], 1),
        *(a.view.offset, a.lead, 0),
        *(b.view.offset, b.lead, 0),
        result=target.view.offset,
        result_lead=target.lead,
    )
    for name in op.others:
        if name == "residual":
            residual = _rows_of(input_of[name], node, steps, may_lie_across=False)
            storages[name] = residual.view.storage
            params = params._replace(residual=residual.view.offset, residual_lead=residual.lead)
        else:
            storages[name] = _whole(input_of[name], node, steps)
    whole = {**storages, "b": _whole(input_of["b"], node, steps)} if op.sums else {**storages}
    apart: list[Storage] = []
    if not is_whole(target.view):
        why = "a product that is not yet where it belongs"
        apart.append(Temp(target.view.storage.dtype, size_of(node.types[0].shape), why))
        whole["result"] = apart[0]
    fallback = unfused_steps(node, whole)
    if apart:
        fallback.append(put(apart[0], target.view, (node,), CudaCode))
    code = ProductCode(
        node.inputs[0].dtype,
        node.types[0].dtype,
        a.is_across,
        b.is_across,
        precision,
        op,
        tuple(fallback),
    )
    operands = [storages[name] for name in code.operands]
    if apart:
        code = replace(code, apart=len(operands))
        operands += apart
    known = {*operands}
    others = dict.fromkeys([s for other in fallback for s in other.operands if s not in known])
    step = Step(
        nodes=(node,),
        code=code,
        operands=(*operands, *others),
        written=(
            *[name in made for name in code.operands],
            *[True for _ in apart],
            *[storage is not whole["b"] for storage in others],
        ),
        params=params,
        work_items=1,
    )
    return [*steps, step]


def _result(view: View) -> _GemmOperand | None:
    """Return a result as cuBLASLt writes it, if it does; in a larger array 16 bytes at once."""
    found = _as_it_lies(view)
    if found is None or found.is_across:
        return None
    if not is_whole(view):
        item = view.storage.dtype.itemsize
        steps = (view.offset, found.lead, found.batch)
        if not all([n * item % ALIGNED == 0 for n in steps]):
            return None
    return found


def _rows_of(view: View, node: Node, steps: list[Step], *, may_lie_across: bool) -> _GemmOperand:
    """Return a batch of matrices whose rows are those of one; copied first if they are not."""
    *dims, rows, _ = view.shape
    found = _as_it_lies(view)
    if found is not None and (may_lie_across or not found.is_across):
        if size_of(dims) == 1 or _is_tall(found, dims, rows):
            return found
    return _laid_out(view, node, steps)


def _whole(view: View, node: Node, steps: list[Step]) -> Storage:
    """Return a storage that a view is all of; copied first if it is not."""
    if isinstance(view.storage, Tensor) and is_whole(view):
        return view.storage
    return _copied(view, node, steps)


def _operand(view: View, node: Node, steps: list[Step]) -> _GemmOperand:
    """Return an operand, copied first if it lies otherwise than cuBLASLt takes it."""
    return _as_it_lies(view) or _laid_out(view, node, steps)


def _laid_out(view: View, node: Node, steps: list[Step]) -> _GemmOperand:
    temp = _copied(view, node, steps)
    found = _as_it_lies(View(temp, 0, view.shape, contiguous(view.shape)))
    assert found is not None
    return found


def _copied(view: View, node: Node, steps: list[Step]) -> Storage:
    step, temp = copied(view, (node,), "an operand of a product", CudaCode)
    steps.append(step)
    return temp


def _as_it_lies(view: View) -> _GemmOperand | None:
    *dims, rows, columns = view.shape
    *batch_strides, down, along = view.strides
    batch = _joined(dims, batch_strides)
    if batch is None:
        return None
    if (along == 1 or columns == 1) and (rows == 1 or _leads(down, view)):
        return _GemmOperand(view, False, columns if rows == 1 else down, batch)
    if (down == 1 or rows == 1) and (columns == 1 or _leads(along, view)):
        return _GemmOperand(view, True, rows if columns == 1 else along, batch)
    return None


def _leads(stride: DimLike, view: View) -> bool:
    """Return whether a stride leads on to other elements, if there are any."""
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


def _is_tall(a: _GemmOperand, dims: Sequence[DimLike], rows: DimLike) -> bool:
    """Return whether the matrices of a batch lie below each other like one."""
    return not a.is_across and size_of(dims) != 1 and a.batch == rows * a.lead


def alignment(nbytes: int) -> int:
    """Return to what an address so far from a well aligned one is aligned.

    >>> alignment(0), alignment(8), alignment(6)
    (16, 8, 2)
    """
    return math.gcd(nbytes, ALIGNED)
