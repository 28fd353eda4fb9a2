"""The op `loop`: iterations until a condition fails, and passes back over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from graphfw.ir.body import Body, BodyGraph, body_of, copied
from graphfw.ir.build import emit_all
from graphfw.ir.concrete import in_iteration
from graphfw.ir.dtype import DType, bool_, float64, int64
from graphfw.ir.functions import F
from graphfw.ir.op import Case, Rng, bad, ok, op
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape, TensorType
from graphfw.ops.batching import MappedAxis, lifted
from graphfw.ops.control.effects import happens, silent
from graphfw.ops.control.region_op import (
    NUMBER,
    Region,
    count_iteration,
    filled,
    fits,
    forward,
    forward_loop_body,
    owned,
    require_dtypes,
    require_shapes,
    reverse,
    with_tangents,
    without_tangents,
    zeros_like,
)

T = TypeVar("T")


@op("loop")
class Loop(Region):
    """Iterate a body while a condition holds; then make more passes over the iterations.

    The number of iterations is not known before the run, so what a gradient needs of each iteration
    can't be a tensor. Instead the gradient of a loop is a loop of two passes: the first repeats it,
    the second goes over the same iterations backwards and is given, in each, the carry that the
    first began the iteration with. The gradient of that is a loop of four passes, and so on.

    Inputs: the first carries of all passes, then the captures. The condition takes the carry of the
    first pass and the captures. The body of a pass takes the iteration's number (int64), its own
    carry, from each earlier pass the carry that the iteration began with and what it yielded
    besides, and the captures; it yields its next carry, and what it hands to later passes. The
    outputs are the last carries of all passes.
    """

    condition: Body
    passes: tuple[Body, ...]
    carries: tuple[int, ...]
    backwards: tuple[bool, ...]

    def shape(self, *inputs: Shape) -> tuple[Shape, ...]:
        carries, captures = self.split(inputs)
        require_shapes(self.condition, [*carries[0], *captures])
        fits([t.shape for t in self.condition.outputs] == [()], "the condition is no scalar")
        seen: list[Shape] = []
        for body, carry in zip(self.passes, carries, strict=True):
            require_shapes(body, [(), *carry, *seen, *captures])
            made = [t.shape for t in body.outputs]
            fits(made[: len(carry)] == list(carry), "the carry changes its shape")
            seen += [*carry, *made[len(carry) :]]
        return tuple([shape for carry in carries for shape in carry])

    def dtype(self, *inputs: DType) -> tuple[DType, ...]:
        carries, captures = self.split(inputs)
        require_dtypes(self.condition, [*carries[0], *captures])
        fits(self.condition.outputs[0].dtype.is_bool, "the condition is no bool")
        seen: list[DType] = []
        for body, carry in zip(self.passes, carries, strict=True):
            require_dtypes(body, [int64, *carry, *seen, *captures])
            made = [t.dtype for t in body.outputs]
            fits(made[: len(carry)] == list(carry), "the carry changes its dtype")
            seen += [*carry, *made[len(carry) :]]
        return tuple([dtype for carry in carries for dtype in carry])

    def split(self, inputs: Sequence[Any]) -> tuple[list[Sequence[Any]], Sequence[Any]]:
        """Return the carry of each pass, and the captures."""
        carries, start = [], 0
        for count in self.carries:
            carries.append(inputs[start : start + count])
            start += count
        return carries, inputs[start:]

    def eval(self, xp: Any, *inputs: Any, rng: Rng | None = None) -> tuple[Any, ...]:
        firsts, captures = self.split(inputs)

        def holds(carry: Sequence[Any]) -> bool:
            return bool(self.condition.evaluate(xp, (*carry, *captures), rng)[0])

        def computed(number: int, iteration: int, state: Sequence[Any]) -> list[Any]:
            count_iteration()
            draws = None if rng is None else rng.fold(iteration)
            index = xp.asarray(iteration, dtype=xp.int64)
            with in_iteration(iteration):
                return self.passes[number].evaluate(xp, (index, *state, *captures), draws)

        results = [x for carry in self.ends(firsts, holds, computed) for x in carry]
        return owned(xp, results, inputs)

    def ends(
        self,
        firsts: Iterable[Sequence[T]],
        holds: Callable[[Sequence[T]], bool],
        computed: Callable[[int, int, Sequence[T]], Sequence[T]],
    ) -> Iterator[Sequence[T]]:
        """Make the iterations of all passes, and yield the last carry of each pass.

        Args:
            firsts: The first carry of each pass, which is asked for when the pass begins.
            holds: Whether there is another iteration, given the carry of the first pass.
            computed: Returns what a body yields, given the number of the pass, that of the
                iteration, and what the body takes between that and the captures.
        """
        begins = iter(firsts)
        count, *later = self.carries
        carry = next(begins)
        records: list[list[T]] = []
        iteration = 0
        while holds(carry):
            made = computed(0, iteration, carry)
            if later:
                records.append([*carry, *made[count:]])
            carry = made[:count]
            iteration += 1
        yield carry
        for number, (count, first) in enumerate(zip(later, begins, strict=True), 1):
            carry = first
            order = range(len(records))
            for iteration in reversed(order) if self.backwards[number] else order:
                record = records[iteration]
                made = computed(number, iteration, [*carry, *record])
                if number == len(later):
                    record.clear()  # no pass comes that is given it
                else:
                    record += [*carry, *made[count:]]
                carry = made[:count]
            yield carry

    def vjp(self, ct: tuple[Any, ...], y: tuple[Tensor, ...], *inputs: Tensor) -> list[Any]:
        carries, captures = self.split(inputs)
        seeds = [[t for t in own if t is not None] for own in self.split(ct)[0]]
        sums = [zeros_like(t.type) for t in captures if t.dtype.is_inexact]
        starts = list(inputs[: len(inputs) - len(captures)])
        adjoints: dict[int, _Adjoint] = {}
        for number in reversed(range(len(self.passes))):
            own = adjoints[number] = _Adjoint(self, number, adjoints, len(captures))
            if own.refusal is not None:
                return [own.refusal] * len(inputs)
            starts += [*seeds[number], *sums, *[F.asarray(True) for _ in own.both.tokens]]
        both = Loop(
            silent(self.condition),
            (*map(silent, self.passes), *[adjoint.body for adjoint in adjoints.values()]),
            (*self.carries, *[adjoint.carries for adjoint in adjoints.values()]),
            (*self.backwards, *[not self.backwards[number] for number in adjoints]),
        )
        found = iter(emit_all(both, *starts, *captures)[len(y) :])
        gradients: dict[int, Iterator[Tensor]] = {}
        totals: list[list[Tensor]] = [[] for _ in sums]
        for number in adjoints:
            gradients[number] = iter([next(found) for _ in seeds[number]])
            for total in totals:
                total.append(next(found))
            happens([next(found) for _ in adjoints[number].both.tokens])
        entries: list[Any] = [
            next(gradients[number]) if t.dtype.is_inexact else None
            for number, carry in enumerate(carries)
            for t in carry
        ]
        rest = map(_sum, totals)
        cotangents: list[Any] = [next(rest) if t.dtype.is_inexact else None for t in captures]
        for one in adjoints.values():
            cotangents = one.both.refusing(cotangents, len(one.both.parameters) - len(captures))
        return [*entries, *cotangents]

    def batch(self, mapped: MappedAxis, batched: Sequence[bool], *inputs: Tensor) -> list[Tensor]:
        carries, taken = self.split(batched)
        first, found = mapped.iteration("loop", self.passes[0], carries[0], taken)
        condition, asked = mapped.body(
            "loop", self.condition, [*found[: self.carries[0]], *taken], [False]
        )
        if asked[0]:
            return _MappedLoop(self, mapped, batched).outputs(inputs)
        bodies, flags, seen = [first], found[: self.carries[0]], list(found)
        for body, carry in zip(self.passes[1:], carries[1:], strict=True):
            new, found = mapped.iteration("loop", body, carry, [*seen, *taken])
            bodies.append(new)
            flags += found[: len(carry)]
            seen += found
        starts = [
            mapped.everywhere(x, b) if f else x
            for x, b, f in zip(inputs, batched, flags, strict=False)
        ]
        loop = Loop(condition, tuple(bodies), self.carries, self.backwards)
        return mapped.all(emit_all(loop, *starts, *inputs[len(flags) :]), flags)

    def jvp(
        self, tangents: Sequence[Tensor | None], y: Sequence[Tensor], *inputs: Tensor
    ) -> tuple[Sequence[Tensor], list[Tensor | None]]:
        firsts, captures = self.split([t is not None for t in tangents])
        count = len(captures)
        seen: list[bool] = []  # which of what earlier passes record have a tangent
        sizes: list[int] = []  # how many they record: of each their carry, and what else they yield
        bodies, carries = [], []
        for body, own, before in zip(self.passes, self.carries, firsts, strict=True):
            both, moved = forward_loop_body(body, before, [*seen, *captures], "loop")
            wanted = [*moved, *[t is not None for t in both.tangents[own:]]]
            made = (own, len(wanted) - own)
            bodies.append(both.body((1, own, *sizes, count), made, wanted))
            carries.append(moved)
            seen += wanted
            sizes += made
        asked = forward(self.condition, [*carries[0], *captures], "loop")
        counts = (*self.carries, count)
        wanted = [flag for moved in carries for flag in moved]
        loop = Loop(
            asked.body((self.carries[0], count), (1,), [False]),
            tuple(bodies),
            tuple([len(moved) + sum(moved) for moved in carries]),
            self.backwards,
        )
        starts = filled(tangents, [t.type for t in inputs], [*wanted, *captures])
        found = emit_all(loop, *with_tangents(inputs, starts, counts))
        return without_tangents(found, wanted, self.carries)

    @staticmethod
    def cases() -> Iterator[Case]:
        row = TensorType(float64, (2,))
        # The condition reads the count only: where it reads values, gradients jump.
        below = body_of("loop", lambda count, x, w: [count < 3], NUMBER, row, row)
        step = body_of(
            "loop",
            lambda number, count, x, w: [count + 1, F.sin(x) * w + F.astype(number, float64)],
            *(NUMBER, NUMBER, row, row),
        )
        fields: dict[str, Any] = {
            "condition": below,
            "passes": (step,),
            "carries": (2,),
            "backwards": (False,),
        }
        yield ok("int64[]", "float64[2]", "float64[2]", ints=(0, 5), **fields)
        yield bad("int64[]", "float64[3]", "float64[2]", match="the body takes", **fields)

    def recorded(self, number: int) -> list[TensorType]:
        """Return the types of the carry and the yield of a pass, which later passes read."""
        body, count = self.passes[number], self.carries[number]
        carry = body.parameters[1 : 1 + count]
        return [t.type for t in (*carry, *body.outputs[count:])]


class _MappedLoop:
    """A loop whose examples make different numbers of iterations: it goes on until all are done.

    The first pass has one carry more: which examples are still active. Later passes find it in what
    is recorded of each iteration. Examples that are done keep their carries.

    Args:
        loop: The loop of one example.
        mapped: The examples.
        batched: Which of the loop's inputs are batched.
    """

    def __init__(self, loop: Loop, mapped: MappedAxis, batched: Sequence[bool]) -> None:
        self.loop, self.mapped = loop, mapped
        self.starts = sum(loop.carries)
        self.batched = batched[: self.starts]
        self.taken = batched[self.starts :]

    def outputs(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return the last carries of all passes."""
        loop, mapped = self.loop, self.mapped
        count, *others = loop.carries
        starts = mapped.all(inputs[: self.starts], self.batched)
        captures = inputs[self.starts :]
        active = self.asked(starts[:count], captures)
        graph = BodyGraph("loop")
        with graph:
            state = [graph.parameter(t.type) for t in (*starts[:count], active, *captures)]
            condition = Body(state, [F.any(state[count])])
        bodies = tuple([self.iteration(number) for number in range(len(loop.passes))])
        new = Loop(condition, bodies, (count + 1, *others), loop.backwards)
        found = emit_all(new, *starts[:count], active, *starts[count:], *captures)
        return [*found[:count], *found[count + 1 :]]

    def asked(self, carry: Sequence[Tensor], captures: Sequence[Tensor]) -> Tensor:
        """Return whether the condition holds, example by example."""
        flags = [*[True] * len(carry), *self.taken]
        found = self.mapped.through(self.loop.condition, (*carry, *captures), flags)
        return self.mapped.all(*found)[0]

    def iteration(self, number: int) -> Body:
        """Return the body of a pass."""
        loop, mapped = self.loop, self.mapped
        body, own = loop.passes[number], loop.carries[number]
        flags = [False, *[True] * (len(body.parameters) - 1 - len(self.taken)), *self.taken]
        graph = BodyGraph("loop")
        with graph:
            parameters = [
                graph.parameter(mapped.kind(t.type, flag))
                for t, flag in zip(body.parameters, flags, strict=True)
            ]
            active = graph.parameter(TensorType(bool_, (mapped.size,)))
            safe = [
                mapped.only(active, x) if f else x for x, f in zip(parameters, flags, strict=True)
            ]
            made = mapped.all(*mapped.through(body, safe, flags))
            carry = [
                F.where(lifted(active, old.ndim), new, old)
                for new, old in zip(made[:own], parameters[1:], strict=False)
            ]
            handed = made[own:]
            if number == 0:
                handed.insert(0, active & self.asked(carry, parameters[1 + own :]))
        # `active` stands after the carry of the first pass.
        position = 1 + loop.carries[0] + (own if number else 0)
        return Body([*parameters[:position], active, *parameters[position:]], [*carry, *handed])


