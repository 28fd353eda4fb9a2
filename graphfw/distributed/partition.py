"""The pass `partition`: a graph of all processes' rows becomes the program of one process.

In the program a split dim is the size of one shard. So what is computed shard by shard keeps its
ops and its types, in the body of a `gf.map` over the shards of the process; see decision 039.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

from graphfw.distributed.split_rules import Splitting, Treatment, Unruled, own_index
from graphfw.errors import ShardingError
from graphfw.ir import concrete
from graphfw.ir.build import admitted, emit, emit_all, rewire
from graphfw.ir.dim import Dim, DimLike, substitute, symbol
from graphfw.ir.dtype import bool_, int64, uint8
from graphfw.ir.functions import F
from graphfw.ir.graph import current_graph
from graphfw.ir.op import ALIAS, COLLECTIVE, ELEMENTWISE, Op
from graphfw.ir.rebuild import derive
from graphfw.ir.sources import DimValue, Placeholder
from graphfw.ir.splits import SplitDim
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import Shape, TensorType
from graphfw.ir.variable import Update
from graphfw.ir.walk import ancestors
from graphfw.ops.batching import changed
from graphfw.ops.collectives.kinds import AllReduce, AxisIndex, How
from graphfw.ops.control.checkpoint_ops import Barrier
from graphfw.ops.creation.ranges import Arange
from graphfw.ops.random.draws import RandomBits
from graphfw.ops.reduce.reductions import Truth
from graphfw.ops.shape.gather_scatter import IndexAdd
from graphfw.passes.control_flow import InlineCheckpoints
from graphfw.runtime.effects import effects_in
from graphfw.runtime.running import RunDescription

Made: TypeAlias = dict[Tensor, Tensor]
"""Tensors of the graph of all rows, with what stands for them."""


class Shards(NamedTuple):
    """The shards of split dims.

    Attributes:
        dims: The split dims, by name.
        axis_name: The axis of the mesh.
        processes: The number of processes along it.
        total: The number of shards of all processes together.
        is_mapped: Whether the shards of a process are computed one after the other. Otherwise each
            process has one, its own rows.
    """

    dims: Mapping[str, SplitDim]
    axis_name: str
    processes: int
    total: int
    is_mapped: bool

    @property
    def own(self) -> int:
        """The number of shards of one process."""
        return self.total // self.processes


def partitioned(whole: RunDescription, shards: Shards) -> RunDescription:
    """Return the run of one process, for one that is described for the rows of all of them.

    Raises:
        ShardingError: An op has no rule for what it is to do with split dims.
    """
    made = _Partition(whole, shards)
    if not made.is_split or (shards.processes == 1 and not shards.is_mapped):
        return whole
    return made.described()


class _Partition:
    """The program of one process while it is made.

    Args:
        whole: The run that is described for all rows.
        shards: The shards.

    Attributes:
        is_split: Whether a split dim occurs in it.
    """

    def __init__(self, whole: RunDescription, shards: Shards) -> None:
        self.whole, self.shards = whole, shards
        self.splitting = Splitting(shards.dims)
        self.graph = derive(whole.graph, ())
        self.treatments: dict[Node, Treatment] = {}
        self.levels: dict[Node, int] = {}
        values = [value for update in whole.updates for _, value in update.pairs]
        tokens = effects_in(whole.graph, [*whole.fetches, *values], whole.feeds)
        source = derive(whole.graph, [*whole.fetches, *tokens, *values])
        self.source = InlineCheckpoints().run(source, Counter())  # their bodies may reduce
        self.fetch_count = len(self.source.outputs) - len(values)
        self.nodes = self.source.nodes
        for node in self.nodes:
            self._look_at(node)
        self.is_split = any(
            [self.splitting.has(t.shape) for t in whole.feeds]
            + [self.treatments[node] != "same" for node in self.nodes]
            + [self.splitting.has(node.op.values) for node in self.nodes if node.op.fields]
        )
        self.outputs = [self._source(t) for t in self.source.outputs]
        for tensor in self.outputs:
            try:
                self.splitting.check_outputs([tensor])
            except Unruled as refused:
                raise self._error(tensor.node, refused.reason) from None
        self.nodes = self._live()
        self.made: Made = {}
        self.stacks: Made = {}
        self.uses_size = False
        for node in self.nodes if self.is_split else ():
            if COLLECTIVE in node.op.traits:
                raise self._error(node, "a graph with {dims} has collectives of its own")

    # What is done with each node.

    def _look_at(self, node: Node) -> None:
        try:
            self.treatments[node] = self.splitting.treatment(node)
        except Unruled as refused:
            raise self._error(node, refused.reason) from None
        self.levels[node] = max([self._level(t) for t in map(self._source, node.inputs)], default=0)

    def _source(self, tensor: Tensor) -> Tensor:
        return self.splitting.source(tensor)

    def _level(self, tensor: Tensor) -> int:
        """Return from which level on a tensor can be read: the number of reductions before it."""
        return self.levels[tensor.node] + (self._reduction(tensor) is not None)

    def _reduction(self, tensor: Tensor) -> How | None:
        """Return the reduction that makes a tensor of its values for shards, or None."""
        treatment = self.treatments[tensor.node]
        if treatment == "same" or (treatment == "rows" and not self.splitting.is_sum(tensor)):
            return None
        return "sum" if treatment == "rows" else treatment

    def _is_by_rows(self, tensor: Tensor) -> bool:
        return self.treatments[tensor.node] == "rows" and not self.splitting.is_sum(tensor)

    def _is_source(self, node: Node) -> bool:
        """Return whether a node's rows are there before anything is computed."""
        is_one = isinstance(node.op, Placeholder | RandomBits)
        return is_one and self.treatments[node] == "rows"

    def _reads(self, node: Node) -> list[Tensor]:
        """Return the inputs of a node, without those that only number the rows of a shard."""
        own = own_index(self.splitting, node)
        return [self._source(t) for number, t in enumerate(node.inputs) if number != own]

    def _live(self) -> list[Node]:
        """Return the nodes that the outputs need."""
        live = {t.node for t in self.outputs}
        for node in reversed(self.nodes):
            if node in live:
                live.update([t.node for t in self._reads(node)])
        return [node for node in self.nodes if node in live]

    def _error(self, node: Node, reason: str) -> ShardingError:
        tensors = [t for t in node.inputs if self.splitting.has(t.shape)]
        shown = tensors or list(node.outputs)
        kinds = [*[t.type for t in node.inputs], *node.types]
        names = [name for name in self.shards.dims if Splitting([name]).has(_shapes(kinds))]
        named = names or list(self.shards.dims)
        where = [self.shards.dims[name].text for name in named]
        summary = reason.format(dims=" and ".join([f"`{name}`" for name in named]))
        return ShardingError(
            f"{node.op.name}: {summary}",
            operands=[concrete.describe(t.name or t.node.op.name, t) for t in shown[:3]],
            why="; ".join(where),
            at=node.loc,
            fix="reduce over the split axis before it, keep the axis as it is, or leave split= out "
            "and write the collectives: gf.distributed.all_gather(x, axis_name)",
        )

    # Making the program.

    def described(self) -> RunDescription:
        """Return the run of one process."""
        with self.graph:
            feeds = [self._fed(t) for t in self.whole.feeds]
            self._in_levels() if self.shards.is_mapped else self._at_once()
            found = list(map(self._whole, self.outputs))
            fetches, values = found[: self.fetch_count], iter(found[self.fetch_count :])
            updates = [
                Update([(v, next(values)) for v, _ in one.pairs], self.graph, one.loc)
                for one in self.whole.updates
            ]
            nodes = ancestors(found)
            if self.uses_size and not any([COLLECTIVE in node.op.traits for node in nodes]):
                # The size of all rows is true only if all processes have as many.
                fetches.append(self._process())
        return RunDescription(self.graph, fetches, updates, feeds)

    def _at_once(self) -> None:
        """Make all nodes, in a process that has one shard."""
        arange = [node for node in self.nodes if self._numbers_rows(node)]
        number = F.astype(self._process(), int64) if arange else None
        for node in self.nodes:
            with self.graph.located(node.loc):
                if self.treatments[node] == "same":
                    self._same(node)
                elif self._is_source(node):
                    self._take(node)
                else:
                    for t, block in zip(
                        node.outputs, self._block(node, self.made, number), strict=True
                    ):
                        self.made[t] = self._reduced(t, block) if self._reduction(t) else block

    def _in_levels(self) -> None:
        """Make maps over the shards of the process, and between them what is the same in all."""
        maps = self._maps()
        between: list[list[Node]] = [[] for _ in maps]
        for node in self.nodes:
            if node not in maps[self.levels[node]].inside:
                between[self.levels[node]].append(node)
        for nodes, one in zip(between, maps, strict=True):
            for node in nodes:
                with self.graph.located(node.loc):
                    self._take(node) if self._is_source(node) else self._same(node)
            if one.nodes:
                self._map(one)

    def _maps(self) -> list[_Map]:
        """Return the map of each level: what is in it, what it takes and what it yields."""
        top = max([self.levels[node] for node in self.nodes], default=0)
        maps = [_Map() for _ in range(top + 1)]
        for node in self.nodes:
            if self.treatments[node] != "same" and not self._is_source(node):
                maps[self.levels[node]].add(node)
        for tensor in self.outputs:
            self._want(tensor, maps)
        for one in reversed(maps):
            self._connect(one)
            for tensor in one.taken:
                self._want(tensor, maps)
        return maps

    def _want(self, tensor: Tensor, maps: Sequence[_Map]) -> None:
        """Have a tensor's blocks yielded by the map that computes them."""
        if self._is_by_rows(tensor) and not self._is_source(tensor.node):
            maps[self.levels[tensor.node]].yielded.setdefault(tensor)

    def _connect(self, one: _Map) -> None:
        """Find what a map takes of earlier ones; what is cheap is made again instead."""
        taken: dict[Tensor, None] = {}
        for node in one.nodes:
            for t in self._reads(node):
                if self._is_by_rows(t) and t.node not in one.inside:
                    taken.setdefault(t)
        again: list[Node] = []
        for tensor in sorted(taken, key=lambda t: t.node.serial, reverse=True):
            node = tensor.node
            inputs = [t for t in self._reads(node) if self._is_by_rows(t)]
            is_cheap = not node.op.traits.isdisjoint((ALIAS, ELEMENTWISE)) or not inputs
            at_hand = all([t in taken or self._is_source(t.node) for t in inputs])
            if is_cheap and at_hand and len(node.types) == 1 and not self._is_source(node):
                del taken[tensor]
                taken.update(dict.fromkeys([t for t in inputs if self._is_source(t.node)]))
                again.append(node)
        one.nodes[:0] = reversed(again)
        one.taken = list(taken)

    def _map(self, one: _Map) -> None:
        """Make a map, and reduce over all shards what it yields for that."""
        reduced = [t for node in one.nodes for t in node.outputs if self._reduction(t)]
        yielded = list(one.yielded)
        sequences = [self.stacks[t] for t in one.taken]
        numbered = any(map(self._numbers_rows, one.nodes))
        if numbered or not sequences:
            sequences.append(self._shard_numbers(numbered))

        def shard(blocks: list[Tensor]) -> list[Tensor]:
            here = dict(zip(one.taken, blocks, strict=False))
            body = current_graph()
            for node in one.nodes:
                with body.located(node.loc):
                    found = self._block(node, here, blocks[-1])
                    here.update(zip(node.outputs, found, strict=True))
            return [here[t] for t in (*yielded, *reduced)]

        with self.graph.located(one.nodes[0].loc):
            found = F.map(shard, sequences)
        self.stacks.update(zip(yielded, found, strict=False))
        for tensor, stack in zip(reduced, found[len(yielded) :], strict=True):
            with self.graph.located(tensor.node.loc):
                self.made[tensor] = self._reduced(tensor, stack)

    # The nodes of the program.

    def _same(self, node: Node) -> None:
        """Make a node that is the same in all processes."""
        inputs = tuple([self.made[self._source(t)] for t in node.inputs])
        if self.splitting.has(node.op.values):
            found = emit_all(self._of_all_rows(node.op), *inputs)
        elif all(a is b for a, b in zip(inputs, node.inputs, strict=True)):
            found = self.graph.share(node)
        else:
            found = self.graph.append(rewire(node, inputs, self.graph))
        self.made.update(zip(node.outputs, found, strict=True))

    def _block(self, node: Node, here: Made, number: Tensor | None) -> tuple[Tensor, ...]:
        """Make a node for one shard.

        Args:
            node: The node.
            here: The blocks of this shard.
            number: The number of the shard; None where no node asks for it.
        """
        if isinstance(node.op, Arange):  # others are the same in all processes
            assert number is not None, node
            return (self._row_numbers(node.op, number),)
        if isinstance(node.op, Barrier):
            return self._barrier(node, here)
        own = own_index(self.splitting, node)
        inputs = [
            _own(t) if position == own else self._value(self._source(t), here)
            for position, t in enumerate(node.inputs)
        ]
        if self._is_index_sum(node):
            inputs[0] = F.zeros_like(inputs[0])  # what it adds to comes after the reduction
        graph = current_graph()
        taken = tuple([admitted(t, graph, node.op.name) for t in inputs])
        found = graph.append(rewire(node, taken, graph))
        if isinstance(node.op, Truth) and self.treatments[node] != "rows":
            return (F.astype(found[0], uint8),)
        return found

    def _barrier(self, node: Node, here: Made) -> tuple[Tensor, ...]:
        """Make a barrier for what it has of a shard."""
        values = [self._value(t, here) for t in map(self._source, node.inputs)]
        kept = [n for n, t in enumerate(node.outputs) if self.splitting.axis(t.type) is not None]
        xs, others = [values[n] for n in kept], values[len(node.outputs) :]
        apart = zip(kept, emit_all(Barrier(len(kept)), *xs, *others), strict=True)
        return tuple((dict(enumerate(values)) | dict(apart))[n] for n in range(len(node.outputs)))

    def _value(self, tensor: Tensor, here: Made) -> Tensor:
        """Return the tensor that a node of a shard reads in the place of one of all rows."""
        if tensor in here:
            return here[tensor]
        node = tensor.node
        if self.treatments[node] == "same" and isinstance(node.op, DimValue):
            here[tensor] = emit(self._of_all_rows(node.op))
            return here[tensor]
        return self.made[tensor]

    def _is_index_sum(self, node: Node) -> bool:
        """Return whether a node adds rows to what has none, as the gradient of an embedding."""
        return isinstance(node.op, IndexAdd) and self.treatments[node] == "sum"

    def _reduced(self, tensor: Tensor, partial_result: Tensor) -> Tensor:
        """Return a tensor for all rows, from its values for shards."""
        node, how, shards = tensor.node, cast("How", self._reduction(tensor)), self.shards
        number = shards.total if shards.is_mapped else 0
        op = AllReduce(shards.axis_name, shards.processes, how, number)
        total = emit(op, partial_result)
        if self._is_index_sum(node):
            return self.made[self._source(node.inputs[0])] + total
        return F.astype(total, bool_) if isinstance(node.op, Truth) else total

    def _numbers_rows(self, node: Node) -> bool:
        return self.treatments[node] == "rows" and isinstance(node.op, Arange)

    def _row_numbers(self, op: Arange, number: Tensor) -> Tensor:
        """Return the block of a range that is in the shard of a number."""
        start = self._in_all_rows(op.start)
        block = emit(Arange(start, op.step, op.size, int64))
        return F.astype(block + number * emit(DimValue(op.step * op.size, int64)), op.to)

    def _take(self, node: Node) -> None:
        """Take the rows of this process of what is there from the beginning: feeds and draws."""
        (tensor,) = node.outputs
        axis = self._axis(tensor)
        if isinstance(node.op, RandomBits):
            self.made[tensor] = self._drawn(node.op, axis)
        if self.shards.is_mapped:
            shape = (*tensor.shape[:axis], self.shards.own, *tensor.shape[axis:])
            self.stacks[tensor] = F.moveaxis(F.reshape(self.made[tensor], shape), axis, 0)

    def _drawn(self, op: RandomBits, axis: int) -> Tensor:
        """Draw for all rows, and return those of this process."""
        dims, count = op.dims, self.shards.processes
        whole = emit(changed(op, dims=_scaled(dims, axis, self.shards.total)))
        if count == 1:
            return whole
        own = _scaled(dims, axis, self.shards.own)
        rows = F.reshape(whole, (*dims[:axis], count, *own[axis:]))
        return F.take(rows, self._process(), axis=axis)

    def _fed(self, tensor: Tensor) -> Tensor:
        """Return the placeholder of the rows of this process."""
        node = tensor.node
        try:
            axis = self.splitting.axis(tensor.type)
        except Unruled as refused:
            raise self._error(node, refused.reason) from None
        if axis is None or self.shards.own == 1:
            (found,) = self.graph.share(node)
        else:
            dims = _scaled(tensor.shape, axis, self.shards.own)
            op, kind = changed(node.op, dims=dims), TensorType(tensor.dtype, dims)
            (found,) = self.graph.append(Node(op, (), (kind,), node.loc, node.name, self.graph))
        self.made[tensor] = found
        return found

    def _whole(self, tensor: Tensor) -> Tensor:
        """Return a tensor with all rows that this process has of it."""
        if tensor in self.made:
            return self.made[tensor]
        axis = self._axis(tensor)
        with self.graph.located(tensor.node.loc):
            blocks = F.moveaxis(self.stacks[tensor], 0, axis)
            return F.reshape(blocks, _scaled(tensor.shape, axis, self.shards.own))

    # Sizes and numbers.

    def _axis(self, tensor: Tensor) -> int:
        axis = self.splitting.axis(tensor.type)
        assert axis is not None, tensor
        return axis

    def _in_all_rows(self, value: Any) -> Any:
        """Return a value of a field, with sizes of all rows for those of a shard."""
        if isinstance(value, tuple):
            return tuple(map(self._in_all_rows, value))
        if not isinstance(value, Dim) or not self.splitting.has(value):
            return value
        self.uses_size = True
        sizes = {name: self.shards.total * symbol(name) for name in self.shards.dims}
        return substitute(value, sizes)

    def _of_all_rows(self, op: Op) -> Op:
        return type(op)(*map(self._in_all_rows, op.values))

    def _process(self) -> Tensor:
        """Return the index of the process along the axis of the mesh."""
        if self.shards.processes == 1:
            return F.asarray(0)
        return emit(AxisIndex(self.shards.axis_name, self.shards.processes))

    def _shard_numbers(self, is_needed: bool) -> Tensor:
        """Return the numbers of the shards of this process; any numbers if nothing needs them."""
        own = F.arange(self.shards.own)
        return own + F.astype(self._process(), int64) * self.shards.own if is_needed else own


class _Map:
    """A map over the shards of a process.

    Attributes:
        nodes: What is computed for each shard, in order.
        inside: Those that belong to it; others are made again.
        taken: What it takes of each shard.
        yielded: What it yields of each shard, besides what is reduced.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.inside: set[Node] = set()
        self.taken: list[Tensor] = []
        self.yielded: dict[Tensor, None] = {}

    def add(self, node: Node) -> None:
        """Add a node that belongs to it."""
        self.nodes.append(node)
        self.inside.add(node)


def _own(tensor: Tensor) -> Tensor:
    """Return the numbers of the rows of a shard: what `Splitting.is_own_index` has found."""
    return emit(tensor.node.op, *map(_own, tensor.node.inputs))


def _scaled(dims: Shape, axis: int, factor: int) -> tuple[DimLike, ...]:
    return (*dims[:axis], factor * dims[axis], *dims[axis + 1 :])


def _shapes(kinds: Sequence[TensorType]) -> tuple[Shape, ...]:
    return tuple([kind.shape for kind in kinds])
