"""A warning for losses that compare each element with each other by accident."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from graphfw.ir.dim import Dim
from graphfw.ir.op import ELEMENTWISE
from graphfw.ir.shape import shape_text
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import Shape
from graphfw.ir.variable import Variable
from graphfw.ir.walk import ancestors


def warn_of_crosswise(loss: Tensor) -> None:
    """Warn of sums, products and the like of [b, 1] and [b] that a loss is made of.

    They are [b, b], each element with each other. Where pairs are meant both operands usually have
    as many dims, as in x[:, None] - x[None, :], and nothing is said; nor where nothing that is
    trained goes in, as in a mask of positions.
    """
    nodes = ancestors([loss])
    suspects = {node: found for node in nodes if (found := _suspected(node)) is not None}
    trained = _trained(nodes) if suspects else set()
    for node, (wide, narrow) in suspects.items():
        if node not in trained:
            continue
        shapes = [shape_text(node.inputs[i].shape) for i in (wide, narrow)]
        warnings.warn_explicit(
            f"the loss depends on {node.op.name} of {shapes[0]} and {shapes[1]}, which is "
            f"{shape_text(node.types[0].shape)}: each element with each other. Drop the dim of 1, "
            "with gf.squeeze(x, axis=-1), or write y[None, :] for the other if pairs are meant",
            UserWarning,
            node.loc.file,
            node.loc.line,
        )


def _suspected(node: Node) -> tuple[int, int] | None:
    """Return two operands of an elementwise op of floats that are as [b, 1] and [b] are, if any."""
    if len(node.inputs) < 2 or ELEMENTWISE not in node.op.traits:
        return None
    found = _crosswise([t.shape for t in node.inputs])
    return found if node.types[0].dtype.is_inexact else None


def _trained(nodes: Iterable[Node]) -> set[Node]:
    """Return the nodes that depend on variables."""
    trained: set[Node] = set()
    for node in nodes:
        if isinstance(node.outputs[0], Variable) or any([t.node in trained for t in node.inputs]):
            trained.add(node)
    return trained


def _crosswise(shapes: list[Shape]) -> tuple[int, int] | None:
    """Return two operands that have one symbol at different axes, as [b, 1] and [b] have.

    The second has fewer dims.
    """
    for i, wide in enumerate(shapes):
        for j, narrow in enumerate(shapes):
            if not len(wide) > len(narrow):
                continue
            for axis in range(-len(narrow), 0):
                dim = narrow[axis]
                if isinstance(dim, Dim) and wide[axis] == 1 and dim in wide[:axis]:
                    return i, j
    return None
