"""Branches and loops: their bodies are graphs of attributes, which read values outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

import graphfw as gf
from graphfw.errors import ArgumentError, DTypeError, ShapeError, counted
from graphfw.ir.body import Body
from graphfw.ir.dim import DimLike
from graphfw.ir.dtype import bool_, int64
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import TensorType
from graphfw.onnx.builder import LAST, Builder, Val, fields, positions
from graphfw.onnx.errors import OnnxError, ValueNeeded
from graphfw.onnx.fitting import alike
from graphfw.onnx.node import ModelNode, Value
from graphfw.onnx.table import reads, writes

_MOST_ITERATIONS = 10_000
"""The most iterations of a loop that is unrolled."""


@reads("If")
def _if(node: ModelNode, condition: Tensor) -> tuple[Value, ...]:
    branches = node.attr("then_branch"), node.attr("else_branch")
    known = node.facts.value(condition)
    if known is not None:
        return tuple(node.subgraph(branches[0 if known.reshape(-1)[0] else 1], ()))
    then, otherwise = ((lambda g=g: tuple(node.subgraph(g, ()))) for g in branches)
    try:
        made: tuple[Value, ...] = gf.cond(gf.reshape(condition, ()), then, otherwise)
    except (ArgumentError, ShapeError) as error:
        raise ValueNeeded(
            "If: its branches don't fit one another, so which is taken must be known when the "
            f"model is loaded ({error.summary})",
            node.facts.inputs(condition),
        ) from error
    return made


@writes("branch")
def _write_branch(b: Builder, node: Node, number: Val, *inputs: Val) -> Sequence[Val]:
    """Write nested Ifs: the first branch if the number is 0 or less, and so on."""
    kinds = list(node.types)

    def chosen(bodies: Sequence[Body], first: int) -> Sequence[Val]:
        if len(bodies) == 1:
            return _body(b, bodies[0], inputs)
        is_this = b("LessOrEqual", number, b.scalar(first, number.dtype), dtype=bool_)
        then = b.body("then", (), lambda: _body(b, bodies[0], inputs), kinds)
        other = b.body("else", (), lambda: chosen(bodies[1:], first + 1), kinds)
        dtypes = [kind.dtype for kind in kinds]
        return b.many("If", [is_this], dtypes, then_branch=then, else_branch=other)

    return chosen(fields(node).choices, 0)


# Loops


class _Open(Exception):
    """A loop's condition depends on its body's results."""


@reads("Loop")
def _loop(
    node: ModelNode, iterations: Tensor | None = None, go: Tensor | None = None, *carried: Value
) -> Any:
    body = node.attr("body")
    stacks = len(body.output) - 1 - len(carried)
    node.require(
        stacks >= 0,
        (
            f"its body has {counted(len(body.output), 'output')} for "
            f"{counted(len(carried), 'input')}"
        ),
    )
    made = _looped(node, iterations, go, carried, _as_they_are)
    if made is not None:
        return made
    try:
        return _written_out(node, iterations, go, list(carried), stacks)
    except ValueNeeded:
        made = _looped(node, iterations, go, carried, _of_the_sizes_of)
        if made is None:
            raise
        return made


Carry: TypeAlias = Callable[[Sequence[Value], Sequence[Tensor]], tuple[Any, ...]]
"""A function of an iteration's results and carry that returns the next carry."""


def _as_they_are(made: Sequence[Value], state: Sequence[Tensor]) -> tuple[Any, ...]:
    return tuple(made)


def _of_the_sizes_of(made: Sequence[Value], state: Sequence[Tensor]) -> tuple[Any, ...]:
    """Assert that an iteration leaves sizes as they are, where symbols don't show it."""
    return tuple(
        [alike(x, old) if isinstance(x, Tensor) else x for x, old in zip(made, state, strict=False)]
    )


