"""The op `branch`: one of several bodies, chosen by a number when the graph runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from graphfw.ir.body import Body, BodyGraph, body_of, copied
from graphfw.ir.build import emit_all
from graphfw.ir.dtype import DType, float64, int64
from graphfw.ir.functions import F
from graphfw.ir.op import ELEMENTWISE, Case, Rng, bad, ok, op
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape, TensorType
from graphfw.ops.batching import MappedAxis, lifted
from graphfw.ops.control.effects import happens, silent
from graphfw.ops.control.region_op import (
    Region,
    Reverse,
    fits,
    forward,
    owned,
    require_dtypes,
    require_shapes,
    reverse,
    without_tangents,
    zeros_like,
)


@op("branch")
class Branch(Region):
    """Apply the body whose number is the first input; all take the others, and yield equal types.

    A number that is out of range counts as the nearest that is not.  number: int[], others
    """

    choices: tuple[Body, ...]

    def shape(self, number: Shape, *inputs: Shape) -> tuple[Shape, ...]:
        fits(number == (), "the branch's number is not a scalar")
        for body in self.choices:
            require_shapes(body, inputs)
        first, *others = [[t.shape for t in body.outputs] for body in self.choices]
        fits(all(one == first for one in others), "the branches yield other shapes")
        return tuple(first)

    def dtype(self, number: DType, *inputs: DType) -> tuple[DType, ...]:
        fits(number.is_integer, "the branch's number is not an integer")
        for body in self.choices:
            require_dtypes(body, inputs)
        first, *others = [[t.dtype for t in body.outputs] for body in self.choices]
        fits(all(one == first for one in others), "the branches yield other dtypes")
        return tuple(first)

    def eval(self, xp: Any, number: Any, *inputs: Any, rng: Rng | None = None) -> tuple[Any, ...]:
        chosen = min(max(int(number), 0), len(self.choices) - 1)
        return owned(xp, self.choices[chosen].evaluate(xp, inputs, rng), inputs)

    def vjp(self, ct: tuple[Any, ...], y: tuple[Tensor, ...], *inputs: Tensor) -> list[Any]:
        # What a branch computes is computed again in the gradient: the branches have nothing in
        # common that could be kept.
        wanted = [t.dtype.is_inexact for t in inputs[1:]]
        both = [reverse(silent(body), "branch") for body in self.choices]
        has_effect = any(one.tokens for one in both)
        bodies = [_reversed(one, wanted, has_effect) for one in both]
        seeds = [t for t in ct if t is not None]
        found = iter(emit_all(Branch(tuple(bodies)), *inputs, *seeds))
        entries: list[Any] = [next(found) if want else None for want in wanted]
        happens(list(found))
        for one in both:
            entries = one.refusing(entries)
        return [None, *entries]

    def jvp(
        self, tangents: Sequence[Tensor | None], y: Sequence[Tensor], *inputs: Tensor
    ) -> tuple[Sequence[Tensor], list[Tensor | None]]:
        moving = [t for t in tangents[1:] if t is not None]
        ahead = [forward(b, [t is not None for t in tangents[1:]], "branch") for b in self.choices]
        wanted = [any(one.tangents[i] is not None for one in ahead) for i in range(len(y))]
        if not any(wanted):
            return y, [None] * len(y)
        bodies = [one.body((len(inputs) - 1,), (len(y),), wanted) for one in ahead]
        found = emit_all(Branch(tuple(bodies)), *inputs, *moving)
        return without_tangents(found, wanted, (len(y),))

    def batch(
        self, mapped: MappedAxis, batched: Sequence[bool], number: Tensor, *inputs: Tensor
    ) -> Sequence[Tensor]:
        flags = batched[1:]
        if not batched[0]:
            bodies = [mapped.body("branch", body, flags)[0] for body in self.choices]
            return emit_all(Branch(tuple(bodies)), number, *inputs)
        last = len(self.choices) - 1
        chosen = F.astype(F.maximum(F.minimum(number, last), 0), int64)
        results: Sequence[Tensor] = ()
        for index, body in enumerate(self.choices):
            mask = chosen == index
            found = _for_some(mapped, mask, body, flags, inputs)
            results = [
                F.where(lifted(mask, y.ndim), y, other)
                for y, other in zip(found, results or found, strict=True)
            ]
        return results

    @staticmethod
    def cases() -> Iterator[Case]:
        row = TensorType(float64, (2,))
        choices = (
            body_of("branch", lambda x: [F.sin(x)], row),
            body_of("branch", lambda x: [F.exp(x) * x], row),
        )
        yield ok("int64[]", "float64[2]", choices=choices, ints=(0, 2))
        yield bad("int64[1]", "float64[2]", choices=choices, match="number is not a scalar")
        yield bad("int64[]", "float64[3]", choices=choices, match="the body takes")


def _for_some(
    mapped: MappedAxis, mask: Tensor, body: Body, batched: Sequence[bool], inputs: Sequence[Tensor]
) -> Sequence[Tensor]:
    """Return a branch's results, right in the examples that take it; in others, anything.

    It is computed if an example takes it, on the values of such examples: elsewhere it might fail.
    """
    if all(ELEMENTWISE in node.op.traits or not node.inputs for node in body.nodes):
        return mapped.all(*mapped.through(body, inputs, batched))
    kinds = [mask.type, *[t.type for t in inputs]]
    none, some = BodyGraph("branch"), BodyGraph("branch")
    with none:
        unused = [none.parameter(kind) for kind in kinds]
        nothing = [zeros_like(mapped.kind(t.type)) for t in body.outputs]
    with some:
        inside, *parameters = [some.parameter(kind) for kind in kinds]
        safe = [
            mapped.only(inside, x) if b else x for x, b in zip(parameters, batched, strict=True)
        ]
        made = mapped.all(*mapped.through(body, safe, batched))
    pair = Branch((Body(unused, nothing), Body([inside, *parameters], made)))
    return emit_all(pair, F.astype(F.any(mask), int64), mask, *inputs)


def _reversed(both: Reverse, wanted: list[bool], has_effect: bool) -> Body:
    """Return a body that takes also the outputs' cotangents, and yields those of the inputs.

    If one of the branches has an effect, it yields a token too.
    """
    graph = BodyGraph("branch")
    parameters = [*both.parameters, *[t for t in both.seeds if t is not None]]
    with graph:
        own = [graph.parameter(t.type) for t in parameters]
        found = [*[g for g in both.gradients if g is not None], *both.tokens]
        made = dict(zip(found, copied(found, dict(zip(parameters, own, strict=True))), strict=True))
        outputs = [
            zeros_like(t.type) if g is None else made[g]
            for t, g, want in zip(both.parameters, both.gradients, wanted, strict=True)
            if want
        ]
        if has_effect:
            outputs += [made[t] for t in both.tokens] or [F.asarray(True)]
    return Body(own, outputs)
