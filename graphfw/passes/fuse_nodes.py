"""The nodes of a graph as fusion sees them: who computes, over which axes, and from what."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, Protocol

from graphfw.ir.affine import ZERO, Index, LoopVariable, broadcast_index, index_of
from graphfw.ir.constants import fill_value
from graphfw.ir.dim import DimLike, always_ge
from graphfw.ir.graph import Graph
from graphfw.ir.op import ELEMENTWISE, SOURCE
from graphfw.ir.shape import broadcast
from graphfw.ir.sources import DimValue
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.walk import users
from graphfw.ops.control.checkpoint_ops import Barrier
from graphfw.ops.creation.ranges import Arange
from graphfw.ops.elementwise.packed_bits import UnpackBits
from graphfw.ops.fusible import FusibleProduct
from graphfw.ops.random.draws import RandomBits
from graphfw.ops.reduce.reductions import ArgExtreme, Reduction
from graphfw.ops.shape.flip_roll import Roll
from graphfw.ops.shape.gather_scatter import Gather, Gathering, IndexAdd
from graphfw.ops.shape.movement import Reshape
from graphfw.passes.fuse_iota import iota_value
from graphfw.passes.fuse_pools import is_sole_pool, product_of
from graphfw.passes.fuse_views import (
    TensorLayout,
    axes_before,
    own_layout,
    renamed,
    renames,
    standard_index,
    unreduced,
    view_of,
)
from graphfw.passes.narrow_rolls import is_narrow_roll
from graphfw.passes.unroll_reductions import Short, is_short, written_out

_RECIPE = 8
"""The most nodes that may be recomputed wherever they are read, if they read no memory."""


class CompilableOps(Protocol):
    """The ops that can be compiled."""

    def scalar(self, node: Node) -> bool:
        """Return whether the op has a scalar form for these dtypes."""
        ...

    def is_cheap(self, node: Node) -> bool:
        """Return whether computing an element takes no longer than reading one."""
        ...

    def cost(self, node: Node) -> float:
        """Return in how many nanoseconds, about, a thread computes an element."""
        ...

    def multiplies(self, node: Node) -> bool:
        """Return whether there is native code for a product and what follows it."""
        ...

    def keeps_rows(self, node: Node) -> bool:
        """Return whether an epilogue may reduce the product's rows: they are whole when it runs."""
        ...


class Role(enum.Enum):
    """The role of a node."""

    SOURCE = "given"
    VIEW = "computes nothing: its input's memory is read in another order"
    GENERATED = "is computed anew wherever it is read: a range, a size"
    UNPACK = "is read from packed bytes wherever it is read"
    POINTWISE = "an element of the output is a function of one of each input"
    REDUCE = "a reduction"
    COPY = "a view that does not lie regularly: it is copied"
    MATMUL = "a product: of matrices, or a convolution"
    POOLED = "a product that is computed with what pools it"
    FALLBACK = "is computed by itself"
    CONCAT = "its inputs are computed in its storage"

    __hash__ = object.__hash__


_NOT_COMPUTED = (Role.SOURCE, Role.GENERATED, Role.UNPACK)


class Read(NamedTuple):
    """The access of a node to a tensor.

    Attributes:
        root: The tensor, beneath all views.
        axes: For each dim of the root that is not 1, which axis of the reader's space runs along
            it; None if they don't correspond one to one.
        why: Why not.
    """

    root: Tensor
    axes: tuple[int, ...] | None
    why: str = ""


class Space(NamedTuple):
    """The loops that a node needs.

    Attributes:
        sizes: Of the axes; none is 1.
        out: Which axes the output has.
        reads: What it reads.
    """

    sizes: tuple[DimLike, ...]
    out: tuple[int, ...]
    reads: tuple[Read, ...]


class RowGather(NamedTuple):
    """A gather or index_add that names one position along the last axis of x for each row of x.

    Attributes:
        index: The tensor that says the position.
        dims: For each dim of the indices' common shape the dim of x that it runs along, or None.
    """

    position: Tensor
    dims: tuple[int | None, ...]