def _looped(
    node: ModelNode,
    iterations: Tensor | None,
    go: Tensor | None,
    carried: Sequence[Value],
    carry: Carry,
) -> tuple[Tensor, ...] | None:
    """Make one node of a loop, or return None where it can't be one."""
    if not all(isinstance(x, Tensor) for x in carried):
        return None
    try:
        if iterations is not None and (go is None or _is_true(node, go)):
            return _counted(node, node.dim(iterations, "the trip count"), carried, carry)
    except (_Open, ShapeError, DTypeError, ValueNeeded):
        pass
    if len(node.attr("body").output) == 1 + len(carried):
        try:
            return _conditional(node, iterations, go, carried, carry)
        except (ShapeError, DTypeError):
            pass
    return None


_GOES_ON = "whether it goes on"


def _is_true(node: ModelNode, condition: Tensor) -> bool:
    known = node.facts.value(condition)
    return known is not None and bool(known.reshape(-1)[0])


def _counted(
    node: ModelNode, iterations: DimLike, carried: Sequence[Any], carry: Carry
) -> tuple[Tensor, ...]:
    """Make a loop whose number of iterations is known before it begins."""

    def iteration(state: tuple[Tensor, ...], number: Tensor) -> tuple[Any, Any]:
        on, *made = node.subgraph(node.attr("body"), (number, gf.constant(True), *state))
        if not isinstance(on, Tensor) or not _is_true(node, on):
            raise _Open
        return carry(made[: len(state)], state), tuple(made[len(state) :])

    last, stacked = gf.scan(iteration, tuple(carried), gf.arange(iterations, dtype=gf.int64))
    return (*last, *stacked)


def _conditional(
    node: ModelNode,
    iterations: Tensor | None,
    go: Tensor | None,
    carried: Sequence[Any],
    carry: Carry,
) -> tuple[Tensor, ...]:
    """Make a loop that its body ends."""

    def goes_on(state: tuple[Tensor, ...]) -> Tensor:
        return (
            state[1]
            if iterations is None
            else gf.logical_and(state[1], state[0] < scalar(iterations))
        )

    def iteration(state: tuple[Tensor, ...]) -> tuple[Value, ...]:
        on, *made = node.subgraph(node.attr("body"), state)
        return (state[0] + 1, scalar(node.tensor(on, _GOES_ON)), *carry(made, state[2:]))

    def scalar(x: Tensor) -> Tensor:
        return gf.reshape(x, ())

    start = gf.constant(True) if go is None else scalar(go)
    number = gf.constant(0)
    _, _, *last = gf.while_loop(goes_on, iteration, (number, start, *carried))
    return tuple(last)


def _written_out(
    node: ModelNode, iterations: Tensor | None, go: Tensor | None, carried: list[Value], stacks: int
) -> tuple[Value, ...]:
    """Make the iterations one by one: shapes or sequences change from iteration to iteration."""
    count = _MOST_ITERATIONS if iterations is None else node.integer(iterations, "the trip count")
    on: Value = gf.constant(True) if go is None else go
    rows: list[list[Tensor]] = [[] for _ in range(stacks)]
    for number in range(count):
        if not node.known(node.tensor(on, _GOES_ON), _GOES_ON).reshape(-1)[0]:
            break
        if number == _MOST_ITERATIONS:
            raise OnnxError(f"Loop: more than {_MOST_ITERATIONS:,} iterations can't be written out")
        on, *made = node.subgraph(node.attr("body"), (gf.constant(number), on, *carried))
        carried = made[: len(carried)]
        for row, value in zip(rows, made[len(carried) :], strict=True):
            row.append(node.tensor(value, "what it stacks"))
    if not all(rows):
        raise OnnxError("Loop: without iterations the shapes of its stacks are not known")
    return (*carried, *[gf.stack(row) for row in rows])


@writes("loop")
def _write_loop(b: Builder, node: Node, *inputs: Val) -> list[Val]:
    """Write one Loop for each pass over the iterations.

    Each but the last also stacks what later passes are given of an iteration: what it began with,
    and what it yielded besides.
    """
    op = fields(node)
    firsts, captures = op.split(inputs)
    is_last = len(op.passes) - 1
    results: list[Val] = []
    stacks: list[Val] = []
    iterations: Val | None = None
    for number, (body, first) in enumerate(zip(op.passes, firsts, strict=True)):
        own = _Pass(b, body, list(first), stacks, list(captures), keeps=number < is_last)
        if number == 0:
            made = own.while_true(op.condition)
            iterations = made.pop(0)
        else:
            assert iterations is not None
            made = own.over(iterations, op.backwards[number])
        results += made[: len(first)]
        stacks = [*stacks, *made[len(first) :]]
    return results


