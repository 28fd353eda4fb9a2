"""Branches: one of several bodies, which a number on the GPU says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphfw.errors import counted
from graphfw.ir.op import Rng
from graphfw.ir.tensor import Node
from graphfw.ops.control.branch_op import Branch
from graphfw.runtime.cupy_executor.regions.common import (
    BoundRegion,
    Maker,
    RegionCode,
    RegionSite,
)

if TYPE_CHECKING:
    from graphfw.runtime.cupy_executor.runs import RunMemory, Worker


class BranchCode(RegionCode):
    """A branch, for all sizes."""

    def __init__(self, node: Node, make: Maker) -> None:
        op = node.op
        assert isinstance(op, Branch)
        super().__init__(node, [make(body, 0) for body in op.choices])

    def ready(self, at: RegionSite) -> BoundRegion:
        return BoundBranch(self.node, at)


class BoundBranch(BoundRegion):
    """A branch at known sizes."""

    def __init__(self, node: Node, at: RegionSite) -> None:
        super().__init__(node, at, at.laid_out())
        self.why_not_captured = "Python reads which body is to be taken"
        self._begins: list[int] = []
        for body in self.bodies:
            self._begins.append(self.drawn)
            self.drawn += 0 if body is None else body.drawn

    @property
    def how(self) -> str:
        return f"one of {counted(len(self.bodies), 'body', 'bodies')}"

    def fill(self, rng: Rng, table: Any, begin: int) -> None:
        for body, own in zip(self.bodies, self._begins, strict=True):
            if body is not None:
                body.fill(rng, table, begin + own)

    def run(self, worker: Worker, run: RunMemory, rng: Rng) -> None:
        count = len(self.node.inputs)
        number, *input_addresses = [run.address_of(address) for address in self.operands[:count]]
        found = int(worker.read(number.address, self.node.inputs[0].dtype, run))
        chosen = min(max(found, 0), len(self.bodies) - 1)
        body = self.begun(worker, run, chosen, ())
        for slot, spot in enumerate(input_addresses):
            body.lie(slot, spot)
        for slot, address in zip(body.layout.of.handed, self.operands[count:], strict=True):
            body.lie(slot, run.address_of(address))
        if body.layout.drawn:
            body.draw_from(run.drawn.offset_by(self.begin + 8 * self._begins[chosen]))
        worker.work(body, body.layout.segments, rng)
