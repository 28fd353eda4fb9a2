"""The ops that this processor can compile: lowering asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from graphfw.ir.dim import DimLike
from graphfw.ir.tensor import Node
from graphfw.ops.correlation import Conv
from graphfw.runtime.executor import Options
from graphfw.runtime.kernels.ir import Kernel
from graphfw.runtime.kernels.steps import Code, Product, Step, Storage, View
from graphfw.runtime.limits import Precision
from graphfw.runtime.numpy_executor import attention, convolution
from graphfw.runtime.numpy_executor.choice import Choose, by_estimate
from graphfw.runtime.numpy_executor.codegen import (
    KernelCode,
    host,
    scratch_bytes,
    with_stores,
)
from graphfw.runtime.numpy_executor.codegen.strided import NEAR
from graphfw.runtime.numpy_executor.machine import pairs_here, tiles_here
from graphfw.runtime.numpy_executor.matmul.lowering import (
    computes_operand,
    matmul_steps,
    supported,
)
from graphfw.runtime.numpy_executor.matmul.tiles import Tiles, tiles_for
from graphfw.runtime.numpy_executor.special.joining import joining_steps
from graphfw.runtime.numpy_executor.special.scans import scan_steps
from graphfw.runtime.numpy_executor.special.scatter import scatter_steps
from graphfw.runtime.planning.draws import Draws


class CpuTarget:
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
        self._draws = draws
        self._precision: Precision = options.matmul_precision or "highest"
        self._winograd = options.may_use_winograd
        self._choose = choose
        self._is_near = is_near

    def kernel(self, kernel: Kernel, sizes: Sequence[DimLike]) -> Code:
        return KernelCode(kernel, with_stores(host(), *sizes))

    def scratch(self, kernel: Kernel) -> tuple[int, int]:
        return scratch_bytes(kernel)

    def drawn(self, key: str) -> tuple[Storage, int]:
        return self._draws.storage, self._draws.place(key)

    def multiplies(self, node: Node) -> bool:
        if node.op.name == "conv":
            return not convolution.why_not(node)
        if node.op.name == "window_relu_sum":
            return convolution.may_be_pooled(node.inputs[0].node, node)
        if node.op.name == "window_max":
            conv = node.inputs[0].node
            tiles = self._tiles(conv)
            return convolution.pools_while_computed(
                conv, node, winograd=self._winograd, tiles=tiles
            )
        return node.op.name == "matmul" and supported(node.types[0].dtype)

    def keeps_rows(self, node: Node) -> bool:
        return isinstance(node.op, Conv) and convolution.reduced_while_computed(
            node, winograd=self._winograd, tiles=self._tiles(node)
        )

    def _tiles(self, conv: Node) -> Tiles | None:
        form = tiles_here()
        return None if form is None else tiles_for(form, conv.types[0].dtype, self._precision)

    def fills(self, node: Node) -> bool:
        return node.op.name in _FILLING

    def alone(self, node: Node, inputs: Sequence[View], outputs: Sequence[View]) -> Sequence[Step]:
        try:
            return self._steps(node, inputs, outputs)
        except OverflowError:  # its numbers may have more than 64 bits
            return []

    def _steps(self, node: Node, inputs: Sequence[View], outputs: Sequence[View]) -> Sequence[Step]:
        if node.op.name == "conv":
            return convolution.spread_steps(
                node,
                inputs,
                outputs,
                winograd=self._winograd,
                precision=self._precision,
                tiles=tiles_here(),
                choose=self._choose,
            )
        if node.op.name == "conv_weight":
            return convolution.conv_weight_steps(node, inputs, outputs, winograd=self._winograd)
        make = _ALONE.get(node.op.name)
        return [] if make is None else make(node, inputs, outputs)

    def computes_operand(self, product: Product) -> bool:
        return computes_operand(product, tiles=tiles_here(), pairs=pairs_here())

    def matmul(self, product: Product) -> Sequence[Step]:
        return matmul_steps(
            *product[1:6],
            fixed_b=product.is_fixed,
            precision=self._precision,
            tiles=tiles_here(),
            pairs=pairs_here(),
            prologue=product.prologue,
        )

    def conv(self, product: Product) -> Sequence[Step]:
        node, nodes, x, weight, result, epilogue, is_fixed, _ = product
        if node.op.name in ("window_max", "window_relu_sum"):
            conv = node.inputs[0].node
            operands = x, weight, result, epilogue
            return convolution.pooled_steps(
                (conv, *nodes), conv, node, *operands, fixed_weight=is_fixed
            )
        assert isinstance(node.op, Conv)
        return convolution.conv_steps(
            nodes,
            node.op,
            x,
            weight,
            result,
            epilogue,
            fixed_weight=is_fixed,
            is_near=self._is_near,
            winograd=self._winograd,
            precision=self._precision,
            tiles=tiles_here(),
            choose=self._choose,
        )


def why_not_native(node: Node) -> str:
    """Return why there is no native code for a node, where there is for others with its op."""
    if node.op.name == "conv":
        return convolution.why_not_spread(node)
    return convolution.why_not_weight(node) if node.op.name == "conv_weight" else ""


def _attention(node: Node, inputs: Sequence[View], outputs: Sequence[View]) -> Sequence[Step]:
    q, k, v, *mask = inputs
    out, *sums = outputs
    if not attention.is_native(*[t.dtype for t in node.inputs[:3]]):
        return []
    storages = [view.storage for view in sums]
    return attention.attention_steps(node, q, k, v, mask[0] if mask else None, out, *storages)


def _attention_grad(node: Node, inputs: Sequence[View], outputs: Sequence[View]) -> Sequence[Step]:
    q, k, v, lse, rest, delta, d_out, *mask = inputs
    if not attention.is_native(*[t.dtype for t in node.inputs[:3]]):
        return []
    return attention.attention_grad_steps(
        node, q, k, v, lse, rest, delta, d_out, mask[0] if mask else None, *outputs
    )


def _choosing(node: Node, inputs: Sequence[View], outputs: Sequence[View]) -> Sequence[Step]:
    return convolution.choosing_steps(node, inputs, outputs)


def _pooling(node: Node, inputs: Sequence[View], outputs: Sequence[View]) -> Sequence[Step]:
    return convolution.pool_steps(node, inputs, outputs)


def _routing(node: Node, inputs: Sequence[View], outputs: Sequence[View]) -> Sequence[Step]:
    return convolution.route_steps(node, inputs, outputs)


_FILLING = ("concat", "roll", "slice", "slice_set", "window_max", "window_sum")
"""The ops whose steps write any view."""

_ALONE: Mapping[str, Callable[[Node, Sequence[View], Sequence[View]], Sequence[Step]]] = {
    "attention": _attention,
    "attention_grad": _attention_grad,
    "concat": joining_steps,
    "cumulative_prod": scan_steps,
    "cumulative_sum": scan_steps,
    "index_add": scatter_steps,
    "index_set": scatter_steps,
    "max_unpool": scatter_steps,
    "recurrence": scan_steps,
    "roll": joining_steps,
    "slice": joining_steps,
    "slice_set": joining_steps,
    "fold": _choosing,
    "window_argmax": _choosing,
    "window_max": _pooling,
    "window_put": _choosing,
    "window_route": _routing,
    "window_sum": _pooling,
    "window_take": _choosing,
}
