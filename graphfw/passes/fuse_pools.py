"""Convolutions that are computed with what pools them: both are one product to fusion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from graphfw.ir.tensor import Node, Tensor

_POOLS = ("window_max", "window_relu_sum")


def product_of(node: Node) -> Node:
    """Return the product that a node is, or pools: fusion has taken it for a product."""
    return node.inputs[0].node if node.op.name in _POOLS else node


def pools_alone(node: Node, users: Mapping[Node, Sequence[Node]], kept: Set[Tensor]) -> bool:
    """Whether a node pools a convolution that nobody else reads, or keeps."""
    if node.op.name not in _POOLS:
        return False
    x = node.inputs[0]
    return x.node.op.name == "conv" and len(users[x.node]) == 1 and x not in kept
