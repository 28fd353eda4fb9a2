"""The ops that a GPU can compile: lowering asks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NoReturn, TypeAlias

from graphfw.ir.dim import DimLike
from graphfw.ir.tensor import Node, Tensor
from graphfw.runtime.cupy_executor.attention import ASKED, attention_grad_steps
from graphfw.runtime.cupy_executor.codegen import CudaCode
from graphfw.runtime.cupy_executor.convolution import (
    CONVOLUTIONS,
    Numerics,
    conv_steps,
    conv_weight_steps,
    fold_steps,
    fused_conv_steps,
    is_native,
    pool_steps,
    put_steps,
    take_steps,
    with_cudnn,
)
from graphfw.runtime.cupy_executor.products import fused_product_steps, product_steps
from graphfw.runtime.cupy_executor.special.moves import move_steps
from graphfw.runtime.cupy_executor.special.scans import scan_steps
from graphfw.runtime.cupy_executor.special.scatter import scatter_steps
from graphfw.runtime.kernels.ir import Kernel
from graphfw.runtime.kernels.steps import Product, Step, Storage, View
from graphfw.runtime.limits import Precision
from graphfw.runtime.planning.draws import Draws


class GpuTarget:
    """Makes CUDA C++; see `runtime.kernels.lower.Target`.

    Products are cuBLASLt's; what else is no loop nest is CuPy's.

    Args:
        draws: What the program's random nodes draw from.
        precision: See `Options`.
        cudnn: What cuDNN may compute convolutions by; None where it is not asked.
        read: What nodes read, where cuDNN is asked for attention; None where it is not.
    """

    most_numbers = sys.maxsize  # what lies in memory would be one more operand to keep there
    narrow = 0

    def __init__(
        self,
        draws: Draws,
        precision: Precision,
        cudnn: Numerics | None = None,
        *,
        read: Collection[Tensor] | None = None,
    ) -> None:
        self._draws = draws
        self._precision = precision
        self._cudnn = cudnn
        self._read = read

    def kernel(self, kernel: Kernel, sizes: Sequence[DimLike]) -> CudaCode:
        del sizes
        return CudaCode(kernel)

    def scratch(self, kernel: Kernel) -> tuple[int, int]:
        return 0, 0  # what it is depends on the launch, which knows

    def drawn(self, key: str) -> tuple[Storage, int]:
        return self._draws.storage, self._draws.place(key)

    def multiplies(self, node: Node) -> bool:
        # Products are fused with nothing here: kernels take up what follows them.
        return node.op.name in ("conv", "pixel_conv") and is_native(node)

    def keeps_rows(self, node: Node) -> bool:
        return False  # a block has some of them

    def computes_operand(self, product: Product) -> bool:
        return False  # cuBLASLt reads it

    def fills(self, node: Node) -> bool:
        return node.op.name in _FILLING

    def alone(self, node: Node, inputs: Sequence[View], outputs: Sequence[View]) -> Sequence[Step]:
        if self._read is not None and node.op.name in ASKED:
            return ASKED[node.op.name](node, inputs, outputs, self._precision, read=self._read)
        steps = alone_steps(node, inputs, outputs, self._precision)
        if self._cudnn is None or node.op.name not in CONVOLUTIONS:
            return steps
        return with_cudnn(node, (node,), inputs, outputs[0].storage, None, self._cudnn, steps)

    def matmul(self, *_: object, **__: object) -> NoReturn:
        raise AssertionError("products are fused with nothing")

    def conv(self, product: Product) -> Sequence[Step]:
        steps = fused_conv_steps(*product[:6], self._precision)
        if self._cudnn is None:
            return steps
        node, nodes, x, weight, result, epilogue, *_ = product
        return with_cudnn(node, nodes, (x, weight), result, epilogue, self._cudnn, steps)


def alone_steps(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], precision: Precision
) -> Sequence[Step]:
    """Return the steps of a node that no loop nest computes; nothing where CuPy is to.

    Args:
        node: The node.
        inputs: How its inputs lie.
        outputs: How its outputs lie: in storages of their own.
        precision: See `Options`.
    """
    make = _ALONE.get(node.op.name)
    return () if make is None else make(node, inputs, outputs, precision)


_FILLING = ("concat", "fused_product", "matmul", "roll", "slice", "slice_set")
"""The ops whose steps write any view, or say by returning none that they do not."""

_Alone: TypeAlias = Callable[[Node, Sequence[View], Sequence[View], Precision], Sequence[Step]]

_ALONE: Mapping[str, _Alone] = {
    **ASKED,
    "attention_grad": attention_grad_steps,
    "concat": move_steps,
    "conv": conv_steps,
    "conv_weight": conv_weight_steps,
    "cumulative_prod": scan_steps,
    "cumulative_sum": scan_steps,
    "fold": fold_steps,
    "fused_product": fused_product_steps,
    "index_add": scatter_steps,
    "index_set": scatter_steps,
    "matmul": product_steps,
    "max_unpool": scatter_steps,
    "recurrence": scan_steps,
    "pixel_conv": conv_steps,
    "pixel_conv_weight": conv_weight_steps,
    "roll": move_steps,
    "slice": move_steps,
    "slice_set": move_steps,
    "window_argmax": pool_steps,
    "window_max": pool_steps,
    "window_put": put_steps,
    "window_sum": pool_steps,
    "window_take": take_steps,
}
