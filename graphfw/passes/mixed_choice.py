"""Mixed precision, the choice: which nodes of a graph compute in 16 bits.

Two walks. Forwards: what computes in 16 bits, and what goes along with it. Backwards: of what goes
along, all that is read in float32 alone is computed in float32, so that it is not rounded on the
way; optimisers, losses and sums of gradients are such.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

import numpy as np

from graphfw.errors import ArgumentError, DTypeError, GraphError
from graphfw.ir.constants import constant_array
from graphfw.ir.dtype import float32
from graphfw.ir.graph import Graph
from graphfw.ir.op import ELEMENTWISE, SOURCE, MixedKind
from graphfw.ir.rebuild import live_nodes
from graphfw.ir.shape import Requirement
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import TensorType
from graphfw.ir.variable import Variable
from graphfw.ops.control.region_op import Region
from graphfw.ops.creation.inputs import IdentityOp
from graphfw.ops.elementwise.arithmetic import Add
from graphfw.ops.elementwise.cast import AsType
from graphfw.passes.mixed_policy import (
    VIEWS,
    Override,
    Policy,
    is_wide_operand,
)


class PrecisionChoice:
    """The choice that a policy makes in a graph, or in the body of a loop or a branch.

    Args:
        policy: The policy.
        graph: The graph.
        weak: Parameters of the body that stand for weights.

    Attributes:
        low: The dtype of 16 bits.
        nodes: What the graph's outputs need, in order.
        said: What users say of the nodes.
        kinds: How the dtype of each is chosen.
        weak: Weights and the like: they are rounded to 16 bits where they meet them.
        multiplied: What products take in 16 bits, themselves or as a view.
    """

    def __init__(self, policy: Policy, graph: Graph, weak: Collection[Node]) -> None:
        self.low = policy.low
        self.nodes = live_nodes(graph)
        self.said = self._overrides(policy)
        self.kinds = {node: self._kind(node) for node in self.nodes}
        self.weak = set(weak)
        self._readers = self._found_readers(graph)
        self._derived: set[Node] = set()
        self._is_low: dict[Node, tuple[bool, ...]] = {}
        for node in self.nodes:
            self._decide(node)
        self._widen()
        self.multiplied = self._operands()

    def _overrides(self, policy: Policy) -> dict[Node, Override]:
        """Return the user's overrides of the nodes."""
        found: dict[Node, Override] = {}
        for node in reversed(self.nodes):
            said = found.get(node) or policy.said(node)
            if said is None or isinstance(node.op, Region):  # inside are nodes of their own
                continue
            found[node] = said
            if isinstance(node.op, IdentityOp) and said.names(node):
                # Its name is meant for what it is given.
                found.setdefault(node.inputs[0].node, said)
        return found

    def _kind(self, node: Node) -> MixedKind:
        said = self.said.get(node)
        if said is not None:
            return "narrow" if said.dtype is self.low else "wide"
        return node.op.mixed_precision

    def _found_readers(self, graph: Graph) -> dict[Node, list[tuple[Node | None, int]]]:
        """Return who reads each node, as which operand; None for the graph's outputs."""
        found: dict[Node, list[tuple[Node | None, int]]] = defaultdict(list)
        for node in self.nodes:
            for number, tensor in enumerate(node.inputs):
                found[tensor.node].append((node, number))
        for tensor in graph.outputs:
            found[tensor.node].append((None, 0))
        return found

    def _decide(self, node: Node) -> None:
        """Find which outputs of a node have 16 bits, and whether it is a weight."""
        if self._is_weak(node):
            self.weak.add(node)
        kind = self.kinds[node]
        if kind == "passes":
            found = tuple([self._low_here(t) for t in node.inputs[: len(node.types)]])
        elif SOURCE not in node.op.traits and self.is_narrow(node):
            found = self._narrow_outputs(node)
        else:
            found = (False,) * len(node.types)
            if self._is_derived(node):
                self._derived.add(node)
        self._is_low[node] = found

    def is_narrow(self, node: Node) -> bool:
        """Return whether a node would compute in 16 bits, going by its inputs."""
        floats = [t for t in node.inputs if t.dtype is float32]
        if self.kinds[node] == "narrow":
            return bool(floats)
        if self.kinds[node] != "follows":
            return False
        others = [t for t in floats if not self._low_here(t)]
        if len(others) < len(floats) and all(t.node in self.weak for t in others):
            return True
        return self._is_rounded(node, others)

    def _is_rounded(self, node: Node, wide: Sequence[Tensor]) -> bool:
        """Return whether a node rounds what a norm has made of 16 bits, as it meets nothing else.

        Args:
            node: The node.
            wide: What it reads in float32.
        """
        if (
            isinstance(node.op, VIEWS)
            or ELEMENTWISE not in node.op.traits
            or not _makes_floats(node)
        ):
            return False
        wide = [t for t in wide if not (t.node in self.weak and t.size == 1)]
        return bool(wide) and all(t.node in self._derived for t in wide)

    def _is_derived(self, node: Node) -> bool:
        """Return whether float32 is made of 16 bits and of smaller tensors only: by a norm's means.

        In the backward graph also of smaller ones only, as the gradient of a mean is.
        """
        if self.kinds[node] != "follows" or not _makes_floats(node):
            return False
        if isinstance(node.op, VIEWS):
            return node.inputs[0].node in self._derived
        if ELEMENTWISE not in node.op.traits:
            return False
        floats = [t for t in node.inputs if t.dtype is float32]
        others = [t for t in floats if not (self._low_here(t) or t.node in self._derived)]
        is_made = len(others) < len(floats) or node.loc.grad_of is not None
        return is_made and all(t.node in self.weak or _is_smaller(t, node) for t in others)

    def _narrow_outputs(self, node: Node) -> tuple[bool, ...]:
        operands = [
            TensorType(self.low, t.shape)
            if t.dtype is float32 and not is_wide_operand(node, number)
            else t.type
            for number, t in enumerate(node.inputs)
        ]
        try:
            types = node.op.infer(*operands)
        except (Requirement, DTypeError) as error:
            said = self.said.get(node)
            if said is None:
                raise GraphError(
                    f"{node.op.name}: its mixed_precision is {self.kinds[node]!r}, and it can't be "
                    f"{self.low.name}: {error}",
                    at=node.loc,
                    fix='write mixed_precision = "wide" in its class, or let its dtype take both',
                ) from error
            raise ArgumentError(
                f"precision_overrides: {said.pattern!r} is to be {self.low.name}, and "
                f"{node.op.name} can't be: {error}",
                at=node.loc,
                fix='name only what can be, or say "float32" of this one in a later entry',
            ) from error
        return tuple([kind.dtype is self.low for kind in types])

    def _low_here(self, tensor: Tensor) -> bool:
        return tensor.dtype is float32 and self._is_low[tensor.node][tensor.index]

    def _is_weak(self, node: Node) -> bool:
        """Return whether a node is a weight or the like: rounded to 16 bits where it meets them."""
        if node.types[0].dtype is not float32 or len(node.types) > 1:
            return False
        if SOURCE in node.op.traits:
            said = self.said.get(node)
            if said is not None:
                return said.dtype is self.low
            (tensor,) = node.outputs
            is_weight = isinstance(tensor, Variable) and tensor.trainable
            return is_weight or node in self.weak or self._goes_along(tensor)
        if self.kinds[node] != "follows":
            return isinstance(node.op, AsType) and node.inputs[0].dtype.is_bool
        return isinstance(node.op, VIEWS) and node.inputs[0].node in self.weak

    def _goes_along(self, tensor: Tensor) -> bool:
        """Return whether a constant may be rounded: one that 16 bits hold, or many in range."""
        array = constant_array(tensor)
        kinds = [self.kinds[reader] for reader, _ in self._readers[tensor.node] if reader]
        if array is None or "follows" not in kinds:  # products convert their operands
            return False
        with np.errstate(over="ignore"):
            rounded = array.astype(self.low.dtype).astype(np.float32)
        if array.size == 1:
            return bool(np.array_equal(rounded, array, equal_nan=True))
        same_kind = np.isfinite(rounded) == np.isfinite(array)
        return bool(np.all(same_kind & ((rounded == 0) == (array == 0))))

    def _widen(self) -> None:
        """Let compute in float32 what would be rounded on its way to where float32 is wanted."""
        for node in reversed(self.nodes):
            if self.kinds[node] != "follows" or not any(self._is_low[node]):
                continue
            if self._moves_less(node) or self._is_bias(node):
                continue
            wishes = {self._wants_low(*one) for one in self._readers[node]}
            if True not in wishes and False in wishes:
                self._is_low[node] = (False,) * len(node.types)

    def _moves_less(self, node: Node) -> bool:
        """Return whether a node moves elements that there are in 16 bits."""
        if ELEMENTWISE in node.op.traits or isinstance(node.op, VIEWS) or node.op.combine:
            return False
        for tensor in node.inputs:
            above = tensor.node
            wide = [t for t in above.inputs if t.dtype is float32 and not self._low_here(t)]
            if self._low_here(tensor) and not self._is_rounded(above, wide):
                return True
        return False

    def _is_bias(self, node: Node) -> bool:
        """Return whether a node adds a weight to a product: both are computed together, and kept.

        In float32 what is kept would be twice as much.
        """
        if not isinstance(node.op, Add) or not any(t.node in self.weak for t in node.inputs):
            return False
        (above,) = [t.node for t in node.inputs if t.node not in self.weak]
        while isinstance(above.op, VIEWS):
            above = above.inputs[0].node
        return self.kinds[above] == "narrow"

    def _wants_low(self, reader: Node | None, number: int) -> bool | None:
        """Return whether a reader takes 16 bits, or (None) what it is given."""
        if reader is None:
            return False
        kind = self.kinds[reader]
        if kind == "narrow":
            return not is_wide_operand(reader, number)
        if kind == "passes":
            return True
        if kind == "follows":
            if not _makes_floats(reader):
                return None
            return any(self._is_low[reader])
        return False

    def _operands(self) -> set[Node]:
        """Return the nodes that products read in 16 bits, themselves or as a view."""
        found: set[Node] = set()
        for node in self.nodes:
            if self.kinds[node] != "narrow":
                continue
            for number, tensor in enumerate(node.inputs):
                above = tensor.node
                while above not in found and not is_wide_operand(node, number):
                    found.add(above)
                    if isinstance(above.op, VIEWS):
                        above = above.inputs[0].node
        return found

    def computes_narrow(self, node: Node) -> bool:
        """Return whether a node computes in 16 bits."""
        if _makes_floats(node):
            return any(self._is_low[node])
        return self.is_narrow(node)  # of others only what is read has changed


def _makes_floats(node: Node) -> bool:
    return any(kind.dtype is float32 for kind in node.types)


def _is_smaller(tensor: Tensor, node: Node) -> bool:
    """Return whether a tensor has fewer elements than what a node makes, views left aside."""
    while isinstance(tensor.node.op, VIEWS):
        tensor = tensor.node.inputs[0]
    return tensor.size != node.types[0].size
