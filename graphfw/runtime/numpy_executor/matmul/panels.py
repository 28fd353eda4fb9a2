"""`PackPanelsCode`: the native function that prepacks a right operand."""

from __future__ import annotations

from graphfw.ir.tensor import Node
from graphfw.runtime.kernels.steps import Step, Temp, View
from graphfw.runtime.numpy_executor.codegen import FunctionText, Processor, RecordCode, module
from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody
from graphfw.runtime.numpy_executor.matmul.elements import declarations
from graphfw.runtime.numpy_executor.matmul.packing import Layout
from graphfw.runtime.numpy_executor.matmul.pieces import Piece, packs
from graphfw.runtime.numpy_executor.matmul.tile import TileShape
from graphfw.utils.records import record

_PACK_COLUMNS = 4
"""The panels that a work item of `PackPanelsCode` packs."""


@record
class PackPanelsCode(RecordCode):
    """A work item: some panels of a prepacked `b`, over all of k.

    Operands: b, the panels. Integers: k, n, offset of b, its strides along k and along the columns,
    columns in a work item (a multiple of those of a panel).
    """

    shape: TileShape
    target: Processor
    layout: Layout

    @property
    def callees(self) -> tuple[Piece, ...]:
        """The functions that it calls."""
        return (packs(self.shape, self.layout),)

    def llvm(self, symbol: str) -> str:
        body, size = FunctionBody(), self.shape.stored.itemsize
        (pack,) = self.callees
        k, n, offset, k_stride, n_stride, per_item = (body.param(i) for i in range(6))
        column = body.mul("%work_item", per_item)
        columns = body.min(body.sub(n, column), per_item)
        k_bytes, n_bytes = body.mul(k_stride, size), body.mul(n_stride, size)
        b = body.at(body.operand(0), body.mul(offset, size))
        gap = body.mul(body.ceil(k, self.shape.k_pack), self.shape.columns * self.shape.size)
        panels = body.mul(body.div(column, self.shape.columns), gap)
        body.line(
            f"call fastcc void @{pack.name}(ptr {body.at(b, body.mul(column, n_bytes))}, "
            f"i64 {k_bytes}, i64 {n_bytes}, "
            f"ptr {body.at(body.operand(1), panels)}, "
            f"i64 {gap}, i64 {k}, i64 {columns})"
        )
        declared = declarations(self.shape) | pack.declaration
        return module([FunctionText(body.work_item(symbol), declared, ())])


def prepacked(
    nodes: tuple[Node, ...], shape: TileShape, target: Processor, b: View, layout: Layout
) -> Step:
    """Return the step that makes panels of all of b, once."""
    (k, n), width = b.shape, shape.columns
    panels = (n + width - 1) // width
    steps = (k + shape.k_pack - 1) // shape.k_pack
    memory = Temp(shape.dtype, panels * width * steps, "a packed matrix")
    return Step(
        nodes,
        PackPanelsCode(shape, target, layout),
        (b.storage, memory),
        (False, True),
        (k, n, b.offset, *b.strides, _PACK_COLUMNS * width),
        (panels + _PACK_COLUMNS - 1) // _PACK_COLUMNS,
        prepacks=True,
    )
