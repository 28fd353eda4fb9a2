"""`Unset`, a node while its attributes are set; then it becomes a `Node`, which is immutable.

To write to an object that is immutable already, through its slots' descriptors, takes twice as long
as to make it.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphfw.ir.graph import Graph
    from graphfw.ir.op import Op
    from graphfw.ir.tensor import Tensor
    from graphfw.ir.types import TensorType
    from graphfw.loc import Loc

serials = itertools.count()


def next_serial() -> int:
    """Return a number that is larger than the serials of all nodes so far, and of none to come."""
    return next(serials)


class Unset:
    """The attributes of a node: see `ir.tensor.Node`."""

    __slots__ = ("_outputs", "graph", "inputs", "loc", "name", "op", "serial", "types")

    op: Op
    inputs: tuple[Tensor, ...]
    types: tuple[TensorType, ...]
    loc: Loc
    name: str
    graph: Graph
    serial: int
    _outputs: Tensor | tuple[Any, ...]  # without a tuple for one: see `Node.outputs`
