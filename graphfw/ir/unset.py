"""Nodes and tensors while their attributes are set; then they become `Node`s and `Tensor`s.

These are immutable. To write to an object that is immutable already, through its slots'
descriptors, takes twice as long as to make it.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from graphfw.ir.graph import Graph
    from graphfw.ir.op import Op
    from graphfw.ir.tensor import Node, Tensor
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


class UnsetTensor:
    """The attributes of a tensor: see `ir.tensor.Tensor`."""

    __slots__ = ("__weakref__", "_type", "_value", "index", "node")

    node: Node
    index: int
    _type: TensorType
    _value: np.ndarray[Any, Any] | None
