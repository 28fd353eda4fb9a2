"""The ops that this processor can compile: lowering asks."""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.ir.dim import DimLike
from graphfw.ir.tensor import Node
from graphfw.runtime.executor import Options
from graphfw.runtime.kernels.ir import Kernel
from graphfw.runtime.kernels.lowerings import lowering_of
from graphfw.runtime.kernels.registry_target import RegistryTarget
from graphfw.runtime.kernels.steps import Code, Product, Storage
from graphfw.runtime.numpy_executor.choice import Choose, by_estimate
from graphfw.runtime.numpy_executor.codegen import (
    KernelCode,
    host,
    scratch_bytes,
    with_stores,
)
from graphfw.runtime.numpy_executor.codegen.strided import NEAR
from graphfw.runtime.numpy_executor.lowerings import CpuSettings
from graphfw.runtime.numpy_executor.machine import matrix_unit_here, pairs_here
from graphfw.runtime.numpy_executor.matmul.lowering import computes_operand
from graphfw.runtime.planning.draws import Draws


class CpuTarget(RegistryTarget):
    """Makes native code through LLVM; see `runtime.kernels.lower.Target`.

    Args:
        draws: What the program's random nodes draw from.
        options: What the session asks for.
        choose: What chooses where a node can be computed in several ways.
        is_near: Whether caches hold all weights from run to run.
    """

    most_numbers = 32
    narrow = NEAR

    def __init__(
        self,
        draws: Draws,
        options: Options | None = None,
        choose: Choose = by_estimate,
        *,
        is_near: bool = False,
    ) -> None:
        options = options or Options()
        settings = CpuSettings(
            precision=options.matmul_precision or "highest",
            winograd=options.may_use_winograd,
            choose=choose,
            is_near=is_near,
        )
        super().__init__("numpy", settings)
        self._draws = draws

    def kernel(self, kernel: Kernel, sizes: Sequence[DimLike]) -> Code:
        return KernelCode(kernel, with_stores(host(), *sizes))

    def scratch(self, kernel: Kernel) -> tuple[int, int]:
        return scratch_bytes(kernel)

    def drawn(self, key: str) -> tuple[Storage, int]:
        return self._draws.storage, self._draws.index_of(key)

    def computes_operand(self, product: Product) -> bool:
        return computes_operand(product, tiles=matrix_unit_here(), pairs=pairs_here())


def why_not_native(node: Node) -> str:
    """Return why there is no native code for a node, where there is for others with its op."""
    found = lowering_of(node, "numpy")
    return "" if found is None or found.why_not is None else found.why_not(node)
