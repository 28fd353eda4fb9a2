"""Values of tensors that depend on constants alone, and how tensors are described in errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphfw.errors import ConcreteValueError, Operand
from graphfw.ir.op import EFFECT, PURE, RANDOM, SOURCE, Rng
from graphfw.ir.walk import ancestors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from graphfw.ir.tensor import Node, Tensor


AMBIENT_RNG = Rng(0, 0)
"""What draws outside any session come from."""


def evaluate(
    tensors: Sequence[Tensor],
    *,
    rng: Rng = AMBIENT_RNG,
    given: Mapping[Tensor, Any] | None = None,
) -> list[Any]:
    """Return the tensors' values by each op's reference `eval`, node by node.

    Args:
        tensors: What to compute. All dims must be static.
        rng: What random ops draw from.
        given: Values of tensors that are known; nothing above them is computed.
    """
    values: dict[tuple[Node, int], Any] = {(t.node, t.index): v for t, v in (given or {}).items()}
    known = {node for node, _ in values}
    with np.errstate(all="ignore"):
        for node in ancestors(tensors, stop=known.__contains__):
            if node in known:
                continue
            inputs = [values[t.node, t.index] for t in node.inputs]
            random = {"rng": rng} if RANDOM in node.op.traits else {}
            result = node.op.eval(np, *inputs, **random)
            outputs = result if node.op.multiple else (result,)
            values.update({(node, i): value for i, value in enumerate(outputs)})
    return [values[t.node, t.index] for t in tensors]


def blocker(tensor: Tensor) -> Node | None:
    """Return a node because of which the tensor has no value before a session runs, or None."""
    ambient = tensor.node.graph.is_ambient
    for node in ancestors([tensor]):
        traits = node.op.traits
        if SOURCE in traits and PURE not in traits:
            return node
        if EFFECT in traits or (RANDOM in traits and not ambient):
            return node
        if not all(t.is_static for t in node.types) or node.op.symbols:
            return node
    return None


def is_concrete(tensor: Tensor) -> bool:
    """Say whether the tensor depends on constants alone."""
    return tensor._value is not None or blocker(tensor) is None


def value_of(tensor: Tensor, what: str) -> np.ndarray[Any, Any]:
    """Return the value of a concrete tensor, read-only.

    Args:
        tensor: The tensor.
        what: What the user wrote, for the error.

    Raises:
        ConcreteValueError: The tensor is not concrete.
    """
    cause = blocker(tensor)
    if cause is not None:
        operands = [describe("x", tensor)]
        if cause is not tensor.node:
            operands.append(describe("from", cause.outputs[0]))
        raise ConcreteValueError(
            f"{what} wants a value, and this tensor has none until a session runs",
            operands=operands,
            fix=_FIXES.get(what, "get values with session.run(tensor, feeds)"),
        )
    array = np.array(evaluate([tensor])[0], dtype=tensor.dtype.dtype)
    array.flags.writeable = False
    return array


_FIXES = {
    "bool()": "choose between values with gf.where(condition, a, b); "
    "get a value with session.run(tensor, feeds)",
}


def describe(label: str, tensor: Tensor) -> Operand:
    """Return a tensor as a line of an error."""
    node = tensor.node
    loc = node.loc
    return Operand(label, tensor.name, str(tensor.type), node.op.name, loc, loc.layer)
