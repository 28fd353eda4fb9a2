"""Batching: a body applied to many inputs at once, node by node, by each op's `batch` rule.

The inputs side by side are the examples. A tensor is batched if it differs from example to example:
then the examples are its axis 0. What all examples share is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from graphfw.errors import GraphError
from graphfw.ir import ambient
from graphfw.ir.body import Body, BodyGraph
from graphfw.ir.build import emit, emit_all
from graphfw.ir.dim import DimLike
from graphfw.ir.functions import F
from graphfw.ir.graph import current_graph
from graphfw.ir.modes import unintercepted
from graphfw.ir.op import ELEMENTWISE, RANDOM, Op
from graphfw.ir.shape import Requirement
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import TensorType

Outputs: TypeAlias = tuple[Tensor, ...]


class MappedAxis:
    """The facts of the examples that batch rules are given.

    Args:
        size: How many there are.
        randomness: "different" draws in each example, the "same" in all, or "error".

    Attributes:
        without_rule: The nodes met so far whose op has no batch rule.
        refused: The draws met so far where there may be none.
    """

    def __init__(self, size: DimLike, randomness: str) -> None:
        self.size = size
        self.randomness = randomness
        self.without_rule: dict[Node, None] = {}
        self.refused: dict[Node, None] = {}

    def everywhere(self, x: Tensor, is_batched: bool) -> Tensor:
        """Return a tensor with the examples in front, repeated if all share it."""
        return x if is_batched else F.broadcast_to(x, (self.size, *x.shape))

    def all(self, xs: Sequence[Tensor], batched: Sequence[bool]) -> list[Tensor]:
        """Return tensors with the examples in front of each."""
        return [self.everywhere(x, flag) for x, flag in zip(xs, batched, strict=True)]

    def kind(self, kind: TensorType, is_batched: bool = True) -> TensorType:
        """Return the type that a tensor has with the examples in front, if it is batched."""
        return TensorType(kind.dtype, (self.size, *kind.shape)) if is_batched else kind

    def only(self, mask: Tensor, x: Tensor) -> Tensor:
        """Return a batched tensor that has in examples outside of a mask what the first inside has.

        So nothing fails on values that an example would never compute with. One example must be
        inside.
        mask: [examples] bool
        """
        before = F.sum(F.cumulative_sum(mask) == 0)
        row = F.stop_gradient(F.take(x, before, axis=0))
        return F.where(lifted(mask, x.ndim), x, F.expand_dims(row, axis=0))

    @unintercepted
    def through(
        self,
        body: Body,
        inputs: Sequence[Tensor],
        batched: Sequence[bool],
        keeps_names: bool = False,
    ) -> tuple[list[Tensor], list[bool]]:
        """Make a body's nodes in the current graph, for all examples.

        Args:
            body: The body.
            inputs: What it is given.
            batched: Which of these are batched.
            keeps_names: Give names of tensors to what stands for them; in one graph this can be
                done once.

        Returns:
            The outputs, and whether each is batched.
        """
        graph = current_graph()
        made: dict[tuple[Node, int], tuple[Tensor, bool]] = {
            (t.node, t.index): parameter
            for t, parameter in zip(body.parameters, zip(inputs, batched, strict=True), strict=True)
        }
        for node in body.nodes:
            parameter = [made[t.node, t.index] for t in node.inputs]
            xs, flags = [x for x, _ in parameter], tuple([flag for _, flag in parameter])
            with graph.located(graph.provenance or node.loc):
                outputs, flag = self._applied(node, xs, flags)
                if keeps_names and node.name:
                    outputs = (_named(outputs[0], node.name), *outputs[1:])
            made.update({(node, i): (output, flag) for i, output in enumerate(outputs)})
        found = [made[t.node, t.index] for t in body.outputs]
        return [t for t, _ in found], [flag for _, flag in found]

    def _applied(
        self, node: Node, xs: Sequence[Tensor], batched: tuple[bool, ...]
    ) -> tuple[Outputs, bool]:
        """Apply a node's op, and say whether its outputs are batched."""
        op = node.op
        is_random = RANDOM in op.traits
        if is_random and self.randomness == "error":
            self.refused[node] = None
        if not any(batched) and not (is_random and self.randomness == "different"):
            return emit_all(op, *xs), False
        wanted = [self.kind(kind) for kind in node.types]
        rule = rule_of(op)
        if rule is None:
            self.without_rule[node] = None
            return tuple([F.zeros(kind.shape, dtype=kind.dtype) for kind in wanted]), True
        result = rule(self, batched, *xs)
        outputs = (result,) if isinstance(result, Tensor) else tuple(result)
        if [t.type for t in outputs] != wanted:
            raise GraphError(
                f"the batch rule of {op.name} gives {', '.join(str(t.type) for t in outputs)}, "
                f"not {', '.join(map(str, wanted))}",
                at=node.loc,
                fix="this is a mistake in the op's batch rule",
            )
        return outputs, True

    def body(
        self, what: str, body: Body, batched: Sequence[bool], wanted: Sequence[bool] = ()
    ) -> tuple[Body, list[bool]]:
        """Return a body for all examples.

        Args:
            what: The kind of op that owns it.
            body: The body of one example.
            batched: Which parameters are batched.
            wanted: Which outputs have to be, whether they differ or not; by default all.

        Returns:
            The new body, and whether each of its outputs is batched.
        """
        graph = BodyGraph(what)
        with graph:
            parameters = [
                graph.parameter(self.kind(t.type, flag), t.node.loc)
                for t, flag in zip(body.parameters, batched, strict=True)
            ]
            outputs, flags = self.through(body, parameters, batched, keeps_names=True)
            must = list(wanted) or [True] * len(outputs)
            outputs = [
                self.everywhere(t, flag) if want else t
                for t, flag, want in zip(outputs, flags, must, strict=True)
            ]
        found = [flag or want for flag, want in zip(flags, must, strict=True)]
        return Body(parameters, outputs), found

    def iteration(
        self, what: str, body: Body, carry: Sequence[bool], others: Sequence[bool]
    ) -> tuple[Body, list[bool]]:
        """Return the body of a loop for all examples: a carry that ever differs is always batched.

        Args:
            what: The kind of op that owns it.
            body: Takes the iteration's number, a carry and others; yields the next carry, and more.
            carry: Which of the first carry are batched.
            others: Which of the others are.

        Returns:
            The new body, and whether each of its outputs is batched.
        """
        count, rest = len(carry), [False] * (len(body.outputs) - len(carry))
        own = list(carry)
        while True:
            new, found = self.body(what, body, [False, *own, *others], [*own, *rest])
            if found[:count] == own:
                return new, found
            own = found[:count]


