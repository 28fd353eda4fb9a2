"""The registers that a schedule is made for."""

from __future__ import annotations

from typing import NamedTuple

from graphfw.ir.dtype import float32
from graphfw.runtime.numpy_executor.codegen.target import host
from graphfw.runtime.numpy_executor.matmul.plan import heights_for
from graphfw.runtime.numpy_executor.matmul.tile import shape_for


class Target(NamedTuple):
    """How many elements of 32 bits a register holds, and the rows of the largest tile."""

    lanes: int
    rows: int

    @property
    def square(self) -> int:
        """The side of a transpose in registers: larger ones compile long, and are slower."""
        return min(self.lanes, 8)

    def heights(self, m: int | None, gap: int | None) -> tuple[int, ...]:
        """Return the heights of tiles for rows that lie some bytes apart, as graphfw has them."""
        if m is None:
            return tuple(h for h in (self.rows, 8, 4, 2, 1) if h <= self.rows)
        return heights_for(shape_for(float32, host()), m, gap or 0)


def here() -> Target:
    """Return this machine's."""
    shape = shape_for(float32, host())
    return Target(shape.lanes, shape.rows)
