"""What this processor can compile: what lowering asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from graphfw.ir.dtype import DType
from graphfw.ir.tensor import Node
from graphfw.runtime.kernels.ir import Kernel
from graphfw.runtime.kernels.steps import Code, Epilogue, Step, Storage, View
from graphfw.runtime.limits import Precision
from graphfw.runtime.numpy_executor.attention.steps import (
    attention_grad_steps,
    attention_steps,
    is_native,
)
from graphfw.runtime.numpy_executor.codegen import KernelCode, scratch_bytes
from graphfw.runtime.numpy_executor.machine import tiles_here
from graphfw.runtime.numpy_executor.matmul.lowering import matmul_steps, supported
from graphfw.runtime.numpy_executor.special.draws import Draws
from graphfw.runtime.numpy_executor.special.joining import (
    concat_steps,
    roll_steps,
    slice_set_steps,
    slice_steps,
)
from graphfw.runtime.numpy_executor.special.scans import scan_steps
from graphfw.runtime.numpy_executor.special.scatter import scatter_steps


class CpuTarget:
    """Makes native code through LLVM; see `runtime.kernels.lower.Target`.

    Args:
        draws: What the program's random nodes draw from.
        precision: See `Options`.
    """

    def __init__(self, draws: Draws, precision: Precision = "highest") -> None:
        self._draws = draws
        self._precision = precision

    def kernel(self, kernel: Kernel) -> Code:
        return KernelCode(kernel)

    def scratch(self, kernel: Kernel) -> tuple[int, int]:
        return scratch_bytes(kernel)

    def drawn(self, key: str) -> tuple[Storage, int]:
        return self._draws.storage, self._draws.place(key)

    def multiplies(self, dtype: DType) -> bool:
        return supported(dtype)

    def alone(self, node: Node, inputs: Sequence[View], outputs: Sequence[View]) -> Sequence[Step]:
        make = _ALONE.get(node.op.name)
        return [] if make is None else make(node, inputs, outputs)

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
        return matmul_steps(
            nodes,
            a,
            b,
            product,
            epilogue,
            fixed_b=fixed_b,
            precision=self._precision,
            tiles=tiles_here(),
        )


def _attention(node: Node, inputs: Sequence[View], outputs: Sequence[View]) -> Sequence[Step]:
    q, k, v, *mask = inputs
    out, lse = outputs
    if not is_native(*[t.dtype for t in node.inputs[:3]]):
        return []
    return attention_steps(node, q, k, v, mask[0] if mask else None, out, lse.storage)


def _attention_grad(node: Node, inputs: Sequence[View], outputs: Sequence[View]) -> Sequence[Step]:
    q, k, v, lse, delta, d_out, *mask = inputs
    if not is_native(*[t.dtype for t in node.inputs[:3]]):
        return []
    return attention_grad_steps(
        node, q, k, v, lse, delta, d_out, mask[0] if mask else None, *outputs
    )


_ALONE: Mapping[str, Callable[[Node, Sequence[View], Sequence[View]], Sequence[Step]]] = {
    "attention": _attention,
    "attention_grad": _attention_grad,
    "concat": concat_steps,
    "cumulative_prod": scan_steps,
    "cumulative_sum": scan_steps,
    "index_add": scatter_steps,
    "index_set": scatter_steps,
    "recurrence": scan_steps,
    "roll": roll_steps,
    "slice": slice_steps,
    "slice_set": slice_set_steps,
}
