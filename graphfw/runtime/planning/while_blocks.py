"""Loops of unknown length in blocks of iterations, each of which is one kernel.

Whether there is another iteration is decided inside of the kernel; after the last one what is left
of the block changes nothing any more. Between blocks Python can be asked for signals as ever.
"""

from __future__ import annotations

from graphfw.ir.body import Body, BodyGraph
from graphfw.ir.build import emit_all
from graphfw.ir.dtype import bool_
from graphfw.ir.functions import F
from graphfw.ir.op import ALIAS, ELEMENTWISE
from graphfw.ir.sources import ConstantOp
from graphfw.ir.types import TensorType
from graphfw.loc import Loc
from graphfw.ops.args import as_tensor
from graphfw.ops.control.loop_op import Loop
from graphfw.ops.control.scan_op import Scan
from graphfw.passes.fuse_nodes import FusionFacts
from graphfw.runtime.kernels.lower import CanCompile, Target
from graphfw.runtime.kernels.lower_iterations import iteration_steps

_BLOCK = 16
"""Iterations of a block: as many may be made for nothing, but one."""

_SMALL = 1 << 12
"""Elements that all a loop carries may have: of more, an iteration for nothing costs too much."""


def in_blocks(loop: Loop, target: Target) -> Loop:
    """Return a loop that computes the same in fewer iterations, where each can be one kernel.

    Otherwise return the loop itself.

    Args:
        loop: The loop.
        target: What makes kernels.
    """
    if len(loop.passes) > 1 or not all(map(_is_little, loop.bodies)):
        return loop
    body = loop.passes[0]
    count = loop.carries[0]
    scan = _block(loop)
    graph = BodyGraph("loop")
    with graph, graph.located(_line(loop)):
        parameters = [graph.parameter(t.type) for t in body.parameters]
        number, *state = parameters
        carry, captures = state[:count], state[count:]
        made = emit_all(scan, *carry, as_tensor(True), number * _BLOCK, *captures)
    blocks = Body(parameters, made[:count])
    facts = FusionFacts(blocks.graph, CanCompile(target))
    if not iteration_steps(made[0].node, facts, target):
        return loop
    return Loop(loop.condition, (blocks,), loop.carries, loop.backwards)


def _line(loop: Loop) -> Loc:
    """Return the line that the nodes of a block show: an op has no location of its own."""
    return loop.condition.outputs[0].node.loc


def _is_little(body: Body) -> bool:
    for node in body.nodes:
        if not {ELEMENTWISE, ALIAS} & node.op.traits and not isinstance(node.op, ConstantOp):
            return False
    sizes = [t.type.size for t in body.parameters]
    return all([isinstance(size, int) for size in sizes]) and sum(sizes) <= _SMALL


def _block(loop: Loop) -> Scan:
    """Return the iterations of a block: it carries besides whether there is another iteration."""
    (body,), (count,) = loop.passes, loop.carries
    number, *state = [t.type for t in body.parameters]
    graph = BodyGraph("loop")
    with graph:
        here = graph.parameter(number)
        carry = [graph.parameter(kind) for kind in state[:count]]
        going = graph.parameter(TensorType(bool_, ()))
        before = graph.parameter(number)
        captures = [graph.parameter(kind) for kind in state[count:]]
        with graph.located(_line(loop)):
            iteration = before + here
        made = body.inline(iteration, *carry, *captures)
        with graph.located(_line(loop)):
            new = [F.where(going, after, old) for after, old in zip(made, carry, strict=True)]
        (more,) = loop.condition.inline(*new, *captures)
        with graph.located(_line(loop)):
            outputs = [*new, F.logical_and(going, more)]
    parameters = [here, *carry, going, before, *captures]
    return Scan(Body(parameters, outputs), _BLOCK, count + 1, 0)
