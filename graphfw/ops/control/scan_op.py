"""The op `scan`: a loop whose number of iterations is a dim, with stacked inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial, reduce
from itertools import chain
from operator import add
from typing import Any

from graphfw.ir.body import Body, BodyGraph, body_of, copied
from graphfw.ir.build import emit_all
from graphfw.ir.concrete import in_iteration
from graphfw.ir.dim import DimLike, symbol
from graphfw.ir.dtype import DType, float64, int64
from graphfw.ir.functions import F
from graphfw.ir.op import ALIAS, ELEMENTWISE, Case, Cost, Rng, bad, ok, op
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape, TensorType
from graphfw.ops.batching import MappedAxis, changed
from graphfw.ops.control.deferred_sums import Deferred, deferred, terms
from graphfw.ops.control.effects import happens
from graphfw.ops.control.region_op import (
    NUMBER,
    Forward,
    Refusal,
    Region,
    Reverse,
    count_iteration,
    filled,
    fits,
    forward_loop_body,
    frontier,
    owned,
    require_dtypes,
    require_shapes,
    reverse,
    sizes_in_run,
    with_tangents,
    without_tangents,
    zeros_like,
)


@op("scan")
class Scan(Region):
    """Apply a body `length` times, from carry to carry.

    Inputs: the first carry, the sequences (of which each iteration gets one element along axis 0),
        the
    captures. The body takes the iteration's number (int64), a carry, the sequences' elements and
    the captures, and yields the next carry and what is stacked: the outputs are the last carry and
    the stacks. `reverse` goes from the last element to the first; numbers and stacks stay in place.
    """

    body: Body
    length: DimLike
    carries: int
    sequences: int
    backwards: bool = False

    def shape(self, *inputs: Shape) -> tuple[Shape, ...]:
        first, last = self.carries, self.carries + self.sequences
        for shape in inputs[first:last]:
            fits(bool(shape) and shape[0] == self.length, "a sequence has another length")
        elements = [shape[1:] for shape in inputs[first:last]]
        require_shapes(self.body, [(), *inputs[:first], *elements, *inputs[last:]])
        shapes = [t.shape for t in self.body.outputs]
        fits(shapes[:first] == list(inputs[:first]), "the carry changes its shape")
        return (*shapes[:first], *[(self.length, *shape) for shape in shapes[first:]])

    def dtype(self, *inputs: DType) -> tuple[DType, ...]:
        require_dtypes(self.body, [int64, *inputs])
        dtypes = [t.dtype for t in self.body.outputs]
        fits(dtypes[: self.carries] == list(inputs[: self.carries]), "the carry changes its dtype")
        return tuple(dtypes)

    def eval(self, xp: Any, *inputs: Any, rng: Rng | None = None) -> tuple[Any, ...]:
        first, last = self.carries, self.carries + self.sequences
        length = int(self.length)
        carry, sequences, captures = inputs[:first], inputs[first:last], inputs[last:]
        stacks = [
            xp.empty((length, *shape), dtype=t.dtype.dtype)
            for shape, t in zip(
                sizes_in_run(self.body)[first:], self.body.outputs[first:], strict=True
            )
        ]
        for iteration in self.order(length):
            count_iteration()
            elements = [xp.asarray(s[iteration]) for s in sequences]
            number = xp.asarray(iteration, dtype=xp.int64)
            draws = None if rng is None else rng.fold(iteration)
            with in_iteration(iteration):
                results = self.body.evaluate(xp, (number, *carry, *elements, *captures), draws)
            carry = tuple(results[:first])
            for stack, result in zip(stacks, results[first:], strict=True):
                stack[iteration] = result
        return (*owned(xp, carry, inputs), *stacks)

    def order(self, length: int) -> Iterable[int]:
        """Return the numbers of so many iterations, in the order in which they are made."""
        return reversed(range(length)) if self.backwards else range(length)

    def vjp(self, ct: tuple[Any, ...], y: tuple[Tensor, ...], *inputs: Tensor) -> list[Any]:
        backward = _Backward(self, inputs)
        refusal = backward.refusal
        if refusal is not None:
            return [refusal] * len(inputs)
        return backward.both.refusing(backward.entries([t for t in ct if t is not None]), 1)

    def batch(self, mapped: MappedAxis, batched: Sequence[bool], *inputs: Tensor) -> list[Tensor]:
        first, last = self.carries, self.carries + self.sequences
        body, found = mapped.iteration("scan", self.body, batched[:first], batched[first:])
        starts = [
            mapped.everywhere(x, flag) if must else x
            for x, flag, must in zip(inputs[:first], batched, found, strict=False)
        ]
        sequences = [
            F.moveaxis(x, 0, 1) if flag else x
            for x, flag in zip(inputs[first:last], batched[first:last], strict=True)
        ]
        made = emit_all(changed(self, body=body), *starts, *sequences, *inputs[last:])
        stacks = [
            F.moveaxis(y, 1, 0) if flag else y
            for y, flag in zip(made[first:], found[first:], strict=True)
        ]
        return mapped.all([*made[:first], *stacks], found)

    def jvp(
        self, tangents: Sequence[Tensor | None], y: Sequence[Tensor], *inputs: Tensor
    ) -> tuple[Sequence[Tensor], list[Tensor | None]]:
        first, last = self.carries, self.carries + self.sequences
        moved = [t is not None for t in tangents]
        both, carry = forward_loop_body(self.body, moved[:first], moved[first:], "scan")
        moved[:first] = carry
        wanted = [*carry, *[t is not None for t in both.tangents[first:]]]
        if not any(wanted):
            return y, [None] * len(y)
        counts = (first, self.sequences, len(inputs) - last)
        sizes = (first, len(y) - first)
        scan = Scan(
            both.body((1, *counts), sizes, wanted),
            self.length,
            first + sum(carry),
            self.sequences + sum(moved[first:last]),
            self.backwards,
        )
        starts = filled(tangents, [t.type for t in inputs], moved)
        return without_tangents(
            emit_all(scan, *with_tangents(inputs, starts, counts)), wanted, sizes
        )

    def tangents_apart(
        self, tangents: Sequence[Tensor | None], y: Sequence[Tensor], *inputs: Tensor
    ) -> tuple[Sequence[Tensor], list[Tensor | None]]:
        """Return the outputs, and their tangents by a loop of their own, which is linear in them.

        The loop itself stacks what that one reads, so it is made once for any number of tangents.
        """
        first, last = self.carries, self.carries + self.sequences
        moved = [t is not None for t in tangents]
        both, carry = forward_loop_body(self.body, moved[:first], moved[first:], "scan", keeps=True)
        wanted = [*carry, *[t is not None for t in both.tangents[first:]]]
        if not any(wanted):
            return y, [None] * len(y)
        number, *rest = both.parameters
        elements, taken = rest[first:last], rest[last:]
        seeds = both.seeds[1:]
        starts = filled(tangents, [t.type for t in inputs], [*carry, *moved[first:]])
        with both.graph:
            made = filled(both.tangents, [t.type for t in both.outputs], wanted)
        results = [t for t in made if t is not None]
        kept = _stored(both, results, {number, *elements, *taken})
        outputs, stacks = _stacks(self, both, kept, inputs)
        # What each iteration is given, in order, with what the loop is.
        steps = [
            *zip(seeds[:first], starts[:first], strict=True),
            *zip(kept, stacks, strict=True),
            *zip(seeds[first:last], starts[first:last], strict=True),
            *zip(elements, inputs[first:last], strict=True),
            *zip(seeds[last:], starts[last:], strict=True),
            *zip(taken, inputs[last:], strict=True),
        ]
        parameter_of = {t: whole for t, whole in steps if t is not None and whole is not None}
        graph = BodyGraph("scan")
        with graph:
            own = {t: graph.parameter(t.type) for t in (number, *parameter_of)}
            body = Body(list(own.values()), copied(results, own))
        sequences = len(kept) + sum(moved[first:last]) + self.sequences
        scan = Scan(body, self.length, sum(carry), sequences, self.backwards)
        found = iter(emit_all(scan, *parameter_of.values()))
        return outputs, [next(found) if want else None for want in wanted]

    def cost(self, outputs: tuple[TensorType, ...], *inputs: TensorType) -> Cost:
        flops: DimLike = 0
        for node in self.body.nodes:
            flops = flops + node.op.cost(node.types, *[t.type for t in node.inputs]).flops
        moved = super().cost(outputs, *inputs)
        return Cost(flops * self.length, moved.read_bytes, moved.write_bytes)

    @staticmethod
    def cases() -> Iterator[Case]:
        def decaying(_: Tensor, carry: Tensor, x: Tensor, w: Tensor) -> Sequence[Tensor]:
            new = F.tanh(carry * w + x)
            return [new, new * x]

        row = TensorType(float64, (2,))
        body = body_of("scan", decaying, NUMBER, row, row, row)
        length = symbol("n")
        kinds = ("float64[2]", "float64[n, 2]", "float64[2]")
        yield ok(*kinds, body=body, length=length, carries=1, sequences=1)
        yield ok(*kinds, body=body, length=length, carries=1, sequences=1, backwards=True)
        wrong = ("float64[3]", "float64[n, 2]", "float64[2]")
        match = "the body takes"
        yield bad(*wrong, body=body, length=length, carries=1, sequences=1, match=match)


class _Backward:
    """The gradient of one scan: a scan that also stacks what is read later, and one backwards."""

    def __init__(self, scan: Scan, inputs: Sequence[Tensor]) -> None:
        first, last = scan.carries, scan.carries + scan.sequences
        self.scan, self.inputs = scan, inputs
        self.both = both = reverse(scan.body, "scan")
        self.number, *rest = both.parameters
        self.carry, self.elements, self.taken = rest[:first], rest[first:last], rest[last:]
        self.gradient = dict(zip(both.parameters, both.gradients, strict=True))
        wanted = [*[t for t in both.gradients if t is not None], *both.tokens]
        self.kept = _stored(both, wanted, {self.number, *self.elements, *self.taken})
        self.moved = {t: g for t in self.elements if (g := self.gradient[t]) is not None}
        # The parameters for the cotangents of what the loop stacks.
        self.given = [t for t in both.seeds[first:] if t is not None]
        # Of each capture: what every iteration adds to its cotangent, and what is added after the
        # loop.
        self.sums: dict[Tensor, list[Tensor]] = {}
        self.late: dict[Tensor, list[Deferred]] = {}
        self.extra: dict[Tensor, None] = {}
        for t in self.taken:
            self._divide(t)

    def _divide(self, capture: Tensor) -> None:
        """Decide which terms of a capture's cotangent are summed after the loop."""
        own = self.gradient[capture]
        if own is None:
            return
        stacked = {*self.elements, *self.kept, *self.given, *self.moved.values()}
        for term in terms(own):
            found = deferred(term, self.scan.length, stacked)
            if found is None or not {*self.taken}.isdisjoint(found.operands):
                self.sums.setdefault(capture, []).append(term)
                continue
            self.late.setdefault(capture, []).append(found)
            self.extra.update(dict.fromkeys([t for t in found.operands if t not in stacked]))

    @property
    def refusal(self) -> Refusal | None:
        """The stand-in for all gradients if that of a carry is refused: it leads to all others."""
        refused = [x for position, x in self.both.refused.items() if position <= self.scan.carries]
        return refused[0] if refused else None

    def entries(self, ct: Sequence[Tensor]) -> list[Any]:
        """Return the cotangents of the inputs for those of the float outputs."""
        carry = [t for t in self.carry if t.dtype.is_inexact]
        scan = self.scan
        backward = Scan(
            self._body(carry),
            scan.length,
            len(carry) + len(self.sums),
            len(self.kept) + len(ct) - len(carry) + len(self.elements),
            not scan.backwards,
        )
        kept = _stacks(scan, self.both, self.kept, self.inputs)[1] if self.kept else ()
        found = emit_all(
            backward,
            *ct[: len(carry)],
            *[zeros_like(t.type) for t in self.sums],
            *kept,
            *ct[len(carry) :],
            *self.inputs[scan.carries :],
        )
        end = len(found) - len(self.both.tokens)
        happens(found[end:])
        found = found[:end]
        of: dict[Tensor, Any] = dict(zip([*carry, *self.sums, *self.moved], found, strict=False))
        stacks = dict(zip(self.elements, self.inputs[scan.carries :], strict=False))
        stacks.update(zip(self.kept, kept, strict=True))
        stacks.update(zip(self.given, ct[len(carry) :], strict=True))
        trailing = [*self.moved.values(), *self.extra]
        stacks.update(zip(trailing, found[len(found) - len(trailing) :], strict=True))
        for t, late in self.late.items():
            of[t] = partial(_total, of.get(t), late, stacks)
        return [of.get(t) for t in (*self.carry, *self.elements, *self.taken)]

    def _body(self, carry: list[Tensor]) -> Body:
        """Return one iteration backwards.

        Its carry is the cotangents of the loop's float carry, and sums over the iterations so far
        of those of the captures. It stacks the cotangents of the sequences' elements, what sums
        after the loop are made of, and the token of rules' effects.
        """
        seeds = [t for t in self.both.seeds[: self.scan.carries] if t is not None]
        graph = BodyGraph("scan")
        with graph:
            parameter_of = {t: graph.parameter(t.type) for t in (self.number, *seeds)}
            totals = [graph.parameter(t.type) for t in self.sums]
            for t in (*self.kept, *self.given, *self.elements, *self.taken):
                parameter_of[t] = graph.parameter(t.type)
            own = [g for t in (*carry, *self.moved) if (g := self.gradient[t]) is not None]
            tokens = self.both.tokens
            wanted = [*own, *self.extra, *chain.from_iterable(self.sums.values()), *tokens]
            made = dict(zip(wanted, copied(wanted, parameter_of), strict=True))

            def gradient(t: Tensor) -> Tensor:
                own = self.gradient[t]
                return zeros_like(t.type) if own is None else made[own]

            outputs = [
                *map(gradient, carry),
                *[
                    total + reduce(add, [made[term] for term in summed])
                    for total, summed in zip(totals, self.sums.values(), strict=True)
                ],
                *map(gradient, self.moved),
                *[made[t] for t in (*self.extra, *tokens)],
            ]
        parameters = list(parameter_of.values())
        begin = 1 + len(carry)
        return Body((*parameters[:begin], *totals, *parameters[begin:]), outputs)