class _Adjoint:
    """The pass that goes back over one pass of a loop.

    Its carry is the cotangents of that pass's float carry, sums of those of the float captures, and
    a token if gradient rules have effects. Besides it yields, for each pass before that one, the
    cotangents of what is recorded of it, as far as that is floats.

    Args:
        loop: The loop.
        number: The pass that it goes back over.
        after: The adjoints that run before it: those of the passes after that one, last first.
        captures: How many captures the loop has.
    """

    def __init__(
        self, loop: Loop, number: int, after: Mapping[int, _Adjoint], captures: int
    ) -> None:
        self.both = both = reverse(silent(loop.passes[number]), "loop")
        count = loop.carries[number]
        index, *rest = both.parameters
        split = len(rest) - captures
        # What it carries or reads of earlier passes leads to all other gradients.
        refused = [x for carried_index, x in both.refused.items() if carried_index <= split]
        self.refusal = refused[0] if refused else None
        own, read, taken = rest[:count], rest[count:split], rest[split:]
        summed = [t for t in taken if t.dtype.is_inexact]
        seeds = [t for t in both.seeds if t is not None]
        carried = len([t for t in own if t.dtype.is_inexact])
        graph = BodyGraph("loop")
        with graph:
            new = {t: graph.parameter(t.type) for t in (index, *seeds[:carried])}
            totals = [graph.parameter(t.type) for t in (*summed, *both.tokens)]
            records = [
                [graph.parameter(kind) for kind in loop.recorded(one)]
                for one in range(len(loop.passes))
            ]
            later = [[graph.parameter(kind) for kind in one.recorded] for one in after.values()]
            new.update((t, graph.parameter(t.type)) for t in taken)
            parameters = [
                *[new[t] for t in (index, *seeds[:carried])],
                *totals,
                *[t for record in (*records, *later) for t in record],
                *[new[t] for t in taken],
            ]
            new.update(zip(own, records[number], strict=False))
            new.update(zip(read, [t for one in records[:number] for t in one], strict=True))
            said = [
                one.about(number, loop, record)
                for one, record in zip(after.values(), later, strict=True)
            ]
            effects = [list(values) for values in zip(*said, strict=True)]
            for carried_index, seed in enumerate(seeds[carried:], carried):
                new[seed] = _sum(effects[carried_index]) if effects else zeros_like(seed.type)
            found = [*[g for g in both.gradients if g is not None], *both.tokens]
            made = dict(zip(found, copied(found, new), strict=True))
            gradient = {
                t: zeros_like(t.type) if g is None else made[g]
                for t, g in zip(both.parameters, both.gradients, strict=True)
                if t.dtype.is_inexact
            }
            state = [gradient[t] for t in own if t.dtype.is_inexact]
            if effects:
                state = [
                    _sum([g, *effects[carried_index]]) for carried_index, g in enumerate(state)
                ]
            state += [total + gradient[t] for total, t in zip(totals, summed, strict=False)]
            state += [totals[-1] & made[token] for token in both.tokens]
            handed = [gradient[t] for t in read if t.dtype.is_inexact]
        self.carries = len(state)
        self.body = Body(parameters, (*state, *handed))
        self.recorded: list[TensorType] = [t.type for t in (*state, *handed)]

    def about(self, number: int, loop: Loop, record: list[Tensor]) -> list[Tensor]:
        """Return the tensors of a later pass's record that are about an earlier pass's."""
        floats = [sum(k.dtype.is_inexact for k in loop.recorded(one)) for one in range(number + 1)]
        begin = self.carries + sum(floats[:number])
        return record[begin : begin + floats[number]]


def _sum(values: Sequence[Tensor]) -> Tensor:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total
