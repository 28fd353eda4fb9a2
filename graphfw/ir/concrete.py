"""Values of tensors that depend on constants only, and how tensors are described in errors."""

from __future__ import annotations

import copy
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from graphfw.errors import (
    ConcreteValueError,
    ExecutionError,
    GraphfwError,
    MemoryLimitError,
    Operand,
    renamed,
)
from graphfw.ir import ambient
from graphfw.ir.op import ALIAS, EFFECT, PURE, RANDOM, SOURCE, Rng
from graphfw.ir.shape import shape_text
from graphfw.ir.types import TensorType
from graphfw.ir.walk import ancestors
from graphfw.utils.signal_handlers import is_of_handler

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from graphfw.ir.tensor import Node, Tensor


def _physical_memory() -> float:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not every system says
        return math.inf


_MEMORY = _physical_memory()

AMBIENT_RNG = Rng(0, 0)
"""The seed and step of draws outside any session."""


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
    """Return the node that failed, with the arrays that it got.

    Raises:
        MemoryError: The error is one: no fault of the values. A function of the user's may mean
            anything by it.
        BdbQuit: The user has left Python's debugger.
        Exception: A signal's handler has raised it.
    """
    if is_of_handler(error):
        raise error
    debugger = sys.modules.get("bdb")  # loaded where anybody can have left it
    if debugger is not None and isinstance(error, debugger.BdbQuit):
        raise error
    if isinstance(error, MemoryError) and node.op.name != "host_call":
        raise error
    large = next(filter(_is_beyond_numpy, node.types), None)
    if isinstance(error, ValueError) and large is not None:
        even = ", not even empty ones" if 0 in large.shape else ""
        text = f"NumPy has no arrays of shape {shape_text(large.shape)}{even}"
        raise MemoryError(text) from error
    if isinstance(error, ExecutionError) and error.names_node:  # that is in a body of this node
        again = copy.copy(error)
        prefix = "" if error.iteration is None else f"iteration {error.iteration} of "
        location = f"it is in {prefix}the {node.op.name} made at {node.loc.short()}"
        again.why = f"{error.why}; {location}" if error.why else location
        again.iteration = None
        return again
    called = node.loc.called
    if isinstance(error, ExecutionError):  # the op's own words
        is_named = error.summary.startswith(f"{node.op.name}: ")
        summary = renamed(error.summary, called) if is_named else error.summary
        return at_node(node, arrays, summary, error.fix)
    detail = (
        error.summary if isinstance(error, GraphfwError) else f"{type(error).__name__}: {error}"
    )
    fix = (
        "feed values for which it works: these are what it got; "
        "gf.Session(g, debug=True) runs node by node"
    )
    title = called if called and node.op.title == node.op.name else node.op.title
    return at_node(node, arrays, f"{title} failed: {detail}", fix)


def _is_beyond_numpy(made: TensorType) -> bool:
    """Return whether the known dims besides 0 are more than an array can have."""
    known = math.prod([dim for dim in made.shape if isinstance(dim, int) and dim])
    return known * made.dtype.itemsize > sys.maxsize


def at_node(node: Node, arrays: Sequence[Any], summary: str, fix: str) -> ExecutionError:
    """Return an error of a node's evaluation that shows the arrays that it got."""
    operands = []
    for i, (t, array) in enumerate(zip(node.inputs, arrays, strict=True)):
        operand = describe(_label(node, i), t)
        operands.append(replace(operand, type=_array_text(array)))
    if getattr(node.op, "refusal", ""):  # the error of a public function that is made of ops
        operands = [describe("given", t) for t in _arguments(node)]
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


def _arguments(node: Node) -> list[Tensor]:
    """Return the tensors that the function was given which made a node: those of other lines.

    A constant of one element is taken for the function's own.
    """
    found: dict[Tensor, None] = {}
    rest = list(node.inputs)
    seen = set(rest)
    while rest:
        tensor = rest.pop(0)
        made = tensor.node
        if SOURCE not in made.op.traits and made.loc == node.loc:
            new = [t for t in made.inputs if t not in seen]
            seen.update(new)
            rest += new
        elif made.op.name != "constant" or made.loc != node.loc or tensor.size != 1:
            found[tensor] = None
    return list(found)


@contextmanager
def in_iteration(number: int) -> Iterator[None]:
    """Let errors of what is computed inside know the iteration of the loop that they are in."""
    try:
        yield
    except ExecutionError as error:
        error.iteration = number
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
    outside = tensor.node.graph.is_ambient
    for node in ancestors([tensor]):
        traits = node.op.traits
        if SOURCE in traits and PURE not in traits:
            return node
        if (EFFECT in traits or RANDOM in traits) and not outside:
            return node
        if not all(t.is_static for t in node.types) or node.op.symbols:
            return node
    return None


