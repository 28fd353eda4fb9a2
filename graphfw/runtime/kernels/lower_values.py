"""The elements of a group's tensors, as expressions of loop positions.

Everything is found from indices: the element of a tensor at an index is a function of elements of
its node's inputs, at indices that the op says. What is in memory is loaded; the rest is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce as fold
from itertools import product
from typing import NamedTuple, cast

from graphfw.errors import PassError
from graphfw.ir.affine import ZERO, Affine, Index, LoopVariable, broadcast_index, index_of
from graphfw.ir.constants import fill_value
from graphfw.ir.dim import DimLike, always_ge
from graphfw.ir.dtype import DType, float32, int64, uint8
from graphfw.ir.sources import ConstantOp, DimValue
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.composed import wide_dtype
from graphfw.ops.creation.ranges import Arange
from graphfw.ops.random.draws import RandomBits
from graphfw.ops.reduce.reductions import ArgExtreme, Extreme
from graphfw.ops.shape.concat import Concat
from graphfw.ops.shape.flip_roll import Roll
from graphfw.ops.shape.gather_scatter import Gather, Gathering, IndexAdd
from graphfw.passes.fuse import Group
from graphfw.passes.fuse_iota import iota_value
from graphfw.passes.fuse_nodes import FusionFacts, Role
from graphfw.passes.fuse_views import contiguous, unreduced
from graphfw.runtime.kernels.complex_numbers import NoComplexFormError, components_of
from graphfw.runtime.kernels.elements import (
    ComputedIndex,
    Element,
    ElementAddress,
    IndexValue,
    RandomValue,
)
from graphfw.runtime.kernels.ir import Const, Expr, ReduceKind, Ref
from graphfw.runtime.kernels.scalars import Scalars
from graphfw.runtime.kernels.steps import Storage

K = Scalars()


class RowReduction(NamedTuple):
    """A reduction over the inner axes of a row: afterwards `Ref(name)` is its value."""

    name: str
    kind: ReduceKind
    value: Expr


class CrossRowReduction(NamedTuple):
    """A reduction over rows, which needs a second kernel.

    Attributes:
        node: What it computes.
        kind: How.
        value: Of what.
        inner: Whether there is one result for each inner position.
        of_rows: Whether what is reduced has one value a row.
    """

    node: Node
    kind: ReduceKind
    value: Expr
    inner: bool
    of_rows: bool


class Bound(NamedTuple):
    """A check: the run fails unless 0 <= value < bound."""

    value: Expr
    bound: DimLike


class ExpressionBuilder:
    """Makes the expressions of one group.

    Args:
        group: The group.
        facts: Of its graph.
        product: What it is the epilogue of, if it is one: that is read where it is computed.
        beside: The expressions of another element of the last axis, where all are written out.
        number: Which of these elements it is.

    Attributes:
        axes: The variables of the group's loops, the slowest in memory first.
        rows: Those that tell rows apart.
        reduced: The reductions over rows' inner axes, in order.
        across: The reductions over rows.
        bounds: What is to be checked.
        nonzero: Sizes that must not be 0, as something is chosen along them.
    """

    def __init__(
        self,
        group: Group,
        facts: FusionFacts,
        product: Tensor | None = None,
        beside: ExpressionBuilder | None = None,
        number: int | None = None,
    ) -> None:
        self.group = group
        self.facts = facts
        self.product = product
        self.axes = [LoopVariable(f"a{i}", size) for i, size in enumerate(group.sizes)]
        self._known: dict[tuple[Tensor, Index], Expr] = {}
        if beside is not None:
            self.axes, self._known = beside.axes, beside._known
        self._fixed = {} if number is None else {self.axes[-1]: Affine(number, {})}
        self.rows = [self.axes[i] for i in group.rows or ()]
        self.reduced: list[RowReduction] = []
        self.across: list[CrossRowReduction] = []
        self.bounds: list[Bound] = []
        self.nonzero: list[DimLike] = []
        self._inside = {t for node in group.nodes for t in node.outputs}
        shorts = [facts.short[node] for node in group.nodes if node in facts.short]
        self._anew = {node for short in shorts for node in short.inside}
        self._fills: dict[Tensor, Expr | None] = {}
        for node in group.nodes:
            if facts.role[node] is not Role.CONCAT:
                self._make(node)

    # Indices.

    def standard(self, tensor: Tensor) -> Index:
        """Return the index of a tensor that one run through the loops takes it at."""
        wide = sum([dim != 1 for dim in tensor.shape])
        axes = self.axes if wide == len(self.axes) else self.rows
        if wide != len(axes):
            raise _misfit(tensor.node, "it has neither all axes nor those of the rows")
        left = iter([self._fixed.get(axis) or index_of(axis) for axis in axes])
        return tuple([ZERO if dim == 1 else next(left) for dim in tensor.shape])

    def stores(self, tensor: Tensor) -> list[tuple[ElementAddress, Expr]]:
        """Return where the group's loops write a tensor, and what, in its own dtype."""
        node = tensor.node
        root, offset, strides, _ = self.facts.layout_of(tensor)
        if self.facts.role[node] is Role.COPY:
            # What is copied lies in the order of its reshape.
            run = node.inputs[0]
            index = self.standard(run)
            address = address_at(root, index, offset, contiguous(run.shape))
            return [(address, K.cast(self._known[tensor, index], tensor.dtype))]
        if self.facts.role[node] is not Role.CONCAT:
            index = self.standard(tensor)
            value = K.cast(self.value(tensor, index), tensor.dtype)
            address = address_at(root, index, offset, strides)
            if tensor.dtype.is_complex:
                return [*zip(address.components(), components_of(value), strict=True)]
            return [(address, value)]
        assert isinstance(node.op, Concat)
        axis = node.op.axis
        begin: DimLike = 0
        found = []
        for x in node.inputs:
            before = offset + begin * strides[axis]
            address = address_at(root, self.standard(x), before, strides)
            addresses = address.components() if tensor.dtype.is_complex else (address,)
            values = [value for _, value in self.stores(x)]
            found += [*zip(addresses, values, strict=True)]
            begin = begin + x.shape[axis]
        return found

    # Values.

    def value(self, tensor: Tensor, index: Index) -> Expr:
        """Return an element of a tensor; floats of 16 bits as float32."""
        root, at = self.facts.follow(tensor, index)
        if at is not None:
            known = self._known.get((root, at))
            if known is not None:
                return known
        if root not in self._inside:
            fill = self._fill(root)
            if fill is not None:
                return fill
            # A node that a reduction written out computes anew lies in memory, too, where others
            # read it in another order.
            if self._is_read(root) or (at is None and root.node in self._anew):
                return self._load(tensor, index)
        if at is None:
            raise _misfit(root.node, "a reshape mixes axes")
        value = self._computed(root.node, at)
        self._known[root, at] = value
        return value

    def _is_read(self, root: Tensor) -> bool:
        """Return whether elements of a root are read from memory, which checks where they are."""
        if root in self._inside or root.node in self._anew or self._fill(root) is not None:
            return False
        return self.facts.role[root.node] is not Role.GENERATED

    def _fill(self, root: Tensor) -> Expr | None:
        if root not in self._fills:
            self._fills[root] = filled(root)
        return self._fills[root]

    def _load(self, tensor: Tensor, index: Index) -> Expr:
        is_product = self.product is not None and self.facts.root_of(tensor) is self.product
        layout = (self.facts.layout_in_root if is_product else self.facts.layout_of)(tensor)
        address = address_at(self._storage(layout.root), index, layout.offset, layout.strides)
        used = {variable for variable, _ in address.strides}
        for one in index:
            for variable in one.terms:
                if isinstance(variable, ComputedIndex) and variable not in used:
                    self.bounds.append(Bound(variable.value, variable.extent))
        return element_at(address, tensor.dtype)

    def _storage(self, root: Tensor) -> Storage:
        """Return where a root is; what is packed, in its bytes."""
        is_unpacked = self.facts.role[root.node] is Role.UNPACK
        return self.facts.root_of(root.node.inputs[0]) if is_unpacked else root

    def _make(self, node: Node) -> None:
        """Compute a node's output where the loops run through it."""
        (output,) = node.outputs
        role = self.facts.role[node]
        if role is Role.REDUCE:
            self._reduce(node, output)
            return
        if role is Role.COPY:
            x = node.inputs[0]
            index = self.standard(x)
            self._known[output, index] = self.value(x, index)
            return
        index = self.standard(output)
        self._known[output, index] = self._computed(node, index)

    def _computed(self, node: Node, index: Index) -> Expr:
        op = node.op
        number = counted(node, index)
        if number is not None:
            return number
        if isinstance(op, RandomBits):
            (bits,) = node.outputs
            address = address_at(bits, index, 0, contiguous(bits.shape))
            return RandomValue(bits.dtype, op.key, address)
        if self.facts.role[node] is Role.UNPACK:
            (whole,) = node.outputs
            address = address_at(self._storage(whole), index, 0, contiguous(whole.shape))
            return Element(whole.dtype, address)
        if isinstance(op, Gather):
            return self._gathered(node, index)
        if isinstance(op, IndexAdd):
            return self._added(node, index)
        if isinstance(op, Roll):
            return self._rolled(node, index)
        if node in self.facts.short:
            return self._written_out(node, index)
        if self.facts.role[node] is Role.REDUCE or op.scalar is None:
            raise _misfit(node, "it is needed out of order")
        xs = [self.value(t, broadcast_index(index, t.shape)) for t in node.inputs]
        result = applied(node, xs)
        if result is None:
            raise _misfit(node, "it has no scalar form")
        return result

    # Reductions.

    def _reduce(self, node: Node, output: Tensor) -> None:
        x, gone = self.facts.reduction(node)
        kind = cast(ReduceKind, node.op.combine)
        index = self.standard(x)
        value = self.value(x, index)
        kept = [
            position for a, position in enumerate(index) if a not in gone and position is not ZERO
        ]
        lost = [x.shape[a] for a in gone if x.shape[a] != 1]
        if not lost:
            self._known[output, self.standard(output)] = self._of_one(node, value)
            return
        if isinstance(node.op, ArgExtreme) or (
            isinstance(node.op, Extreme) and not node.op.identity
        ):
            self.nonzero.extend([size for size in lost if not always_ge(size, 1)])
        rows = [index_of(variable) for variable in self.rows]
        is_full = len(kept) + len(lost) == len(self.axes)
        if self.group.rows is not None and is_full and kept == rows:
            name = f"r{len(self.reduced)}"
            self.reduced.append(RowReduction(name, kind, value))
            dtype = int64 if kind in ("argmax", "argmin") else value.dtype
            result = widened(K.cast(Ref(dtype, name), output.dtype))
            self._known[output, self.standard(output)] = result
            return
        self.across.append(CrossRowReduction(node, kind, value, bool(kept), not is_full))

    def _written_out(self, node: Node, index: Index) -> Expr:
        """Return a reduction of few elements as a function of all of them."""
        x, gone = self.facts.reduction(node)
        counts = [range(cast(int, x.shape[axis])) for axis in gone]
        indices = []
        for numbers in product(*counts):
            positions = [Affine(number, {}) for number in numbers]
            indices.append(unreduced(index, node.types[0].shape, x.shape, gone, positions))
        return joined(node, [self.value(x, at) for at in indices])

    def _of_one(self, node: Node, value: Expr) -> Expr:
        """Return the reduction of one element."""
        kind, dtype = node.op.combine, node.types[0].dtype
        if kind in ("sum", "prod", "max", "min"):
            return joined(node, [value])
        if kind in ("argmax", "argmin"):
            value = Const(int64, 0)
        return widened(K.cast(value, dtype))

    # Elements that integers name.

    def _gathered(self, node: Node, index: Index) -> Expr:
        assert isinstance(node.op, Gather)
        axis, x, indices = node.op.axis, node.inputs[0], node.inputs[1:]
        named = len(index) - (x.ndim - len(indices))
        middle = index[axis : axis + named]
        positions = [
            self._named(node, tensor, broadcast_index(middle, tensor.shape), x.shape[axis + i])
            for i, tensor in enumerate(indices)
        ]
        at = (*index[:axis], *positions, *index[axis + named :])
        if not self._is_read(self.facts.root_of(x)):
            for position in positions:
                self._bound(position)
        return self.value(x, at)

    def _named(self, node: Node, tensor: Tensor, index: Index, size: DimLike) -> Affine:
        """Return the position along a dim of a size that an element of an index tensor names."""
        root, at = self.facts.follow(tensor, index)
        position = None if at is None else iota_value(root, at)
        if position is not None and tensor.dtype.is_integer:
            only = next(iter(position.terms), None)
            if only is not None and position == index_of(only) and always_ge(size, only.extent):
                return position
        return named_position(node, self.value(tensor, index), size)

    def _bound(self, position: Affine) -> None:
        for variable in position.terms:
            if isinstance(variable, ComputedIndex):
                self.bounds.append(Bound(variable.value, variable.extent))

    def _rolled(self, node: Node, index: Index) -> Expr:
        """Return an element of a narrow roll: which one of its row, where that is not known."""
        assert isinstance(node.op, Roll)
        (shift,), (x,) = node.op.shifts, node.inputs
        *before, position = index
        size = cast(int, x.shape[-1])
        found = [self.value(x, (*before, Affine((k - shift) % size, {}))) for k in range(size)]
        if not position.terms:
            return found[cast(int, position.offset)]
        *first, result = found
        for number, value in enumerate(first):
            here = K.eq(IndexValue(int64, position), number)
            result = K.select(here, value, result)
        return result

    def _added(self, node: Node, index: Index) -> Expr:
        """Return the base with the value added at the position of a row that the index names."""
        picking = self.facts.picking(node)
        assert picking is not None
        x, values = node.inputs[:2]
        assert isinstance(node.op, IndexAdd)
        axis = node.op.axis
        middle = tuple([ZERO if dim is None else index[dim] for dim in picking.dims])
        tensor = picking.position
        position = self._named(node, tensor, broadcast_index(middle, tensor.shape), x.shape[-1])
        self._bound(position)
        base = self.value(x, index)
        more = K.add(base, self.value(values, (*index[:axis], *middle)))
        here = K.eq(IndexValue(int64, index[-1]), _as_value(position))
        result = K.select(here, more, base)
        return widened(K.cast(result, node.types[0].dtype))


