"""The GPU backend of the stages of compilation: see `runtime/pipeline.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphfw.ir.tensor import Tensor
from graphfw.ops.control.region_op import Region
from graphfw.runtime.cupy_executor import attention
from graphfw.runtime.cupy_executor.codegen import CudaCode
from graphfw.runtime.cupy_executor.convolution import wanted
from graphfw.runtime.cupy_executor.regions.common import Maker
from graphfw.runtime.cupy_executor.regions.steps import region_steps
from graphfw.runtime.cupy_executor.target import GpuTarget
from graphfw.runtime.executor import Options
from graphfw.runtime.kernels.handwritten_cuda import HandwrittenCode
from graphfw.runtime.kernels.ir import Kernel
from graphfw.runtime.kernels.steps import Item, ReferenceStep, Step, View
from graphfw.runtime.planning.draws import Draws, drawn_keys
from graphfw.runtime.program import Program


class GpuBackend:
    """Makes steps for a GPU; see `runtime.pipeline.Backend`.

    Args:
        program: The program.
        options: What the session asks for.
        capability: The compute capability of the GPU, such as "90".
        make: Compiles the bodies of loops and branches.

    Attributes:
        draws: What the program's random nodes draw from.
    """

    updates_last = True
    lends_outputs = False

    def __init__(self, program: Program, options: Options, capability: str, make: Maker) -> None:
        graph = program.graph
        self.draws = Draws(drawn_keys(graph))
        self._make = make
        asks = not attention.why_not(capability)
        read = {*graph.outputs, *[tensor for node in graph.nodes for tensor in node.inputs]}
        self.target = GpuTarget(
            self.draws,
            options.matmul_precision or "highest",
            wanted(graph, options),
            read=read if asks else None,
        )

    def code(self, kernel: Kernel) -> CudaCode:
        return CudaCode(kernel)

    def expanded(self, item: Item, view: Callable[[Tensor], View]) -> Sequence[Item]:
        if isinstance(item, ReferenceStep) and isinstance(item.node.op, Region):
            return region_steps(item, view, self._make)
        return (item,)

    def may_overwrite(self, step: Step) -> bool:
        return isinstance(step.code, CudaCode)

    def may_hoist(self, step: Step) -> bool:
        return True

    def is_in_place(self, step: Step) -> bool:
        return isinstance(step.code, CudaCode | HandwrittenCode)  # libraries say nothing of that
