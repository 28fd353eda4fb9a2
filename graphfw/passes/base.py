"""What a pass is, and what passes ask of constants."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from graphfw.ir import ambient
from graphfw.ir.graph import Graph
from graphfw.ir.literal import Array
from graphfw.ir.tensor import Tensor


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
        """Run this pass alone."""
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
        yield


def constant_array(tensor: Tensor) -> Array | None:
    """Return the array of a `constant`, None for anything else."""
    op = tensor.node.op
    if op.name != "constant":
        return None
    array: Array = op.value.array  # type: ignore[attr-defined]
    return array


_SPREADS = ("broadcast_to", "permute_dims", "reshape")
_SPREAD_STEPS = 8  # bounds the walk, so that a pass stays linear in the graph's size
_FILL_SIZE = 1024


def fill_value(tensor: Tensor) -> Array | None:
    """Return, 0-d, the value that all elements have, bit for bit, where that is easily seen.

    Sees through what spreads a constant; looks at no more than 1024 elements.
    """
    for _ in range(_SPREAD_STEPS):
        if tensor.node.op.name not in _SPREADS:
            break
        tensor = tensor.node.inputs[0]
    array = constant_array(tensor)
    if array is None or not 0 < array.size <= _FILL_SIZE:
        return None
    first = array[(0,) * array.ndim].reshape(())
    if array.size > 1 and array.tobytes() != first.tobytes() * array.size:
        return None
    return first  # type: ignore[no-any-return]
