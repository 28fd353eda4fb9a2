"""Steps that cuDNN computes if it has a way at given sizes, and otherwise graphfw's own kernels."""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node
from graphfw.ops.correlation import ConvWeight, Correlation
from graphfw.passes.fuse_views import contiguous
from graphfw.runtime.cupy_executor.convolution.common import is_depthwise
from graphfw.runtime.cupy_executor.convolution.described import MADE, CudnnCode, Numerics, terms
from graphfw.runtime.cupy_executor.convolution.endings import ending
from graphfw.runtime.cupy_executor.convolution.lowering import behind_step
from graphfw.runtime.cupy_executor.products import ProductCode
from graphfw.runtime.kernels.steps import Epilogue, Step, Storage, Temp, View


def with_cudnn(
    node: Node,
    nodes: tuple[Node, ...],
    inputs: Sequence[View],
    product: Storage | None,
    epilogue: Epilogue | None,
    numerics: Numerics,
    otherwise: Sequence[Step],
) -> Sequence[Step]:
    """Return one step that does what some steps do, which it has for where cuDNN does not.

    These themselves are returned where that is known before sizes are: for products by cuBLASLt,
    and where each output sees one channel, which kernels read once for all places.

    Args:
        node: A convolution, or the gradient of its kernels.
        nodes: What the steps compute.
        inputs: How its inputs lie.
        product: See `fused_conv_steps`.
        epilogue: See there.
        numerics: What it may be computed by.
        otherwise: The steps.
    """
    op, (x, other), shape = node.op, inputs, node.types[0].shape
    assert isinstance(op, Correlation)
    kernels = shape if isinstance(op, ConvWeight) else other.shape
    by_channel = is_depthwise(op, kernels[0], kernels[1])
    if not otherwise or by_channel or isinstance(otherwise[-1].code, ProductCode):
        return otherwise
    result = product
    if result is None:
        result = Temp(node.types[0].dtype, size_of(shape), "the result of a convolution")
    told = terms(op, x, other, View(result, 0, shape, contiguous(shape)))
    if told is None:
        return otherwise
    extras: tuple[str, ...] = ()
    read: tuple[Storage, ...] = ()
    behind: tuple[Step, ...] = ()
    if epilogue is not None:
        is_alone = product is None and told.kind == "fprop"
        found = ending(epilogue, shape) if is_alone else None
        if found is None:
            behind = (behind_step(nodes, result, epilogue, size_of(shape[2:])),)
        else:
            extras, read = found.extras, found.read
            told = told._replace(response=told.response._replace(storage=found.result))
    code = CudnnCode(
        told.kind,
        node.types[0].dtype,
        told.strides,
        op.dilations,
        numerics,
        extras,
        behind,
        tuple(otherwise),
    )
    operands = (told.image.storage, told.filter.storage, told.response.storage, *read)
    own, needed = frozenset(operands), dict[Storage, bool]()
    for step in (*behind, *otherwise):
        for storage, written in zip(step.operands, step.written, strict=True):
            if storage not in own:
                needed[storage] = needed.get(storage, False) or written
    return [
        Step(
            nodes=nodes,
            code=code,
            operands=(*operands, *needed),
            written=(*[name == MADE[code.kind] for name in code.operands], *needed.values()),
            params=told.params,
            cells=1,
            can_fail=any([step.can_fail for step in (*behind, *otherwise)]),
            nonzero=tuple([size for step in (*behind, *otherwise) for size in step.nonzero]),
        )
    ]
