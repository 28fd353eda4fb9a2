"""The native steps of ops that copy: concat, slice_set, roll and slice."""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.ir.tensor import Node
from graphfw.runtime.kernels.steps import Step, View
from graphfw.runtime.numpy_executor.special.moves import moved
from graphfw.runtime.planning.boxes import moves_of


def copy_steps(node: Node, inputs: Sequence[View], outputs: Sequence[View]) -> list[Step]:
    """Return the step of a node that copies; none if it had too many boxes."""
    (output,) = outputs
    moves = moves_of(node, inputs, output)
    if moves is None:
        return []
    return [moved(node, moves.boxes, output.storage, wrong=moves.wrong, over=moves.over)]
