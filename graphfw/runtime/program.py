"""`Program`: a graph made ready for an executor, with its inputs and outputs in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphfw.errors import FeedError, GraphError
from graphfw.ir import concrete
from graphfw.ir.dim import DimLike, symbols_of
from graphfw.ir.graph import Graph
from graphfw.ir.loc import Loc
from graphfw.ir.op import ALIAS, RANDOM, SOURCE
from graphfw.ir.rebuild import derive
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.variable import Update, Variable
from graphfw.passes.manager import Report, run_pipeline
from graphfw.passes.pipelines import DEFAULT


@dataclass(frozen=True)
class ShapeCheck:
    """One dim that `assert_shape` promised: what it is said to be, and what it is computed from."""

    said: DimLike
    actual: DimLike
    loc: Loc


@dataclass(frozen=True)
class Program:
    """What an executor is asked to run.

    Attributes:
        graph: The optimised graph; its outputs are the fetches, then the updates' values.
        feeds: The placeholders that are fed, in the order of the arguments.
        variables: The variables that are read, in the order of the arguments after the feeds.
        fetch_count: How many of the outputs are fetched.
        updated: The variables that the remaining outputs are written to.
        symbols: The names of the symbolic dims, in the order of `sizes`.
        shape_checks: What `assert_shape` promised.
        copied: For each output, whether it may share memory with an input or another output, so
            that it must be copied before it is handed out.
        is_random: Whether it draws random numbers.
        reports: What each pass did.
    """

    graph: Graph
    feeds: tuple[Tensor, ...]
    variables: tuple[Variable, ...]
    fetch_count: int
    updated: tuple[Variable, ...]
    symbols: tuple[str, ...]
    shape_checks: tuple[ShapeCheck, ...]
    copied: tuple[bool, ...]
    is_random: bool
    reports: tuple[Report, ...]


def lower(
    fetches: Sequence[Tensor], updates: Sequence[Update], feeds: Sequence[Tensor], graph: Graph,
    verify: str | None,
) -> Program:
    """Optimise what the fetches and updates need of a graph, and put its inputs in order.

    Raises:
        GraphError: Two updates give one variable different values.
        FeedError: A fetch needs a placeholder that is not fed.
    """
    pairs = _update_pairs(updates)
    outputs = [*fetches, *(value for _, value in pairs)]
    source = derive(graph, outputs)
    _check_fed(source, feeds)
    checks = tuple(_shape_checks(source))
    result = run_pipeline(source, DEFAULT, verify=verify)
    optimised = result.graph
    variables = tuple(
        t for node in optimised.nodes for t in node.outputs if isinstance(t, Variable)
    )
    return Program(
        graph=optimised,
        feeds=tuple(feeds),
        variables=variables,
        fetch_count=len(fetches),
        updated=tuple(variable for variable, _ in pairs),
        symbols=tuple(sorted(_symbols(optimised, feeds, checks))),
        shape_checks=checks,
        copied=_copied(optimised.outputs),
        is_random=any(RANDOM in node.op.traits for node in optimised.nodes),
        reports=result.reports,
    )


def _update_pairs(updates: Sequence[Update]) -> list[tuple[Variable, Tensor]]:
    """Return the distinct (variable, value) pairs of all updates."""
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


def _check_fed(graph: Graph, feeds: Sequence[Tensor]) -> None:
    fed = {t.node for t in feeds}
    for node in graph.nodes:
        if node.op.name == "placeholder" and node not in fed:
            shown = f'"{node.name}"' if node.name else "a placeholder without a name"
            raise FeedError(
                f"the value of {shown} is needed and nothing is fed for it",
                operands=[concrete.describe("missing", node.outputs[0])],
                fix="feed it: session.run(fetches, {x: array})",
            )


def _shape_checks(graph: Graph) -> list[ShapeCheck]:
    """Collect what assert_shape promises: it is checked before anything is computed."""
    return [
        ShapeCheck(said, actual, node.loc)
        for node in graph.nodes
        if node.op.name == "assert_shape"
        for said, actual in zip(node.types[0].shape, node.inputs[0].shape, strict=True)
        if said != actual
    ]


def _symbols(graph: Graph, feeds: Sequence[Tensor], checks: Sequence[ShapeCheck]) -> set[str]:
    found: set[str] = set()
    for node in graph.nodes:
        found |= node.op.symbols
        for kind in node.types:
            if not kind.is_static:
                found.update(*map(symbols_of, kind.shape))
    for tensor in feeds:
        found.update(*map(symbols_of, tensor.shape))
    for check in checks:
        found |= symbols_of(check.said) | symbols_of(check.actual)
    return found


def _copied(outputs: Sequence[Tensor]) -> tuple[bool, ...]:
    """Find the outputs that may share memory with something that lives on."""
    roots = [_memory_roots(t) for t in outputs]
    owners: dict[Node, int] = {}
    for mine in roots:
        for node in mine:
            owners[node] = owners.get(node, 0) + 1
    return tuple(
        any(SOURCE in node.op.traits or owners[node] > 1 for node in mine) for mine in roots
    )


def _memory_roots(tensor: Tensor) -> set[Node]:
    """Return the nodes whose memory a tensor may share: through views up to what computes."""
    roots: set[Node] = set()
    todo = [tensor.node]
    seen: set[Node] = set()
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        if ALIAS in node.op.traits and node.inputs:
            todo.extend([t.node for t in node.inputs])
        else:
            roots.add(node)
    return roots
