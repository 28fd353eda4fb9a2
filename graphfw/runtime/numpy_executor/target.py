"""What this processor can compile: what lowering asks."""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.ir.dtype import DType
from graphfw.ir.tensor import Node
from graphfw.runtime.kernels.ir import Kernel
from graphfw.runtime.kernels.steps import Code, Epilogue, Step, Storage, View
from graphfw.runtime.numpy_executor.codegen import KernelCode, scratch_bytes
from graphfw.runtime.numpy_executor.matmul.lowering import matmul_steps, supported


class CpuTarget:
    """Makes native code through LLVM; see `runtime.kernels.lower.Target`."""

    def kernel(self, kernel: Kernel) -> Code:
        return KernelCode(kernel)

    def scratch(self, kernel: Kernel) -> tuple[int, int]:
        return scratch_bytes(kernel)

    def multiplies(self, dtype: DType) -> bool:
        return supported(dtype)

    def matmul(
        self,
        nodes: tuple[Node, ...],
        a: View,
        b: View,
        product: Storage | None,
        epilogue: Epilogue | None,
        *,
        fixed_b: bool,
    ) -> Sequence[Step]:
        return matmul_steps(nodes, a, b, product, epilogue, fixed_b=fixed_b)
