"""Constant factors and shifts of a product's channels are folded into its constant weights.

A trained network's batch norm multiplies and shifts each channel of a convolution by constants:
conv(x, w) * f + s is conv(x, w * f) + s, which goes over the data once less. The numbers are
rounded at other positions, so they differ in their last bits.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphfw.ir.build import constant, emit
from graphfw.ir.constants import constant_array
from graphfw.ir.functions import F
from graphfw.ir.graph import Graph
from graphfw.ir.literal import Array, Literal, Scaling
from graphfw.ir.op import Op
from graphfw.ir.rebuild import live_nodes, rebuild
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.walk import users
from graphfw.ops.elementwise.arithmetic import Add, Divide, Multiply, Subtract
from graphfw.ops.linalg.products import MatMul
from graphfw.ops.nn.convolution_ops import Conv
from graphfw.passes.base import Pass
from graphfw.utils.records import record

_PRODUCTS: Mapping[type[Op], tuple[int, int]] = {Conv: (1, 0), MatMul: (-1, -1)}
"""The axis of each product's channels, and the axis of the weight that makes them."""

_SIDES: Mapping[type[Op], tuple[int, ...]] = {
    Add: (0, 1),
    Divide: (0,),
    Multiply: (0, 1),
    Subtract: (0,),
}
"""Steps that keep a product scaled and shifted, and at which of their inputs it may stand."""


@record
class FoldScaleIntoWeights(Pass):
    """Fold factors and shifts of a product's channels into its weights; one shift may remain."""

    name = "fold-scale-into-weights"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        nodes = live_nodes(graph)
        chains = _chains(nodes, {t.node for t in graph.outputs})
        ends = {chain.product: node for node, chain in chains.items()}  # the last ones remain
        shorter = [(node, chains[node]) for node in ends.values() if chains[node].is_shorter]
        weights = {
            node: weight for node, chain in shorter if (weight := chain.weight()) is not None
        }
        if not weights:
            return graph
        sources: dict[Node, Tensor] = {}

        def rewrite(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
            if node in ends:
                sources[node] = inputs[0]
            if node not in weights:
                return None
            hits["scaled"] += 1
            chain = chains[node]
            return chain.emit(sources[chain.product], weights[node])

        return rebuild(graph, rewrite)


@record
class _Scaled:
    """A product with constant weights, and what its channels are multiplied and shifted by.

    Attributes:
        product: The product's node.
        factor, shift: A number for each channel, or one for all; float64.
        multiplied, shifted: How many nodes did that.
    """

    product: Node
    factor: Array
    shift: Array
    multiplied: int = 0
    shifted: int = 0

    @property
    def is_shorter(self) -> bool:
        """Whether a scaled weight, with one shift after it, is less than what is there."""
        return self.multiplied > 0 or self.shifted > 1

    def followed_by(self, step: Op, by: Array) -> _Scaled:
        """Return it with one step more."""
        if isinstance(step, Multiply | Divide):
            factor = by if isinstance(step, Multiply) else 1 / by
            return dataclasses.replace(
                self,
                factor=self.factor * factor,
                shift=self.shift * factor,
                multiplied=self.multiplied + 1,
            )
        shift = self.shift + (by if isinstance(step, Add) else -by)
        return dataclasses.replace(self, shift=shift, shifted=self.shifted + 1)

    def weight(self) -> Literal | None:
        """Return the scaled weight; None where it, or the shift, would not be finite."""
        op: Any = self.product.inputs[1].node.op
        if not self.multiplied:
            return op.value if np.isfinite(self.shift).all() else None
        axis = _PRODUCTS[type(self.product.op)][1] % len(op.value.shape)
        scaling = Scaling(op.value, self.factor, axis)
        is_finite = np.isfinite(self.shift).all() and scaling.is_finite()
        return Literal.of(scaling) if is_finite else None

    def emit(self, x: Tensor, weight: Literal) -> Tensor:
        """Make the product with a scaled weight, and the one shift after it."""
        product = emit(self.product.op, x, constant(weight))
        if not self.shift.any():
            return product
        trailing = product.ndim - 1 - _PRODUCTS[type(self.product.op)][0] % product.ndim
        shift = self.shift.astype(weight.dtype).reshape(-1, *[1] * trailing)
        return F.add(product, constant(Literal(shift)))


def _chains(nodes: Sequence[Node], fetched: set[Node]) -> dict[Node, _Scaled]:
    """Return the products, and each node whose value is one of them, scaled and shifted."""
    if not any(type(node.op) in _PRODUCTS for node in nodes):
        return {}
    used = users(nodes)
    chains: dict[Node, _Scaled] = {}
    for node in nodes:
        if type(node.op) in _PRODUCTS and constant_array(node.inputs[1]) is not None:
            if node.types[0].dtype.name in ("float32", "float64"):
                chains[node] = _Scaled(node, np.ones(1), np.zeros(1))
            continue
        for side in _SIDES.get(type(node.op), ()):
            before = node.inputs[side].node
            # A value that others read as well is needed as it is.
            if before in chains and len(used[before]) == 1 and before not in fetched:
                by = _of_channels(chains[before].product, node, node.inputs[1 - side])
                if by is not None:
                    chains[node] = chains[before].followed_by(node.op, by)
    return chains


def _of_channels(product: Node, step: Node, tensor: Tensor) -> Array | None:
    """Return a constant's number for each channel of a product, None if it is no such constant."""
    array = constant_array(tensor)
    if array is None or step.types[0].shape != product.types[0].shape:
        return None
    rank = len(product.types[0].shape)
    channel = _PRODUCTS[type(product.op)][0] % rank
    sizes = (1,) * (rank - array.ndim) + array.shape
    if any(size != 1 for axis, size in enumerate(sizes) if axis != channel):
        return None
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        return array.reshape(-1).astype(np.float64)
