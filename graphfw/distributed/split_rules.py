"""The rules of splitting: what an op computes from rows, if each process has some of the rows.

A tensor is split along the axis whose size has a split dim in it; so its type says along which one.
Cut into blocks of equal length along this axis, it has one block for each shard, in order. A rule
says of a node what its op makes of the blocks of one shard: the block of the result, or something
to be reduced over all shards. What no rule covers is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from graphfw.ir.body import Body
from graphfw.ir.dim import Dim, DimLike, substitute, symbol, symbols_of
from graphfw.ir.op import EFFECT, ELEMENTWISE, RANDOM, Nested, Op, nested
from graphfw.ir.shape import size_of
from graphfw.ir.sources import ConstantOp, Placeholder
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import Shape, TensorType
from graphfw.ops.batching import along_axes, leading, leading_dims
from graphfw.ops.collectives.kinds import How
from graphfw.ops.control.checkpoint_ops import Barrier, FirstInputs
from graphfw.ops.control.region_op import Region
from graphfw.ops.control.scan_op import Scan
from graphfw.ops.creation.inputs import IdentityOp, StopGradient
from graphfw.ops.creation.ranges import Arange
from graphfw.ops.elementwise.cast import AsType
from graphfw.ops.linalg.products import MatMul
from graphfw.ops.nn.attention_ops import Attention, AttentionGrad
from graphfw.ops.nn.convolution_ops import Conv, ConvWeight
from graphfw.ops.random.draws import RandomBits
from graphfw.ops.reduce.reductions import All, AnyOf, Max, Min, Reduction, Sum
from graphfw.ops.shape.gather_scatter import (
    Gather,
    IndexAdd,
    IndexSet,
    Putting,
    Slice,
    SliceSet,
)
from graphfw.ops.shape.movement import BroadcastTo, Movement, PermuteDims, Reshape
from graphfw.ops.shape.scatter_extremes import IndexMax, IndexMin

Treatment: TypeAlias = Literal["same", "rows"] | How
"""The way to compute a node: the same in each process, by rows, or reduced over the rows."""

_FROM_TYPES = frozenset({"dims", "lengths", "size"})
"""Fields in which a split dim is the size of an axis of the output."""


class Unruled(Exception):
    """No rule covers a node.

    Attributes:
        reason: What stands in the way, in words, with {dims} for the split dims of the node.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Splitting:
    """The split dims of a graph, and what they mean for types and nodes.

    Args:
        names: The symbols that are split.
    """

    def __init__(self, names: Collection[str]) -> None:
        self.names = frozenset(names)
        self._axes: dict[Shape, int | None] = {}
        self._outer: dict[Node, DimLike] = {}
        self._sums: dict[Node, frozenset[int]] = {}

    def axis(self, kind: TensorType) -> int | None:
        """Return the axis along which tensors of a type are split, or None.

        Raises:
            Unruled: There are two, or the axis can't be cut into equal blocks.
        """
        shape = kind.shape
        if shape not in self._axes:
            self._axes[shape] = self._found(shape)
        return self._axes[shape]

    def _found(self, shape: Shape) -> int | None:
        axes = [axis for axis, dim in enumerate(shape) if self.has(dim)]
        if not axes:
            return None
        if len(axes) > 1:
            first, second = [f"axis {axis}, `{shape[axis]}`," for axis in axes[:2]]
            raise Unruled(f"{first} and {second} would both be split")
        dim = shape[axes[0]]
        if self.factor(dim) is None:
            raise Unruled(
                f"axis {axes[0]} would be `{dim}`, and only multiples of {{dims}} can be split"
            )
        return axes[0]

    def has(self, value: object) -> bool:
        """Return whether a split dim occurs in a value of a field."""
        if isinstance(value, Dim):
            return not self.names.isdisjoint(symbols_of(value))
        if isinstance(value, Nested):
            return not self.names.isdisjoint(value.symbols)
        return isinstance(value, tuple) and any([self.has(item) for item in value])

    def factor(self, dim: DimLike) -> DimLike | None:
        """Return f of a dim that is f * n for a split dim n, or None."""
        names = self.names & symbols_of(dim)
        if len(names) != 1:
            return None
        (name,) = names
        factor = substitute(dim, {name: symbol(name) + 1}) - dim
        return None if self.has(factor) or factor * symbol(name) != dim else factor

    def treatment(self, node: Node) -> Treatment:
        """Return the treatment of a node.

        Raises:
            Unruled: No rule covers it.
        """
        taken = [self.axis(t.type) for t in node.inputs]
        made = [self.axis(kind) for kind in node.types]
        split = [axis is not None for axis in made]
        if not any(split) and all([axis is None for axis in taken]):
            if any(map(self.has, nested(node.op.values))):
                raise Unruled("its body uses {dims}")
            return "same"
        self._find_outer(node, taken, made)
        if isinstance(node.op, FirstInputs):
            return "rows"  # it yields what it takes; see `source`
        if isinstance(node.op, Scan):
            return self._scan(node, node.op, split)
        view = _View(self, node, node.op, taken, made)
        if not any(split):
            return view.reduction()
        if not all(split):
            raise Unruled("some of its results have {dims}, and others don't")
        view.check_fields()
        if not node.op.traits.isdisjoint((RANDOM, EFFECT)) and not isinstance(node.op, RandomBits):
            raise Unruled("it is done once, and not for each shard of {dims}")
        if not view.is_by_rows():
            raise Unruled("there is no rule that computes it from some of the rows of {dims}")
        return "rows"

    def outer(self, tensor: Tensor) -> DimLike:
        """Return the number of times that the rows of all shards follow along the split axis.

        It is more than once where [time, batch] has become [time*batch]. Within such an axis the
        rows of a shard have other neighbours than those of all shards; for sums that is the same.
        """
        return self._outer.get(tensor.node, 1)

    def _find_outer(self, node: Node, taken: list[int | None], made: list[int | None]) -> None:
        split = [t for t, axis in zip(node.inputs, taken, strict=True) if axis is not None]
        outers = {self.outer(t) for t in split}
        if isinstance(node.op, Reshape) and taken[0] is not None and made[0] is not None:
            (x,) = split
            before = size_of(x.shape[: taken[0]]) * self.outer(x)
            after = size_of(node.types[0].shape[: made[0]])
            outer = 0 if after == 0 else before // after
            factor = cast("DimLike", self.factor(node.types[0].shape[made[0]]))
            if outer == 0 or outer * after != before or factor % outer != 0:
                raise Unruled("it would put rows of {dims} between others")
            outers = {outer}
        if outers <= {1}:
            return
        if len(outers) > 1:
            raise Unruled("its operands have the rows of {dims} in different orders")
        is_pointwise = type(node.op).batch is None and ELEMENTWISE in node.op.traits
        if not is_pointwise and not isinstance(node.op, _ANY_ORDER):
            raise Unruled("an axis of its operand is made of {dims} and of one before it")
        (self._outer[node],) = outers

    def _scan(self, node: Node, op: Scan, split: Sequence[bool]) -> Treatment:
        """Return the treatment of a scan, and note the results that are sums for one shard."""
        if self.has(op.length):
            raise Unruled("its length depends on {dims}")
        sums = _IncompleteSums(self, op)
        for number in sums.carries:
            if not _is_zero(node.inputs[number]):
                raise Unruled("a sum over {dims} in its body does not begin with 0")
        if not all([one or number in sums.outputs for number, one in enumerate(split)]):
            raise Unruled("some of its results have {dims}, and others don't")
        self._sums[node] = sums.outputs
        return "rows"

    def is_sum(self, tensor: Tensor) -> bool:
        """Return whether a result of a scan for a shard is to be added to those for the others."""
        return tensor.index in self._sums.get(tensor.node, ())

    def check_outputs(self, outputs: Sequence[Tensor]) -> None:
        """See that outputs of a graph or a body have the rows of each shard side by side."""
        for tensor in outputs:
            if self.outer(tensor) != 1 and self.axis(tensor.type) is not None:
                raise Unruled("an axis of it is made of {dims} and of one before it")

    def check_body(self, body: Body) -> None:
        """See that the nodes of a body, or of its bodies, need no rows but those of a shard."""
        for node in body.nodes:
            treatment = self.body_treatment(node)
            if treatment not in ("same", "rows"):
                raise Unruled(f"{node.op.name} in its body reduces over {{dims}}")
        self.check_outputs(body.outputs)

    def body_treatment(self, node: Node) -> Treatment:
        """Return the treatment of a node of a body, which asks for nothing but rows."""
        treatment, name = self.treatment(node), node.op.name
        if treatment == "same" and self.has(node.op.values):
            raise Unruled(f"{name} in its body uses the size of {{dims}}")
        if treatment == "rows" and isinstance(node.op, Arange):
            raise Unruled(f"{name} in its body numbers the rows of {{dims}}")
        if self._sums.get(node):
            raise Unruled(f"{name} in its body reduces over {{dims}}")
        if not node.op.traits.isdisjoint((RANDOM, EFFECT)):
            raise Unruled(f"{name} in its body is done once, and not for each shard")
        return treatment

    def source(self, tensor: Tensor) -> Tensor:
        """Return the tensor that `gf.custom_gradient` and barriers yield as a tensor.

        Barriers go on keeping split tensors apart from what equals them.
        """
        while isinstance(tensor.node.op, FirstInputs):
            node = tensor.node
            is_split = self.axis(tensor.type) is not None
            if isinstance(node.op, Barrier) and (is_split or self.treatment(node) == "same"):
                break
            tensor = node.inputs[tensor.index]
        return tensor

    def is_own_index(self, tensor: Tensor, dim: DimLike) -> bool:
        """Return whether a tensor has the number of each row along its split axis, in its row.

        Args:
            tensor: The tensor.
            dim: The number of rows.
        """
        while True:
            axis = self.axis(tensor.type)
            if axis is None or tensor.shape[axis] != dim:
                return False
            op = tensor.node.op
            if isinstance(op, Arange):
                return (op.start, op.step) == (0, 1)
            if not isinstance(op, Reshape | BroadcastTo | IdentityOp | StopGradient | AsType):
                return False
            if isinstance(op, AsType) and not op.to.is_integer:
                return False
            (tensor,) = tensor.node.inputs