def _total(first: Tensor | None, late: Sequence[Deferred], stacks: dict[Tensor, Tensor]) -> Tensor:
    """Return the sum of what a loop has summed up and of what is summed up after it."""
    totals = [one.total([stacks[t] for t in one.operands]) for one in late]
    return reduce(add, totals if first is None else [first, *totals])


def _stacks(
    scan: Scan, both: Reverse | Forward, kept: Sequence[Tensor], inputs: Sequence[Tensor]
) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """Run a loop, and return its outputs, and what is kept of each iteration."""
    body = Body(both.parameters, (*both.outputs, *kept))
    found = emit_all(changed(scan, body=body), *inputs)
    return found[: len(both.outputs)], found[len(both.outputs) :]


def _stored(both: Reverse | Forward, wanted: Sequence[Tensor], free: set[Tensor]) -> list[Tensor]:
    """Return the tensors that a loop must keep for that of its derivatives: no more than is needed.

    What a view or an elementwise op makes of tensors that are at hand is made again instead.
    """
    kept = dict.fromkeys(t for t in frontier(both, wanted) if t not in free)
    for tensor in reversed(list(kept)):
        node = tensor.node
        cheap = not node.op.traits.isdisjoint((ALIAS, ELEMENTWISE)) or node.op.name == "constant"
        if cheap and all(t in kept or t in free for t in node.inputs):
            del kept[tensor]
    return list(kept)
