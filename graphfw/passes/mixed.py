"""Mixed precision, the pass: what is described in float32 is computed partly in 16 bits.

It is the one pass that changes numbers, so it comes before all others: what it makes is what they
have to keep. Gradients are there already, as nodes like any other, and fall under the same policy.

What is to compute in 16 bits is chosen first (`mixed_choice.py`); here the new graph is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

from graphfw.ir.body import Body
from graphfw.ir.build import constant, emit, emit_all, rewire
from graphfw.ir.constants import constant_array
from graphfw.ir.dtype import DType, float32
from graphfw.ir.graph import Graph
from graphfw.ir.literal import Literal
from graphfw.ir.op import SOURCE
from graphfw.ir.rebuild import derive
from graphfw.ir.tensor import Node, Tensor
from graphfw.loc import Loc
from graphfw.ops.control.branch_op import Branch
from graphfw.ops.control.loop_op import Loop
from graphfw.ops.control.region_op import Region
from graphfw.ops.control.scan_op import Scan
from graphfw.ops.elementwise.cast import AsType
from graphfw.passes.base import Pass
from graphfw.passes.mixed_choice import PrecisionChoice
from graphfw.passes.mixed_policy import VIEWS, Policy, is_wide_operand
from graphfw.utils.records import record

_SMALL = 64
"""Constants of so many elements are converted here; larger ones by a cast, when passes fold it."""


class Cast(NamedTuple):
    """A conversion that mixed precision has put in.

    Attributes:
        tensor: What is converted, as it was described.
        to: The dtype it is converted to, of float32 and the 16-bit one; it is in the other.
        low: The 16-bit one.
        reason: Why the first that reads it wants it so.
        reader: The position of that one.
    """

    tensor: Tensor
    to: DType
    low: DType
    reason: str
    reader: Loc

    @property
    def source(self) -> DType:
        """The dtype that it is in."""
        return float32 if self.to is self.low else self.low


@record
class MixedPrecision(Pass):
    """Compute in 16 bits what a policy says; what the graph takes and gives keeps its dtypes.

    Attributes:
        name: That of the policy.
        policy: What it says.
        casts: Is added to.
    """

    name: str
    policy: Policy
    casts: list[Cast]

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        before = len(self.casts)
        made = _Mixing(self, graph, (), hits).made("what is fetched or stored is float32")
        hits["casts"] += len(self.casts) - before
        return made


class _Mixing:
    """The pass over one graph, or over the body of a loop or a branch.

    Args:
        owner: The pass.
        graph: The graph.
        weak: Parameters of the body that stand for weights.
        hits: What is counted.
    """

    def __init__(
        self, owner: MixedPrecision, graph: Graph, weak: Collection[Node], hits: Counter[str]
    ) -> None:
        self._owner = owner
        self._choice = PrecisionChoice(owner.policy, graph, weak)
        self._graph = graph
        self._hits = hits
        self._new: dict[Node, tuple[Tensor, ...]] = {}
        self._converted: dict[tuple[Node, int, DType], Tensor] = {}

    def made(self, why: str) -> Graph:
        """Return the new graph.

        Args:
            why: Why its outputs have the dtypes that they had.
        """
        derived = derive(self._graph, ())
        outputs = []
        with derived:
            for node in self._choice.nodes:
                derived.provenance = node.loc
                self._new[node] = self._rewritten(node, derived)
            for tensor in self._graph.outputs:
                derived.provenance = tensor.node.loc
                outputs.append(self._wide(tensor, why))
        derived.provenance = None
        derived.outputs = tuple(outputs)
        return derived

    def _rewritten(self, node: Node, derived: Graph) -> tuple[Tensor, ...]:
        op, kind = node.op, self._choice.kinds[node]
        inputs: Sequence[Tensor]
        if kind == "passes":
            inputs = [self._here(t) for t in node.inputs]
        elif SOURCE not in op.traits and self._choice.computes_narrow(node):
            inputs = self._narrow_inputs(node)
            self._hits[self._choice.low.name] += 1
        elif isinstance(op, AsType):
            inputs = [self._here(node.inputs[0])]
            if inputs[0].dtype is op.to:
                return (inputs[0],)
        elif op.combine == "sum" and node.loc.grad_of is not None:
            inputs = [self._summed(t, node) for t in node.inputs]
        else:
            inputs = [self._wide(t, node) for t in node.inputs]
        if isinstance(op, Region):
            return self._region(node, op, inputs)
        if all(a is b for a, b in zip(inputs, node.inputs, strict=True)):
            return derived.share(node)
        return derived.append(rewire(node, tuple(inputs), derived))

    def _narrow_inputs(self, node: Node) -> list[Tensor]:
        return [
            self._wide(t, node) if is_wide_operand(node, number) else self._narrow(t, node)
            for number, t in enumerate(node.inputs)
        ]

    def _reason(self, node: Node) -> str:
        """Return why a node takes the dtype that it takes."""
        name, said = node.op.name, self._choice.said.get(node)
        if said is not None:
            return f"{said.pattern!r} is to be {said.dtype.name}"
        kind = self._choice.kinds[node]
        if kind == "narrow":
            return f"{name} computes in {self._choice.low.name}"
        if kind != "follows":
            return f"{name} takes float32" if isinstance(node.op, Region) else f"{name} is float32"
        if self._choice.computes_narrow(node):
            return f"{name} follows its {self._choice.low.name} inputs"
        if self._choice.is_narrow(node):
            return f"{name} is read in float32 alone"
        return f"{name} follows its float32 inputs"

    def _region(self, node: Node, op: Region, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Make a loop or a branch; what it takes and yields keeps its dtypes."""
        bodies = []
        for body in op.bodies:
            taken = _captures(op, len(inputs))
            pairs = zip(
                body.parameters[len(body.parameters) - taken :],
                node.inputs[len(inputs) - taken :],
                strict=True,
            )
            weak = [p.node for p, outer in pairs if outer.node in self._choice.weak]
            graph = _Mixing(self._owner, body.graph, weak, self._hits).made(
                f"what a body of {op.name} yields is float32"
            )
            bodies.append(Body(body.parameters, graph.outputs))
        return emit_all(op.with_bodies(bodies), *inputs, name=node.name)

    # Conversions.

    def _here(self, tensor: Tensor) -> Tensor:
        return self._new[tensor.node][tensor.index]

    def _wide(self, tensor: Tensor, reader: Node | str) -> Tensor:
        """Return a tensor as it is described.

        Args:
            tensor: What is described.
            reader: What takes it, or why it is taken.
        """
        now = self._here(tensor)
        if tensor.dtype is not float32 or now.dtype is float32:
            return now
        return self._cast(tensor, now, float32, reader)

    def _summed(self, tensor: Tensor, reader: Node) -> Tensor:
        """Return the operand of a sum in the backward graph: the gradient of a bias, for one.

        What products read in 16 bits anyway is not kept in float32 for a sum beside them.
        """
        if tensor.dtype is not float32 or tensor.node not in self._choice.multiplied:
            return self._wide(tensor, reader)
        rounded = self._narrow(tensor, f"a product takes it in {self._choice.low.name}")
        why = f"{reader.op.name} reads what is there for a product"
        return self._cast(tensor, rounded, float32, why)

    def _narrow(self, tensor: Tensor, reader: Node | str) -> Tensor:
        now = self._here(tensor)
        if now.dtype is not float32:
            return now
        node, key = tensor.node, (tensor.node, tensor.index, self._choice.low)
        if key in self._converted:
            return self._converted[key]
        if isinstance(node.op, VIEWS) and self._choice.kinds[node] == "follows":
            # What it is a view of is converted, once for all views.
            made = emit(node.op, self._narrow(node.inputs[0], reader))
        elif node in self._choice.weak and isinstance(node.op, AsType):
            made = emit(AsType(self._choice.low), self._here(node.inputs[0]))
        elif (
            node in self._choice.weak
            and (array := constant_array(now)) is not None
            and (array.size <= _SMALL)
        ):
            made = constant(Literal(array.astype(self._choice.low.dtype)))
        else:
            return self._cast(tensor, now, self._choice.low, reader)
        self._converted[key] = made
        return made

    def _cast(self, tensor: Tensor, now: Tensor, to: DType, reader: Node | str) -> Tensor:
        """Convert a tensor, once for all that read it."""
        key = (tensor.node, tensor.index, to)
        if key not in self._converted:
            made = emit(AsType(to), now)
            self._converted[key] = made
            why = reader if isinstance(reader, str) else self._reason(reader)
            self._owner.casts.append(Cast(tensor, to, self._choice.low, why, made.node.loc))
        return self._converted[key]


def _captures(op: Region, inputs: int) -> int:
    """Return the number of inputs, the last ones, that are the same in all iterations."""
    if isinstance(op, Scan):
        return inputs - op.carries - op.sequences
    if isinstance(op, Loop):
        return inputs - sum(op.carries)
    return inputs - 1 if isinstance(op, Branch) else inputs