class _View(NamedTuple):
    """A node, as rules look at it.

    Attributes:
        splitting: The split dims.
        node: The node.
        op: Its op.
        taken: The split axis of each input.
        made: Those of the outputs.
    """

    splitting: Splitting
    node: Node
    op: Any
    taken: list[int | None]
    made: list[int | None]

    @property
    def shapes(self) -> list[Shape]:
        """The shapes of the inputs."""
        return [t.shape for t in self.node.inputs]

    def check_fields(self) -> None:
        """See that fields depend on split dims only as far as the type does."""
        for name, value in zip(self.op.fields, self.op.values, strict=True):
            if not self.splitting.has(value) or (name in _FROM_TYPES and self._is_of_result(value)):
                continue
            if not isinstance(self.op, Region) or isinstance(value, Dim):
                raise Unruled(f"its {name} depends on {{dims}}")
            for body in self.op.bodies:
                self.splitting.check_body(body)

    def _is_of_result(self, value: Any) -> bool:
        """Return whether the split dims in a field are the size of an axis of the result."""
        dims = value if isinstance(value, tuple) else (value,)
        axis = cast("int", self.made[0])
        return all([d == self.node.types[0].shape[axis] for d in dims if self.splitting.has(d)])

    def reduction(self) -> How:
        """Return the reduction of the results for shards to that for all rows."""
        op = self.op
        if type(op) in _REDUCED:
            return _REDUCED[type(op)]
        if isinstance(op, MatMul):
            return "sum"  # both along the axis that is summed over: others are in the result
        if isinstance(op, ConvWeight) and self.taken == [0, 0]:
            return "sum"
        if isinstance(op, IndexAdd) and self.taken[0] is None and self.taken[1] is not None:
            return "sum"
        raise Unruled("there is no rule by which it reduces over {dims}")

    def is_by_rows(self) -> bool:
        """Return whether blocks of the inputs give the block of the outputs."""
        op = self.op
        if isinstance(op, Region):
            return True  # its bodies are checked with its fields
        if type(op) in _RULES:
            return _RULES[type(op)](self)
        if type(op).batch is leading:
            count = leading_dims(op, [t.type for t in self.node.inputs])
            return self.are_all(self.made[0]) and cast("int", self.made[0]) < count
        if type(op).batch is along_axes:
            axes = (op.axis,) if "axis" in op.fields else op.axes
            return self.are_all(self.taken[0]) and self.taken[0] not in axes
        # Inputs broadcast, and the output has only one split axis, so theirs are the same one.
        return type(op).batch is None and ELEMENTWISE in op.traits

    def are_all(self, axis: int | None) -> bool:
        """Return whether all inputs are split along an axis."""
        return axis is not None and all([one == axis for one in self.taken])

    def indexes_own_rows(self) -> bool:
        """Return whether an index of the split axis of x names the row that it is in."""
        index = own_index(self.splitting, self.node)
        if index is None:
            return True  # that axis is not indexed
        rows = self.shapes[0][cast("int", self.taken[0])]
        return self.splitting.is_own_index(self.node.inputs[index], rows)


