"""Groups of equal structure are lowered once: the steps of one are those of all, renamed.

The layers of a network repeat. A structure is all that lowering reads of a group: the ops, how they
are connected, the types, the views between, the values of small constants. It names tensors by
numbers. Lowering does the same to groups whose structures have equal keys. Their steps differ in
the tensors and nodes only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from graphfw.ir.constants import fill_value
from graphfw.ir.op import Op
from graphfw.ir.sources import ConstantOp
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import TensorType
from graphfw.ops.control.checkpoint_ops import Barrier
from graphfw.ops.linalg.products import MatMul
from graphfw.passes.fuse import Group
from graphfw.passes.fuse_nodes import FusionFacts, Role
from graphfw.runtime.kernels.lower_combine import PartialResults
from graphfw.runtime.kernels.steps import Step, Storage, Table, Temp


class GroupStructure(NamedTuple):
    """The facts of a group that lowering reads.

    Attributes:
        key: Equal for groups that differ in the tensors and nodes only.
        nodes: The group's nodes. Nodes of equal structures that have one number correspond to each
            other.
        numbers: Those of the tensors, in order, and of memory that other steps have filled.
    """

    key: Hashable
    nodes: tuple[Node, ...]
    numbers: Mapping[Storage, int]


class Lowered(NamedTuple):
    """The steps that a group is lowered to.

    Attributes:
        steps: Its steps.
        partials: The partial results of reductions over rows, which another step combines.
    """

    steps: Sequence[Step]
    partials: Sequence[PartialResults] = ()


class _NotShared(Exception):
    """Lowering the group reads something that its structure does not contain."""


_EQUAL_IF_UNLIKE = (int, float, complex, np.generic, tuple)
"""Values of which some are equal that lowering tells apart: 0.0 and -0.0, 1 and True."""

_SHARED = (Role.POINTWISE, Role.REDUCE, Role.COPY, Role.GENERATED)


class Structures:
    """The structures of a graph's groups, and what was made of them.

    Args:
        facts: Of the graph.
        fixed: Variables that have the same contents in all runs.
    """

    def __init__(self, facts: FusionFacts, fixed: Collection[Tensor]) -> None:
        self._facts = facts
        self._fixed = fixed
        self._found: dict[Group, GroupStructure | None] = {}
        self._made: dict[Hashable, tuple[GroupStructure, Lowered | None]] = {}
        self._ops: dict[Hashable, int] = {}
        self._types: dict[TensorType, int] = {}
        self._fills: dict[Node, Hashable] = {}

    def of(self, group: Group) -> GroupStructure | None:
        """Return the structure of a group, or None where lowering may read more than it says."""
        if group not in self._found:
            try:
                self._found[group] = self._structure(group)
            except _NotShared:
                self._found[group] = None
        return self._found[group]

    def lowered(
        self, what: str, structure: GroupStructure | None, make: Callable[[], Lowered | None]
    ) -> Lowered | None:
        """Lower a group of this structure; take the steps of an equal one where there is one.

        Args:
            what: What it makes, in a word.
            structure: Its own; None where nothing is shared.
            make: Lowers; it reads nothing that is not in the key.
        """
        if structure is None:
            return make()
        key = (what, structure.key)
        if key not in self._made:
            made = make()
            self._made[key] = structure, made
            return made
        twin, made = self._made[key]
        return None if made is None else _renamed(made, twin, structure)

    def _structure(self, group: Group) -> GroupStructure:
        facts = self._facts
        numbers: dict[Storage, int] = {}
        key: list[Hashable] = [group.kind, group.sizes, group.rows, group.form]
        if group.picks:
            raise _NotShared
        for node in group.nodes:
            role, op = facts.role[node], node.op
            is_product = role is Role.MATMUL and isinstance(op, MatMul)
            if not is_product and (role not in _SHARED or node in facts.short):
                raise _NotShared
            if role is Role.POINTWISE and op.scalar is None:
                raise _NotShared
            read = [self._number(tensor, numbers, key) for tensor in node.inputs]
            key.append((role, self._op(op), *read))
            if role is Role.REDUCE:
                x, gone = facts.reduction(node)
                key.append((self._number(x, numbers, key), gone))
            for tensor in node.outputs:
                if tensor in facts.inside:
                    raise _NotShared
                key.append(self._type(tensor))
                numbers[tensor] = len(numbers)
        key.append(tuple([numbers[tensor] for tensor in group.outputs]))
        return GroupStructure(tuple(key), group.nodes, numbers)

    def _number(self, tensor: Tensor, numbers: dict[Storage, int], key: list[Hashable]) -> int:
        """Return the number of a tensor that a group reads, and put it into the key when new."""
        known = numbers.get(tensor)
        if known is not None:
            return known
        facts, node = self._facts, tensor.node
        if tensor in facts.inside:
            raise _NotShared
        if tensor in facts.layout:  # a view
            source = node.inputs[tensor.index if isinstance(node.op, Barrier) else 0]
            before = self._number(source, numbers, key)
            key.append(("view", self._op(node.op), tensor.index, before))
        elif facts.role[node] is Role.GENERATED:
            read = [self._number(x, numbers, key) for x in node.inputs]
            key.append(("computed", self._op(node.op), tuple(read)))
        elif facts.role[node] is Role.UNPACK:
            raise _NotShared
        elif isinstance(node.op, ConstantOp):
            key.append(("constant", self._fill(tensor)))
        elif tensor in facts.fed:
            key.append(("strides", facts.fed[tensor].strides))
        else:
            key.append("fixed" if tensor in self._fixed else "read")
        key.append(self._type(tensor))
        numbers[tensor] = len(numbers)
        return numbers[tensor]

    def _op(self, op: Op) -> int:
        """Return a number that is equal for equal ops."""
        values = op.values
        unlike = [repr(one) for one in values if isinstance(one, _EQUAL_IF_UNLIKE)]
        exact = (type(op), *values, *unlike)
        return self._ops.setdefault(exact, len(self._ops))

    def _type(self, tensor: Tensor) -> int:
        return self._types.setdefault(tensor.type, len(self._types))

    def _fill(self, tensor: Tensor) -> Hashable:
        """Return the bytes of the value that all elements of a constant have, or None."""
        if tensor.node not in self._fills:
            fill = fill_value(tensor)
            self._fills[tensor.node] = None if fill is None else fill.tobytes()
        return self._fills[tensor.node]


def joined_structure(
    partials: Sequence[PartialResults], structure: GroupStructure | None, stored: Sequence[Tensor]
) -> GroupStructure:
    """Return the structure of the step that combines partial results, and does what a group does.

    Args:
        partials: Of one kernel.
        structure: Of the group, or None.
        stored: Which of the results are stored.
    """
    numbers = {} if structure is None else dict(structure.numbers)
    key = tuple(
        [
            (
                one.kind,
                one.inner,
                one.temp.dtype,
                one.work_items,
                one.output.type,
                numbers.setdefault(one.temp, len(numbers)),
                numbers.setdefault(one.output, len(numbers)),
                any([one.output is tensor for tensor in stored]),
            )
            for one in partials
        ]
    )
    nodes = [*[one.node for one in partials], *(() if structure is None else structure.nodes)]
    return GroupStructure((key, structure and structure.key), tuple(nodes), numbers)


def _renamed(made: Lowered, twin: GroupStructure, structure: GroupStructure) -> Lowered:
    """Return the steps of one structure with the storages and nodes of an equal one."""
    storages: dict[Storage, Storage] = dict(zip(twin.numbers, structure.numbers, strict=True))
    nodes = dict(zip(twin.nodes, structure.nodes, strict=True))

    def step(one: Step) -> Step:
        return replace(
            one,
            nodes=tuple([nodes[node] for node in one.nodes]),
            operands=tuple([storage(operand) for operand in one.operands]),
        )

    def storage(one: Storage) -> Storage:
        new = storages.get(one)
        if new is not None:
            return new
        assert isinstance(one, Temp)
        if isinstance(one, Table):
            return one  # the same numbers in all runs
        new = storages[one] = replace(one)
        return new

    steps = [step(one) for one in made.steps]
    partials = []
    for one in made.partials:
        temp = storages[one.temp]
        assert isinstance(temp, Temp)
        partials.append(one._replace(node=nodes[one.node], temp=temp))
    return Lowered(steps, partials)
