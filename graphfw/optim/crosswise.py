"""A warning for losses that compare each element with each other by accident."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from graphfw.ir.dim import Dim
from graphfw.ir.op import ELEMENTWISE
from graphfw.ir.shape import shape_text
from graphfw.ir.tensor import Node
from graphfw.ir.types import Shape
from graphfw.ir.variable import Variable
from graphfw.ir.walk import ancestors
from graphfw.ops.control.region_op import Region


def warn_of_crosswise(nodes: Sequence[Node]) -> None:
    """Warn of sums, products and the like of [b, 1] and [b] that losses are made of.

    They are [b, b], each element with each other. Where pairs are meant both operands usually have
    as many dims, as in x[:, None] - x[None, :], and nothing is said; nor where nothing that is
    trained goes in, as in a mask of positions.

    Args:
        nodes: The nodes of the losses.
    """
    _warn_in(nodes, set())


def _warn_in(nodes: Sequence[Node], trained: set[Node]) -> None:
    """Warn of what results are made of, in bodies, too.

    Args:
        nodes: The nodes that the results need, inputs before users.
        trained: The parameters of a body that what is trained goes into; is added to.
    """
    for node in nodes:
        inputs = node.inputs
        if not inputs:
            if node in trained or isinstance(node.outputs[0], Variable):
                trained.add(node)
            continue
        for tensor in inputs:
            if tensor.node in trained:
                trained.add(node)
                break
        else:
            continue
        if isinstance(node.op, Region):
            for body in node.op.bodies:
                # Some take more than the node is given, such as an iteration's number, and that
                # first.
                taken = zip(reversed(body.parameters), reversed(inputs), strict=False)
                into = {own.node for own, t in taken if t.node in trained}
                _warn_in(ancestors(body.outputs), into)
        if len(inputs) == 1 or ELEMENTWISE not in node.op.traits:
            continue
        if not node.types[0].dtype.is_inexact:
            continue
        found = _crosswise([t.shape for t in inputs])
        if found is None:
            continue
        wide, narrow = found
        shapes = [shape_text(inputs[i].shape) for i in (wide, narrow)]
        warnings.warn_explicit(
            f"the loss depends on {node.op.name} of {shapes[0]} and {shapes[1]}, which is "
            f"{shape_text(node.types[0].shape)}: each element with each other. Drop the dim of 1, "
            "with gf.squeeze(x, axis=-1), or write y[None, :] for the other if pairs are meant",
            UserWarning,
            node.loc.file,
            node.loc.line,
        )


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
