"""Loops while a condition holds, as scans that the condition ends."""

from __future__ import annotations

from graphfw.ir.body import Body, BodyGraph
from graphfw.ir.op import EFFECT, RANDOM, Op
from graphfw.ops.control.loop_op import Loop
from graphfw.ops.control.scan_op import Scan

_ENDLESS = 1 << 62
"""More iterations than a run can make."""


class ScanWhile(Scan):
    """A scan that goes on while a condition holds: the body's last output, of each carry given.

    It is for lowering only, and has no name in texts of graphs.
    """


def scan_while(op: Op) -> ScanWhile | None:
    """Return a loop of one pass as a scan; None where it is something else."""
    if not isinstance(op, Loop) or len(op.passes) > 1:
        return None
    if any([{RANDOM, EFFECT} & node.op.traits for body in op.bodies for node in body.nodes]):
        return None
    (body,), (count,) = op.passes, op.carries
    graph = BodyGraph("loop")
    with graph:
        parameters = [graph.parameter(t.type) for t in body.parameters]
        with graph.located(op.condition.outputs[0].node.loc):
            made = body.inline(*parameters)
            holds = op.condition.inline(*parameters[1:])
    return ScanWhile(Body(parameters, [*made, *holds]), _ENDLESS, count, 0)