class _Pass:
    """One pass of a loop, being written."""

    def __init__(
        self,
        b: Builder,
        body: Body,
        first: list[Val],
        stacks: list[Val],
        captures: list[Val],
        keeps: bool,
    ) -> None:
        self.b = b
        self.body = body
        self.first = first
        self.stacks = stacks
        self.captures = captures
        self.keeps = keeps
        self.carries: list[Tensor] = list(body.parameters[1 : 1 + len(first)])
        self.kinds = [t.type for t in self.carries]
        yielded = [t.type for t in body.outputs[len(first) :]]
        self.kept = [*self.kinds, *yielded] if keeps else []

    def while_true(self, condition: Body) -> list[Val]:
        """Write the first pass; return the trip count, the last carries and the stacks."""
        b = self.b

        def goes_on(carry: Sequence[Val]) -> Val:
            return _body(b, condition, [*carry, *self.captures])[0]

        count = b.fresh("count", int64)

        def iteration(number: Val, carry: Sequence[Val]) -> list[Val]:
            made = self._iteration(number, carry, [])
            more = b("Add", count, b.scalar(1, int64))
            own, rest = made[: len(carry)], made[len(carry) :]
            return [goes_on(own), more, *own, *rest]

        start = goes_on(self.first)
        return self._written(None, start, [(count, _NUMBER, b.scalar(0, int64))], iteration)

    def over(self, iterations: Val, backwards: bool) -> list[Val]:
        """Write a later pass, of as many iterations; return the last carries and the stacks."""
        b = self.b

        def iteration(number: Val, carry: Sequence[Val]) -> list[Val]:
            at = number
            if backwards:
                at = b("Sub", b("Sub", iterations, b.scalar(1, int64)), number)
            elements = [b("Gather", stack, at, axis=0) for stack in self.stacks]
            return [b.constant(True), *self._iteration(at, carry, elements)]

        made = self._written(iterations, None, [], iteration)
        if not backwards or not self.keeps:
            return made
        # Later passes find each iteration at its number.
        reversed_stacks = [_reversed(b, stack) for stack in made[len(self.first) :]]
        return [*made[: len(self.first)], *reversed_stacks]

    def _iteration(self, at: Val, carry: Sequence[Val], elements: Sequence[Val]) -> list[Val]:
        made = _body(self.b, self.body, [at, *carry, *elements, *self.captures])
        own, rest = made[: len(carry)], made[len(carry) :]
        return [*own, *([*carry, *rest] if self.keeps else [])]

    def _written(
        self,
        iterations: Val | None,
        start: Val | None,
        more: Sequence[tuple[Val, TensorType, Val]],
        iteration: Callable[[Val, Sequence[Val]], list[Val]],
    ) -> list[Val]:
        b = self.b
        number, on = b.fresh("trip", int64), b.fresh("on", bool_)
        states = [b.fresh("carry", kind.dtype) for kind in self.kinds]
        parameters = [(number, _NUMBER), (on, _FLAG)]
        parameters += [(value, kind) for value, kind, _ in more]
        parameters += list(zip(states, self.kinds, strict=True))
        carried = [*[kind for _, kind, _ in more], *self.kinds]
        body = b.body(
            "trip", parameters, lambda: iteration(number, states), [_FLAG, *carried, *self.kept]
        )
        kinds = [*carried, *self.kept]
        inputs = [iterations, start, *[value for _, _, value in more], *self.first]
        return b.many("Loop", inputs, [kind.dtype for kind in kinds], body=body)


def _reversed(b: Builder, x: Val) -> Val:
    minus = b.ints([-1])
    return b("Slice", x, minus, b.ints([LAST]), b.ints([0]), minus)


