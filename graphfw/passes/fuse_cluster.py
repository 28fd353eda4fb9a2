"""`Cluster`: a group of nodes while it grows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from graphfw.ir.tensor import Node
from graphfw.passes.fuse_loops import Axes, GroupReduction


@dataclass(eq=False)
class Cluster:
    """A group that grows.

    Attributes:
        number: Its position in the order of making.
        nodes: What it computes.
        code: How much code that is; see `fuse_clusters`.
        axes: What it loops over, the slowest in memory first.
        low: The position of its first node in the graph.
        high: Of its last.
        rows: The axes of its row values, once it has some or its reductions make some.
        has_row_values: Whether something inside needs these rows.
        form: See `Loops`.
        reductions: The axes of its reductions' inputs and outputs.
        product: The matrix product in it.
        closed: Why nothing may be joined to it, or "".
        sources: The clusters that it reads from.
    """

    number: int
    nodes: list[Node]
    code: int
    axes: tuple[int, ...]
    low: int
    high: int
    rows: Axes | None = None
    has_row_values: bool = False
    form: Literal["rows", "columns"] = "rows"
    reductions: list[GroupReduction] = field(default_factory=list)
    product: Node | None = None
    closed: str = ""
    sources: set[Cluster] = field(default_factory=set)
    into: Cluster | None = None
