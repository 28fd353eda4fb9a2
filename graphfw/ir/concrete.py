"""Values of tensors that depend on constants alone, and how tensors are described in errors."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from graphfw.errors import ConcreteValueError, ExecutionError, GraphfwError, Operand
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

    Raises:
        ExecutionError: An operation fails.
    """
    values: dict[tuple[Node, int], Any] = {(t.node, t.index): v for t, v in (given or {}).items()}
    known = {node for node, _ in values}
    with np.errstate(all="ignore"):
        for node in ancestors(tensors, stop=known.__contains__):
            if node in known:
                continue
            inputs = [values[t.node, t.index] for t in node.inputs]
            random = {"rng": rng} if RANDOM in node.op.traits else {}
            try:
                result = node.op.eval(np, *inputs, **random)
            except Exception as error:
                raise failed(node, inputs, error) from error
            outputs = result if node.op.multiple else (result,)
            values.update({(node, i): value for i, value in enumerate(outputs)})
    return [values[t.node, t.index] for t in tensors]


def failed(node: Node, arrays: Sequence[Any], error: Exception) -> ExecutionError:
    """Say which node failed, with the arrays that it got.

    Raises:
        MemoryError: The error is one: no fault of the values. A function of the user's may mean
            anything by it.
    """
    if isinstance(error, MemoryError) and node.op.name != "host_call":
        raise error
    if isinstance(error, ExecutionError) and error.names_node:  # that is in a body of this node
        again = copy.copy(error)
        part = "" if error.trip is None else f"trip {error.trip} of "
        place = f"it is in {part}the {node.op.name} made at {node.loc.short()}"
        again.why = f"{error.why}; {place}" if error.why else place
        again.trip = None
        return again
    if isinstance(error, ExecutionError):  # the op's own words
        return at_node(node, arrays, error.summary, error.fix)
    detail = (
        error.summary if isinstance(error, GraphfwError) else f"{type(error).__name__}: {error}"
    )
    fix = (
        "feed values for which it works: these are what it got; "
        "gf.Session(g, debug=True) runs node by node"
    )
    return at_node(node, arrays, f"{node.op.title} failed: {detail}", fix)


def at_node(node: Node, arrays: Sequence[Any], summary: str, fix: str) -> ExecutionError:
    """Return an error of a node's evaluation that shows the arrays that it got."""
    operands = [
        Operand(
            _label(node, i),
            t.name,
            _array_text(array),
            t.node.op.name,
            t.node.loc,
            t.node.loc.layer,
        )
        for i, (t, array) in enumerate(zip(node.inputs, arrays, strict=True))
    ]
    forward = node.loc.grad_of
    error = ExecutionError(
        summary,
        operands=operands[:3],
        why=f"it is the gradient of {forward.describe()}" if forward else "",
        at=node.loc,
        fix=fix,
    )
    error.names_node = True
    return error


@contextmanager
def in_trip(number: int) -> Iterator[None]:
    """Let errors of what is computed inside know the trip of the loop that they are in."""
    try:
        yield
    except ExecutionError as error:
        error.trip = number
        raise


def _label(node: Node, index: int) -> str:
    labels = node.op.labels
    return labels[index] if index < len(labels) else f"x{index}"


def _array_text(array: Any) -> str:
    """Describe an array: its type and the range of its values."""
    array = np.asarray(array) if not hasattr(array, "shape") else array
    text = f"{array.dtype.name}[{', '.join(map(str, array.shape))}]"
    if array.size and array.dtype.kind in "iuf":
        text += f" in [{float(array.min()):.4g}, {float(array.max()):.4g}]"
    return text


def blocker(tensor: Tensor) -> Node | None:
    """Return a node because of which the tensor has no value before a session runs, or None."""
    ambient = tensor.node.graph.is_ambient
    for node in ancestors([tensor]):
        traits = node.op.traits
        if SOURCE in traits and PURE not in traits:
            return node
        if (EFFECT in traits or RANDOM in traits) and not ambient:
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
    "bool()": "choose between values with gf.where(condition, a, b), between computations with "
    "gf.cond(condition, f, g); get a value with session.run(tensor, feeds)",
}


def describe(label: str, tensor: Tensor) -> Operand:
    """Return a tensor as a line of an error."""
    node = tensor.node
    loc = node.loc
    follows = node.graph.is_poisoned(node)
    return Operand(label, tensor.name, str(tensor.type), node.op.name, loc, loc.layer, follows)
