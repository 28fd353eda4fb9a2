"""Products in fusion, those that are convolutions and what pools them included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import Shape
from graphfw.ops.linalg.products import MatMul
from graphfw.ops.nn.channels_last import PixelConv
from graphfw.ops.nn.convolution_ops import Conv
from graphfw.ops.nn.pooling_ops import WindowMax, WindowReluSum

PRODUCTS = (MatMul, Conv, PixelConv)
_POOLS = (WindowMax, WindowReluSum)


def product_of(node: Node) -> Node:
    """Return the product that a node is, or pools: fusion has taken it for a product."""
    return node.inputs[0].node if isinstance(node.op, _POOLS) else node


def columns_of(node: Node) -> Shape:
    """Return the dims of a product that are its columns: of images by channel all spatial ones."""
    return node.types[0].shape[2 if isinstance(product_of(node).op, Conv) else -1 :]


def is_sole_pool(node: Node, users: Mapping[Node, Sequence[Node]], kept: Set[Tensor]) -> bool:
    """Whether a node pools a convolution that nobody else reads, or keeps."""
    if not isinstance(node.op, _POOLS):
        return False
    x = node.inputs[0]
    return isinstance(x.node.op, Conv) and len(users[x.node]) == 1 and x not in kept
