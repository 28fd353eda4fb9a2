"""QR decompositions of large matrices become those of panels, and products.

An executor has native code for small matrices, and for panels of a few columns, of which it finds
the reflections: I - Y^T T Y is the product of those of a panel (the compact WY representation). The
columns after a panel are multiplied by it in three products, and so is what the panels after it
make of Q:

    x = [p  c]    p = (I - Y^T T Y) [r]    (I - Y^T T^T Y) c = [s]    and d is decomposed likewise
                                    [0]                        [d]
    R = [r  s  ]          Q = (I - Y^T T Y) [I  0 ]
        [0  R' ]                            [0  Q']

So most of the work is in products of matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from graphfw.ir.build import emit_all
from graphfw.ir.dim import static
from graphfw.ir.functions import F
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.linalg.cholesky_qr import QR, Reflections
from graphfw.passes.base import NodePass
from graphfw.utils.records import record


@record
class BlockReflections(NodePass):
    """Decompose large matrices panel by panel.

    Attributes:
        small: How many rows and columns matrices have that are left as they are, by the node; 0:
            all are.
        panel: How many columns a panel has, by the node and the number of rows.
    """

    small: Callable[[Node], int]
    panel: Callable[[Node, int], int]
    name = "block-reflections"

    def fits(self, node: Node) -> bool:
        """Return whether a node decomposes matrices of a known size that are large."""
        if not isinstance(node.op, QR):
            return False
        small = self.small(node)
        rows, columns = node.inputs[0].shape[-2:]
        is_known = isinstance(rows, int) and isinstance(columns, int)
        return small > 0 and is_known and 0 not in (rows, columns) and max(rows, columns) > small

    def replaced(self, node: Node, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        (x,) = inputs
        rows, columns = matrix_sizes(x)
        panels = _panels(x, lambda rows: self.panel(node, rows))
        bases, known = static(node.types[0].shape[-1]), sum([panel.width for panel in panels])
        upper = [_from(panel.upper, columns) for panel in panels]
        if bases > known:
            upper.append(F.zeros((*x.shape[:-2], bases - known, columns), dtype=x.dtype))
        return _product(panels, rows, bases), F.concat(upper, axis=-2)


class _Panel(NamedTuple):
    """The reflections of a panel, and the rows of R that they give, without leading zeros."""

    vectors: Tensor
    joined: Tensor
    upper: Tensor

    @property
    def width(self) -> int:
        """The number of reflections."""
        return matrix_sizes(self.vectors)[0]


def matrix_sizes(x: Tensor) -> tuple[int, int]:
    """Return the numbers of rows and columns of matrices; they are known."""
    rows, columns = x.shape[-2:]
    return static(rows), static(columns)


def _panels(x: Tensor, width_for: Callable[[int], int]) -> list[_Panel]:
    """Return the panels of a decomposition."""
    panels = []
    while True:
        rows, columns = matrix_sizes(x)
        width = min(rows, columns, width_for(rows))
        vectors, joined, upper = emit_all(Reflections(), x[..., :width])
        right = x[..., width:]
        if columns > width:
            right = right - vectors.mT @ (joined.mT @ (vectors @ right))
            upper = F.concat([upper, right[..., :width, :]], axis=-1)
        panels.append(_Panel(vectors, joined, upper))
        if width == min(rows, columns):
            return panels
        x = right[..., width:, :]


def _from(x: Tensor, columns: int) -> Tensor:
    """Return rows with zeros before them, so that there are so many columns."""
    missing = columns - matrix_sizes(x)[1]
    if not missing:
        return x
    zeros = F.zeros((*x.shape[:-1], missing), dtype=x.dtype)
    result: Tensor = F.concat([zeros, x], axis=-1)
    return result


def _product(panels: list[_Panel], rows: int, columns: int) -> Tensor:
    """Return the first columns of the product of all panels' reflections."""
    start = sum([panel.width for panel in panels])
    result = None
    for vectors, joined, _ in reversed(panels):
        width = matrix_sizes(vectors)[0]
        start -= width
        left, after = vectors[..., :width], vectors[..., width:]
        if result is None:
            own = columns - start
            first = joined @ vectors[..., :own]
        else:
            own, first = width, joined @ left
        begun = F.eye(rows - start, own, dtype=vectors.dtype) - vectors.mT @ first
        if result is None:
            result = begun
            continue
        moved = joined @ (after @ result)
        others = F.concat([-(left.mT @ moved), result - after.mT @ moved], axis=-2)
        result = F.concat([begun, others], axis=-1)
    assert result is not None
    return result
