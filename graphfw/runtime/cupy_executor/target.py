"""The ops that a GPU can compile: lowering asks."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

from graphfw.ir.dim import DimLike
from graphfw.ir.tensor import Tensor
from graphfw.runtime.cupy_executor.codegen import CudaCode
from graphfw.runtime.cupy_executor.convolution import Numerics
from graphfw.runtime.cupy_executor.lowerings import GpuSettings
from graphfw.runtime.kernels.ir import Kernel
from graphfw.runtime.kernels.registry_target import RegistryTarget
from graphfw.runtime.kernels.steps import Product, Storage
from graphfw.runtime.limits import Precision
from graphfw.runtime.planning.draws import Draws


class GpuTarget(RegistryTarget):
    """Makes CUDA C++; see `runtime.kernels.lower.Target`.

    Products are cuBLASLt's; what else is no loop nest is CuPy's. Matrix products are fused with
    nothing here: kernels take up what follows them.

    Args:
        draws: What the program's random nodes draw from.
        precision: See `Options`.
        cudnn: What cuDNN may compute convolutions by; None where it is not asked.
        read: What nodes read, where cuDNN is asked for attention; None where it is not.
    """

    most_numbers = sys.maxsize  # what is in memory would be one more operand to keep there
    narrow = 0

    def __init__(
        self,
        draws: Draws,
        precision: Precision,
        cudnn: Numerics | None = None,
        *,
        read: Collection[Tensor] | None = None,
    ) -> None:
        super().__init__("cupy", GpuSettings(precision, cudnn, read))
        self._draws = draws

    def kernel(self, kernel: Kernel, sizes: Sequence[DimLike]) -> CudaCode:
        del sizes
        return CudaCode(kernel)

    def scratch(self, kernel: Kernel) -> tuple[int, int]:
        return 0, 0  # what it is depends on the launch, which knows

    def drawn(self, key: str) -> tuple[Storage, int]:
        return self._draws.storage, self._draws.index_of(key)

    def computes_operand(self, product: Product) -> bool:
        return False  # cuBLASLt reads it
