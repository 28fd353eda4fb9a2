"""The ops of `checkpoint`: a part of the graph whose gradient computes it again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from graphfw.ir.body import Body, BodyGraph, body_of, copied
from graphfw.ir.build import emit_all
from graphfw.ir.dtype import DType, float64
from graphfw.ir.functions import F
from graphfw.ir.op import ALIAS, PURE, SOURCE, Case, Op, Rng, bad, ok, op
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape, TensorType
from graphfw.ops.batching import MappedAxis
from graphfw.ops.control.effects import happens, silent
from graphfw.ops.control.region_op import (
    Region,
    forward,
    owned,
    require_dtypes,
    require_shapes,
    reverse,
    without_tangents,
)


class FirstInputs(Op):
    """An op that yields its first `count` inputs: what the others are for is its own business."""

    count: int
    traits = frozenset({PURE, ALIAS})
    multiple = True
    mixed_precision = "passes"

    def shape(self, *inputs: Shape) -> tuple[Shape, ...]:
        return inputs[: self.count]

    def dtype(self, *inputs: DType) -> tuple[DType, ...]:
        return inputs[: self.count]

    def eval(self, xp: Any, *inputs: Any) -> tuple[Any, ...]:
        return inputs[: self.count]


@op("barrier")
class Barrier(FirstInputs):
    """The first `count` inputs, once the others are there too: nothing is merged across it.

    xs: count tensors, others: any number -> the xs
    """

    def vjp(self, ct: tuple[Any, ...], y: tuple[Tensor, ...], *inputs: Tensor) -> tuple[Any, ...]:
        return (*ct, *[None] * (len(inputs) - self.count))

    def jvp(
        self, tangents: Sequence[Tensor | None], y: Sequence[Tensor], *inputs: Tensor
    ) -> tuple[Sequence[Tensor], list[Tensor | None]]:
        moved = [t for t in tangents[: self.count] if t is not None]
        found = iter(emit_all(Barrier(len(moved)), *moved, *inputs))
        return y, [None if t is None else next(found) for t in tangents[: self.count]]

    def batch(
        self, mapped: MappedAxis, batched: Sequence[bool], *inputs: Tensor
    ) -> tuple[Tensor, ...]:
        xs = mapped.all(inputs[: self.count], batched[: self.count])
        return emit_all(self, *xs, *inputs[self.count :])

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float64[2, n]", "int64[3]", "float64[4]", count=2)
        yield ok("float64[]", count=1)


@op("checkpoint")
class Checkpoint(Region):
    """Apply a body; what it computes inside is not kept for its gradient."""

    body: Body

    def shape(self, *inputs: Shape) -> tuple[Shape, ...]:
        require_shapes(self.body, inputs)
        return tuple([t.shape for t in self.body.outputs])

    def dtype(self, *inputs: DType) -> tuple[DType, ...]:
        require_dtypes(self.body, inputs)
        return tuple([t.dtype for t in self.body.outputs])

    def eval(self, xp: Any, *inputs: Any, rng: Rng | None = None) -> tuple[Any, ...]:
        return owned(xp, self.body.evaluate(xp, inputs, rng), inputs)

    def batch(
        self, mapped: MappedAxis, batched: Sequence[bool], *inputs: Tensor
    ) -> tuple[Tensor, ...]:
        body, _ = mapped.body("checkpoint", self.body, batched)
        return emit_all(Checkpoint(body), *inputs)

    def vjp(self, ct: tuple[Any, ...], y: tuple[Tensor, ...], *inputs: Tensor) -> list[Any]:
        both = reverse(silent(self.body), "checkpoint")
        graph = BodyGraph("checkpoint")
        found = [g for g in both.gradients if g is not None]
        parameters = [*both.parameters, *[t for t in both.seeds if t is not None]]
        with graph:
            own = [graph.parameter(t.type) for t in parameters]
            made = copied([*found, *both.tokens], dict(zip(parameters, own, strict=True)))
        seeds = [t for t in ct if t is not None]
        # After the barrier equal nodes are others than those of the forward graph, and come later.
        # What holds weights is left out, where anything else is there: rules see what it is.
        held = [t for t in inputs if SOURCE not in t.node.op.traits] or list(inputs)
        late = dict(zip(held, emit_all(Barrier(len(held)), *held, *seeds), strict=True))
        again = [late.get(t, t) for t in inputs]
        results = iter(emit_all(Checkpoint(Body(own, made)), *again, *seeds))
        entries = [None if g is None else next(results) for g in both.gradients]
        happens(list(results))
        return both.refusing(entries)

    def jvp(
        self, tangents: Sequence[Tensor | None], y: Sequence[Tensor], *inputs: Tensor
    ) -> tuple[Sequence[Tensor], list[Tensor | None]]:
        moving = [t for t in tangents if t is not None]
        ahead = forward(self.body, [t is not None for t in tangents], "checkpoint")
        wanted = [t is not None for t in ahead.tangents]
        body = ahead.body((len(inputs),), (len(y),), wanted)
        return without_tangents(emit_all(Checkpoint(body), *inputs, *moving), wanted, (len(y),))

    @staticmethod
    def cases() -> Iterator[Case]:
        row = TensorType(float64, (2,))
        body = body_of("checkpoint", lambda x, w: [F.sin(x) * w, x + 1], row, row)
        yield ok("float64[2]", "float64[2]", body=body)
        yield bad("float64[2]", "float64[3]", body=body, match="the body takes")
