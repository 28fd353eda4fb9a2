"""Running a program node by node with each op's reference `eval`, for any array module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import numpy as np

from graphfw.errors import ExecutionError
from graphfw.ir import concrete, time_limits
from graphfw.ir.dim import Dim
from graphfw.ir.dtype import as_dtype
from graphfw.ir.op import ALIAS, RANDOM, SOURCE, Op, Rng
from graphfw.ir.sources import ConstantOp, Placeholder, VariableOp
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import TensorType
from graphfw.ops.control.effects import quiet
from graphfw.runtime.executor import Claim, Executable
from graphfw.runtime.program import Program
from graphfw.runtime.watching import Watch, evaluated
from graphfw.utils import forks
from graphfw.utils.recent import Recent

_LAYOUTS = 256

_NODE = attrgetter("node")

_SMALL = 2048
"""Below so many elements a new array costs no more than writing over an old one."""


class NodeCall(NamedTuple):
    """One node, ready to be called.

    Attributes:
        call: What computes it.
        pick: Picks its inputs from the slots.
        slot: The slot of its (first) output.
        width: The number of outputs where the op has several, else 0.
        random: Whether `call` takes `rng=`.
        freed: The slots that nothing needs after it.
        into: Which of its inputs the result is written over, or None.
        node: What it was made from, for errors.
    """

    call: Callable[..., Any]
    pick: Callable[[list[Any]], tuple[Any, ...]]
    slot: int
    width: int
    random: bool
    freed: tuple[int, ...]
    into: int | None
    node: Node


class ArrayExecutable(Executable):
    """A list of steps over numbered slots; the slots' arrays are dropped at their last use.

    Symbolic dims in ops' fields are bound once for each combination of sizes.
    """

    def __init__(self, program: Program, xp: Any) -> None:
        self.program = program
        self.xp = xp
        self._slots = _number(program)
        self._blank: list[Any] = [None] * self._slots.total
        self._nodes: list[Node] = []
        for node in program.graph.nodes:
            if isinstance(node.op, ConstantOp):
                self._blank[self._slots.of[node]] = self._constant(node)
            elif not isinstance(node.op, Placeholder | VariableOp):
                self._nodes.append(node)
        self._inputs = len(program.feeds) + len(program.variables)
        outputs = zip(program.graph.outputs, program.copied, strict=True)
        self._out = [
            (self._slots.of[t.node] + t.index, _handing(t, copied)) for t, copied in outputs
        ]
        freed = _last_uses(self._nodes, program, self._slots)
        viewed = {t.node for n in self._nodes if ALIAS in n.op.traits for t in n.inputs}
        self._steps = [
            self._step(node, node.op, slots, _overwritten(node, slots, self._slots, viewed))
            for node, slots in zip(self._nodes, freed, strict=True)
        ]
        self._symbolic = [i for i, node in enumerate(self._nodes) if node.op.symbols]
        self._layouts: Recent[tuple[int, ...], list[NodeCall]] = Recent(_LAYOUTS)
        self._lock = forks.renewed_lock()

    def __call__(
        self,
        inputs: Sequence[Any],
        sizes: tuple[int, ...],
        rng: Rng,
        version: int,
        claim: Claim | None,
    ) -> list[Any]:
        steps = self._layouts.get(sizes)
        if steps is None:
            steps = self._layout(sizes)
        values = self._blank.copy()
        values[: self._inputs] = inputs
        step = None
        try:
            with np.errstate(all="ignore"):
                for step in time_limits.each(steps, _NODE):
                    call, pick, position, width, random, freed, into, _ = step
                    arrays = pick(values)
                    if into is not None:
                        result = call(*arrays, out=arrays[into])
                    else:
                        result = call(*arrays, rng=rng) if random else call(*arrays)
                    if width:
                        values[position : position + width] = result
                    else:
                        values[position] = result
                    for slot in freed:
                        values[slot] = None
        except RecursionError:  # the caller's depth, and no fault of a node
            raise
        except time_limits.TimeOverError as error:  # of an operation that waits
            if step is not None and not error.op:
                error.op, error.at = step.node.op.title, step.node.loc
            raise
        except Exception as error:
            assert step is not None
            raise concrete.failed(step.node, step.pick(values), error) from error
        return self.outputs_of(values)

    def outputs_of(self, values: Sequence[Any]) -> list[Any]:
        """Return the outputs, given the slots' arrays."""
        return [
            values[s] if how is _OWN else self._handed_out(values[s], how) for s, how in self._out
        ]

    def walk(
        self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng, watch: Watch
    ) -> list[Any]:
        """Run while somebody looks at each node, also in bodies; returns the slots' arrays.

        Raises:
            ExecutionError: An operation fails, or `watch` raises it.
        """
        values = self._blank.copy()
        values[: self._inputs] = inputs
        env = dict(zip(self.program.symbols, sizes, strict=True))
        with np.errstate(all="ignore"):
            for step in self._layouts.get(sizes) or self._layout(sizes):
                node, arrays = step.node, step.pick(values)
                results = evaluated(node, node.op.bind(env), self.xp, arrays, rng, watch)
                values[step.slot : step.slot + len(results)] = results
        return values

    def blame(self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng) -> ExecutionError:
        feeds_text = ""
        for tensor, array in zip(
            (*self.program.feeds, *self.program.variables), inputs, strict=True
        ):
            bad = _first_bad(self.xp, array)
            held = f'"{tensor.name}" holds {bad} before the run'
            if bad.startswith("nan"):
                return ExecutionError(held, at=tensor.node.loc)
            feeds_text = feeds_text or (held if bad else "")
        # As it was described: passes may have folded what makes it into a constant. Else as it is
        # computed.
        run = ArrayExecutable(replace(self.program, passes=tuple), self.xp)
        first = run._first_node(inputs, sizes, rng, "")
        if first is None:
            run = self
            first = run._first_node(inputs, sizes, rng, "")
        if first is None:
            return ExecutionError(
                "a value that is not finite appeared, and not in a run node by node",
                fix="gf.Session(g, debug=True) computes node by node; if it stays away there, the "
                "compiled sums are made in an order in which they overflow",
            )
        # An infinity may be meant, as in a mask, where nothing else goes wrong after it.
        nan = run._first_node(inputs, sizes, rng, "nan")
        first.why = "; ".join(filter(None, [first.why, feeds_text]))
        if nan is None or nan.summary == first.summary:
            return first
        origin = f"the first infinity: {first.summary}"
        nan.why = f"{nan.why}; {origin}" if nan.why else origin
        return nan

    def _first_node(
        self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng, kind: str
    ) -> ExecutionError | None:
        """Run again up to the first node, also in bodies, that yields what is not finite.

        Args:
            inputs: Of the run.
            sizes: Of the run.
            rng: Of the run.
            kind: "nan" to go on after infinities.
        """

        def watch(node: Node, arrays: Sequence[Any], results: Sequence[Any]) -> None:
            for kind_of, result in zip(node.types, results, strict=True):
                bad = _first_bad(self.xp, result)
                if bad and bad.startswith(kind):
                    summary = f"{node.op.name} gives {bad}{self._row(kind_of, bad)}"
                    fix = "keep its inputs in range, with gf.clip or gf.where"
                    raise concrete.at_node(node, arrays, summary, fix)

        try:
            with quiet():
                self.walk(inputs, sizes, rng, watch)
        except ExecutionError as error:
            return error
        return None

    def _row(self, kind: TensorType, bad: str) -> str:
        """Return which row of the feeds it belongs to, where they have the first dim in common."""
        dim = kind.shape[0] if kind.shape else None
        names = [
            f'"{t.name}"' for t in self.program.feeds if isinstance(dim, Dim) and dim in t.shape[:1]
        ]
        row = bad.partition("(")[2].partition(",")[0]
        return f": row {row} of {' and '.join(names[:3])}" if names else ""

    def _layout(self, sizes: tuple[int, ...]) -> list[NodeCall]:
        """Bind the ops to sizes that have not been seen lately."""
        steps = self._bind(sizes)
        with self._lock:
            self._layouts.keep(sizes, steps)
        return steps

    def _bind(self, sizes: tuple[int, ...]) -> list[NodeCall]:
        if not self._symbolic:
            return self._steps
        env = dict(zip(self.program.symbols, sizes, strict=True))
        steps = self._steps.copy()
        for i in self._symbolic:
            node = self._nodes[i]
            try:
                bound = node.op.bind(env)
            except ZeroDivisionError as error:
                raise ExecutionError(f"{node.op.name}: {error}", at=node.loc) from error
            steps[i] = self._step(node, bound, steps[i].freed, steps[i].into)
        return steps

    def _step(self, node: Node, op: Op, freed: tuple[int, ...], into: int | None) -> NodeCall:
        kernel = op.kernel(self.xp, *[t.dtype for t in node.inputs])
        return NodeCall(
            kernel,
            _picker([self._slots.of[t.node] + t.index for t in node.inputs]),
            self._slots.of[node],
            len(node.types) if op.multiple else 0,
            RANDOM in op.traits,
            freed,
            into if isinstance(kernel, self.xp.ufunc) else None,
            node,
        )

    def _constant(self, node: Node) -> Any:
        return node.op.eval(self.xp)

    def _handed_out(self, array: Any, how: str) -> Any:
        """Return an output that belongs to whom it is handed to."""
        array = self.xp.asarray(array)
        if how is _COPY or (how is _VIEW and not _is_whole(array)):
            return self.xp.array(array, order="C")
        return array