class FusionFacts:
    """The roles of a graph's nodes and the layouts of its tensors.

    Attributes:
        natives: What can be compiled.
        role: Of each node.
        layout: Of each tensor that is a view; other tensors are their own roots.
        short: The reductions that are written out: they count as pointwise.
        waits_for: Of tensors after a barrier, what must be computed before they are read.
        fed: Of feeds that are not C-contiguous, their layouts.
        inside: Of tensors that are computed in another's storage, and of views of these,
            where they are. Lowering says so.
    """

    def __init__(
        self,
        graph: Graph,
        natives: CompilableOps,
        fed: Mapping[Tensor, Sequence[DimLike]] | None = None,
    ) -> None:
        self.natives = natives
        self.fed = {x: TensorLayout(x, 0, tuple(by), 0) for x, by in (fed or {}).items()}
        self.role: dict[Node, Role] = {}
        self.layout: dict[Tensor, TensorLayout] = {}
        self.short: dict[Node, Short] = {}
        self.waits_for: dict[Tensor, tuple[Tensor, ...]] = {}
        self.inside: dict[Tensor, TensorLayout] = {}
        self._graph = graph
        self._reductions: dict[Node, tuple[Tensor, tuple[int, ...]]] = {}
        self._weight: dict[Node, int] = {}
        for node in graph.nodes:
            self.role[node] = self._role_of(node)

    def layout_of(self, tensor: Tensor) -> TensorLayout:
        """Return where the elements of a tensor lie."""
        return self.inside.get(tensor) or self.layout_in_root(tensor)

    def layout_in_root(self, tensor: Tensor) -> TensorLayout:
        """Return where they are if the tensor beneath all views has memory of its own."""
        return self.layout.get(tensor) or self.fed.get(tensor) or own_layout(tensor)

    def root_of(self, tensor: Tensor) -> Tensor:
        """Return the tensor beneath all views."""
        layout = self.layout.get(tensor)
        return tensor if layout is None else layout.root

    def needed_by(self, node: Node) -> list[Tensor]:
        """Return the tensors beneath all views that a node is computed from."""
        short = self.short.get(node)
        if short is not None:
            return [*[root for root, _ in short.reads], *self.waits(node)]
        return [*[self.root_of(tensor) for tensor in self.read_by(node)], *self.waits(node)]

    def read_by(self, node: Node) -> tuple[Tensor, ...]:
        """Return the tensors that a node reads: for a pooled product, those of the product."""
        return (product_of(node) if self.role[node] is Role.MATMUL else node).inputs

    def waits(self, node: Node) -> list[Tensor]:
        """Return the tensors to compute before a node is, though it does not read them."""
        if not self.waits_for or self.waits_for.keys().isdisjoint(node.inputs):
            return []
        read = {self.root_of(tensor) for tensor in node.inputs}
        found = dict.fromkeys([t for x in node.inputs for t in self.waits_for.get(x, ())])
        return [tensor for tensor in found if tensor not in read]

    def _role_of(self, node: Node) -> Role:
        op = node.op
        if SOURCE in op.traits:
            return Role.SOURCE
        if isinstance(op, Barrier):
            return self._barrier(node)
        types = (*node.types, *[x.type for x in node.inputs])
        if ELEMENTWISE not in op.traits and any([t.dtype.is_complex for t in types]):
            return self._view_or(node, Role.FALLBACK)
        if renames(node):
            # x[n] -> [n//3, 3] is checked when it runs.
            proved = not isinstance(op, Reshape) or node.inputs[0].type.size == node.types[0].size
            return self._view_or(node, Role.COPY if proved else Role.FALLBACK)
        if isinstance(op, Arange | DimValue):
            return self._recipe(node)
        if isinstance(op, UnpackBits):
            is_source = self.role[self.root_of(node.inputs[0]).node] is Role.SOURCE
            return Role.UNPACK if is_source else Role.FALLBACK
        if isinstance(op, FusibleProduct):
            return Role.MATMUL if self.natives.multiplies(node) else Role.FALLBACK
        if self._is_pooled_product(node):
            self.role[product_of(node)] = Role.POOLED
            return Role.MATMUL
        if op.combine:
            short = self._written_out(node)
            if short is None:
                return Role.REDUCE
            self.short[node] = short
            return Role.POINTWISE
        if isinstance(op, Gather | RandomBits) or is_narrow_roll(node):
            return Role.POINTWISE
        if isinstance(op, IndexAdd):
            base = fill_value(node.inputs[0])
            return Role.POINTWISE if base is not None and self.picking(node) else Role.FALLBACK
        if ELEMENTWISE not in op.traits or not self.natives.scalar(node):
            return Role.FALLBACK
        weight = 1
        for tensor in node.inputs:
            root = self.root_of(tensor).node
            if self.role[root] is Role.GENERATED:
                weight += self._weight[root]
            elif fill_value(tensor) is None:
                return Role.POINTWISE
        self._weight[node] = weight
        return Role.GENERATED if 1 < weight <= _RECIPE else Role.POINTWISE

    def _is_pooled_product(self, node: Node) -> bool:
        product = product_of(node)
        if not is_sole_pool(node, self._users, self._kept) or self.waits(product):
            return False
        return self.role[product] is Role.MATMUL and self.natives.multiplies(node)

    def _barrier(self, node: Node) -> Role:
        """Let what is after a barrier lie where it lies before; who reads it waits."""
        others = node.inputs[len(node.types) :]
        waits = [t for x in others for t in (self.root_of(x), *self.waits_for.get(x, ()))]
        waits = [t for t in waits if self.role[t.node] not in _NOT_COMPUTED]
        for x, tensor in zip(node.inputs, node.outputs, strict=False):
            self.layout[tensor] = self.layout_of(x)
            self.waits_for[tensor] = tuple(dict.fromkeys((*self.waits_for.get(x, ()), *waits)))
        return Role.VIEW

    def _written_out(self, node: Node) -> Short | None:
        x, gone = self.reduction(node)
        if node.op.combine not in ("sum", "prod", "max", "min") or not is_short(x, gone):
            return None
        if x in self.waits_for:
            return None
        lost = [LoopVariable("short", x.shape[axis]) for axis in gone]
        out, _ = standard_index(node.outputs[0])
        positions = [index_of(variable) for variable in lost]
        index = unreduced(out, node.types[0].shape, x.shape, gone, positions)

        def can_repeat(one: Node, inside: Collection[Node]) -> bool:
            if not self.is_plain(one) or self.waits(one):
                return False
            return self.natives.is_cheap(one) or all(
                [user is node or user in inside for user in self._users[one]]
            )

        return written_out(x, index, frozenset(lost), self.follow, can_repeat)

    @cached_property
    def _kept(self) -> frozenset[Tensor]:
        return frozenset(self._graph.outputs)

    @cached_property
    def _users(self) -> dict[Node, list[Node]]:
        return users(self._graph.nodes)

    def is_plain(self, node: Node) -> bool:
        """Return whether an element is a scalar function of the inputs' elements at one index."""
        return self.role[node] is Role.POINTWISE and node.op.scalar is not None

    def _recipe(self, node: Node) -> Role:
        op, to = node.op, node.types[0].dtype
        self._weight[node] = 1
        if isinstance(op, Arange) and always_ge(op.size, 0):
            return Role.GENERATED
        # Other dtypes may not hold a size, of which eval makes an error.
        return Role.GENERATED if to.name in ("int64", "float32", "float64") else Role.FALLBACK

    def _view_or(self, node: Node, otherwise: Role) -> Role:
        if not renames(node):
            return otherwise
        source = self.layout_of(node.inputs[0])
        layouts = [view_of(t, source) for t in node.outputs]
        is_proved = isinstance(node.op, Reshape) or all(
            renamed(t, standard_index(t)[0]) is not None for t in node.outputs
        )
        if not is_proved:
            return Role.FALLBACK
        if any(layout is None for layout in layouts):
            return otherwise if len(layouts) == 1 else Role.FALLBACK
        if self.role[source.root.node] is Role.GENERATED and any(
            renamed(t, standard_index(t)[0]) is None for t in node.outputs
        ):
            return Role.FALLBACK
        for tensor, layout in zip(node.outputs, layouts, strict=True):
            assert layout is not None
            self.layout[tensor] = layout
            if node.inputs[0] in self.waits_for:
                self.waits_for[tensor] = self.waits_for[node.inputs[0]]
        return Role.VIEW

    def follow(self, tensor: Tensor, index: Index) -> tuple[Tensor, Index | None]:
        """Go beneath views: return the root, and which of its elements is at an index of a tensor.

        Without an index where that is not affine.
        """
        found: Index | None = index
        while tensor in self.layout:
            if isinstance(tensor.node.op, Barrier):
                tensor = tensor.node.inputs[tensor.index]
                continue
            found = renamed(tensor, found) if found is not None else None
            tensor = tensor.node.inputs[0]
        return tensor, found

    def picking(self, node: Node) -> RowGather | None:
        """Return the rule by which a gather or index_add picks one position of a row, or None."""
        x, indices = node.inputs[0], node.inputs[1 if isinstance(node.op, Gather) else 2 :]
        assert isinstance(node.op, Gathering)
        axis = node.op.axis
        if axis + len(indices) != x.ndim:
            return None
        named = broadcast(*[t.shape for t in indices])
        variables = [LoopVariable(f"n{i}", d) for i, d in enumerate(named)]
        index = tuple([ZERO if v.extent == 1 else index_of(v) for v in variables])
        dims: list[int | None] = [None] * len(named)
        for number, tensor in enumerate(indices[:-1], axis):
            root, at = self.follow(tensor, broadcast_index(index, tensor.shape))
            counted = None if at is None else iota_value(root, at)
            used = None if counted is None else counted.lone_variable
            if used is None or used.extent != x.shape[number]:
                return None
            dims[variables.index(used)] = number
        known = [dim for dim in dims if dim is not None]
        is_whole = all(d == 1 or dims[i] is not None for i, d in enumerate(named))
        if not is_whole or known != sorted(known) or len(known) < len(indices) - 1:
            return None
        return RowGather(indices[-1], tuple(dims))

    def space(self, node: Node, *, pick: bool = False) -> Space:
        """Return the loops of a node that computes.

        Args:
            node: The node.
            pick: Take a gather as a kind of reduction of x, over the loops of x.
        """
        role, op = self.role[node], node.op
        if role is Role.REDUCE:
            return self._reduce_space(node)
        if pick:
            return self._pick_space(node)
        if isinstance(op, Gather):
            return self._gather_space(node)
        if isinstance(op, IndexAdd):
            return self._add_space(node)
        if node in self.short:
            sizes = _sizes(node.types[0].shape)
            short = [self._short_read(*read) for read in self.short[node].reads]
            return Space(sizes, tuple(range(len(sizes))), tuple(short))
        if role in (Role.COPY, Role.UNPACK):
            x = node.inputs[0]
            sizes = _sizes(x.shape if role is Role.COPY else node.types[0].shape)
            read = Read(self.root_of(x), None, "a reshape mixes axes")
            return Space(sizes, tuple(range(len(sizes))), (read,))
        (shape,) = [t.shape for t in node.types]
        sizes = _sizes(shape)
        index: Index | None = None  # made where it is needed
        everything = tuple(range(len(sizes)))
        reads = []
        for tensor in node.inputs:
            if isinstance(op, Roll):
                reads.append(Read(self.root_of(tensor), None, "a roll reads it out of order"))
                continue
            if tensor.type.shape == shape and tensor not in self.layout:
                reads.append(Read(tensor, everything))
                continue
            if index is None:
                index, _ = standard_index(node.outputs[0])
            reads.append(self._read(tensor, broadcast_index(index, tensor.shape)))
        return Space(sizes, everything, tuple(reads))

    def reduction(self, node: Node) -> tuple[Tensor, tuple[int, ...]]:
        """Return the operand and the axes of a reduction: after reshapes, where that goes.

        The sum of [b, t, c] over b and t, where that is a reshape of [b*t, c], is the sum of this
        over the rows: it may be made where these are.
        """
        known = self._reductions.get(node)
        if known is not None:
            return known
        op, x = node.op, node.inputs[0]
        assert isinstance(op, Reduction | ArgExtreme)
        gone = op.axes if isinstance(op, Reduction) else (op.axis,)
        while isinstance(x.node.op, Reshape) and op.combine not in ("argmax", "argmin"):
            source = x.node.inputs[0]
            before = None
            if source.type.size == x.type.size:
                before = axes_before(source.shape, x.shape, gone)
            if before is None:
                break
            x, gone = source, before
        self._reductions[node] = x, gone
        return x, gone

    def _reduce_space(self, node: Node) -> Space:
        x, gone = self.reduction(node)
        index, axes = standard_index(x)
        kept = [a for a, d in enumerate(x.shape) if d != 1 and a not in gone]
        out = tuple([axes[a] for a in kept])
        return Space(_sizes(x.shape), out, (self._read(x, index),))

    def _gather_space(self, node: Node) -> Space:
        op, (x, *indices) = node.op, node.inputs
        index, _ = standard_index(node.outputs[0])
        assert isinstance(op, Gather)
        axis = op.axis
        middle = index[axis : len(index) - (x.ndim - axis - len(indices))]
        reads = [Read(self.root_of(x), None, "a gather reads it out of order")]
        reads += [self._read(t, broadcast_index(middle, t.shape)) for t in indices]
        sizes = _sizes(node.types[0].shape)
        return Space(sizes, tuple(range(len(sizes))), tuple(reads))

    def _pick_space(self, node: Node) -> Space:
        picking, x = self.picking(node), node.inputs[0]
        assert picking is not None
        index, axes = standard_index(x)
        position = tuple([ZERO if d is None else index[d] for d in picking.dims])
        picked = self._read(picking.position, broadcast_index(position, picking.position.shape))
        out = tuple([axes[a] for a, d in enumerate(x.shape[:-1]) if d != 1])
        return Space(_sizes(x.shape), out, (self._read(x, index), picked))

    def _add_space(self, node: Node) -> Space:
        picking, values = self.picking(node), node.inputs[1]
        assert picking is not None
        index, _ = standard_index(node.outputs[0])
        position = tuple([ZERO if d is None else index[d] for d in picking.dims])
        assert isinstance(node.op, IndexAdd)
        reads = (
            self._read(values, (*index[: node.op.axis], *position)),
            self._read(picking.position, broadcast_index(position, picking.position.shape)),
        )
        sizes = _sizes(node.types[0].shape)
        return Space(sizes, tuple(range(len(sizes))), reads)

    def _short_read(self, root: Tensor, index: Index | None) -> Read:
        if index is None:
            return Read(root, None, "a reduction that is written out reads it element by element")
        return self._read(root, index)

    def _read(self, tensor: Tensor, index: Index) -> Read:
        if tensor in self.waits_for:
            return Read(self.root_of(tensor), None, "it is behind a barrier")
        if tensor in self.layout and self.role[self.root_of(tensor).node] in _NOT_COMPUTED:
            return Read(self.root_of(tensor), None, "nothing computes it")
        root, at = self.follow(tensor, index)
        if at is None:
            return Read(root, None, "a reshape mixes axes")
        axes: list[int] = []
        for position, dim in zip(at, root.shape, strict=True):
            if dim == 1:
                continue
            variable = position.lone_variable
            if variable is None:
                return Read(root, None, "it is sliced, flipped or broadcast before")
            if variable.extent != dim:
                return Read(root, None, "only a part of it is read")
            axes.append(int(variable.name))
        if axes != sorted(set(axes)):
            return Read(root, None, "it is transposed")
        return Read(root, tuple(axes))


def _sizes(shape: Sequence[DimLike]) -> tuple[DimLike, ...]:
    return tuple([d for d in shape if d != 1])
