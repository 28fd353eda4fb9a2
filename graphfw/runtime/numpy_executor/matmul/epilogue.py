"""The epilogue of a product: a function that its work items call on each chunk.

    @follow(ptr buffers, ptr product, ptr params, i64 row0, i64 row1, i64 col0, i64 col1,
        ptr scratch)

`product` is the address of row 0 and column 0. Products with equal epilogues share the function,
whatever their tiles. A prologue, which computes pieces of an operand, is such a function, too:
there `product` is that operand.
"""

from __future__ import annotations

from functools import cached_property

from graphfw.runtime.kernels.ir import Kernel
from graphfw.runtime.kernels.printer import show
from graphfw.runtime.numpy_executor.codegen import FunctionText, Processor, module, region
from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody
from graphfw.runtime.numpy_executor.matmul.shared_function import SharedFunction
from graphfw.utils.records import record


@record
class FusedKernel:
    """The epilogue, or the prologue, inside of a work item.

    Attributes:
        kernel: See `steps.Epilogue` and `steps.Prologue`.
        operands: For each of its buffers which operand of the step it is; -1 for the product, or
            for what the prologue computes.
    """

    kernel: Kernel
    operands: tuple[int, ...]

    def key(self, target: Processor) -> str:
        """All that its code depends on, except the processor's name."""
        return f"then {self.operands} {target.large}\n{show(self.kernel)}"


@record
class EpilogueFunction(SharedFunction):
    """The function of an epilogue.

    Attributes:
        region: The epilogue.
        target: The processor.
    """

    region: FusedKernel
    target: Processor
    tidy = False

    @cached_property
    def key(self) -> str:
        return f"follow for {self.target.name} {self.region.key(self.target)}"

    @property
    def types(self) -> str:
        return "ptr, ptr, ptr, i64, i64, i64, i64, ptr"

    def llvm(self, symbol: str) -> str:
        epilogue = region(self.region.kernel, "epilogue", self.target)
        return module([epilogue, FunctionText(self._follow(symbol), {}, ())])

    def _follow(self, symbol: str) -> str:
        """Give the epilogue its own buffers."""
        body = FunctionBody()
        buffers = own_buffers(body, self.region.operands, "%product")
        # An epilogue can't fail: see `matmul_steps`.
        body.line(
            f"call i32 @epilogue(ptr {buffers}, ptr %params, i64 %row0, i64 %row1, i64 %col0, "
            "i64 %col1, ptr %scratch)"
        )
        return body.function(
            f"define fastcc void @{symbol}(ptr %buffers, ptr %product, ptr %params, i64 %row0, "
            "i64 %row1, i64 %col0, i64 %col1, ptr %scratch)"
        )


def own_buffers(body: FunctionBody, operands: tuple[int, ...], product: str) -> str:
    """Write the addresses of a region's buffers into an array, and return its address.

    Args:
        body: The body of the function, whose `%buffers` are those of the step.
        operands: See `FusedKernel`.
        product: The address for -1.
    """
    buffers = body.slot(f"[{len(operands)} x ptr]")
    for number, operand in enumerate(operands):
        value = product if operand < 0 else body.operand(operand)
        body.set(body.let(f"getelementptr ptr, ptr {buffers}, i64 {number}"), value, "ptr")
    return buffers
