"""A warning for losses that compare each element with each other by accident."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from graphfw.ir.dim import Dim
from graphfw.ir.op import ELEMENTWISE
from graphfw.ir.shape import shape_text
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import Shape
from graphfw.ir.variable import Variable
from graphfw.ir.walk import ancestors
from graphfw.ops.control.region_op import Region


def warn_of_crosswise(losses: Sequence[Tensor]) -> None:
    """Warn of sums, products and the like of [b, 1] and [b] that losses are made of.

    They are [b, b], each element with each other. Where pairs are meant both operands usually have
    as many dims, as in x[:, None] - x[None, :], and nothing is said; nor where nothing that is
    trained goes in, as in a mask of positions.
    """
    _warn_in(losses, set())


def _warn_in(results: Sequence[Tensor], trained: set[Node]) -> None:
    """Warn of what results are made of, in bodies, too.

    Args:
        results: The results.
        trained: The parameters of a body that what is trained goes into; is added to.
    """
    for node in ancestors(results):
        is_trained = (
            node in trained
            or isinstance(node.outputs[0], Variable)
            or any(t.node in trained for t in node.inputs)
        )
        if not is_trained:
            continue
        trained.add(node)
        if isinstance(node.op, Region):
            for body in node.op.bodies:
                # Some take more than the node is given, such as an iteration's number, and that
                # first.
                taken = zip(reversed(body.parameters), reversed(node.inputs), strict=False)
                _warn_in(body.outputs, {own.node for own, t in taken if t.node in trained})
        if ELEMENTWISE not in node.op.traits or not node.types[0].dtype.is_inexact:
            continue
        found = _crosswise([t.shape for t in node.inputs])
        if found is None:
            continue
        wide, narrow = found
        shapes = [shape_text(node.inputs[i].shape) for i in (wide, narrow)]
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