def _named(x: Tensor, name: str) -> Tensor:
    with ambient.override(ambient.current_scope, ""):  # the name has its scope already
        named = F.identity(x, name=name)
    return named


def rule_of(op: Op) -> Callable[..., Any] | None:
    """Return an op's batch rule: its own, or that of all elementwise ops; None if it has none."""
    if op.batch is None and ELEMENTWISE in op.traits:
        return lambda mapped, batched, *xs: emit(op, *aligned(batched, xs))
    return op.batch


def lifted(x: Tensor, ndim: int) -> Tensor:
    """Give a batched tensor as many dims, by dims of size 1 after the examples."""
    missing = (1,) * (ndim - x.ndim)
    return F.reshape(x, (*x.shape[:1], *missing, *x.shape[1:])) if missing else x


def aligned(
    batched: Sequence[bool], xs: Sequence[Tensor], core: Sequence[int] = ()
) -> list[Tensor]:
    """Return tensors with the examples in front of leading dims that broadcast as in one example.

    Args:
        batched: Which have the examples in front.
        xs: The tensors.
        core: How many dims of each come after those that broadcast; 0 by default.
    """
    own = core or [0] * len(xs)
    facts = list(zip(xs, batched, own, strict=True))
    lead = max([x.ndim - flag - count for x, flag, count in facts])
    return [lifted(x, 1 + lead + count) if flag else x for x, flag, count in facts]


def changed(op: Op, **values: Any) -> Op:
    """Return the op with other values for some of its fields."""
    return type(op)(*[values.get(n, v) for n, v in zip(op.fields, op.values, strict=True)])


# Rules that many ops have.


def leading(op: Op, mapped: MappedAxis, batched: Sequence[bool], *xs: Tensor) -> Outputs:
    """The batch rule of ops that take any leading dims: examples are but more of them."""
    return emit_all(op, *mapped.all(xs, batched))


def along_axes(op: Any, mapped: MappedAxis, batched: Sequence[bool], *xs: Tensor) -> Outputs:
    """The batch rule of ops with a field `axis` or `axes`: each axis is one further back."""
    new = [axis + 1 for axis in _axes(op)]
    moved = {"axis": new[0]} if "axis" in op.fields else {"axes": tuple(new)}
    return emit_all(changed(op, **moved), *mapped.all(xs, batched))


def _axes(op: Any) -> tuple[int, ...]:
    return (op.axis,) if "axis" in op.fields else op.axes


def free_axis(op: Op, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int | None:
    """Return the longest axis along which an op's results are independent, or None.

    What the outputs have at an index of this axis, the op computes from what the inputs have there.
    Of elementwise ops the axis is counted from the end, since their inputs broadcast.

    Args:
        op: The op; nothing is known of those with a batch rule of their own.
        inputs: The types of the inputs, all of whose dims are known.
        outputs: Those of the outputs.
    """
    shape, rule = outputs[0].shape, type(op).batch
    if rule is leading:
        axes = [*range(leading_dims(op, inputs))]
    elif rule is along_axes:
        own = _axes(op)
        count = len(shape)
        if len({len(t.shape) for t in (*inputs, *outputs)}) > 1:  # those after are moved
            count = min(own)
        axes = [axis for axis in range(count) if axis not in own]
    elif rule is None and ELEMENTWISE in op.traits:
        axes = [*range(-len(shape), 0)]
    else:
        axes = []
    return max(axes, key=shape.__getitem__, default=None)


def leading_dims(op: Op, inputs: Sequence[TensorType]) -> int:
    """Return how many dims of all inputs, from the first, the op could do without."""
    shapes = [t.shape for t in inputs]
    for count in range(min(map(len, shapes))):
        rest = [TensorType(t.dtype, t.shape[count + 1 :]) for t in inputs]
        try:
            op.infer(*rest)
        except Requirement:
            return count
    return min(map(len, shapes))
