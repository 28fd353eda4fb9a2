"""The passes of programs that are compiled for a CPU."""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.ir.tensor import Node
from graphfw.passes import pipelines
from graphfw.passes.base import Pass
from graphfw.passes.block_factorisations import BlockFactorisations
from graphfw.passes.block_reflections import BlockReflections
from graphfw.passes.complex_products import ComplexProductToReal
from graphfw.passes.control_flow import OptimiseBodies
from graphfw.passes.determinants import DeterminantToLU
from graphfw.passes.integer_products import IntegerProductToReduction
from graphfw.passes.low_bit_gemv import GemvToReduction
from graphfw.passes.nest_concats import NestConcats
from graphfw.passes.partial_sorts import SortToPartialSort
from graphfw.passes.short_products import ShortProductToSum
from graphfw.passes.signs_of_vectors import SignsOfVectors
from graphfw.passes.sink_pooling import (
    FuseConvReluPool,
    FuseMaxPoolBackward,
    GlobalPoolToReduction,
    SinkConvBelowPool,
    SinkElementwiseBelowPool,
)
from graphfw.passes.svd_by_qr import SVDByQR
from graphfw.passes.topk_reductions import TopKToReductions
from graphfw.runtime.numpy_executor import convolution
from graphfw.runtime.numpy_executor.linalg.eigen import is_small_eigen
from graphfw.runtime.numpy_executor.linalg.lu import PANEL
from graphfw.runtime.numpy_executor.linalg.qr import panel_columns
from graphfw.runtime.numpy_executor.linalg.steps import small_rows
from graphfw.runtime.numpy_executor.machine import matrix_unit_here
from graphfw.runtime.numpy_executor.matmul.amx import tiles_for

_REWRITES = (
    GemvToReduction(),
    IntegerProductToReduction(),
    ShortProductToSum(),
    ComplexProductToReal(),
    SortToPartialSort(),
    TopKToReductions(),
)

_LINEAR_ALGEBRA = (
    DeterminantToLU(small_rows),
    BlockFactorisations(small_rows, PANEL),
    SVDByQR(small_rows),
    SignsOfVectors(is_small_eigen),
    BlockReflections(small_rows, panel_columns),
    NestConcats(),
)


def passes() -> Sequence[Pass]:
    """Return them, in order."""
    return (
        *pipelines.DEFAULT,
        *_LINEAR_ALGEBRA,
        OptimiseBodies(_LINEAR_ALGEBRA),
        GlobalPoolToReduction(),
        SinkConvBelowPool(_sums),
        FuseConvReluPool(_pools),
        SinkElementwiseBelowPool(_pools),
        FuseMaxPoolBackward(_routes),
        *_REWRITES,
        OptimiseBodies(_REWRITES),
    )


def _sums(conv: Node, pool: Node) -> bool:
    return convolution.sums_first(conv, pool)


def _pools(conv: Node, pool: Node) -> bool:
    """Return whether a convolution is computed with what pools it, in a session without options."""
    form = matrix_unit_here()
    tiles = None if form is None else tiles_for(form, conv.types[0].dtype, "highest")
    return convolution.pools_while_computed(conv, pool, tiles=tiles)


def _routes(put: Node) -> bool:
    return convolution.has_max_pool_gradient(put)
