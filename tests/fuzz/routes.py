"""Other ways to what a session has computed: they give the same bits, or nearly the same."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import graphfw as gf
from tests.fuzz.libraries import Array

Fed = Mapping[gf.Tensor, Array]

Near = Callable[[str, int, Array, Array], None]


def laid_out(rng: np.random.Generator, x: Array) -> Array:
    """Return the same numbers in memory of another layout."""
    kind = rng.integers(5)
    if not x.ndim:
        return x.copy()
    if kind == 0:
        return np.asfortranarray(x)
    if kind == 1:  # every other element of more
        wide = np.full([2 * size for size in x.shape], 7, x.dtype)
        view = wide[tuple([slice(None, None, 2)] * x.ndim)]
        view[...] = x
        return view
    if kind == 2:  # backwards
        back = tuple([slice(None, None, -1)] * x.ndim)
        return np.ascontiguousarray(x[back])[back]
    if kind == 3:  # at an odd address
        room = np.zeros(x.nbytes + 1, np.uint8)
        view = room[1 : 1 + x.nbytes].view(x.dtype).reshape(x.shape)
        view[...] = x
        return view
    return np.ascontiguousarray(x.T).T


def parsed(g: gf.Graph, tensors: Sequence[gf.Tensor]) -> tuple[gf.Graph, list[gf.Tensor]]:
    """Return the graph that a graph's text describes, and its counterparts of some tensors."""
    again = gf.parse(str(g), constants=g.constants())
    assert str(again) == str(g), "the text of a parsed graph is another"
    numbers = {node: number for number, node in enumerate(g.nodes)}
    return again, [again.nodes[numbers[t.node]].outputs[t.index] for t in tensors]


def check_routes(
    rng: np.random.Generator,
    g: gf.Graph,
    fetches: Sequence[gf.Tensor],
    fed: Fed,
    wanted: Sequence[Array],
    near: Near,
) -> None:
    """Compute a program once more in some other ways.

    Args:
        rng: Draws the ways.
        g: The graph.
        fetches: What was fetched.
        fed: What was fed.
        wanted: What it gave, with passes checked.
        near: Compares what may be rounded otherwise: called with a name, which fetch it is, what is
            found and what is wanted.
    """
    ways: list[Callable[[], None]] = [
        lambda: _subset(rng, g, fetches, fed, wanted, near),
        lambda: _reparsed(g, fetches, fed, wanted),
        lambda: _recalled(g, fetches, fed, wanted),
        lambda: _other_layouts(rng, g, fetches, fed, wanted, near),
        lambda: _node_by_node(g, fetches, fed, wanted, near),
    ]
    ways[rng.integers(len(ways))]()


def _equal(what: str, found: Sequence[Any], wanted: Sequence[Array]) -> None:
    for number, (x, y) in enumerate(zip(found, wanted, strict=True)):
        assert np.asarray(x).tobytes() == y.tobytes(), f"{what}: other bits of output {number}"


def _near(what: str, found: Sequence[Any], wanted: Sequence[Array], near: Near) -> None:
    for number, (x, y) in enumerate(zip(found, wanted, strict=True)):
        near(what, number, np.asarray(x), y)


def _subset(rng: Any, g: Any, fetches: Any, fed: Fed, wanted: Any, near: Near) -> None:
    chosen = [i for i in range(len(fetches)) if rng.random() < 0.4] or [len(fetches) - 1]
    with gf.Session(g) as session:
        found = session.run([fetches[i] for i in chosen], fed)
    for i, x in zip(chosen, found, strict=True):
        near(f"with {chosen} alone", i, np.asarray(x), wanted[i])


def _reparsed(g: gf.Graph, fetches: Any, fed: Fed, wanted: Any) -> None:
    again, tensors = parsed(g, [*fetches, *fed])
    count = len(fetches)
    with gf.Session(again) as session:
        found = session.run(tensors[:count], dict(zip(tensors[count:], fed.values(), strict=True)))
    _equal("the parsed graph", found, wanted)


def _recalled(g: gf.Graph, fetches: Any, fed: Fed, wanted: Any) -> None:
    """The first session compiles and keeps the plan on disk, and the second reads it."""
    for number in range(2):
        with gf.Session(g, verify="off") as session:
            _equal(f"unchecked session {number}", session.run(list(fetches), fed), wanted)


def _other_layouts(rng: Any, g: Any, fetches: Any, fed: Fed, wanted: Any, near: Near) -> None:
    with gf.Session(g) as session:
        moved = {tensor: laid_out(rng, x) for tensor, x in fed.items()}
        before = [x.copy() for x in moved.values()]
        _near("feeds laid out otherwise", session.run(list(fetches), moved), wanted, near)
        _equal("feeds", list(moved.values()), before)


def _node_by_node(g: gf.Graph, fetches: Any, fed: Fed, wanted: Any, near: Near) -> None:
    os.environ["GRAPHFW_JIT"] = "0"
    try:
        with gf.Session(g) as session:
            found = session.run(list(fetches), fed)
    finally:
        del os.environ["GRAPHFW_JIT"]
    _near("node by node", found, wanted, near)
