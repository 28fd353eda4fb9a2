"""Graphs of Python functions: calling one with placeholders, and what is looked at afterwards."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from inspect import signature
from typing import Any

from graphfw.errors import ArgumentError, GraphfwError, a_type
from graphfw.hints.calls import explained
from graphfw.ir import ambient
from graphfw.ir.graph import Graph
from graphfw.ir.literal import Array
from graphfw.ir.op import nested
from graphfw.ir.sources import ConstantOp
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.variable import Update
from graphfw.ops.args import as_tensor
from graphfw.ops.composed import callback
from graphfw.ops.creation.inputs import placeholder
from graphfw.ops.specs import read
from graphfw.utils import nest

LARGE_BYTES = 1 << 20
"""Constants larger than this are warned of in functions that are traced."""


@explained
def make_graph(fn: Callable[..., Any], *specs: Any) -> Graph:
    """Return the graph of a function: `fn` is called once, with a placeholder for each spec.

    (`gf.trace` is the Array API's: the sum of a matrix's diagonal.)

    Args:
        fn: Takes tensors, or nested structures of them; returns such.
        specs: One for each argument, nested like it: a `gf.TensorType`, a pair `(shape, dtype)`
            with a shape as `gf.placeholder` takes it, or an array or a tensor, for its own type.

    Returns:
        The graph. Its placeholders are named after the parameters (`x`; in a structure `x_0`,
        `x_key`), its `outputs` are what the function returns, in order.

    Raises:
        ArgumentError: A spec is none, or a result is no tensor.
        ShapeError, DTypeError, …: What the function does can't be.

    >>> import graphfw as gf
    >>> g = gf.make_graph(lambda x, y: x @ y, (("n", 3), "float32"), ((3,), "float32"))
    >>> g.placeholders[0].name, g.outputs[0].type
    ('x', float32[n])
    """
    graph, _, results = _called("make_graph", fn, specs)
    graph.outputs = tuple([t for t in results if isinstance(t, Tensor)])
    warn_of_large_constants(graph, set())
    return graph


@explained
def eval_shape(fn: Callable[..., Any], *specs: Any) -> Any:
    """Return the types of what a function returns, without computing anything.

    Args:
        fn: Takes tensors, or nested structures of them; returns such. It is called once.
        specs: One for each argument, as for `gf.make_graph`.

    Returns:
        A `gf.TensorType` in place of each tensor of the result, and None in place of updates.

    Raises:
        ArgumentError: A spec is none, or a result is no tensor.
        ShapeError, DTypeError, …: What the function does can't be.

    >>> import graphfw as gf
    >>> gf.eval_shape(lambda x: {"sum": gf.sum(x), "rows": x + 1}, (("n", 3), "float32"))
    {'sum': float32[], 'rows': float32[n, 3]}
    """
    _, returned, results = _called("eval_shape", fn, specs)
    types = [t.type if isinstance(t, Tensor) else None for t in results]
    return nest.packer(returned)(iter(types))


def _called(
    what: str, fn: Callable[..., Any], specs: Sequence[Any]
) -> tuple[Graph, Any, list[Tensor | Update | None]]:
    """Call a function with a placeholder for each spec, in a graph of its own."""
    called = callback(what, "fn", fn, "fn(*specs)")
    graph = Graph(getattr(fn, "__name__", ""))
    names = _parameter_names(fn, len(specs))
    with graph, ambient.override(ambient.current_scope, ""):
        arguments = [
            read(what, spec, name, placeholder) for spec, name in zip(specs, names, strict=True)
        ]
        returned = called(*arguments)
        return graph, returned, flat_results(returned, graph.name or "the function")


def _parameter_names(fn: Callable[..., Any], count: int) -> list[str]:
    """Return the names of the first placeholders of each argument."""
    try:
        known = [
            p.name
            for p in signature(fn).parameters.values()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):  # a function in C may have no signature
        known = []
    return [known[i] if i < len(known) else f"x{i}" for i in range(count)]


def flat_results(returned: Any, name: str) -> list[Tensor | Update | None]:
    """Return a function's results, leaf by leaf; numbers and arrays become constants.

    Raises:
        ArgumentError: A leaf is none of these.
    """
    return [_result(leaf, name) for leaf in nest.leaves(returned)]


def _result(leaf: Any, name: str) -> Tensor | Update | None:
    if leaf is None or isinstance(leaf, Update):
        return leaf
    try:
        return as_tensor(leaf)
    except GraphfwError:
        raise ArgumentError(
            f"{name} returns {a_type(leaf)}, which can't be the value of a graph",
            fix="return tensors, arrays, numbers or None, or nested structures of these",
        ) from None


def warn_of_large_constants(graph: Graph, seen: set[str]) -> None:
    """Warn of each array of more than 1 MiB that has become part of the graph, at its line.

    Args:
        graph: The graph of a function.
        seen: The digests of those that have been warned of; is added to.
    """
    for node, array, digest in _large_constants(graph.nodes):
        if digest in seen:
            continue
        seen.add(digest)
        shape = ", ".join(map(str, array.shape))
        warnings.warn_explicit(
            f"a {array.dtype.name}[{shape}] of {array.nbytes / 2**20:.1f} MiB becomes a constant "
            "of the graph, which keeps a copy: pass it to the function as an argument, or make it "
            "a gf.Variable",
            UserWarning,
            node.loc.file,
            node.loc.line,
        )


def _large_constants(nodes: Iterable[Node]) -> Iterator[tuple[Node, Array, str]]:
    for node in nodes:
        op = node.op
        if isinstance(op, ConstantOp) and op.value.array.nbytes > LARGE_BYTES:
            yield node, op.value.array, op.value.digest
        for body in nested(op.values):
            yield from _large_constants(body.nodes)
