"""Products in fusion, and what pools them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import Shape
from graphfw.ops.fusible import FusiblePool, FusibleProduct


def product_of(node: Node) -> Node:
    """Return the product that a node is, or pools: fusion has taken it for a product."""
    return node.inputs[0].node if isinstance(node.op, FusiblePool) else node


def first_column(node: Node) -> int:
    """Return the number of the first dim of a product's columns."""
    op = product_of(node).op
    assert isinstance(op, FusibleProduct)
    return op.columns


def columns_of(node: Node) -> Shape:
    """Return the dims of a product that are its columns: of images by channel all spatial ones."""
    return node.types[0].shape[first_column(node) :]


def is_sole_pool(node: Node, users: Mapping[Node, Sequence[Node]], kept: Set[Tensor]) -> bool:
    """Return whether a node pools a product that nobody else reads, or keeps."""
    if not isinstance(node.op, FusiblePool):
        return False
    x = node.inputs[0]
    return isinstance(x.node.op, FusibleProduct) and len(users[x.node]) == 1 and x not in kept
