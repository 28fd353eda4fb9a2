"""The interface of passes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from graphfw.ir import ambient
from graphfw.ir.graph import Graph
from graphfw.ir.modes import without_modes
from graphfw.ir.rebuild import rebuild
from graphfw.ir.tensor import Node, Tensor


class Pass(ABC):
    """A rewrite from graph to graph: a frozen dataclass whose fields are its options.

    It is given a derived graph (`ir.rebuild.derive`), leaves it as it is, and returns another one,
    or the same where there is nothing to do. Outputs keep their order, types and values.

    Attributes:
        name: What reports and errors call it.
    """

    name: str

    @abstractmethod
    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        """Return the rewritten graph, and count in `hits` what was done how often."""

    def __call__(self, graph: Graph) -> Graph:
        """Run this pass only."""
        with no_ambient():
            return self.run(graph, Counter())


class NodePass(Pass):
    """A pass that replaces nodes one by one, each for its own op and types.

    Attributes:
        hit: What replacements are counted as; "": the name of the node's op.
    """

    hit: str = ""

    @abstractmethod
    def fits(self, node: Node) -> bool:
        """Return whether a node of the graph is replaced."""

    @abstractmethod
    def replaced(self, node: Node, inputs: tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
        """Return the tensors in a node's place, given its inputs in the new graph."""

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        if not any([self.fits(node) for node in graph.nodes]):
            return graph

        def rewrite(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...] | None:
            if not self.fits(node):
                return None
            hits[self.hit or node.op.name] += 1
            return self.replaced(node, inputs)

        return rebuild(graph, rewrite)


@contextmanager
def no_ambient() -> Iterator[None]:
    """Shut out what the caller has open: nodes that passes make belong to no scope or layer.

    Under a caller's `no_grad` they would get a `stop_gradient` each.
    """
    with ExitStack() as stack:
        stack.enter_context(ambient.override(ambient.current_scope, ""))
        stack.enter_context(ambient.override(ambient.grad_enabled, True))
        stack.enter_context(ambient.override(ambient.explainer, None))
        stack.enter_context(without_modes())
        yield
