"""Steps of attention by cuDNN, with kernels as the fallback."""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.ir.dim import DimLike
from graphfw.ir.tensor import Node
from graphfw.ops.nn.attention_ops import Attention, AttentionGrad
from graphfw.runtime.cupy_executor import cudnn
from graphfw.runtime.cupy_executor.attention.axes import knows_lengths, strides_of
from graphfw.runtime.cupy_executor.attention.config import form_of
from graphfw.runtime.cupy_executor.attention.cudnn import CudnnAttention
from graphfw.runtime.kernels.steps import Step, View

_SINCE = 90
"""The least compute capability at which cuDNN is asked: its kernels use instructions that graphfw's
own do not."""


def why_not(capability: str) -> str:
    """Return why cuDNN is not asked for attention; "" if it is.

    Args:
        capability: The GPU's compute capability, such as "90".
    """
    reason = cudnn.why_not()
    if not reason and int(capability) < _SINCE:
        shown = [f"{number[:-1]}.{number[-1]}" for number in (capability, str(_SINCE))]
        reason = f"the GPU has compute capability {shown[0]}, and it is asked from {shown[1]} on"
    return reason


def said(nodes: Sequence[Node], capability: str) -> list[str]:
    """Return why cuDNN is not asked for nodes that are attention; see `why_not`."""
    found = {type(node.op): node for node in nodes}
    reason = why_not(capability)
    if found and reason:
        return [f"cuDNN is asked for no attention: {reason}"]
    return [f"cuDNN is not asked for {op.name}: {declined(node)}" for op, node in found.items()]


def declined(node: Node) -> str:
    """Return why cuDNN is not asked for a node of attention, on any GPU; "" if it is.

    cuDNN compiles its attention kernels for each number of queries and keys, which takes some
    tenths of a second. If the numbers differ from run to run, kernels that are compiled once are
    better.
    """
    if not node.inputs[0].dtype.is_low_precision:
        return "its floats have 16 bits"
    if len(node.inputs) > (3 if isinstance(node.op, Attention) else 7):
        return "it has no output for what masks make of the logs of sums"
    if not knows_lengths(node):
        return "it compiles kernels for each length, and lengths are symbols here"
    return (
        "it makes delta itself, of the result alone" if isinstance(node.op, AttentionGrad) else ""
    )


def preferred(
    node: Node, views: Sequence[View], *, epilogue: Sequence[Step] = (), fallback: Sequence[Step]
) -> Step:
    """Return a step by cuDNN with other steps as its fallback.

    Args:
        node: Attention for which it is asked, or its gradient; see `declined`.
        views: The operands of a `CudnnAttention`, lse as a matrix with one column.
        epilogue: The steps after those of cuDNN.
        fallback: The steps that replace both if cuDNN declines.
    """
    (*_, queries, width), (*_, keys, _), (*_, value_width) = [view.shape for view in views[:3]]
    lead = node.outputs[0].shape[:-2]
    assert isinstance(width, int)
    assert isinstance(value_width, int)
    code = CudnnAttention(
        len(node.inputs) > 3,
        node.inputs[0].dtype,
        width,
        value_width,
        len(lead),
        *form_of(node),
        tuple(epilogue),
        tuple(fallback),
    )
    params: list[DimLike] = [queries, keys, *lead]
    for view in views:
        *along, row, _ = strides_of(view, len(lead) + 2)
        params += [view.offset, row, *along]
    storages = [view.storage for view in views]
    written = [name in code.made for name in code.operands]
    return cudnn.cudnn_step((node,), code, storages, written, tuple(params))
