"""The ops that have native code of their own for this processor, by class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from graphfw.ir.tensor import Node
from graphfw.ops.linalg.cholesky_qr import QR, Cholesky, Reflections
from graphfw.ops.linalg.eigen_svd import EigH, EigvalsH
from graphfw.ops.linalg.products import MatMul
from graphfw.ops.linalg.solve import Inv, Solve
from graphfw.ops.linalg.triangular_lu import LU, SolveFactor, SolveTriangular
from graphfw.ops.nn.attention_ops import Attention, AttentionGrad
from graphfw.ops.nn.convolution_ops import Conv, ConvWeight
from graphfw.ops.nn.pooling_ops import (
    WindowArgmax,
    WindowMax,
    WindowPut,
    WindowReluSum,
    WindowRoute,
    WindowSum,
    WindowTake,
)
from graphfw.ops.nn.unfold import FoldWindows
from graphfw.ops.nn.unpooling import MaxUnpool
from graphfw.ops.reduce.cumulative import CumulativeProd, CumulativeSum, Recurrence
from graphfw.ops.shape.concat import Concat
from graphfw.ops.shape.flip_roll import Roll
from graphfw.ops.shape.gather_scatter import IndexAdd, IndexSet, Slice, SliceSet
from graphfw.ops.shape.scatter_extremes import IndexMax, IndexMin
from graphfw.ops.signal.fft_ops import FFT, IRFFT, RFFT
from graphfw.ops.sorting.sort_search import Sort
from graphfw.runtime.kernels.lowerings import lowers, multiplies
from graphfw.runtime.kernels.steps import Product, Step, View
from graphfw.runtime.limits import Precision
from graphfw.runtime.numpy_executor import attention, convolution
from graphfw.runtime.numpy_executor.choice import Choose, by_estimate
from graphfw.runtime.numpy_executor.fourier import fourier_steps, why_no_fourier
from graphfw.runtime.numpy_executor.linalg.steps import small_matrix_steps
from graphfw.runtime.numpy_executor.machine import matrix_unit_here, pairs_here
from graphfw.runtime.numpy_executor.matmul.amx import Tiles, tiles_for
from graphfw.runtime.numpy_executor.matmul.lowering import matmul_steps, supported
from graphfw.runtime.numpy_executor.sorting import sort_steps
from graphfw.runtime.numpy_executor.special.copying import copy_steps
from graphfw.runtime.numpy_executor.special.scans import scan_steps
from graphfw.runtime.numpy_executor.special.scatter import scatter_steps


class CpuSettings(NamedTuple):
    """The settings of lowerings.

    Attributes:
        precision: See `Options`.
        winograd: Whether convolutions may use Winograd's algorithm.
        choose: What chooses where a node can be computed in several ways.
        is_near: Whether caches hold all weights from run to run.
    """

    precision: Precision = "highest"
    winograd: bool = False
    choose: Choose = by_estimate
    is_near: bool = False


# Copies, scatters and scans.


@lowers(Concat, Roll, Slice, SliceSet, target="numpy", fills=True)
def _copies(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], settings: CpuSettings
) -> Sequence[Step]:
    return copy_steps(node, inputs, outputs)


@lowers(IndexAdd, IndexMax, IndexMin, IndexSet, MaxUnpool, target="numpy")
def _scatters(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], settings: CpuSettings
) -> Sequence[Step]:
    return scatter_steps(node, inputs, outputs)


@lowers(CumulativeSum, CumulativeProd, Recurrence, target="numpy")
def _scans(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], settings: CpuSettings
) -> Sequence[Step]:
    return scan_steps(node, inputs, outputs)


# Sorts.


@lowers(Sort, target="numpy")
def _sorts(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], settings: CpuSettings
) -> Sequence[Step]:
    return sort_steps(node, inputs, outputs)


# Linear algebra.


@lowers(
    QR,
    Cholesky,
    EigH,
    EigvalsH,
    Inv,
    LU,
    Reflections,
    Solve,
    SolveFactor,
    SolveTriangular,
    target="numpy",
    fills=True,
)
def _small_matrices(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], settings: CpuSettings
) -> Sequence[Step]:
    return small_matrix_steps(node, inputs, outputs)


# Fourier transforms.


@lowers(FFT, IRFFT, RFFT, target="numpy", why_not=why_no_fourier)
def _transforms(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], settings: CpuSettings
) -> Sequence[Step]:
    return fourier_steps(node, inputs, outputs)


# Attention.


@lowers(Attention, target="numpy")
def _attention(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], settings: CpuSettings
) -> Sequence[Step]:
    q, k, v, *mask = inputs
    out, *sums = outputs
    if not attention.is_native(*[t.dtype for t in node.inputs[:3]]):
        return []
    storages = [view.storage for view in sums]
    return attention.attention_steps(node, q, k, v, mask[0] if mask else None, out, *storages)


@lowers(AttentionGrad, target="numpy")
def _attention_grad(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], settings: CpuSettings
) -> Sequence[Step]:
    q, k, v, lse, rest, delta, d_out, *mask = inputs
    if not attention.is_native(*[t.dtype for t in node.inputs[:3]]):
        return []
    return attention.attention_grad_steps(
        node, q, k, v, lse, rest, delta, d_out, mask[0] if mask else None, *outputs
    )


# Pooling.


@lowers(WindowMax, WindowSum, target="numpy", fills=True)
def _pools(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], settings: CpuSettings
) -> Sequence[Step]:
    return convolution.pool_steps(node, inputs, outputs)


@lowers(FoldWindows, WindowArgmax, WindowPut, WindowTake, target="numpy")
def _chooses(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], settings: CpuSettings
) -> Sequence[Step]:
    return convolution.window_argmax_steps(node, inputs, outputs)


@lowers(WindowRoute, target="numpy")
def _routes(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], settings: CpuSettings
) -> Sequence[Step]:
    return convolution.max_pool_gradient_steps(node, inputs, outputs)


# Convolution. Its modules are imported when they are first asked.


def _why_no_convolution(node: Node) -> str:
    return convolution.why_not_input_dilation(node)


def _why_no_gradient(node: Node) -> str:
    return convolution.why_not_weight(node)


@lowers(Conv, target="numpy", why_not=_why_no_convolution)
def _convolution(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], settings: CpuSettings
) -> Sequence[Step]:
    return convolution.input_dilation_steps(
        node,
        inputs,
        outputs,
        winograd=settings.winograd,
        precision=settings.precision,
        tiles=matrix_unit_here(),
        choose=settings.choose,
    )


@lowers(ConvWeight, target="numpy", why_not=_why_no_gradient)
def _convolution_gradient(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], settings: CpuSettings
) -> Sequence[Step]:
    return convolution.conv_weight_steps(node, inputs, outputs, winograd=settings.winograd)


# Products, and what follows them.


def _is_product(node: Node, settings: CpuSettings) -> bool:
    return supported(node.types[0].dtype)


@multiplies(MatMul, target="numpy", when=_is_product)
def _matrix_product(product: Product, settings: CpuSettings) -> Sequence[Step]:
    return matmul_steps(
        *product[1:6],
        fixed_b=product.is_fixed,
        precision=settings.precision,
        tiles=matrix_unit_here(),
        pairs=pairs_here(),
        prologue=product.prologue,
    )


def _is_convolution(node: Node, settings: CpuSettings) -> bool:
    return not convolution.why_not(node)


def _keeps_channels(node: Node, settings: CpuSettings) -> bool:
    return convolution.reduced_while_computed(
        node, winograd=settings.winograd, tiles=_amx_settings(node, settings)
    )


@multiplies(Conv, target="numpy", when=_is_convolution, keeps_rows=_keeps_channels)
def _fused_convolution(product: Product, settings: CpuSettings) -> Sequence[Step]:
    node, nodes, x, weight, result, epilogue, is_fixed, _ = product
    assert isinstance(node.op, Conv)
    return convolution.conv_steps(
        nodes,
        node.op,
        x,
        weight,
        result,
        epilogue,
        fixed_weight=is_fixed,
        is_near=settings.is_near,
        winograd=settings.winograd,
        precision=settings.precision,
        tiles=matrix_unit_here(),
        choose=settings.choose,
    )


def _is_pooled_sum(node: Node, settings: CpuSettings) -> bool:
    return convolution.may_be_pooled(node.inputs[0].node, node)


def _is_pooled_maximum(node: Node, settings: CpuSettings) -> bool:
    conv = node.inputs[0].node
    return convolution.pools_while_computed(
        conv, node, winograd=settings.winograd, tiles=_amx_settings(conv, settings)
    )


def _pooled_convolution(product: Product, settings: CpuSettings) -> Sequence[Step]:
    node, nodes, x, weight, result, epilogue, is_fixed, _ = product
    conv = node.inputs[0].node
    return convolution.pooled_steps(
        (conv, *nodes), conv, node, x, weight, result, epilogue, fixed_weight=is_fixed
    )


multiplies(WindowReluSum, target="numpy", when=_is_pooled_sum)(_pooled_convolution)
multiplies(WindowMax, target="numpy", when=_is_pooled_maximum)(_pooled_convolution)


def _amx_settings(conv: Node, settings: CpuSettings) -> Tiles | None:
    form = matrix_unit_here()
    return None if form is None else tiles_for(form, conv.types[0].dtype, settings.precision)