def _misfit(node: Node, why: str) -> PassError:
    return PassError(
        f"lowering: {node.op.name} is in a group that it does not fit: {why}", at=node.loc
    )


def _as_value(position: Affine) -> Expr:
    """Return an index as a value."""
    if position.offset == 0 and len(position.terms) == 1:
        ((variable, coefficient),) = position.terms.items()
        if isinstance(variable, ComputedIndex) and coefficient == 1:
            return variable.value
    return IndexValue(int64, position)


def filled(root: Tensor) -> Expr | None:
    """Return the value of a constant whose elements are all the same."""
    fill = fill_value(root) if isinstance(root.node.op, ConstantOp) else None
    if fill is None:
        return None
    if root.dtype.is_storage:
        return K.bits(K.const(fill.view(uint8.dtype).item(), uint8), root.dtype)
    return K.const(fill.item(), wide_dtype(root.dtype))


def counted(node: Node, index: Index) -> Expr | None:
    """Return an element of a range, or a size as a value; None for other nodes."""
    op = node.op
    if isinstance(op, Arange):
        position = index[0] * op.step + op.start
    elif isinstance(op, DimValue):
        position = Affine(op.dim, {})
    else:
        return None
    return widened(K.cast(IndexValue(int64, position), node.types[0].dtype))


