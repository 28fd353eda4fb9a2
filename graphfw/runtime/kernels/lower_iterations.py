"""Loops whose iterations are one kernel: carries stay in registers between iterations.

Where a body computes element by element, what is carried falls apart into instances that know
nothing of each other. Each goes through all iterations by itself: so the instances are the outer
loop of a kernel, along vectors and over threads, and the iterations the inner one.

Short axes that the body takes apart, the coordinates of a system of equations, are no instances:
their elements are values side by side in each instance. Which axes these are is tried out.

A carry of which an iteration changes single elements stays in memory: `lower_memory_carries`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, combinations, product
from math import prod
from typing import NamedTuple, TypeAlias

from graphfw.ir.affine import ZERO, Affine, Index, LoopVariable, index_of
from graphfw.ir.constants import fill_value
from graphfw.ir.dim import DimLike
from graphfw.ir.op import nested
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import Shape
from graphfw.ops.control.scan_op import Scan
from graphfw.passes.fuse_nodes import FusionFacts
from graphfw.passes.fuse_views import contiguous
from graphfw.runtime.kernels.elements import (
    Element,
    ElementAddress,
    ResultElement,
)
from graphfw.runtime.kernels.ir import Call, Carried, Expr, Ref
from graphfw.runtime.kernels.kernel_target import KernelTarget
from graphfw.runtime.kernels.lower_iteration_values import FEW, IterationValues, MisfitError
from graphfw.runtime.kernels.lower_loops import (
    Draft,
    Going,
    LoopCarry,
    Statement,
    Stored,
    draft_exprs,
    is_cheap_call,
    roots_of,
)
from graphfw.runtime.kernels.lower_memory_carries import (
    MemoryCarry,
    copy_step,
    memory_carries,
    named_axes,
)
from graphfw.runtime.kernels.lower_parallel_axes import in_a_row
from graphfw.runtime.kernels.lower_steps import finished, step
from graphfw.runtime.kernels.lower_values import (
    K,
    RowReduction,
    address_at,
)
from graphfw.runtime.kernels.lower_while import ScanWhile, scan_while
from graphfw.runtime.kernels.steps import Step, Storage, Temp

_WORK = 2048
"""The most instructions of an iteration, about: more of them in one piece compile slowly."""

_LIBRARY = 16
"""Instructions of a function of the math library."""

ParallelAxes: TypeAlias = tuple[LoopVariable, ...]

Labels: TypeAlias = tuple[LoopVariable | None, ...]
"""The parallel axis of each axis of a tensor; None where its elements are separate values."""


def iteration_steps(node: Node, facts: FusionFacts, target: KernelTarget) -> list[Step]:
    """Return the steps of a loop whose iterations are one kernel, or nothing.

    Args:
        node: The loop: of a known number of iterations, or of one pass while a condition holds.
        facts: Of its graph.
        target: What compiles kernels.
    """
    if sum([len(body.nodes) for body in nested(node.op.values)]) > _WORK:
        return []
    op = node.op if isinstance(node.op, Scan) else scan_while(node.op)
    if op is None:
        return []
    outputs = op.body.outputs[: len(node.outputs)]
    if not outputs:
        return []
    if any([output.dtype.is_complex for output in outputs]):  # kernels have no such numbers
        return []
    memory = memory_carries(op, node.outputs)
    shapes = [output.shape for output in outputs]
    for number, carry in memory.items():
        shapes[number] = carry.shape_of_instances()
    seed = max(range(len(outputs)), key=lambda number: _width(shapes[number]))
    for apart in _choices(shapes[seed]):
        try:
            lowering = _IterationLowering(node, op, facts, memory, shapes, seed, apart)
            return lowering.steps(target)
        except MisfitError:
            continue
    return []


def _width(shape: Sequence[DimLike]) -> int:
    return sum([dim != 1 for dim in shape])


def _choices(shape: Sequence[DimLike]) -> Iterator[frozenset[int]]:
    """Yield which axes might be taken apart, the fewest elements first."""
    short = [axis for axis, dim in enumerate(shape) if isinstance(dim, int) and 1 < dim <= FEW]
    chosen = [c for count in range(len(short) + 1) for c in combinations(short, count)]
    sizes = {c: prod([int(shape[axis]) for axis in c]) for c in chosen}
    yield from [frozenset(c) for c in sorted(chosen, key=sizes.__getitem__) if sizes[c] <= FEW]


class _Total(NamedTuple):
    """A sum over instances. Each has a partial sum; they are added after the iterations.

    Attributes:
        number: The carry that it is.
        at: Which of its elements.
        partials: What the instances have added up.
    """

    number: int
    at: Index
    partials: Temp


class _IterationLowering:
    """The kernels of one loop.

    Args:
        node: The loop.
        op: Its iterations: a scan, which the condition may end.
        facts: Of its graph.
        memory: The carries that stay in memory, by their numbers.
        shapes: Of the body's outputs, without the axes of `memory` along which positions are named.
        seed: The output of the body, by number, whose axes are the instances.
        apart: Those of its axes that are none.

    Raises:
        MisfitError: There are none.
    """

    def __init__(
        self,
        node: Node,
        op: Scan,
        facts: FusionFacts,
        memory: Mapping[int, MemoryCarry],
        shapes: Sequence[Shape],
        seed: int,
        apart: frozenset[int],
    ) -> None:
        self._node = node
        self._outputs = op.body.outputs[: len(node.outputs)]
        self._memory = memory
        self._number_of: dict[Storage, int] = {
            carry.storage: number for number, carry in memory.items()
        }
        self._shapes = shapes
        self._values = IterationValues(op, node.inputs, facts, memory)
        parallel = [
            None if dim == 1 or axis in apart else LoopVariable(f"instance{axis}", dim)
            for axis, dim in enumerate(shapes[seed])
        ]
        self._parallel = tuple([axis for axis in parallel if axis is not None])
        self._labels: dict[int, Labels] = {seed: tuple(parallel)}
        self._next: dict[tuple[int, Index], Expr] = {}
        self._carrying: dict[str, LoopCarry] = {}
        # By the instances that it has, what is stored in each iteration, and after all of them.
        self._stacked: dict[ParallelAxes, list[Statement]] = {}
        self._last: dict[ParallelAxes, list[Statement]] = {}
        self._totals: dict[ParallelAxes, list[_Total]] = {}
        carries = op.carries
        registers = [number for number in range(carries) if number not in memory]
        found = {number: self._labels_of_sum(number) for number in registers}
        sums = {number: labels for number, labels in found.items() if labels is not None}
        self._cover([number for number in range(len(self._outputs)) if number not in sums], carries)
        self._holds: Expr | None = None
        if isinstance(op, ScanWhile):
            self._holds = self._values.value(op.body.outputs[-1], ())
            self._follow()
        self._labels |= sums
        for number in sums:
            for index in self._indices(number):
                self._add_up(number, index)
        self._follow()
        for (number, index), register in self._values.carried.items():
            if number in sums:
                raise MisfitError("an iteration reads a sum over instances")
            begin, name = self._values.outside(node.inputs[number], index), register.name
            self._carrying[name] = LoopCarry(name, begin, self._next[number, index])
            last = self._stored(node.outputs[number], index, Ref(register.dtype, name))
            self._last.setdefault(self._parallel_of(number), []).append(last)
        if self._holds is not None and not (self._stacked or self._last):
            raise MisfitError("no kernel would compute the condition")
        _require_little([*chain.from_iterable(self._stacked.values()), *self._carrying.values()])

    def steps(self, target: KernelTarget) -> list[Step]:
        """Return the steps: a kernel for each set of parallel axes."""
        steps: list[Step] = []
        for number, carry in self._memory.items():
            values = partial(self._values.outside, self._node.inputs[number])
            steps.append(copy_step(carry.storage, values, target))
        # Each loop reads and writes what was copied before it.
        copies = tuple([carry.storage for carry in self._memory.values() if carry.puts])
        for parallel in dict.fromkeys([*self._stacked, *self._last]):
            done = finished(self._draft(parallel), target)
            steps.append(replace(step(done, (self._node,), target), after=copies))
        for kept, totals in self._totals.items():
            steps.append(step(finished(self._added_up(kept, totals), target), (), target))
        return steps

    def _draft(self, parallel: ParallelAxes) -> Draft:
        """Return the kernel of what has some instances."""
        stacked, last = self._stacked.get(parallel, []), self._last.get(parallel, [])
        roots = [root for statement in (*stacked, *last) for root in roots_of(statement)]
        found: dict[str, LoopCarry] = {}
        going = [] if self._holds is None else [Going(self._holds)]
        roots += [one.value for one in going]
        changing = [number for number, carry in self._memory.items() if carry.puts]
        is_in_memory = any([parallel == self._parallel_of(number) for number in changing])
        while roots:
            exprs = list(draft_exprs(roots))
            for expr in exprs:
                if isinstance(expr, ResultElement):
                    self._require_own(expr.address.storage, parallel)
            names = [x.name for x in exprs if isinstance(x, Carried | Ref)]
            new = {name: self._carrying[name] for name in names if name not in found}
            found |= new
            roots = [root for carrying in new.values() for root in roots_of(carrying)]
        iteration = self._values.iteration
        if not found and not is_in_memory:  # iterations that hand nothing on are elements
            return Draft("rows", [iteration, *parallel], None, loops=[stacked])
        # Without instances there is one.
        outer = parallel or (LoopVariable("one", 1),)
        loop: list[Statement] = [*going, *found.values(), *stacked]
        return in_a_row(Draft("columns", outer, [iteration], loops=[loop], after=last))

    def _require_own(self, storage: Storage, parallel: ParallelAxes) -> None:
        """Require that instances have no element of a carry in memory in common."""
        if self._parallel_of(self._number_of[storage]) != parallel:
            raise MisfitError("instances read what others write to memory")

    def _parallel_of(self, number: int) -> ParallelAxes:
        labels = self._labels[number]
        return tuple([axis for axis in self._parallel if axis in labels])

    def _cover(self, numbers: Sequence[int], carries: int) -> None:
        """Ask for all elements of outputs of the body."""
        todo = dict.fromkeys(numbers)
        while todo:
            # What is known of axes first: it may tell those of others.
            number = next((n for n in todo if n in self._labels), None)
            if number is None:
                number = next(iter(todo))
                self._labels[number] = self._guessed(self._shapes[number])
            del todo[number]
            if number in self._memory:
                self._put(number)
                continue
            for index in self._indices(number):
                if number < carries:
                    self._values.carry(number, index)
                else:
                    value = self._values.value(self._outputs[number], index)
                    at = (self._values.number, *index)
                    stored = self._stored(self._node.outputs[number], at, value)
                    self._stacked.setdefault(self._parallel_of(number), []).append(stored)
            self._follow()

    def _put(self, number: int) -> None:
        """Add the statements that change elements of a carry in memory."""
        carry = self._memory[number]
        if 0 in carry.storage.shape:
            raise MisfitError("what has no elements is made by no statement")
        for put in carry.puts:
            named = named_axes(put)
            others = [axis for axis in range(carry.storage.ndim) if axis not in named]
            sizes = [carry.storage.shape[axis] for axis in others]
            labels = tuple([self._labels[number][axis] for axis in others])
            for rest in product(*_positions(sizes, labels)):
                stored = [self._stored(carry.storage, *at) for at in self._values.puts(put, rest)]
                self._stacked.setdefault(self._parallel_of(number), []).extend(stored)
        self._follow()

    def _follow(self) -> None:
        """Find the next values of all that is carried in registers."""
        carried = self._values.carried
        while len(self._next) < len(carried):
            for number, index in list(carried)[len(self._next) :]:
                self._check(number, index)
                self._next[number, index] = self._values.value(self._outputs[number], index)
        for number, index in self._values.read:
            self._check(number, index)

    def _check(self, number: int, index: Index) -> None:
        """Require that each instance reads of what is carried its own elements only."""
        sizes = self._outputs[number].shape
        axes = enumerate(zip(index, sizes, strict=True))
        labels = tuple([self._label(number, axis, *entry) for axis, entry in axes])
        if self._labels.setdefault(number, labels) != labels:
            raise MisfitError("an iteration reads elements of other instances")

    def _label(
        self, number: int, axis: int, position: Affine, size: DimLike
    ) -> LoopVariable | None:
        """Return the parallel axis that a position along an axis of a carry runs along."""
        carry = self._memory.get(number)
        if carry is not None:
            if axis in carry.named or position.terms.keys().isdisjoint(self._parallel):
                return None
        return self._parallel_axis(position, size)

    def _parallel_axis(self, position: Affine, size: DimLike) -> LoopVariable | None:
        if not position.terms:
            return None
        axis = next((axis for axis in self._parallel if position == index_of(axis)), None)
        if axis is None:
            raise MisfitError("an iteration reads elements of other instances")
        if axis.extent != size:  # the others would not be computed
            raise MisfitError("instances run along a section of the carry")
        return axis

    def _guessed(self, shape: Sequence[DimLike]) -> Labels:
        """Return labels of an output: those of one of the same shape, or else the last that fit."""
        for number, labels in self._labels.items():
            if self._shapes[number] == tuple(shape):
                return labels
        return self._matched(shape, self._parallel)

    def _matched(self, sizes: Sequence[DimLike], parallel: ParallelAxes) -> Labels:
        """Return labels of axes of these sizes, from the last to the first."""
        left = list(parallel)
        found: list[LoopVariable | None] = []
        for size in reversed(sizes):
            position = next((i for i in reversed(range(len(left))) if left[i].extent == size), None)
            found.insert(0, None if position is None else left[position])
            del left[len(left) if position is None else position :]
        return tuple(found)

    def _indices(self, number: int) -> list[Index]:
        """Return the indices that together are all elements of an output, in all instances."""
        shape = self._outputs[number].shape
        if 0 in shape:
            raise MisfitError("what has no elements is made by no statement")
        return list(product(*_positions(shape, self._labels[number])))

    def _stored(self, tensor: Tensor, index: Index, value: Expr) -> Stored:
        address = address_at(tensor, index, 0, contiguous(tensor.shape))
        return Stored(address, K.cast(value, tensor.dtype))

    # Sums over instances that iterations only add to, as gradients of what instances share are.

    def _labels_of_sum(self, number: int) -> Labels | None:
        """Return labels of a carry that begins with 0, and to which sums over instances are added.

        None where anything else happens to it.
        """
        fill, output = fill_value(self._node.inputs[number]), self._outputs[number]
        labels = self._matched(output.shape, self._parallel)
        gone = self._without(labels)
        if not gone or fill is None or fill != 0 or output.dtype.is_low_precision:
            return None
        index = tuple([ZERO if axis is None else index_of(axis) for axis in labels])
        try:
            summands = self._values.summands(number, index)
        except MisfitError:
            return None
        over = [self._matched(self._values.axes_of(root.node), gone) for root, _ in summands]
        return labels if over and all([{*gone} == {*one} - {None} for one in over]) else None

    def _without(self, labels: Labels) -> ParallelAxes:
        return tuple([axis for axis in self._parallel if axis not in labels])

    def _add_up(self, number: int, index: Index) -> None:
        """Add the statements that compute an element of such a carry."""
        dtype, values = self._outputs[number].dtype, self._values
        name = f"t{len(self._carrying)}"
        total: Expr = Carried(dtype, name)
        gone = self._without(self._labels[number])
        for root, at in values.summands(number, index):
            sizes = values.axes_of(root.node)
            for entry in values.reduced(
                root.node, at, _positions(sizes, self._matched(sizes, gone))
            ):
                total = K.add(total, values.value(*entry))
        self._carrying[name] = LoopCarry(name, K.const(0, dtype), total)
        sizes = [axis.extent for axis in self._parallel]
        partials = Temp(dtype, size_of(sizes), "partial sums over instances")
        stored = Stored(self._partial(partials), Ref(dtype, name))
        self._last.setdefault(self._parallel, []).append(stored)
        kept = self._parallel_of(number)
        self._totals.setdefault(kept, []).append(_Total(number, index, partials))

    def _partial(self, partials: Temp) -> ElementAddress:
        """Return where an instance leaves its partial sum."""
        strides = contiguous([axis.extent for axis in self._parallel])
        return ElementAddress(partials, 0, tuple(zip(self._parallel, strides, strict=True)))

    def _added_up(self, kept: ParallelAxes, totals: Sequence[_Total]) -> Draft:
        """Return the kernel that adds up the partial sums of instances that are not kept."""
        sums: list[Statement] = []
        stores: list[Statement] = []
        for index, (number, at, partials) in enumerate(totals):
            name = f"r{index}"
            sums.append(RowReduction(name, "sum", Element(partials.dtype, self._partial(partials))))
            result = Ref(partials.dtype, name)
            stores.append(self._stored(self._node.outputs[number], at, result))
        gone = [axis for axis in self._parallel if axis not in kept]
        form = "columns" if self._parallel[-1] in kept else "rows"
        return Draft(form, kept, gone, loops=[sums], after=stores)


def _positions(sizes: Sequence[DimLike], labels: Labels) -> list[list[Affine]]:
    """Return for each axis where its elements are, in all instances."""
    found: list[list[Affine]] = []
    apart = 1
    for size, axis in zip(sizes, labels, strict=True):
        if axis is not None:
            found.append([index_of(axis)])
            continue
        apart *= size if isinstance(size, int) else FEW + 1
        if apart > FEW:
            raise MisfitError("not all has the shape of the instances")
        found.append([Affine(number, {}) for number in range(int(size))])
    return found


def _require_little(statements: Sequence[Statement]) -> None:
    roots = [root for statement in statements for root in roots_of(statement)]
    calls = [expr for expr in draft_exprs(roots) if isinstance(expr, Call)]
    if sum([1 if is_cheap_call(call) else _LIBRARY for call in calls]) > _WORK:
        raise MisfitError("an iteration is a lot of work")
