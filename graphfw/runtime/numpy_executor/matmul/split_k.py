"""`SplitKReduceCode`: adds the partial products of a product whose k was split."""

from __future__ import annotations

from graphfw.runtime.numpy_executor.codegen import FunctionText, Processor, module, region
from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody
from graphfw.runtime.numpy_executor.codegen.param_block import ParamBlock
from graphfw.runtime.numpy_executor.matmul.elements import Elements, declarations
from graphfw.runtime.numpy_executor.matmul.epilogue import FusedKernel
from graphfw.runtime.numpy_executor.matmul.tile import TileShape
from graphfw.utils.records import record


class SplitKParams(ParamBlock):
    """The integers of a work item; the epilogue's follow."""

    ROWS: int
    N: int
    SPLITS: int
    ROWS_PER_ITEM: int


@record
class SplitKReduceCode:
    """A work item: the sums of some rows of the partial products, and the epilogue.

    Operands: the partials, [splits, rows, n], then the product where it is kept, then the
        epilogue's.
    """

    shape: TileShape
    target: Processor
    kept: bool
    region: FusedKernel | None

    @property
    def key(self) -> str:
        text = (
            f"combine {self.shape.dtype} {self.shape.stored} {self.kept} for {self.target.name}\n"
        )
        return text if self.region is None else text + self.region.key(self.target)

    def llvm(self, symbol: str) -> str:
        functions = [FunctionText(self._work_item(symbol), declarations(self.shape), ())]
        if self.region is not None:
            functions.append(region(self.region.kernel, "epilogue", self.target))
        return module(functions)

    def _work_item(self, symbol: str) -> str:
        body, size = FunctionBody(), self.shape.size
        rows, n, splits, per_item = (
            body.param(i)
            for i in (
                SplitKParams.ROWS,
                SplitKParams.N,
                SplitKParams.SPLITS,
                SplitKParams.ROWS_PER_ITEM,
            )
        )
        first = body.mul("%work_item", per_item)
        last = body.min(body.add(first, per_item), rows)
        begin = body.mul(first, n)
        partials = body.at(body.operand(0), body.mul(begin, size))
        before = body.mul(begin, self.shape.stored.itemsize)
        to = "%scratch"
        if self.kept:
            to = body.at(body.operand(1), before)
        gap = body.mul(body.mul(rows, n), size)
        self._sum(body, partials, to, (splits, gap), body.mul(body.sub(last, first), n))
        if self.region is not None:
            # The kernel counts from the product's first row.
            product = body.at(to, body.sub("0", before))
            buffers = body.slot(f"[{len(self.region.operands)} x ptr]")
            for number, operand in enumerate(self.region.operands):
                value = product if operand < 0 else body.operand(operand)
                body.set(body.let(f"getelementptr ptr, ptr {buffers}, i64 {number}"), value, "ptr")
            params = body.at("%params", 8 * SplitKParams.COUNT)
            body.line(
                f"call i32 @epilogue(ptr {buffers}, ptr {params}, "
                f"i64 {first}, i64 {last}, i64 0, i64 {n}, ptr %scratch)"
            )
        return body.work_item(symbol)

    def _sum(
        self, body: FunctionBody, partials: str, to: str, splits: tuple[str, str], count: str
    ) -> None:
        """Add the partial products of some elements, vector by vector, in the order of k."""
        shape, v = self.shape, self.shape.vector
        computed, stored = Elements(body, shape, shape.dtype), Elements(body, shape, shape.stored)
        with body.loop(0, count, shape.lanes) as index:
            kept = computed.mask(body.sub(count, index))
            here = body.at(partials, body.mul(index, shape.size))
            total = body.slot(v)
            body.set(total, "zeroinitializer", v)
            with body.loop(0, splits[0]) as split:
                value = computed.load_some(body.at(here, body.mul(split, splits[1])), kept)
                body.set(total, body.let(f"fadd {v} {body.get(total, v)}, {value}"), v)
            address = body.at(to, body.mul(index, shape.stored.itemsize))
            stored.store_some(body.get(total, v), address, kept)
