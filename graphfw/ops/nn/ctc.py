"""Connectionist temporal classification: `ctc`, the loss of sequences without an alignment."""

from __future__ import annotations

import math
from typing import Any

from graphfw.errors import DTypeError, ShapeError, counted
from graphfw.ir.build import emit
from graphfw.ir.dim import Dim, DimLike
from graphfw.ir.dtype import int64
from graphfw.ir.functions import F, public
from graphfw.ir.shape import shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.args import TensorLike, as_tensor, converted, is_whole
from graphfw.ops.composed import demand, floats, wide
from graphfw.ops.elementwise.where_clip import where
from graphfw.ops.nn import loss_warnings
from graphfw.ops.nn.losses import reduce_losses
from graphfw.ops.shape.gather_scatter import Gather
from graphfw.ops.shape.getitem import along_axis

__all__ = ["ctc"]

_LOW = -1e30
"""The logarithm of no probability: finite, for differences of two of them to be numbers."""


@public
def ctc(
    logits: TensorLike,
    target: TensorLike,
    /,
    *,
    input_lengths: TensorLike | None = None,
    target_lengths: TensorLike | None = None,
    blank: int = 0,
    zero_infinity: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Minus the log-probability of label sequences, over all their alignments.  -> [] or [*B]

    An alignment names a label or the blank at each step; runs of one label count once, and blanks
    separate them. A. Graves et al., "Connectionist temporal classification", 2006.

    Args:
        logits: [*B, T, C], scores of the classes at each step, or their log_softmax; PyTorch's
            [T, B, C] by `gf.swapaxes(x, 0, 1)`.
        target: Integers [*B, S], the labels, without blanks; what is behind a target's length is
            of no account.
        input_lengths: Integers [*B]: how many steps are no padding; all by default. What is above
            T counts as T.
        target_lengths: Integers [*B]: how many labels are no padding; all by default. What is
            above S counts as S.
        blank: The class of the blank.
        zero_infinity: Whether a target that has no alignment, as there are too few steps, has loss
            0 in place of inf. Its gradient is 0 in both cases.
        reduction: "mean" of the losses divided by the targets' lengths (or by 1), "sum" or "none",
            both of the losses themselves.

    Raises:
        ShapeError: The shapes don't fit.
        DTypeError: The logits are no floats, or the others no integers.
        ArgumentError: blank is no class, or `reduction` is unknown.

    >>> import graphfw as gf
    >>> logits = gf.zeros((1, 2, 3))  # two steps: of nine alignments "aa", "-a" and "a-" are "a"
    >>> round(float(gf.exp(-gf.nn.ctc(logits, [[1]]))), 4)
    0.3333
    """
    name = "ctc"
    scores, labels = floats(name, logits), as_tensor(target)
    _check(name, scores, labels, blank)
    fix = "pass the scores themselves, or gf.log_softmax(scores)"
    loss_warnings.warn_of_probabilities(name, scores, fix)
    batch, (steps, room) = scores.shape[:-2], (scores.shape[-2], labels.shape[-1])
    ends = _lengths(name, "input_lengths", input_lengths, batch, steps)
    counts = _lengths(name, "target_lengths", target_lengths, batch, room)
    logp = F.maximum(F.log_softmax(wide(scores), axis=-1), _LOW)
    is_label = F.arange(room) < F.expand_dims(counts, axis=-1)
    known = where(is_label, converted(labels, int64), blank)
    likelihood = _log_likelihood(name, logp, known, ends, counts, blank)
    is_impossible = likelihood < 0.5 * _LOW
    limit = 0 if zero_infinity else math.inf
    losses = where(is_impossible, limit, -where(is_impossible, 0, likelihood))
    if reduction == "mean":
        losses = losses / converted(F.maximum(counts, 1), losses.dtype)
    return reduce_losses(name, losses, reduction, scores.dtype)


def _log_likelihood(
    name: str, logp: Tensor, labels: Tensor, ends: Tensor, counts: Tensor, blank: int
) -> Tensor:
    """Return the logarithm of the sum of all alignments' probabilities.  [*B]

    The forward recursion. Element i of `blanks` and of `seen`, [*B, S + 1] each, is about the
    alignments of the steps so far that have i labels, with a blank behind them or without.
    """
    numbers = F.arange(labels.shape[-1] + 1)
    rows = (*labels.shape[:-1], labels.shape[-1] + 1)
    start = F.full((*rows[:-1], 1), blank, dtype=int64)
    padded = F.concat([start, labels], axis=-1)
    refusal = f"{name}: class index {{index}} is out of range: there are {{size}} classes"
    index = F.expand_dims(padded, axis=-2)
    picked = emit(Gather(0, refusal), logp, *along_axis(name, logp, index, -1))
    of_labels = where(numbers == 0, _LOW, picked)  # there is no label number 0
    of_blank = logp[..., blank, None]
    differs = padded != F.roll(padded, 1, axis=-1)

    def step(carry: tuple[Tensor, Tensor], x: tuple[Tensor, ...]) -> tuple[Any, tuple[()]]:
        blanks, seen = carry
        number, at_blank, at_labels = x
        # What is rolled in from behind meets the probability of label number 0, which is none.
        before = F.logaddexp(F.roll(blanks, 1, axis=-1), seen)
        at_once = where(differs, F.roll(seen, 1, axis=-1), _LOW)
        next_blanks = F.logaddexp(blanks, seen) + at_blank
        next_seen = F.logaddexp(before, at_once) + at_labels
        goes_on = F.expand_dims(number < ends, axis=-1)
        return (where(goes_on, next_blanks, blanks), where(goes_on, next_seen, seen)), ()

    first = F.broadcast_to(where(numbers == 0, F.zeros((), dtype=logp.dtype), _LOW), rows)
    none = F.full(rows, _LOW, dtype=logp.dtype)
    steps = (
        F.arange(logp.shape[-2]),
        F.moveaxis(of_blank, -2, 0),
        F.moveaxis(of_labels, -2, 0),
    )
    (blanks, seen), _ = F.scan(step, (first, none), steps)
    end = F.expand_dims(counts, axis=-1)
    last = F.logaddexp(*[F.take_along_axis(x, end, axis=-1) for x in (blanks, seen)])
    return F.squeeze(last, axis=-1)


def _check(name: str, scores: Tensor, labels: Tensor, blank: int) -> None:
    """See that scores, labels and the blank fit together."""
    shown = {"logits": scores, "target": labels}
    message = f"{name}: needs scores of each step, [*B, T, C], not {shape_text(scores.shape)}"
    demand(scores.ndim >= 2, message, shown, fix="add a dim for the steps", error=ShapeError)
    message = f"{name}: target must be integers, not {labels.dtype.name}"
    fix = "convert it: gf.astype(target, gf.int64)"
    demand(labels.dtype.is_integer, message, shown, fix=fix, error=DTypeError)
    batch = scores.shape[:-2]
    wanted = f"[{', '.join([*map(str, batch), 'S'])}]"
    fix = "pad the targets to one length, and say target_lengths="
    if scores.ndim == 3 and labels.shape[:-1] == scores.shape[1:2]:
        fix = "the batch goes first: gf.swapaxes(logits, 0, 1)"
    demand(
        labels.ndim > 0 and labels.shape[:-1] == batch,
        f"{name}: for logits of shape {shape_text(scores.shape)}, target must have shape {wanted}, "
        f"not {shape_text(labels.shape)}",
        shown,
        fix=fix,
        error=ShapeError,
    )
    classes = scores.shape[-1]
    fits = is_whole(blank) and blank >= 0 and (isinstance(classes, Dim) or blank < classes)
    message = f"{name}: blank={blank!r} is none of {counted(classes, 'class', 'classes')}"
    demand(fits, message, {"logits": scores}, fix="use blank=0")


def _lengths(
    name: str, label: str, lengths: TensorLike | None, batch: Shape, most: DimLike
) -> Tensor:
    """Return the lengths of sequences without padding: int64 [*B], from 0 to the most."""
    if lengths is None:
        return F.broadcast_to(as_tensor(most, int64), batch)
    given = as_tensor(lengths)
    shown = {label: given}
    message = f"{name}: {label} must have shape {shape_text(batch)}, not {shape_text(given.shape)}"
    fix = "give one length for each sequence"
    demand(given.shape == batch, message, shown, fix=fix, error=ShapeError)
    message = f"{name}: {label} must be integers, not {given.dtype.name}"
    fix = f"convert it: gf.astype({label}, gf.int64)"
    demand(given.dtype.is_integer, message, shown, fix=fix, error=DTypeError)
    return F.clip(converted(given, int64), 0, as_tensor(most, int64))
