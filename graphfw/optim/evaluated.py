"""A warning for steps that train what was called for evaluation."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence

from graphfw.ir.evaluation import Evaluation
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.variable import Variable
from graphfw.ir.walk import ancestors
from graphfw.loc import capture
from graphfw.ops.control.region_op import Region

_SHOWN = 4


def _evaluations(tensors: Sequence[Tensor], nodes: Sequence[Node]) -> Iterator[Evaluation]:
    """Yield the calls for evaluation that tensors depend on, those in bodies included."""
    above = set(nodes)
    for graph in dict.fromkeys([t.graph for t in tensors]):
        yield from [e for e in graph.evaluations if any(t.node in above for t in e.results)]
    bodies = [body for node in nodes if isinstance(node.op, Region) for body in node.op.bodies]
    for body in dict.fromkeys(bodies):
        yield from _evaluations(body.outputs, ancestors(body.outputs))


def warn_of_evaluated(
    losses: Sequence[Tensor], above: Sequence[Node], parameters: Iterable[Variable]
) -> None:
    """Warn of models that a step trains, though they were called for evaluation.

    Args:
        losses: The losses of the step.
        above: The nodes that they depend on.
        parameters: The variables that it trains.
    """
    trained = set(parameters)
    for found in _evaluations(losses, above):
        if trained.isdisjoint(found.parameters):
            continue
        more = f" and {len(found.layers) - _SHOWN} more" if len(found.layers) > _SHOWN else ""
        here = capture()
        warnings.warn_explicit(
            f'the step trains "{found.path}" as it was called for evaluation at '
            f"{found.loc.short()}: not in training were {', '.join(found.layers[:_SHOWN])}{more}. "
            "Call train() before that line, outside of gf.training(False); or write training=False "
            "in that call, if it is meant",
            UserWarning,
            here.file,
            here.line,
        )