def applied(node: Node, xs: Sequence[Expr]) -> Expr | None:
    """Return an element of an elementwise node's output, rounded; None if it has no scalar form."""
    result = _scalar(node, xs)
    return None if result is None else widened(K.cast(result, node.types[0].dtype))


def named_position(node: Node, value: Expr, size: DimLike) -> Affine:
    """Return the position along a dim of a size that an index is, of a gather or the like."""
    assert isinstance(node.op, Gathering)
    position = K.cast(value, int64)
    if not node.op.refusal and value.dtype.kind == "int":
        whole = IndexValue(int64, Affine(size, {}))
        position = K.select(K.lt(position, 0), K.add(position, whole), position)
    return index_of(ComputedIndex(position, size))


def joined(node: Node, elements: Sequence[Expr]) -> Expr:
    """Return the reduction of a few elements, one after the other."""
    join = {"sum": K.add, "prod": K.mul, "max": K.max, "min": K.min}[node.op.combine]
    total = fold(join, elements)
    if node.op.combine == "sum" and len(elements) == 1:
        total = K.add(total, 0)  # -0.0 becomes 0.0
    return widened(K.cast(total, node.types[0].dtype))


def address_at(
    storage: Storage, index: Index, offset: DimLike, strides: Sequence[DimLike]
) -> ElementAddress:
    """Return where the element at an index lies."""
    total = Affine(offset, {})
    for position, stride in zip(index, strides, strict=True):
        total = total + position * stride
    return ElementAddress(storage, total.offset, tuple(total.terms.items()))


def element_at(address: ElementAddress, dtype: DType) -> Expr:
    """Return the element at an address as kernels compute with it."""
    if dtype.is_complex:
        real, imag = [Element(dtype.real, one) for one in address.components()]
        return K.complex(real, imag, dtype)
    return widened(Element(dtype, address))


def widened(x: Expr) -> Expr:
    """Return a value as kernels compute with it: a float of 16 bits as float32."""
    return K.cast(x, float32) if x.dtype.is_low_precision else x


def scalar_form(node: Node) -> Expr | None:
    """Return an element of a node's output as a function of placeholders, or None."""
    op = node.op
    if isinstance(op, RandomBits):
        (bits,) = node.outputs
        return RandomValue(bits.dtype, op.key, ElementAddress(bits, 0, ()))
    if op.scalar is None:
        return None
    return _scalar(node, [Expr(wide_dtype(t.dtype)) for t in node.inputs])


def _scalar(node: Node, xs: Sequence[Expr]) -> Expr | None:
    """Return an element of an elementwise node's output; None if it has no scalar form."""
    assert node.op.scalar is not None
    try:
        result: Expr | None = node.op.scalar(K, *xs)
    except NoComplexFormError:
        return None
    return result