class _IncompleteSums:
    """The sums over rows in the body of a scan, which are complete when those of shards are added.

    As in its gradient, where a carry adds up the gradients of weights. What is linear in them may
    be computed before they are complete.

    Args:
        splitting: The split dims.
        op: The scan.

    Attributes:
        carries: The carries that are such sums, by number.
        outputs: The outputs that are, by number.
    """

    def __init__(self, splitting: Splitting, op: Scan) -> None:
        body = op.body
        treatments = {node: splitting.body_treatment(node) for node in body.nodes}
        splitting.check_outputs(body.outputs)
        if not {*treatments.values()} <= {"same", "rows", "sum"}:
            names = [node.op.name for node, one in treatments.items() if one in ("max", "min")]
            raise Unruled(f"{names[0]} in its body reduces over {{dims}}")
        own = body.parameters[1 : 1 + op.carries]
        self.carries: set[int] = set()
        found: set[Node] = set()
        while True:
            sums = {own[number].node for number in self.carries}
            for node, treatment in treatments.items():
                if treatment == "sum" or any([t.node in sums for t in node.inputs]):
                    sums.add(node)
            carried = {n for n, t in enumerate(body.outputs[: op.carries]) if t.node in sums}
            if carried == self.carries and sums == found:
                break
            self.carries, found = carried, sums
        for node, treatment in treatments.items():
            incomplete = [t.node in sums for t in node.inputs]
            if any(incomplete) and not (treatment == "same" and _is_linear(node.op, incomplete)):
                name = node.op.name
                raise Unruled(f"{name} in its body uses a sum over {{dims}} of one shard alone")
        self.outputs = frozenset([n for n, t in enumerate(body.outputs) if t.node in sums])