def is_concrete(tensor: Tensor) -> bool:
    """Return whether the tensor depends on constants only."""
    return tensor._value is not None or blocker(tensor) is None


def is_computed(tensor: Tensor) -> bool:
    """Return whether the value of a concrete tensor is there for users, or computed for them.

    Outside of a graph nothing is computed under "meta".
    """
    return (
        tensor._value is not None
        or not tensor.node.graph.is_ambient
        or tensor.node.op.name == "constant"
        or ambient.get_default_executor() != "meta"
    )


def value_for_user(tensor: Tensor, what: str) -> np.ndarray[Any, Any]:
    """Return the value of a concrete tensor, read-only, where the default executor computes.

    Args:
        tensor: The tensor.
        what: What the user wrote, for the error.

    Raises:
        ConcreteValueError: The tensor is not concrete, or the default executor is "meta".
        MemoryLimitError: There is not so much memory.
    """
    if not is_computed(tensor):
        raise ConcreteValueError(
            f'{what} wants a value, and the default executor, "meta", computes none',
            operands=[describe("x", tensor)],
            why=f"{ambient.default_executor_with_origin()[1]} chose it",
            fix='ask for x.shape and x.dtype, or do it inside `with gf.default_executor("numpy")`',
        )
    return value_of(tensor, what)


def value_to_check(tensor: Tensor) -> np.ndarray[Any, Any] | None:
    """Return the value of a concrete tensor for a check of it; None where it is not computed."""
    if not is_concrete(tensor) or not is_computed(tensor):
        return None
    try:
        return value_of(tensor, "a check")
    except MemoryError:  # a check is no reason to fail
        return None


def value_of(tensor: Tensor, what: str) -> np.ndarray[Any, Any]:
    """Return the value of a concrete tensor, read-only, whatever the default executor is.

    graphfw asks so for what the description itself depends on, such as how often to repeat.

    Args:
        tensor: The tensor.
        what: What the user wrote, for the error.

    Raises:
        ConcreteValueError: The tensor is not concrete.
        MemoryLimitError: There is not so much memory.
    """
    if tensor._value is None:
        held = tensor.node.graph.contents_of(tensor)
        if held is not None:  # and may be others later
            return held
        tensor._value = _evaluated(tensor, what)
    return tensor._value


def _evaluated(tensor: Tensor, what: str) -> np.ndarray[Any, Any]:
    cause = blocker(tensor)
    if cause is not None:
        operands = [describe("x", tensor)]
        if cause is not tensor.node:
            operands.append(describe("from", cause.outputs[0]))
        raise ConcreteValueError(
            f"{what} wants a value, and this tensor has none until a session runs",
            operands=operands,
            fix=_FIXES.get(
                what,
                "get values with session.run(tensor, feeds); in a @gf.function return the tensor",
            ),
        )
    made = [node for node in ancestors([tensor]) if ALIAS not in node.op.traits]
    largest = max([*made, tensor.node], key=_bytes_of)  # the result is copied, also if it is a view
    try:
        if _bytes_of(largest) > _MEMORY:  # the system may promise more than it has
            raise MemoryError
        array = np.array(evaluate([tensor])[0], dtype=tensor.dtype.dtype)
    except MemoryError as error:
        why = str(error) or f"this {largest.op.name} takes {_bytes_of(largest):,} bytes"
        raise MemoryLimitError(
            f"{what} wants a value, and there is not enough memory to compute it: {why}",
            operands=[describe("x", largest.outputs[0])],
            fix="compute less of it, or ask for x.shape and x.dtype alone",
        ) from error
    array.flags.writeable = False
    return array


def _bytes_of(node: Node) -> int:
    """Return the bytes of a node's outputs, all of whose dims are static."""
    return sum([int(t.nbytes) for t in node.types])


_FIXES = {
    "bool()": "choose between values with gf.where(condition, a, b), between computations with "
    "gf.cond(condition, f, g); get a value with session.run(tensor, feeds)",
}


def describe(label: str, tensor: Tensor) -> Operand:
    """Return a tensor as a line of an error."""
    node = tensor.node
    loc = node.loc
    follows = node.graph.is_poisoned(node)
    return Operand(label, tensor.name, str(tensor.type), made_by(node), loc, loc.layer, follows)


def made_by(node: Node) -> str:
    """Return the name of the function that the user called, or of the op."""
    if node.loc.called:
        return node.loc.called
    if node.op.name != "broadcast_to":
        return node.op.name
    value: Any = node.inputs[0].node.op
    if value.name != "constant" or value.value.shape:
        return node.op.name
    return {0: "zeros", 1: "ones"}.get(value.value.array.item(), "full")
