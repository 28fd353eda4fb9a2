"""`Program`: a graph made ready for an executor, with its inputs and outputs in order."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from graphfw.errors import FeedError, GraphError
from graphfw.ir import concrete
from graphfw.ir.dim import DimLike, is_symbol, substitute, symbol, symbols_of
from graphfw.ir.graph import Graph
from graphfw.ir.op import ALIAS, RANDOM, SOURCE
from graphfw.ir.rebuild import derive
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.variable import Update, Variable
from graphfw.loc import Loc
from graphfw.passes.manager import Level, Report, chosen_level, run_pipeline
from graphfw.passes.pipelines import DEFAULT


@dataclass(frozen=True)
class ShapeCheck:
    """One dim that `assert_shape` promised: what it is said to be, and what it is computed from."""

    said: DimLike
    actual: DimLike
    loc: Loc


class SizeSource(NamedTuple):
    """Where a symbol's size is read from: a fed dim that is `scale * symbol + offset`."""

    symbol: str
    feed: int
    axis: int
    scale: int
    offset: int


@dataclass(frozen=True)
class Program:
    """What an executor is asked to run.

    Attributes:
        graph: The optimised graph; its outputs are the fetches, then the updates' values.
        feeds: The placeholders that are fed, in the order of the arguments.
        variables: The variables that are read or updated, in the order of the arguments after the
            feeds.
        fetch_count: How many of the outputs are fetched.
        updated: The variables that the remaining outputs are written to.
        symbols: The names of the symbolic dims, in the order of `sizes`.
        size_sources: Where the sizes come from, for those that `shape_checks` do not bring.
        shape_checks: What `assert_shape` promised.
        copied: For each output, whether it may share memory with an input or another output, so
            that it must be copied before it is handed out.
        is_random: Whether it draws random numbers.
        reports: What each pass did.
        source: The graph before the passes, where runs are compared with it.
    """

    graph: Graph
    feeds: tuple[Tensor, ...]
    variables: tuple[Variable, ...]
    fetch_count: int
    updated: tuple[Variable, ...]
    symbols: tuple[str, ...]
    size_sources: tuple[SizeSource, ...]
    shape_checks: tuple[ShapeCheck, ...]
    copied: tuple[bool, ...]
    is_random: bool
    reports: tuple[Report, ...]
    source: Graph | None = None


@contextmanager
def without_collection() -> Iterator[None]:
    """Keep the garbage collector still while many objects are made that all stay.

    It would walk all of them again and again: almost a third of the time to compile 100,000 nodes.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def lower(
    fetches: Sequence[Tensor],
    updates: Sequence[Update],
    feeds: Sequence[Tensor],
    graph: Graph,
    verify: Level | None,
) -> Program:
    """Optimise what the fetches and updates need of a graph, and put its inputs in order.

    Raises:
        GraphError: Two updates give one variable different values.
        FeedError: A fetch needs a placeholder that is not fed, or a dim whose size nothing tells.
    """
    with without_collection():
        return _lowered(fetches, updates, feeds, graph, verify)


def _lowered(
    fetches: Sequence[Tensor],
    updates: Sequence[Update],
    feeds: Sequence[Tensor],
    graph: Graph,
    verify: Level | None,
) -> Program:
    pairs = _update_pairs(updates)
    outputs = [*fetches, *(value for _, value in pairs)]
    source = derive(graph, outputs)
    _check_fed(source, feeds)
    checks = tuple(_shape_checks(source))
    result = run_pipeline(source, DEFAULT, verify=verify)
    optimised = result.graph
    symbols = _symbols(optimised, feeds, checks)
    sources = _size_sources(feeds)
    _check_sized(symbols, sources, checks, graph)
    compared = chosen_level(verify) == "first-run"
    # What is compared with the source is given what the source reads.
    reading = source if compared else optimised
    read = [t for node in reading.nodes for t in node.outputs if isinstance(t, Variable)]
    variables = tuple(dict.fromkeys([*read, *(variable for variable, _ in pairs)]))
    return Program(
        graph=optimised,
        feeds=tuple(feeds),
        variables=variables,
        fetch_count=len(fetches),
        updated=tuple(variable for variable, _ in pairs),
        symbols=tuple(sorted(symbols)),
        size_sources=tuple(sources.values()),
        shape_checks=checks,
        copied=_copied(optimised.outputs),
        is_random=any(RANDOM in node.op.traits for node in optimised.nodes),
        reports=result.reports,
        source=source if compared else None,
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
                fix="feed it: session.run(fetches, {x: array}), or for a plan "
                "session.compile(fetches, feeds=[x])",
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


def _size_sources(feeds: Sequence[Tensor]) -> dict[str, SizeSource]:
    """Find for each symbol the fed dim to read it from: one that is the symbol itself, if any."""
    dims = [(d, i, axis) for i, t in enumerate(feeds) for axis, d in enumerate(t.shape)]
    found: dict[str, SizeSource] = {}
    for dim, feed, axis in sorted(dims, key=lambda entry: is_symbol(entry[0]) is None):
        names = symbols_of(dim)
        if len(names) != 1 or names <= found.keys():
            continue
        (name,) = names
        scale = substitute(dim, {name: symbol(name) + 1}) - dim
        offset = dim - scale * symbol(name)
        if isinstance(scale, int) and isinstance(offset, int) and scale > 0:
            found[name] = SizeSource(name, feed, axis, scale, offset)
    return found


def _check_sized(
    symbols: set[str], sources: Mapping[str, SizeSource], checks: Sequence[ShapeCheck], graph: Graph
) -> None:
    known = set(sources)
    for check in checks:
        name = is_symbol(check.said)
        if name is not None and symbols_of(check.actual) <= known:
            known.add(name)
    for name in sorted(symbols - known):
        raise FeedError(
            f"the size of the dim `{name}` is needed, and nothing that is fed tells it",
            why=graph.symbol_origin(name),
            fix=f"feed a placeholder that has the dim `{name}`",
        )


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
