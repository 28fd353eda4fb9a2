"""Steps of convolutions by cuDNN, with graphfw's own kernels as the fallback."""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node
from graphfw.ops.nn.convolution_ops import ConvWeight
from graphfw.passes.fuse_pools import columns_of
from graphfw.runtime.cupy_executor.convolution.common import (
    by_channel,
    correlation,
    is_by_pixel,
    is_depthwise,
    result_in,
)
from graphfw.runtime.cupy_executor.convolution.cudnn import CudnnConv
from graphfw.runtime.cupy_executor.convolution.cudnn_descriptor import MADE, Numerics, terms
from graphfw.runtime.cupy_executor.convolution.cudnn_epilogue import cudnn_epilogue
from graphfw.runtime.cupy_executor.convolution.lowering import epilogue_step
from graphfw.runtime.cupy_executor.cudnn import cudnn_step
from graphfw.runtime.cupy_executor.products import ProductCode
from graphfw.runtime.kernels.steps import Epilogue, Step, Storage, Temp, View


def with_cudnn(
    node: Node,
    nodes: tuple[Node, ...],
    inputs: Sequence[View],
    product: Storage | None,
    epilogue: Epilogue | None,
    numerics: Numerics,
    fallback: Sequence[Step],
) -> Sequence[Step]:
    """Return one step by cuDNN with some steps as its fallback.

    The steps themselves are returned if cuDNN is known not to serve: for products by cuBLASLt, and
    if each output sees one channel, which kernels read once for all positions.

    Args:
        node: A convolution, or the gradient of its weights.
        nodes: The nodes that the steps compute.
        inputs: The views of its inputs.
        product: See `fused_conv_steps`.
        epilogue: See there.
        numerics: The dtypes of the computation.
        fallback: The steps.
    """
    op, (x, other) = correlation(node), by_channel(node, inputs)
    result = product
    if result is None:
        size = node.types[0].size
        result = Temp(node.types[0].dtype, size, "the result of a convolution")
    out = result_in(node, result)
    weights = (out if isinstance(op, ConvWeight) else other).shape
    is_single = is_depthwise(op, weights[0], weights[1])
    if not fallback or is_single or isinstance(fallback[-1].code, ProductCode):
        return fallback
    form = terms(op, x, other, out)
    if form is None:
        return fallback
    extras: tuple[str, ...] = ()
    read: tuple[Storage, ...] = ()
    following: tuple[Step, ...] = ()
    if epilogue is not None:
        is_single = product is None and form.kind == "fprop"
        found = (
            cudnn_epilogue(epilogue, out.shape, by_pixel=is_by_pixel(node)) if is_single else None
        )
        if found is None:
            following = (epilogue_step(nodes, result, epilogue, size_of(columns_of(node))),)
        else:
            extras, read = found.extras, found.read
            form = form._replace(response=form.response._replace(storage=found.result))
    code = CudnnConv(
        form.kind,
        node.types[0].dtype,
        form.strides,
        op.dilations,
        numerics,
        is_by_pixel(node),
        extras,
        following,
        tuple(fallback),
    )
    operands = (form.image.storage, form.filter.storage, form.response.storage, *read)
    written = [name == MADE[code.kind] for name in code.operands]
    return [cudnn_step(nodes, code, operands, written, form.params)]
