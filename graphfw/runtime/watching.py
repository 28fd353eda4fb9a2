"""Evaluating a graph node by node, while somebody looks on: also inside of loops and branches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from graphfw.ir import concrete, time_limits
from graphfw.ir.body import Body
from graphfw.ir.op import RANDOM, Op, Rng
from graphfw.ir.tensor import Node
from graphfw.ops.control.region_op import Region

Watch: TypeAlias = Callable[[Node, Sequence[Any], Sequence[Any]], object]
"""Called with a node, its inputs and its outputs, once these are computed."""


def evaluated(
    node: Node, op: Op, xp: Any, inputs: Sequence[Any], rng: Rng | None, watch: Watch
) -> list[Any]:
    """Return a node's outputs; `op` is its op at the sizes of the run.

    Raises:
        ExecutionError: It fails; or `watch` raises it, here or in a body of the node.
    """
    if isinstance(op, Region):
        op = op.with_bodies([_Watched(body, watch) for body in op.bodies])
    time_limits.check(node)
    try:
        result = op.eval(xp, *inputs, **({"rng": rng} if RANDOM in op.traits else {}))
    except Exception as error:
        raise concrete.failed(node, inputs, error) from error
    outputs = list(result) if op.multiple else [result]
    watch(node, inputs, outputs)
    return outputs


class _Watched(Body):
    """A body whose nodes are looked at."""

    def __init__(self, body: Body, watch: Watch) -> None:
        super().__init__(body.parameters, body.outputs, body.sizes)
        self._watch = watch

    def bind(self, sizes: Mapping[str, int]) -> Body:
        return _Watched(super().bind(sizes), self._watch)

    def evaluate(self, xp: Any, arrays: Sequence[Any], rng: Rng | None) -> list[Any]:
        fed = zip(self.parameters, arrays, strict=True)
        values = {(t.node, t.index): array for t, array in fed}
        if not self.nodes:
            time_limits.check()
        for node in self.nodes:
            op = node.op if self.sizes is None else node.op.bind(self.sizes)
            inputs = [values[t.node, t.index] for t in node.inputs]
            outputs = evaluated(node, op, xp, inputs, rng, self._watch)
            values.update({(node, i): array for i, array in enumerate(outputs)})
        return [values[t.node, t.index] for t in self.outputs]