_OWN, _SCALAR, _VIEW, _COPY = "own", "scalar", "view", "copy"


def _handing(output: Tensor, copied: bool) -> str:
    """Say what an output needs before it is handed out."""
    if copied:
        return _COPY
    if ALIAS in output.node.op.traits:
        return _VIEW
    # Array modules return scalars instead of 0-d arrays.
    return _OWN if output.ndim else _SCALAR


def _is_whole(array: Any) -> bool:
    """Return whether an array can be written to and keeps no more memory alive than its own."""
    if not getattr(array.flags, "writeable", True):  # only NumPy has read-only arrays
        return False
    base = array.base
    return bool(array.flags.c_contiguous and (base is None or base.nbytes == array.nbytes))


class _Slots(NamedTuple):
    of: dict[Node, int]
    total: int


def _number(program: Program) -> _Slots:
    """Number the values: feeds first, then variables, then the other nodes' outputs."""
    of: dict[Node, int] = {}
    for tensor in (*program.feeds, *program.variables):
        of[tensor.node] = len(of)
    count = len(of)
    for node in program.graph.nodes:
        if node not in of:
            of[node] = count
            count += len(node.types)
    return _Slots(of, count)


def _last_uses(nodes: Sequence[Node], program: Program, slots: _Slots) -> list[tuple[int, ...]]:
    """Return for each node the slots that nothing needs after it."""
    last: dict[int, int] = {}
    for number, node in enumerate(nodes):
        own = slots.of[node]
        last.update(dict.fromkeys(range(own, own + len(node.types)), number))
        for tensor in node.inputs:
            if not isinstance(tensor.node.op, ConstantOp):
                last[slots.of[tensor.node] + tensor.index] = number
    for tensor in program.graph.outputs:
        last.pop(slots.of[tensor.node] + tensor.index, None)
    freed: list[list[int]] = [[] for _ in nodes]
    for slot, number in last.items():
        freed[number].append(slot)
    return [tuple(own) for own in freed]


