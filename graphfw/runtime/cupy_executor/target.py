"""What a GPU can compile: what lowering asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from graphfw.ir.tensor import Node
from graphfw.runtime.cupy_executor.codegen import CudaCode
from graphfw.runtime.cupy_executor.products import product_steps
from graphfw.runtime.kernels.ir import Kernel
from graphfw.runtime.kernels.steps import Step, Storage, View
from graphfw.runtime.limits import Precision
from graphfw.runtime.planning.draws import Draws


class GpuTarget:
    """Makes CUDA C++; see `runtime.kernels.lower.Target`.

    Products are cuBLASLt's; what else is no loop nest is CuPy's.

    Args:
        draws: What the program's random nodes draw from.
        precision: See `Options`.
    """

    def __init__(self, draws: Draws, precision: Precision) -> None:
        self._draws = draws
        self._precision = precision

    def kernel(self, kernel: Kernel) -> CudaCode:
        return CudaCode(kernel)

    def scratch(self, kernel: Kernel) -> tuple[int, int]:
        return 0, 0  # what it is depends on the launch, which knows

    def drawn(self, key: str) -> tuple[Storage, int]:
        return self._draws.storage, self._draws.place(key)

    def multiplies(self, node: Node) -> bool:
        # As a step that is fused with nothing: kernels take up what follows products.
        return False

    def alone(self, node: Node, inputs: Sequence[View], outputs: Sequence[View]) -> Sequence[Step]:
        return product_steps(node, inputs, self._precision) if node.op.name == "matmul" else ()

    def matmul(self, *_: object, **__: object) -> NoReturn:
        raise AssertionError("products are fused with nothing")

    conv = matmul
