"""The elements of a loop body's tensors in one iteration, as expressions.

As with the elements of a group (`lower_values`), everything is found from indices. What is known of
an index by number picks the input of a concatenation that it lies in; so values that are stacked
and taken apart again, as systems of equations are, cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce as fold
from itertools import product
from typing import TypeAlias

from graphfw.ir.affine import Affine, Index, LoopVariable, broadcast_index, index_of
from graphfw.ir.dim import DimLike, always_ge
from graphfw.ir.dtype import float32, int64
from graphfw.ir.op import ELEMENTWISE
from graphfw.ir.shape import size_of
from graphfw.ir.sources import ConstantOp
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.control.checkpoint_ops import Barrier
from graphfw.ops.control.scan_op import Scan
from graphfw.ops.elementwise.arithmetic import Add
from graphfw.ops.linalg.products import MatMul
from graphfw.ops.shape.concat import Concat
from graphfw.ops.shape.gather_scatter import Gather, IndexAdd, SliceSet
from graphfw.ops.shape.movement import Reshape
from graphfw.passes.fuse_nodes import FusionFacts
from graphfw.passes.fuse_views import contiguous, own_layout, renamed, renames, unreduced
from graphfw.runtime.kernels.elements import (
    ComputedIndex,
    Element,
    IndexValue,
    ResultElement,
)
from graphfw.runtime.kernels.ir import Carried, Expr
from graphfw.runtime.kernels.lower_memory_carries import (
    MemoryCarry,
    named_axes,
    numbers_of_puts,
)
from graphfw.runtime.kernels.lower_values import (
    K,
    address_at,
    applied,
    counted,
    filled,
    joined,
    named_position,
    widened,
)

FEW = 16
"""The most elements along axes that are taken apart, each with a value of its own."""

_FEW_PRODUCTS = 1 << 12
"""Matrix products that add up more of them take less time as steps of their own."""

_NARROW = 64
"""Unless the right matrix has no more elements than this, which stay in registers."""

_COUNTS = ("int64", "float32", "float64")

Entry: TypeAlias = tuple[Tensor, Index]


class MisfitError(Exception):
    """The reason that the iterations of a loop are no kernel."""


class IterationValues:
    """Makes expressions of what one iteration of a scan computes.

    Args:
        op: The scan.
        inputs: What it is given, in the graph around it.
        facts: Of that graph.

    Attributes:
        iteration: How many iterations there were before.
        number: The iteration's number, as an index.
        carried: What is carried in registers, as far as it was asked for: by the number of the
            carry and the index of the element.
        in_memory: The carries that stay in memory, by their numbers.
        read: Which elements of these were asked for.
    """

    def __init__(
        self,
        op: Scan,
        inputs: Sequence[Tensor],
        facts: FusionFacts,
        in_memory: Mapping[int, MemoryCarry],
    ) -> None:
        self.iteration = LoopVariable("iteration", op.length)
        before = index_of(self.iteration)
        self.number: Affine = op.length - 1 - before if op.backwards else before
        self.carried: dict[tuple[int, Index], Carried] = {}
        self.in_memory = in_memory
        self.read: dict[tuple[int, Index], None] = {}
        self._puts = frozenset([put for carry in in_memory.values() for put in carry.puts])
        self._op = op
        self._inputs = inputs
        self._facts = facts
        self._parameter_index = {t: index for index, t in enumerate(op.body.parameters)}
        self._known: dict[Entry, Expr] = {}
        self._gathered: dict[Entry, Entry] = {}

    def carry(self, number: int, index: Index) -> Carried:
        """Return an element of what is carried, as the iteration is given it."""
        key = number, index
        if key not in self.carried:
            dtype = self._inputs[number].dtype
            dtype = float32 if dtype.is_low_precision else dtype
            self.carried[key] = Carried(dtype, f"c{len(self.carried)}")
        return self.carried[key]

    def outside(self, tensor: Tensor, index: Index) -> Expr:
        """Return an element of a tensor of the graph around the loop."""
        layout = self._facts.layout_of(tensor)
        fill = filled(layout.root)
        computed = {v for address in index for v in address.terms if isinstance(v, ComputedIndex)}
        if fill is not None and not computed:
            return fill
        address = address_at(layout.root, index, layout.offset, layout.strides)
        if not computed <= {variable for variable, _ in address.strides}:
            raise MisfitError("gather reads what lies everywhere the same")
        return widened(Element(tensor.dtype, address))

    def value(self, tensor: Tensor, index: Index) -> Expr:
        """Return an element of a tensor of the body; floats of 16 bits as float32.

        Raises:
            MisfitError: It is no function of single elements of what the iteration is given.
        """
        todo = [_through_views(tensor, index)]
        while todo:
            entry = todo[-1]
            if entry in self._known:
                todo.pop()
                continue
            needed = self._needed(*entry)
            missing = [one for one in needed if one not in self._known]
            todo += missing
            if not missing:
                self._known[entry] = self._made(*entry, [self._known[one] for one in needed])
        return self._known[_through_views(tensor, index)]

    def puts(self, node: Node, rest: Index) -> Iterator[tuple[Index, Expr]]:
        """Yield where a node puts values in a carry in memory, and the values, in order.

        Args:
            node: The node.
            rest: The index along the axes whose positions it does not name.
        """
        x, values, *indices = node.inputs
        named = named_axes(node)
        for count, k in enumerate(numbers_of_puts(node)):
            positions = [
                self._named(node, self.value(t, broadcast_index(k, t.shape)), x.shape[axis])
                for t, axis in zip(indices, named, strict=True)
            ]
            index = (*rest[: named.start], *positions, *rest[named.start :])
            value = self.value(values, (*rest[: named.start], *k, *rest[named.start :]))
            if isinstance(node.op, IndexAdd):
                before = self._of_puts(node, index)[: 1 + count * (1 + len(indices))]
                old = self._after_puts(node, index, [self.value(*entry) for entry in before])
                value = K.add(old, value)
            yield index, value

    def summands(self, number: int, index: Index) -> list[Entry]:
        """Return the sums that an iteration adds to an element of what is carried.

        Nothing where it does anything else to it.
        """
        found: list[Entry] = []
        own = 0
        todo = [_through_views(self._op.body.outputs[number], index)]
        while todo:
            root, at = todo.pop()
            node = root.node
            if self._parameter_index.get(root) == 1 + number and at == index:
                own += 1
            elif node.op.combine == "sum":
                found.append((root, at))
            elif isinstance(node.op, Add):
                todo += [_through_views(t, broadcast_index(at, t.shape)) for t in node.inputs]
            else:
                return []
        return found if own == 1 else []

    def axes_of(self, node: Node) -> list[DimLike]:
        """Return the sizes of the axes that a reduction is over."""
        x, gone = self._facts.reduction(node)
        return [x.shape[axis] for axis in gone]

    def reduced(
        self, node: Node, index: Index, positions: Sequence[Sequence[Affine]]
    ) -> list[Entry]:
        """Return the elements that a reduction takes.

        Args:
            node: The reduction.
            index: Of its result.
            positions: For each axis that it is over, which elements along it.
        """
        x, gone = self._facts.reduction(node)
        shape, dtype = node.types[0].shape, node.types[0].dtype
        if x.dtype is not dtype or dtype.is_bool or dtype.is_complex:
            raise MisfitError(f"{node.op.name} is a reduction")
        every = [unreduced(index, shape, x.shape, gone, each) for each in product(*positions)]
        return [_through_views(x, at) for at in every]

    def _needed(self, root: Tensor, index: Index) -> list[Entry]:
        """Return the elements that an element is computed from."""
        node = root.node
        if root in self._parameter_index or not node.inputs:
            return []
        if node.op.combine:
            return self._few(node, index)
        if isinstance(node.op, Gather):
            return self._of_gather(root, index)
        if isinstance(node.op, MatMul):
            return self._of_product(node, index)
        if node in self._puts:
            return self._of_puts(node, index)
        is_complex = any([t.dtype.is_complex for t in (*node.inputs, root)])
        if ELEMENTWISE not in node.op.traits or node.op.scalar is None or is_complex:
            raise _not_elementwise(node)
        return [_through_views(t, broadcast_index(index, t.shape)) for t in node.inputs]

    def _few(self, node: Node, index: Index) -> list[Entry]:
        """Return the few elements that a reduction takes."""
        x, gone = self._facts.reduction(node)
        count = size_of([x.shape[axis] for axis in gone])
        is_few = isinstance(count, int) and 1 <= count <= FEW
        if node.op.combine not in ("sum", "prod", "max", "min") or not is_few:
            raise MisfitError(f"{node.op.name} is a reduction")
        numbers = [range(_known(x.shape[axis], node)) for axis in gone]
        return self.reduced(node, index, [[Affine(n, {}) for n in each] for each in numbers])

    def _of_product(self, node: Node, index: Index) -> list[Entry]:
        """Return the few elements of both operands that an element of a matrix product takes."""
        x1, x2 = node.inputs
        count = _known(x1.shape[-1], node)
        products, matrix = node.types[0].size * count, x2.shape[-1] * count
        is_little = isinstance(products, int) and products <= _FEW_PRODUCTS
        is_narrow = isinstance(matrix, int) and matrix <= _NARROW
        if not 1 <= count <= FEW or not (is_little or is_narrow) or x1.dtype.is_complex:
            raise MisfitError(f"{node.op.name} adds up more than a few products")
        rows, columns = [broadcast_index(index[:-2], x.shape[:-2]) for x in (x1, x2)]
        found: list[Entry] = []
        for number in range(count):
            k = Affine(number, {})
            found.append(_through_views(x1, (*rows, index[-2], k)))
            found.append(_through_views(x2, (*columns, k, index[-1])))
        return found

    def _of_puts(self, node: Node, index: Index) -> list[Entry]:
        """Return an element before a node, then each value that it may put there, with indices."""
        x, values, *indices = node.inputs
        named = named_axes(node)
        found = [_through_views(x, index)]
        for k in numbers_of_puts(node):
            at = (*index[: named.start], *k, *index[named.stop :])
            found.append(_through_views(values, at))
            found += [_through_views(t, broadcast_index(k, t.shape)) for t in indices]
        return found

    def _after_puts(self, node: Node, index: Index, xs: Sequence[Expr]) -> Expr:
        """Return an element after a node, or its first puts, from what `_of_puts` names."""
        x, old = node.inputs[0], xs[0]
        size = len(node.inputs) - 1
        for begin in range(1, len(xs), size):
            value, *names = xs[begin : begin + size]
            new = K.add(old, value) if isinstance(node.op, IndexAdd) else value
            for axis, name in zip(named_axes(node), names, strict=True):
                own = IndexValue(int64, index[axis])
                named = IndexValue(int64, self._named(node, name, x.shape[axis]))
                new = K.select(K.eq(own, named), new, old)
            old = widened(K.cast(new, x.dtype))
        return old

    def _of_gather(self, root: Tensor, index: Index) -> list[Entry]:
        """Return the indices that name an element and, once they are known, the element too."""
        node, entry = root.node, (root, index)
        x, *indices = node.inputs
        assert isinstance(node.op, Gather)
        axis = node.op.axis
        count = len(index) - (x.ndim - len(indices))
        middle = index[axis : axis + count]
        names = [_through_views(t, broadcast_index(middle, t.shape)) for t in indices]
        if entry not in self._gathered and all([name in self._known for name in names]):
            values = [self._known[name] for name in names]
            sizes = x.shape[axis : axis + len(indices)]
            positions = [self._named(node, *one) for one in zip(values, sizes, strict=True)]
            found = _through_views(x, (*index[:axis], *positions, *index[axis + count :]))
            # Only positions in memory are checked.
            if found[0] not in self._parameter_index and found[0].node not in self._puts:
                raise _not_elementwise(node)
            self._gathered[entry] = found
        return [*names, self._gathered[entry]] if entry in self._gathered else names

    def _named(self, node: Node, value: Expr, size: DimLike) -> Affine:
        """Return the position along a dim of a size that a value names."""
        is_number = isinstance(value, IndexValue) and value.index == self.number
        if is_number and always_ge(size, self._op.length):
            return self.number
        return named_position(node, value, size)

    def _made(self, root: Tensor, index: Index, xs: Sequence[Expr]) -> Expr:
        node, parameter = root.node, self._parameter_index.get(root)
        if parameter is not None:
            return self._parameter(parameter, index)
        if isinstance(node.op, ConstantOp):
            fill, layout = filled(root), own_layout(root)
            return fill or widened(Element(root.dtype, address_at(root, index, 0, layout.strides)))
        if node.op.combine:
            return joined(node, xs)
        if isinstance(node.op, Gather):
            return xs[-1]
        if isinstance(node.op, MatMul):
            products = [K.mul(a, b) for a, b in zip(xs[::2], xs[1::2], strict=True)]
            return widened(K.cast(fold(K.add, products), root.dtype))
        if node in self._puts:
            return self._after_puts(node, index, xs)
        # Of what other dtypes may not hold, eval makes an error.
        number = counted(node, index) if root.dtype.name in _COUNTS else None
        if number is not None:
            return number
        value = applied(node, xs) if xs else None
        if value is None:
            raise _not_elementwise(node)
        return value

    def _parameter(self, number: int, index: Index) -> Expr:
        """Return an element of a parameter of the body."""
        carries, elements = self._op.carries, self._op.carries + self._op.sequences
        if number == 0:
            return IndexValue(int64, self.number)
        carry = self.in_memory.get(number - 1)
        if carry is not None and carry.puts:
            self.read[number - 1, index] = None
            strides = contiguous(carry.storage.shape)
            address = address_at(carry.storage, index, 0, strides)
            return widened(ResultElement(carry.storage.dtype, address))
        if number <= carries and carry is None:
            return self.carry(number - 1, index)
        if carries < number <= elements:
            index = (self.number, *index)
        return self.outside(self._inputs[number - 1], index)


def _through_views(tensor: Tensor, index: Index) -> Entry:
    """Return the element that is seen through views and what joins tensors."""
    while True:
        node = tensor.node
        if isinstance(node.op, Barrier):  # in an iteration all is computed at once
            tensor = node.inputs[tensor.index]
        elif isinstance(node.op, Concat):
            tensor, index = _operand_element(node, index)
        elif isinstance(node.op, SliceSet):
            tensor, index = _set_or_not(node, index)
        elif renames(node):
            proved = (
                not isinstance(node.op, Reshape) or node.inputs[0].type.size == tensor.type.size
            )
            found = renamed(tensor, index) if proved else None
            if found is None:
                raise MisfitError(f"{node.op.name} reads its elements in an order of its own")
            tensor, index = node.inputs[0], found
        else:
            return tensor, index


def _operand_element(node: Node, index: Index) -> Entry:
    """Return the element of the concatenation's input that an index lies in."""
    assert isinstance(node.op, Concat)
    axis = node.op.axis % len(index)
    number = _number(index[axis], node)
    for x in node.inputs:
        size = x.shape[axis]
        if not isinstance(size, int):
            break
        if number < size:
            return x, (*index[:axis], Affine(number, {}), *index[axis + 1 :])
        number -= size
    raise MisfitError("concat joins inputs of unknown sizes")


def _set_or_not(node: Node, index: Index) -> Entry:
    """Return the element after a slice_set: of the new values, or of the tensor itself."""
    x, values = node.inputs
    assert isinstance(node.op, SliceSet)
    found: list[Affine] = []
    windows = node.op.axes()
    for position, (start, length, step), size in zip(index, windows, x.shape, strict=True):
        if start == 0 and length == size and step == 1:
            found.append(position)
            continue
        number, rest = divmod(_number(position, node) - _known(start, node), step)
        if rest or not 0 <= number < _known(length, node):
            return x, index
        found.append(Affine(number, {}))
    return values, tuple(found)


def _not_elementwise(node: Node) -> MisfitError:
    return MisfitError(f"{node.op.name} is not computed element by element")


def _number(position: Affine, node: Node) -> int:
    if position.terms:
        raise MisfitError(f"{node.op.name} is along an axis whose elements are instances")
    return _known(position.offset, node)


def _known(size: DimLike, node: Node) -> int:
    if not isinstance(size, int):
        raise MisfitError(f"{node.op.name} is of unknown sizes")
    return size