def _overwritten(
    node: Node, freed: tuple[int, ...], slots: _Slots, viewed: set[Node]
) -> int | None:
    """Return which input of an elementwise op may be written over with its result.

    One that nothing needs afterwards, of the result's type, in memory that is nobody else's: an
    array that an op of this program made, and of which no view has been taken.
    """
    for position, tensor in enumerate(node.inputs):
        made = tensor.node
        if (
            slots.of[made] + tensor.index in freed
            and made not in viewed
            and made.op.traits.isdisjoint((ALIAS, SOURCE))
            and tensor.type == node.types[0]
            and tensor.ndim
            and not (isinstance(tensor.size, int) and tensor.size < _SMALL)
        ):
            return position
    return None


def _picker(slots: list[int]) -> Callable[[list[Any]], tuple[Any, ...]]:
    """Return a function that picks a step's inputs."""
    if len(slots) > 1:
        return itemgetter(*slots)
    if not slots:
        return lambda values: ()
    slot = slots[0]
    return lambda values: (values[slot],)


def _first_bad(xp: Any, array: Any) -> str:
    """Return `nan at index (0, 3)`, or `inf…` where there is no NaN, or nothing."""
    array = xp.asarray(array)
    dtype = as_dtype(array.dtype)
    if not (dtype.is_inexact or dtype.holds_floats) or bool(xp.isfinite(array).all()):
        return ""
    nans = xp.isnan(array)
    wrong = nans if bool(nans.any()) else ~xp.isfinite(array)
    index = tuple(int(i) for i in np.unravel_index(int(wrong.reshape(-1).argmax()), array.shape))
    kind = "nan" if bool(nans.any()) else str(array[index])
    return f"{kind} at index {index}" if index else kind