def _is_linear(op: Op, moving: Sequence[bool]) -> bool:
    """Return whether an op is linear in those of its operands that move."""
    if op.name in ("multiply", "chain_multiply"):
        return sum(moving) == 1
    if op.name in ("divide", "chain_divide"):
        return list(moving) == [True, False]
    return all(moving) and (isinstance(op, Movement) or op.name in ("add", "negative", "subtract"))


def _is_zero(tensor: Tensor) -> bool:
    """Return whether a tensor has zeros for elements."""
    while isinstance(tensor.node.op, Movement):
        (tensor,) = tensor.node.inputs
    op = tensor.node.op
    return isinstance(op, ConstantOp) and not op.value.array.any()


def own_index(splitting: Splitting, node: Node) -> int | None:
    """Return the number of the input that indexes the split axis of the first one, or None."""
    if not isinstance(node.op, Gather | Putting):
        return None
    axis = splitting.axis(node.inputs[0].type)
    first = 2 if isinstance(node.op, Putting) else 1
    if axis is None or not node.op.axis <= axis < node.op.axis + len(node.inputs) - first:
        return None
    return first + axis - node.op.axis


def _one_axis(view: _View) -> bool:
    """The split axis is found by its size, which no other axis of the output has."""
    return True


def _slice(view: _View) -> bool:
    """A window may be of all rows."""
    axis = view.taken[0]
    if axis is None or not view.are_all(axis):
        return False
    window = view.op.starts[axis], view.op.lengths[axis], view.op.steps[axis]
    return window == (0, view.shapes[0][axis], 1)


def _attention(view: _View) -> bool:
    """Queries, keys and values have the axis before their last two; a mask may broadcast."""
    back = [None if a is None else a - len(s) for a, s in zip(view.taken, view.shapes, strict=True)]
    return back[0] is not None and back[0] < -2 and len(set(back[:3])) == 1


def _convolution(view: _View) -> bool:
    return view.taken == [0, None]


def _gather(view: _View) -> bool:
    return view.indexes_own_rows()


def _put(view: _View) -> bool:
    return view.taken[0] is not None and view.taken[1] is not None and view.indexes_own_rows()


_ANY_ORDER = (BroadcastTo, IdentityOp, MatMul, PermuteDims, Reduction, Reshape, StopGradient)
"""The ops, besides elementwise ones, to which it is the same in which order the rows are."""

_RULES: dict[type[Op], Callable[[_View], bool]] = {
    Arange: _one_axis,
    Attention: _attention,
    AttentionGrad: _attention,
    BroadcastTo: _one_axis,
    Conv: _convolution,
    Gather: _gather,
    IndexAdd: _put,
    IndexMax: _put,
    IndexMin: _put,
    IndexSet: _put,
    MatMul: _one_axis,
    PermuteDims: _one_axis,
    Placeholder: _one_axis,
    RandomBits: _one_axis,
    Reshape: _one_axis,
    Slice: _slice,
    SliceSet: _slice,
}

_REDUCED: dict[type[Op], How] = {All: "min", AnyOf: "max", Max: "max", Min: "min", Sum: "sum"}
