"""Effects: operations that do something when the graph runs, beside what they compute.

Their result is a token: a bool, true once it has happened. Who wants an effect to happen needs its
token, so passes and executors have nothing to know: a token that an output needs is computed, and
others are dropped like anything else. `Graph.effects` has the tokens that runs fetch along with
what they are asked for; a body yields one for its effects, which becomes a token of the node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from graphfw.ir import concrete
from graphfw.ir.body import Body, BodyGraph, Traced
from graphfw.ir.build import emit, emit_all
from graphfw.ir.dtype import DType, bool_
from graphfw.ir.functions import F
from graphfw.ir.graph import current_graph
from graphfw.ir.op import EFFECT, NONDIFF, Op, nested
from graphfw.ir.scopes import Scoped, override
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import Shape, TensorType
from graphfw.ir.walk import ancestors
from graphfw.ops.batching import MappedAxis
from graphfw.ops.control.region_op import Region, joined

TOKEN = TensorType(bool_, ())

_quiet: Scoped[bool] = Scoped("quiet", False)


class Effect(Op):
    """The base of effects: looks at its inputs, and yields a token.  xs -> bool[]

    A subclass says in `happen(arrays)` what happens, given the inputs' values as NumPy arrays.

    Attributes:
        number: Another for each call in the user's program, which tells them apart.
    """

    number: int
    happen: ClassVar[Callable[..., None]]
    traits = frozenset({EFFECT})
    vjp = NONDIFF

    def shape(self, *inputs: Shape) -> Shape:
        return ()

    def dtype(self, *inputs: DType) -> DType:
        return bool_

    def eval(self, xp: Any, *inputs: Any) -> Any:
        if not _quiet.get():
            # Copies: what looks at an array may keep it, and must not change it.
            self.happen([np.array(x) if xp is np else xp.asnumpy(x) for x in inputs])
        return xp.asarray(True)

    def batch(self, mapped: MappedAxis, batched: Sequence[bool], *inputs: Tensor) -> Tensor:
        return mapped.everywhere(emit(self, *inputs), False)


def call_number() -> int:
    """Return the number of a call with an effect, from 1 on in each graph.

    Programs are the same in all processes that way, whatever else these have described.
    """
    graph = current_graph().root
    graph.calls += 1
    return graph.calls


def quiet() -> override[bool]:
    """Let no effect happen: for those that evaluate a graph to look at it."""
    return override(_quiet, True)


def happens(tokens: Sequence[Tensor]) -> None:
    """Let runs of the current graph fetch tokens along; in a body, each of its evaluations.

    Outside of any graph it happens now, or with the value of the loop or branch that it is in.
    """
    graph = current_graph()
    if not graph.is_ambient:
        graph.effects.extend(tokens)
        return
    concrete.evaluate([t for t in tokens if not any(map(_has_bodies, ancestors([t])))])


def _has_bodies(node: Node) -> bool:
    return bool(tuple(nested(node.op.values)))


def carrying(*traced: Traced) -> tuple[Traced, ...]:
    """Return traced functions with one more output, a token, if one of them has an effect.

    All of them have it then, as a branch's choices yield the same.
    """
    if not any(one.graph.effects for one in traced):
        return traced
    found = []
    for one in traced:
        with one.graph:
            found.append(one._replace(outputs=(*one.outputs, token_of(one))))
    return tuple(found)


def silent(body: Body) -> Body:
    """Return a body without effects, for gradients that compute it again."""
    if not body.has_effect:
        return body
    graph = BodyGraph("gradient")
    with graph:
        parameters = [graph.parameter(t.type, t.node.loc) for t in body.parameters]
        pairs = zip(body.parameters, parameters, strict=True)
        made = {(t.node, t.index): own for t, own in pairs}
        for node in body.nodes:
            op, inputs = node.op, [made[t.node, t.index] for t in node.inputs]
            if isinstance(op, Region):
                op = op.with_bodies(map(silent, op.bodies))
            with graph.located(node.loc):
                is_effect = isinstance(op, Effect)
                outputs = [F.asarray(True)] if is_effect else emit_all(op, *inputs)
            made.update({(node, i): t for i, t in enumerate(outputs)})
    return Body(parameters, [made[t.node, t.index] for t in body.outputs])


def token_of(traced: Traced) -> Tensor:
    """Return a token for all effects of a body, whose graph is open."""
    tokens = traced.graph.effects
    return joined(tokens) if tokens else F.asarray(True)
