"""A warning for steps that train what was called for evaluation."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Variable
from graphfw.ir.walk import ancestors
from graphfw.loc import capture

_SHOWN = 4


def warn_of_evaluated(loss: Tensor, parameters: Iterable[Variable]) -> None:
    """Warn of models that a step trains, though they were called for evaluation.

    Args:
        loss: The loss of the step.
        parameters: The variables that it trains.
    """
    evaluations = loss.graph.evaluations
    if not evaluations:
        return
    above, trained = set(ancestors([loss])), set(parameters)
    for found in evaluations:
        if trained.isdisjoint(found.parameters) or not any(t.node in above for t in found.results):
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
