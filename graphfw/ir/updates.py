"""`update` and `group` make the updates of variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphfw.errors import ArgumentError, DTypeError, GraphError, Operand, ShapeError
from graphfw.hints.calls import explained
from graphfw.ir import ambient, concrete
from graphfw.ir.arrays import to_array
from graphfw.ir.build import admitted, constant
from graphfw.ir.graph import Graph, current_graph, open_graph
from graphfw.ir.literal import PYTHON_SCALARS
from graphfw.ir.modes import interceptable
from graphfw.ir.owners import owners
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Update, Variable
from graphfw.loc import capture


@interceptable
def update(variable: Variable, value: Any) -> Update:
    """Say that a variable gets a new value at the end of each run that fetches this update.

    A call of a `gf.function` makes all updates of the function. In a graph, an update that a
    module's `forward` makes and does not return is part of what `minimize` returns for losses that
    depend on the result of the call.

    In a branch it gets it if the branch is taken. In a loop each iteration reads what the
    one before has given it; the last value is that of the run.

    Args:
        variable: What to change.
        value: A tensor or an array of the variable's shape and dtype.

    Raises:
        ShapeError, DTypeError: The value doesn't fit the variable.
        ArgumentError: The first argument is no Variable.
        GraphError: It is inside of `vmap`, or of a gradient rule.

    >>> import graphfw as gf
    >>> with gf.Graph() as g:
    ...     w = gf.Variable([1.0, 2.0], name="w")
    ...     double = gf.update(w, w * 2)
    >>> with gf.Session(g) as session:
    ...     session.run(double)
    ...     session[w]
    array([2., 4.], dtype=float32)
    """
    root = open_graph("an Update")
    graph = current_graph()
    loc = graph.provenance or capture(ambient.current_scope.get())
    if not isinstance(variable, Variable):
        raise ArgumentError(
            f"update: only variables can be updated, not {variable!r}",
            at=loc,
            fix="make it with gf.Variable",
        )
    admitted(variable, root, "update")
    graph.check_update(variable, loc)
    tensor = _as_tensor(value, variable, graph)
    operands: list[Operand] = [
        concrete.describe("variable", variable),
        concrete.describe("value", tensor),
    ]
    if tensor.shape != variable.shape:
        raise ShapeError(
            f'update: the value is {tensor.type}, the variable "{variable.name}" {variable.type}',
            operands=operands,
            at=loc,
            fix="compute a value of the variable's shape",
        )
    if tensor.dtype is not variable.dtype:
        raise DTypeError(
            f'update: the value is {tensor.dtype.name}, the variable "{variable.name}" '
            f"{variable.dtype.name}",
            operands=operands,
            at=loc,
            fix=f"convert it: gf.astype(value, gf.{variable.dtype.name})",
        )
    return Update([(variable, tensor)], graph, loc)


def _as_tensor(value: Any, variable: Variable, graph: Graph) -> Tensor:
    """Make constants of arrays and scalars; scalars take the variable's dtype."""
    if isinstance(value, Tensor):
        return admitted(value, graph, "update")
    dtype = variable.dtype if isinstance(value, PYTHON_SCALARS) else None
    return constant(to_array(value, dtype))


@explained
def group(*updates: Update) -> Update:
    """Join updates into one that does them all.

    Raises:
        GraphError: No graph is open, an update belongs to another one, or two give a variable
            different values.
        ArgumentError: Something else than an update is among them.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     a, b = gf.Variable(0.0, name="a"), gf.Variable(1.0, name="b")
    ...     swap = gf.group(gf.update(a, b), gf.update(b, a))
    >>> swap
    <Update of "a", "b" at <doctest graphfw.ir.updates.group[1]>:3>
    """
    open_graph("an Update")
    graph = current_graph()
    for one in updates:
        if not isinstance(one, Update):
            raise ArgumentError(
                f"group: {one!r} is no Update", fix="make it with gf.update(variable, value)"
            )
        if one.graph is not graph:
            raise GraphError(
                f"group: {one!r} belongs to another graph than the one that is open",
                why=owners(one.graph, graph),
                fix="join the updates of each graph on their own",
            )
    return Update(distinct_pairs(updates), graph, graph.provenance or capture())


def distinct_pairs(updates: Sequence[Update]) -> list[tuple[Variable, Tensor]]:
    """Return the distinct (variable, value) pairs of all updates.

    Raises:
        GraphError: Two give a variable different values.
    """
    values: dict[Variable, tuple[Tensor, Update]] = {}
    for one in updates:
        for variable, value in one.pairs:
            other = values.setdefault(variable, (value, one))
            if other[0] is not value:
                raise GraphError(
                    f'two updates give "{variable.name}" different values in one run',
                    operands=[concrete.describe("variable", variable)],
                    why=f"the first is made at {other[1].loc.describe()}",
                    at=one.loc,
                    fix="fetch one of them, or combine the values",
                )
    return [(variable, value) for variable, (value, _) in values.items()]
