"""`bisect`: two sessions side by side, to find the first operation that they disagree about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphfw.errors import ArgumentError, counted
from graphfw.hints.calls import explained
from graphfw.ir.dtype import DType
from graphfw.ir.literal import Array
from graphfw.ir.op import EFFECT, RANDOM, SOURCE
from graphfw.ir.owners import named
from graphfw.ir.sources import Placeholder
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.variable import Variable
from graphfw.ir.walk import ancestors
from graphfw.ops.elementwise.cast import finfo
from graphfw.runtime.locations import location_of
from graphfw.runtime.session import Session
from graphfw.utils.records import record

_TOLERANCE = {"float64": 1e-8, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}


class Compared(NamedTuple):
    """A tensor in both sessions.

    Attributes:
        tensor: The tensor.
        error: The largest difference, by the largest magnitude; infinite where only one has a NaN
            or an infinity, or where integers or bools differ.
        allowed: How large it may be.
    """

    tensor: Tensor
    error: float
    allowed: float

    @property
    def diverges(self) -> bool:
        """Whether the difference is larger than it may be."""
        return self.error > self.allowed


@record
class Comparison:
    """The result of `bisect`; print it.

    Attributes:
        entries: Variables, then what operations give, in order.
    """

    entries: tuple[Compared, ...]

    @property
    def first(self) -> Compared | None:
        """The first tensor that diverges; None where none does."""
        return next((one for one in self.entries if one.diverges), None)

    def __repr__(self) -> str:
        first = self.first
        if first is None:
            worst = max([one.error for one in self.entries], default=0.0)
            return f"no tensor of {len(self.entries)} diverges; the largest error is {worst:.3g}"
        lines = [f"the first to diverge: {_line(first)}"]
        errors = {one.tensor: one for one in self.entries}
        inputs = [errors[t] for t in first.tensor.node.inputs if t in errors]
        lines += [f"  of   {_line(one)}" for one in inputs]
        later = [one for one in self.entries if one.diverges and one is not first]
        lines.append(f"  then {len(later)} more of {counted(len(self.entries), 'tensor')}")
        growth = _growth(self.entries)
        return "\n".join([*lines, "how the error grows:", *[f"  {_line(one)}" for one in growth]])


@explained
def bisect(
    a: Session,
    b: Session,
    feeds: Mapping[Tensor | str, Any] | None = None,
    fetches: Sequence[Tensor] | None = None,
    *,
    rtol: float | None = None,
) -> Comparison:
    """Run one graph in two sessions, and find the first tensor on which they disagree.

    The sessions may have different executors, options or contents. All tensors are fetched, so what
    is fused otherwise is not here; bodies of loops and branches count as one operation.

    Args:
        a: A session.
        b: Another one of the same graph; with random operations, of the same seed, after as many
            runs.
        feeds: As of `Session.run`.
        fetches: What to look into; by default all that can be computed of the feeds.
        rtol: How large a difference may be, by a tensor's largest magnitude; by default 1e-8 for
            float64, 1e-4 for float32, 0.02 for float16 and 0.1 for bfloat16: for a tensor's own
            dtype, and those of the sessions' mixed precision; for floats that are for storage the
            distance from 1 to the next. Integers must be equal.

    Raises:
        ArgumentError: The sessions have different graphs, or draw different numbers.

    >>> import graphfw as gf
    >>> with gf.Graph() as g:
    ...     x = gf.placeholder((3,), name="x")
    ...     y = gf.exp(x) + 1
    >>> with gf.Session(g) as a, gf.Session(g, debug=True) as b:
    ...     print(gf.bisect(a, b, {x: [1.0, 2.0, 3.0]}).first)
    None
    """
    if a.graph is not b.graph:
        raise ArgumentError(
            "bisect: the sessions have different graphs",
            why=f"one runs {named(a.graph)}, the other {named(b.graph)}",
            fix="make both with gf.Session(graph) of one graph",
        )
    feeds = feeds or {}
    fed = {(t if isinstance(t, Tensor) else a.graph.find(t)).node for t in feeds}
    nodes = _computable(a.graph.nodes, fed) if fetches is None else ancestors(fetches)
    if any(RANDOM in node.op.traits for node in nodes) and a.seed != b.seed:
        raise ArgumentError(
            f"bisect: the sessions draw different numbers, by the seeds {a.seed} and {b.seed}",
            fix="give both the same seed",
        )
    held = [t for node in nodes for t in node.outputs if isinstance(t, Variable)]
    wanted = [
        tensor
        for node in nodes
        if not {SOURCE, EFFECT} & node.op.traits
        for number, tensor in enumerate(node.outputs)
        if number not in node.op.remainders
    ]
    tensors: list[Tensor] = [*held, *wanted]
    values = [session.run(tensors, feeds, host=True) for session in (a, b)]
    pairs = zip(tensors, *values, strict=True)
    low = [session.precision.low for session in (a, b) if session.precision is not None]
    return Comparison(tuple([_compared(t, x, y, rtol, low) for t, x, y in pairs]))


def _computable(nodes: Sequence[Node], fed: set[Node]) -> list[Node]:
    """Return the nodes that need no placeholder but those that are fed."""
    found: dict[Node, None] = {}
    for node in nodes:
        missing = isinstance(node.op, Placeholder) and node not in fed
        if not missing and all(t.node in found for t in node.inputs):
            found[node] = None
    return list(found)


def _compared(
    tensor: Tensor, a: Array, b: Array, rtol: float | None, low: Sequence[DType]
) -> Compared:
    allowed = max(map(_allowed, [tensor.dtype, *low])) if rtol is None else rtol
    if not (tensor.dtype.is_inexact or tensor.dtype.holds_floats):
        return Compared(tensor, 0.0 if np.array_equal(a, b) else np.inf, 0.0)
    wide = np.complex128 if tensor.dtype.is_complex else np.float64
    with np.errstate(invalid="ignore"):
        x, y = a.astype(wide), b.astype(wide)
        good = np.isfinite(x)
        if not np.array_equal(x[~good], y[~good], equal_nan=True) or not np.isfinite(y[good]).all():
            return Compared(tensor, np.inf, allowed)
    if not good.any():
        return Compared(tensor, 0.0, allowed)
    largest = float(np.abs(x[good]).max())
    difference = float(np.abs(x[good] - y[good]).max())
    return Compared(tensor, difference / largest if largest else difference, allowed)


def _allowed(dtype: DType) -> float:
    if dtype.is_storage:  # what is rounded otherwise before may become the next number
        return finfo(dtype).eps if dtype.holds_floats else 0.0
    return _TOLERANCE.get(dtype.real.name, 1e-4)


def _growth(entries: Sequence[Compared]) -> list[Compared]:
    """Return those whose error is ten times as large as of all before, the first error included."""
    found: list[Compared] = []
    for one in entries:
        if one.error > (10 * found[-1].error if found else 0.0):
            found.append(one)
    return found


def _line(one: Compared) -> str:
    tensor = one.tensor
    name = f'"{tensor.name}" ' if tensor.name else ""
    return f"{one.error:.3g}  {name}{tensor.node.op.name} made at {location_of(tensor.node)}"
