"""Loops and branches: their bodies become graphs of attributes, and captures stay outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from graphfw.ir.body import Body
from graphfw.ir.dtype import bool_, int64
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import TensorType
from graphfw.onnx.builder import Builder, Val
from graphfw.onnx.exporters.movement import fields, positions
from graphfw.onnx.table import writes

_NUMBER = TensorType(int64, ())
_FLAG = TensorType(bool_, ())


@writes("checkpoint")
def _checkpoint(b: Builder, node: Node, *inputs: Val) -> list[Val]:
    return _body(b, fields(node).body, inputs)


def _body(b: Builder, body: Body, inputs: Sequence[Val]) -> list[Val]:
    return b.inline(body.parameters, body.outputs, inputs)


@writes("branch")
def _branch(b: Builder, node: Node, number: Val, *inputs: Val) -> Sequence[Val]:
    """A choice of two at a time: the first if the number is 0 or less, and so on."""
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


@writes("scan")
def _scan(b: Builder, node: Node, *inputs: Val) -> list[Val]:
    """ONNX's Scan; the trips' numbers are one sequence more."""
    op = fields(node)
    if op.length == 0:  # ONNX Runtime refuses to scan nothing
        empty = [np.zeros(k.shape, k.dtype.dtype) for k in node.types[op.carries :]]
        return [*inputs[: op.carries], *map(b.constant, empty)]
    carried, sequences = inputs[: op.carries], inputs[op.carries : op.carries + op.sequences]
    captures = inputs[op.carries + op.sequences :]
    number, *rest = op.body.parameters
    own = rest[: op.carries + op.sequences]
    carries, elements = own[: op.carries], own[op.carries :]
    given = [
        (b.fresh(name, t.dtype), t.type)
        for name, some in (("carry", carries), ("trip", [number]), ("element", elements))
        for t in some
    ]
    values = [value for value, _ in given]
    states, trip, each = values[: op.carries], values[op.carries], values[op.carries + 1 :]
    body = b.body(
        "trip",
        given,
        lambda: _body(b, op.body, [trip, *states, *each, *captures]),
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


@writes("loop")
def _loop(b: Builder, node: Node, *inputs: Val) -> list[Val]:
    """One Loop for each pass over the trips.

    Each but the last also stacks what later passes are given of a trip: what it began with, and
    what it yielded besides.
    """
    op = fields(node)
    firsts, captures = op.split(inputs)
    is_last = len(op.passes) - 1
    results: list[Val] = []
    stacks: list[Val] = []
    trips: Val | None = None
    for number, (body, first) in enumerate(zip(op.passes, firsts, strict=True)):
        own = _Pass(b, body, list(first), stacks, list(captures), keeps=number < is_last)
        if number == 0:
            made = own.while_true(op.condition)
            trips = made.pop(0)
        else:
            assert trips is not None
            made = own.over(trips, op.backwards[number])
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
        """Write the first pass; return the number of trips, the last carries and the stacks."""
        b = self.b

        def goes_on(carry: Sequence[Val]) -> Val:
            return _body(b, condition, [*carry, *self.captures])[0]

        count = b.fresh("count", int64)

        def trip(number: Val, carry: Sequence[Val]) -> list[Val]:
            made = self._trip(number, carry, [])
            more = b("Add", count, b.scalar(1, int64))
            own, rest = made[: len(carry)], made[len(carry) :]
            return [goes_on(own), more, *own, *rest]

        start = goes_on(self.first)
        return self._written(None, start, [(count, _NUMBER, b.scalar(0, int64))], trip)

    def over(self, trips: Val, backwards: bool) -> list[Val]:
        """Write a later pass, of as many trips; return the last carries and the stacks."""
        b = self.b

        def trip(number: Val, carry: Sequence[Val]) -> list[Val]:
            at = number
            if backwards:
                at = b("Sub", b("Sub", trips, b.scalar(1, int64)), number)
            elements = [b("Gather", stack, at, axis=0) for stack in self.stacks]
            return [b.constant(True), *self._trip(at, carry, elements)]

        made = self._written(trips, None, [], trip)
        if not backwards or not self.keeps:
            return made
        # Later passes find each trip at its number.
        turned = [_turned(b, stack) for stack in made[len(self.first) :]]
        return [*made[: len(self.first)], *turned]

    def _trip(self, at: Val, carry: Sequence[Val], elements: Sequence[Val]) -> list[Val]:
        made = _body(self.b, self.body, [at, *carry, *elements, *self.captures])
        own, rest = made[: len(carry)], made[len(carry) :]
        return [*own, *([*carry, *rest] if self.keeps else [])]

    def _written(
        self,
        trips: Val | None,
        start: Val | None,
        more: Sequence[tuple[Val, TensorType, Val]],
        trip: Callable[[Val, Sequence[Val]], list[Val]],
    ) -> list[Val]:
        b = self.b
        number, on = b.fresh("trip", int64), b.fresh("on", bool_)
        states = [b.fresh("carry", kind.dtype) for kind in self.kinds]
        given = [(number, _NUMBER), (on, _FLAG)]
        given += [(value, kind) for value, kind, _ in more]
        given += list(zip(states, self.kinds, strict=True))
        carried = [*[kind for _, kind, _ in more], *self.kinds]
        body = b.body("trip", given, lambda: trip(number, states), [_FLAG, *carried, *self.kept])
        kinds = [*carried, *self.kept]
        inputs = [trips, start, *[value for _, _, value in more], *self.first]
        return b.many("Loop", inputs, [kind.dtype for kind in kinds], body=body)


def _turned(b: Builder, x: Val) -> Val:
    minus = b.ints([-1])
    return b("Slice", x, minus, b.ints([-(2**63)]), b.ints([0]), minus)
