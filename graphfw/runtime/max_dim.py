"""The largest size of a symbolic dim with which a run keeps within a limit: `Plan.max_dim`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from graphfw.errors import ArgumentError, GraphfwError
from graphfw.ir.dim import symbols_of
from graphfw.ir.dim_text import evaluate
from graphfw.ir.graph import Graph
from graphfw.ir.op import nested
from graphfw.ir.shape import Requirement
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import TensorType
from graphfw.runtime.feeding import bind_sizes
from graphfw.runtime.program import Program

MOST_TRIED = 1 << 18
"""The most sizes that are tried from the largest one that fits: some seconds, at the worst."""


def largest_dim(
    program: Program,
    name: str,
    sizes: Mapping[str, int],
    memory: Callable[[Mapping[str, int]], int],
    limit: int,
) -> int:
    """Return the largest size of a dim that runs take and with which they keep within a limit.

    Args:
        program: What is run.
        name: The dim.
        sizes: What the other symbols stand for.
        memory: Returns how many bytes a run takes; more for larger sizes, but for little.
        limit: How many it may take.

    Raises:
        ArgumentError: There is none, or none among those that are tried.
    """
    accepts = Accepts(program)

    def fits(size: int) -> bool:
        try:
            return memory({**sizes, name: size}) <= limit
        except ZeroDivisionError:  # no run takes that size: the search goes on beyond
            return True

    if not fits(1):
        raise ArgumentError(
            f"max_dim: with {name} = 1 a run needs more than {limit:,} bytes",
            fix="print(plan.memory(…)) lists all arrays",
        )
    low, high = 1, 2
    while fits(high):
        if high > limit:
            raise ArgumentError(f"max_dim: the memory does not depend on {name!r}")
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    last = max(low - MOST_TRIED, 0)
    for size in range(low, last, -1):
        if accepts({**sizes, name: size}) and fits(size):
            return size
    raise ArgumentError(
        f"max_dim: no run takes a {name} from {last + 1:,} to {low:,}, the largest that fits",
        why=accepts.why,
        fix="give a limit that leaves room for a size that the graph takes",
    )


class Accepts:
    """Whether runs of a program take sizes: what they check of them, without any arrays.

    These are the feeds' shapes, what `assert_shape` promises, and the type rules of what is
    computed, on numbers: they see what symbols don't show, such as whether rows divide.

    Attributes:
        why: Why they don't take those that were asked for last, if they don't.
    """

    def __init__(self, program: Program) -> None:
        self.why = ""
        self._program = program
        nodes = [node for node in _all_nodes(program.graph) if _has_symbols(node)]
        if program.is_staged:  # what depends on values is not known
            nodes = [node for node in nodes if _symbols(node) <= {*program.symbols}]
        self._nodes = nodes

    def __call__(self, sizes: Mapping[str, int]) -> bool:
        """Return whether runs take what the symbols stand for."""
        try:
            self.why = self._refusal(sizes)
        except GraphfwError as error:
            self.why = error.summary
        except (Requirement, ZeroDivisionError) as error:
            self.why = str(error)
        return not self.why

    def _refusal(self, sizes: Mapping[str, int]) -> str:
        """Return why sizes are not taken, or raise what does; "" where they are."""
        program = self._program
        shapes = [_shape(feed, sizes) for feed in program.feeds]
        wanted = tuple([sizes[symbol] for symbol in program.symbols])
        if any([min(shape, default=0) < 0 for shape in shapes]):
            return "a feed would have a negative size"
        if bind_sizes(program, shapes) != wanted:
            return "the feeds' shapes, or what assert_shape says, give the dims other sizes"
        for number, node in enumerate(self._nodes):
            # Who is asked last, and so may have refused, is asked first about the next sizes.
            self._nodes.insert(0, self._nodes.pop(number))
            types = [TensorType(t.dtype, _shape(t, sizes)) for t in node.inputs]
            found = [kind.shape for kind in node.op.bind(sizes).infer(*types)]
            if found != [_shape(t, sizes) for t in node.outputs]:
                return f"{node.op.name} gives another shape with these sizes"
        return ""


def _shape(tensor: Tensor, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple([dim if isinstance(dim, int) else evaluate(dim, sizes) for dim in tensor.shape])


def _has_symbols(node: Node) -> bool:
    """Return whether a type rule, or one of a body's nodes, depends on sizes."""
    if any(nested(node.op.values)):
        return False
    return bool(_symbols(node))


def _symbols(node: Node) -> frozenset[str]:
    dims = [dim for t in (*node.inputs, *node.outputs) for dim in t.shape]
    return node.op.symbols.union(*map(symbols_of, dims))


def _all_nodes(graph: Graph) -> Iterator[Node]:
    """Yield the nodes of a graph, and of the bodies of its loops and branches."""
    for node in graph.nodes:
        yield node
        for body in nested(node.op.values):
            yield from _all_nodes(body.graph)