@reads("Scan")
def _scan(node: ModelNode, *inputs: Tensor) -> tuple[Tensor, ...]:
    if node.version > 8:
        return _scanned(node, inputs)
    if inputs[0] is not None:
        raise OnnxError("Scan: sequence_lens of opset 8 is not supported")
    made: tuple[Tensor, ...] = gf.vmap(lambda *each: _scanned(node, each))(*inputs[1:])
    return made


def _scanned(node: ModelNode, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    body, count = node.attr("body"), node.attr("num_scan_inputs")
    node.require(
        0 < count <= len(inputs), f"num_scan_inputs is {count} of {counted(len(inputs), 'input')}"
    )
    states, sequences = inputs[: len(inputs) - count], inputs[len(inputs) - count :]
    outputs = len(body.output) - len(states)
    node.require(outputs >= 0, f"its body has {counted(len(body.output), 'output')}")
    name = "scan_input_directions" if node.version > 8 else "directions"
    backwards = node.numbers(name, (0,) * count)
    sequences = _laid(sequences, node.numbers("scan_input_axes", (0,) * count), backwards)

    def iteration(state: tuple[Tensor, ...], each: tuple[Tensor, ...]) -> tuple[Any, Any]:
        made = node.subgraph(body, (*state, *each))
        return _of_the_sizes_of(made[: len(state)], state), tuple(made[len(state) :])

    last, stacked = gf.scan(iteration, tuple(states), sequences)
    axes = node.numbers("scan_output_axes", (0,) * outputs)
    flips = node.numbers("scan_output_directions", (0,) * outputs)
    stacks = [gf.flip(x, axis=0) if f else x for x, f in zip(stacked, flips, strict=True)]
    return (*last, *[gf.moveaxis(x, 0, a) for x, a in zip(stacks, axes, strict=True)])


def _laid(
    sequences: Sequence[Tensor], axes: Sequence[int], flips: Sequence[int]
) -> tuple[Tensor, ...]:
    made = [gf.moveaxis(x, axis, 0) for x, axis in zip(sequences, axes, strict=True)]
    return tuple([gf.flip(x, axis=0) if f else x for x, f in zip(made, flips, strict=True)])


@writes("scan")
def _write_scan(b: Builder, node: Node, *inputs: Val) -> list[Val]:
    """Write a Scan; the numbers of the iterations are one sequence more."""
    op = fields(node)
    if op.length == 0:  # ONNX Runtime refuses to scan nothing
        empty = [np.zeros(k.shape, k.dtype.dtype) for k in node.types[op.carries :]]
        return [*inputs[: op.carries], *map(b.constant, empty)]
    carried, sequences = inputs[: op.carries], inputs[op.carries : op.carries + op.sequences]
    captures = inputs[op.carries + op.sequences :]
    number, *rest = op.body.parameters
    own = rest[: op.carries + op.sequences]
    carries, elements = own[: op.carries], own[op.carries :]
    parameters = [
        (b.fresh(name, t.dtype), t.type)
        for name, some in (("carry", carries), ("trip", [number]), ("element", elements))
        for t in some
    ]
    values = [value for value, _ in parameters]
    states, iteration, each = values[: op.carries], values[op.carries], values[op.carries + 1 :]
    body = b.body(
        "trip",
        parameters,
        lambda: _body(b, op.body, [iteration, *states, *each, *captures]),
        [t.type for t in op.body.outputs],
    )
    stacks = len(op.body.outputs) - op.carries
    backwards = int(op.backwards)
    return b.many(
        "Scan",
        [*carried, positions(b, op.length), *sequences],
        [kind.dtype for kind in node.types],
        body=body,
        num_scan_inputs=1 + op.sequences,
        scan_input_directions=[backwards] * (1 + op.sequences),
        **({"scan_output_directions": [backwards] * stacks} if stacks else {}),
    )


@writes("checkpoint")
def _write_checkpoint(b: Builder, node: Node, *inputs: Val) -> list[Val]:
    return _body(b, fields(node).body, inputs)


def _body(b: Builder, body: Body, inputs: Sequence[Val]) -> list[Val]:
    return b.inline(body.parameters, body.outputs, inputs)


_NUMBER = TensorType(int64, ())

_FLAG = TensorType(bool_, ())
