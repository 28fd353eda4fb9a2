"""Finding what users mean by a fetch, a feed or a variable, in the graph of a session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from graphfw.errors import FeedError, FetchError, GraphError, a_type
from graphfw.ir import concrete
from graphfw.ir.graph import Graph
from graphfw.ir.owners import owners
from graphfw.ir.sources import Placeholder
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Update, Variable


def fetched(graph: Graph, leaf: Any) -> Tensor | Update:
    """Return the tensor or the update that is fetched, by itself or by its name."""
    if isinstance(leaf, str):
        try:
            return graph.find(leaf)
        except GraphError as error:
            raise FetchError(error.summary, fix=error.fix) from None
    if not isinstance(leaf, (Tensor, Update)):
        text = repr(leaf)
        shown = text if len(text) < 60 and "\n" not in text else a_type(leaf)
        fix = "fetch tensors, variables, updates or names, in lists, tuples or dicts"
        if callable(leaf):
            fix = "call it in the graph, and fetch the result: y = model(x)"
        raise FetchError(f"{shown} can't be fetched", fix=fix)
    if leaf.graph is graph:
        return leaf
    operands = [concrete.describe("fetch", leaf)] if isinstance(leaf, Tensor) else []
    if leaf.graph.is_ambient:
        raise FetchError(
            "this tensor was made outside any graph",
            operands=operands,
            fix="its value is tensor.numpy()",
        )
    raise FetchError(
        "what is fetched belongs to another graph than the session's",
        operands=operands,
        why=owners(leaf.graph, graph, "the session's is"),
        fix="make a session for that graph",
    )


class Fetched(NamedTuple):
    """The things that a run is asked for.

    Attributes:
        tensors: The tensors.
        updates: The updates.
        slots: For each fetch, in order, the number of its tensor; None for an update.
    """

    tensors: list[Tensor]
    updates: list[Update]
    slots: list[int | None]


def all_fetched(graph: Graph, leaves: Iterable[Any]) -> Fetched:
    """Return the fetched tensors and updates, apart."""
    found = Fetched([], [], [])
    for leaf in leaves:
        one = fetched(graph, leaf)
        if isinstance(one, Update):
            found.updates.append(one)
            found.slots.append(None)
        else:
            found.slots.append(len(found.tensors))
            found.tensors.append(one)
    return found


def variable_of(graph: Graph, variable: Any) -> Variable:
    """Return the variable that is meant, by itself or by its name."""
    found = fetched(graph, variable)
    if not isinstance(found, Variable):
        raise FetchError(
            f"session[…] takes a variable or its name, not {found!r}",
            fix="get other values with session.run(tensor)",
        )
    return found


def placeholders_of(graph: Graph, feeds: Iterable[Any]) -> list[Tensor]:
    """Return the placeholders that are fed, each by itself or by its name."""
    if isinstance(feeds, (str, Tensor)):
        raise FeedError(f"compile: feeds={feeds!r} is no list", fix="write feeds=[x]")
    if isinstance(feeds, Mapping):
        raise FeedError(
            "compile: feeds is a dict, but values are given when the plan is called",
            fix="write plan = session.compile(fetches, feeds=[x]), then plan(array)",
        )
    found = [_placeholder(graph, key) for key in feeds]
    seen: set[Tensor] = set()
    for tensor in found:
        if tensor in seen:
            raise FeedError(
                f'"{tensor.name}" is fed twice',
                operands=[concrete.describe("feed", tensor)],
                fix="feed it once, by the tensor or by its name",
            )
        seen.add(tensor)
    return found


def _placeholder(graph: Graph, key: Any) -> Tensor:
    tensor = key
    if isinstance(key, str):
        try:
            tensor = graph.find(key)
        except GraphError as error:
            names = ", ".join(t.name for t in graph.placeholders if t.name)
            raise FeedError(
                f"feed: {error.summary}", fix=f"{error.fix} (placeholders: {names or 'none'})"
            ) from None
    if not isinstance(tensor, Tensor):
        raise FeedError(
            f"feed: the key {key!r} is neither a placeholder nor a name",
            fix="write session.run(fetches, {x: array})",
        )
    if tensor.graph is not graph:
        raise FeedError(
            "feed: this tensor belongs to another graph than the session's",
            operands=[concrete.describe("feed", tensor)],
            why=owners(tensor.graph, graph, "the session's is"),
            fix="feed a placeholder of the session's graph",
        )
    if not isinstance(tensor.node.op, Placeholder):
        raise FeedError(
            f"feed: only placeholders are fed, and this is the result of {tensor.node.op.name}",
            operands=[concrete.describe("feed", tensor)],
            fix="write session[variable] = array"
            if isinstance(tensor, Variable)
            else "make it a placeholder",
        )
    return tensor
