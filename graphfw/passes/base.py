"""The interface of passes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from graphfw.ir import ambient
from graphfw.ir.graph import Graph
from graphfw.ir.modes import without_modes


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
