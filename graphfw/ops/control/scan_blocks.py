"""Scans in blocks: several iterations at once, or iterations whose gradient makes them again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphfw.ir.body import closed, trace
from graphfw.ir.build import emit_all
from graphfw.ir.dim import Dim, DimLike
from graphfw.ir.dtype import int64
from graphfw.ir.functions import F
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import TensorType
from graphfw.ops.control.checkpoint_ops import Checkpoint
from graphfw.ops.control.scan_op import Scan

Iterations = Callable[..., Sequence[Tensor]]
"""Given the number of the first iteration, a carry, the elements: the next carry, and stacks."""


def unrolled(op: Scan, inputs: Sequence[Tensor], count: int) -> tuple[Tensor, ...]:
    """Make a scan that does `count` iterations of `op` at once, and return its outputs."""
    if not isinstance(op.length, Dim):
        count = max(min(count, op.length), 1)
    first, last = op.carries, op.carries + op.sequences
    captures = inputs[last:]

    def iterations(begin: Tensor, *sequence: Tensor) -> Sequence[Tensor]:
        carry, elements = sequence[:first], sequence[first:]
        made: list[Sequence[Tensor]] = []
        for iteration in reversed(range(count)) if op.backwards else range(count):
            own = [F.getitem(t, iteration) for t in elements]
            outputs = op.body.inline(begin + iteration, *carry, *own, *captures)
            carry = outputs[:first]
            made.append(outputs[first:])
        in_order = reversed(made) if op.backwards else made
        return [*carry, *[F.stack(list(values)) for values in zip(*in_order, strict=True)]]

    return _in_blocks(op, inputs, count, iterations)


def checkpointed(op: Scan, inputs: Sequence[Tensor], count: int) -> tuple[Tensor, ...]:
    """Make a scan whose gradient keeps the carry before every iteration of number `count`."""
    captures = inputs[op.carries + op.sequences :]

    def iterations(begin: Tensor, *sequence: Tensor) -> Sequence[Tensor]:
        kinds = [t.type for t in (begin, *sequence)]
        traced = trace("scan", lambda start, *own: _block(op, own, captures, count, start), kinds)
        (body,), taken = closed(traced)
        return emit_all(Checkpoint(body), begin, *sequence, *taken)

    return _in_blocks(op, inputs, count, iterations)


def _in_blocks(
    op: Scan, inputs: Sequence[Tensor], count: int, iterations: Iterations
) -> tuple[Tensor, ...]:
    """Scan over blocks of `count` iterations, and over the iterations that make no whole block."""
    first, last = op.carries, op.carries + op.sequences
    carry, sequences, captures = inputs[:first], inputs[first:last], inputs[last:]
    blocks = op.length // count
    rest = op.length - blocks * count
    # The iterations after the blocks: at the beginning, where the scan goes backwards.
    begin, end = (rest, op.length) if op.backwards else (0, blocks * count)
    folded = [F.reshape(t[begin:end], (blocks, count, *t.shape[1:])) for t in sequences]
    others = [t[:begin] if op.backwards else t[end:] for t in sequences]

    def block(number: Tensor, *sequence: Tensor) -> Sequence[Tensor]:
        return iterations(number * count + begin, *sequence)

    kinds = [TensorType(t.dtype, t.shape) for t in carry]
    kinds += [TensorType(t.dtype, t.shape[1:]) for t in folded]
    (body,), taken = closed(trace("scan", block, [TensorType(int64, ()), *kinds]))
    outer = Scan(body, blocks, first, len(folded), op.backwards)
    outputs = emit_all(outer, *carry, *folded, *taken)
    stacks = [F.reshape(t, (blocks * count, *t.shape[2:])) for t in outputs[first:]]
    if rest == 0:
        return (*outputs[:first], *stacks)
    offset: DimLike = 0 if op.backwards else end
    tail = _block(op, (*outputs[:first], *others), captures, rest, offset)
    halves = zip(stacks, tail[first:], strict=True)
    joined = [F.concat([b, a] if op.backwards else [a, b], axis=0) for a, b in halves]
    return (*tail[:first], *joined)


def _block(
    op: Scan,
    sequence: Sequence[Tensor],
    captures: Sequence[Tensor],
    length: DimLike,
    begin: Tensor | DimLike,
) -> tuple[Tensor, ...]:
    """Scan over some iterations, which are numbered from `begin`."""
    first = op.carries
    kinds = [TensorType(int64, ()), *[t.type for t in sequence[:first]]]
    kinds += [TensorType(t.dtype, t.shape[1:]) for t in sequence[first:]]

    def iteration(number: Tensor, *own: Tensor) -> Sequence[Tensor]:
        return op.body.inline(number + begin, *own, *captures)

    (body,), taken = closed(trace("scan", iteration, kinds))
    return emit_all(Scan(body, length, first, op.sequences, op.backwards), *sequence, *taken)
