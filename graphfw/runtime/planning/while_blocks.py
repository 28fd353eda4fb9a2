"""Loops of unknown length in blocks of iterations, each of which is one kernel.

The kernel computes the loop's condition, too, and ends with the loop, or with the block.
"""

from __future__ import annotations

from graphfw.ir.body import Body, BodyGraph
from graphfw.ir.build import emit_all
from graphfw.ir.dtype import bool_
from graphfw.ir.op import EFFECT, RANDOM
from graphfw.ir.types import TensorType
from graphfw.loc import Loc
from graphfw.ops.args import as_tensor
from graphfw.ops.control.loop_op import Loop
from graphfw.ops.control.scan_while import ScanWhile
from graphfw.passes.fuse_nodes import FusionFacts
from graphfw.runtime.kernels.lower import CanCompile, Target
from graphfw.runtime.kernels.lower_iterations import iteration_steps

_BLOCK = 1 << 12
"""The most iterations of a block."""


def in_blocks(loop: Loop, target: Target) -> Loop:
    """Return a loop that computes the same in fewer iterations, where each can be one kernel.

    Otherwise return the loop itself.

    Args:
        loop: The loop.
        target: What makes kernels.
    """
    traits = [node.op.traits for body in loop.bodies for node in body.nodes]
    if len(loop.passes) > 1 or any([{RANDOM, EFFECT} & some for some in traits]):
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


def _block(loop: Loop) -> ScanWhile:
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
        (more,) = loop.condition.inline(*made, *captures)
    parameters = [here, *carry, going, before, *captures]
    return ScanWhile(Body(parameters, [*made, more]), _BLOCK, count + 1, 0)
