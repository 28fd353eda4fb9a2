"""`beam_search`: the most probable continuations of texts by a language model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, NamedTuple

from graphfw.ir import ambient
from graphfw.ir.dim import DimLike
from graphfw.ir.functions import F
from graphfw.ir.modes import interceptable
from graphfw.ir.tensor import Tensor
from graphfw.nn.decoding import Request, requested, whole_from
from graphfw.nn.outside import runs_outside
from graphfw.ops.args import TensorLike, as_tensor, converted
from graphfw.ops.composed import demand
from graphfw.ops.control.control_flow import while_loop
from graphfw.ops.elementwise.where_clip import where
from graphfw.ops.shape.axes import expand_dims
from graphfw.ops.shape.concat import concat
from graphfw.ops.shape.movement import broadcast_to, reshape
from graphfw.ops.structures import Structure


class Beams(NamedTuple):
    """The texts that `beam_search` finds, the best first.

    Attributes:
        tokens: int64 [B, num_beams, T + max_new_tokens], with `pad_id` after the end.
        scores: [B, num_beams]; -inf if there are fewer texts.
    """

    tokens: Tensor
    scores: Tensor


@interceptable
@runs_outside
def beam_search(
    model: Any,
    tokens: TensorLike,
    max_new_tokens: DimLike,
    *,
    num_beams: int = 4,
    length_penalty: float = 1.0,
    early_stopping: bool = False,
    eos_id: int | Sequence[int] | None = None,
    pad_id: int | None = None,
    mask: TensorLike | None = None,
    name: str | None = None,
) -> Beams:
    """Search the most probable continuations of texts.  tokens: ints [B, T] -> Beams

    The search keeps the `num_beams` most probable texts that have not ended, and the `num_beams`
    texts with the best scores that have. A score is the log of the probability of the new tokens,
    divided by their number to the power of `length_penalty`. Texts and scores are those of
    transformers' `generate(num_beams=…)`.

    Args:
        model: As for `generate`, as are tokens, max_new_tokens, eos_id, pad_id, mask and name.
        tokens: The prompts.
        max_new_tokens: The largest number of tokens to make.
        num_beams: The number of texts to keep.
        length_penalty: Above 0 it favours long texts, below 0 short ones, since logs are negative.
        early_stopping: Whether a search ends as soon as `num_beams` texts have ended. Otherwise it
            ends when none of the others has a better score than the worst of these.
        eos_id: The token that ends a text, or several such.
        pad_id: The token after the end.
        mask: Bools [B, T]: False for padding.
        name: The name scope.

    Raises:
        ArgumentError, ShapeError, DTypeError, ExecutionError: As `generate`.
    """
    what = "beam_search"
    request = requested(what, model, tokens, max_new_tokens, eos_id, pad_id, mask)
    beams = whole_from(what, "num_beams", num_beams, 1)
    with ambient.name_scope(name or what):
        return searched(request, beams, length_penalty, early_stopping)


def searched(
    request: Request, beams: int, length_penalty: float, early_stopping: bool = False
) -> Beams:
    """Return the texts that `beam_search` finds.

    Raises:
        ArgumentError: length_penalty is no number, or early_stopping no bool.
    """
    what = request.what
    message = f"{what}: length_penalty={length_penalty!r} is no number"
    demand(isinstance(length_penalty, Real), message, fix="use length_penalty=1.0")
    message = f"{what}: early_stopping={early_stopping!r} is no bool"
    demand(isinstance(early_stopping, bool), message, fix="use early_stopping=False")
    search = _Search(request, beams, float(length_penalty), early_stopping)
    logits, cache = request.started()
    batch = request.tokens.shape[0]
    state, _ = search.advanced(search.start(batch, logits), F.repeat(logits, beams, axis=0))
    cache = _rowwise(cache, lambda leaf: F.repeat(leaf, beams, axis=0))

    def goes_on(carry: tuple[_State, Any]) -> Tensor:
        state = carry[0]
        going: Tensor = F.logical_and(state.length < request.limit, F.any(state.is_open))
        return going

    def step(carry: tuple[_State, Any]) -> tuple[_State, Any]:
        state, cache = carry
        logits, cache = request.continued(reshape(state.last, (batch * beams,)), cache)
        state, parents = search.advanced(state, logits)
        rows = reshape(expand_dims(F.arange(batch) * beams, axis=1) + parents, (batch * beams,))
        return state, _rowwise(cache, lambda leaf: F.take(leaf, rows, axis=0))

    state, _ = while_loop(goes_on, step, (state, cache))
    prompts = F.repeat(expand_dims(request.tokens, axis=1), beams, axis=1)
    return Beams(concat([prompts, state.ended], axis=2), state.ended_scores)


class _State(NamedTuple):
    """A search after some tokens.

    Attributes:
        length: The number of these tokens.
        last: The last token of each text that goes on, [B, K].
        going: The new tokens of the texts that go on, [B, K, max_new_tokens].
        scores: The logs of their probabilities, [B, K].
        ended: The best texts that have ended.
        ended_scores: Their scores.
        is_open: Whether texts that go on may still get better scores than these, [B].
    """

    length: Tensor
    last: Tensor
    going: Tensor
    scores: Tensor
    ended: Tensor
    ended_scores: Tensor
    is_open: Tensor


class _Search(NamedTuple):
    """The options of a search."""

    request: Request
    beams: int
    length_penalty: float
    early_stopping: bool

    def start(self, batch: DimLike, logits: Tensor) -> _State:
        """Return the state before the first token, in which only the first text counts."""
        size, dtype = (batch, self.beams), logits.dtype
        none = F.full(size, -math.inf, dtype=dtype)
        is_first = F.arange(self.beams) == 0
        texts = self.request.unwritten(*size)
        scores = broadcast_to(where(is_first, F.zeros((), dtype=dtype), none), size)
        zero = as_tensor(0)
        last = F.zeros(size, dtype=texts.dtype)
        return _State(zero, last, texts, scores, texts, none, F.ones((batch,), dtype="bool"))

    def advanced(self, state: _State, logits: Tensor) -> tuple[_State, Tensor]:
        """Return the state after another token, and the old text of each that goes on: [B, K].

        logits: [B * K, V]
        """
        batch, beams = state.last.shape
        vocabulary = logits.shape[-1]
        totals = reshape(F.log_softmax(logits, axis=-1), (batch, beams, vocabulary))
        totals = totals + expand_dims(state.scores, axis=2)
        # Enough that `beams` of them go on, even if each text is also continued by all its ends.
        count = max(2, 1 + len(self.request.ends)) * self.beams
        scores, found = F.topk(reshape(totals, (batch, beams * vocabulary)), count)
        parents, tokens = found // vocabulary, found % vocabulary
        texts = _picked(state.going, parents).at[:, :, state.length].set(tokens)
        after = state.length + 1
        has_ended = F.logical_or(self.request.is_end(tokens), after == self.request.limit)
        ended, ended_scores = self._ended(state, after, texts, scores, has_ended)
        scores, best = F.topk(where(has_ended, -math.inf, scores), self.beams)
        tokens, parents = (F.take_along_axis(x, best, axis=1) for x in (tokens, parents))
        going = _picked(texts, best)
        is_open = self._is_open(state, after, scores, ended_scores)
        return _State(after, tokens, going, scores, ended, ended_scores, is_open), parents

    def _ended(
        self, state: _State, count: Tensor, texts: Tensor, scores: Tensor, has_ended: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the best texts that have ended before or now, and their scores."""
        is_among_best = F.arange(texts.shape[1]) < self.beams
        counts = F.logical_and(has_ended, is_among_best) & expand_dims(state.is_open, axis=1)
        final = where(counts, self._final(scores, count), -math.inf)
        best, index = F.topk(concat([state.ended_scores, final], axis=1), self.beams)
        return _picked(concat([state.ended, texts], axis=1), index), best

    def _final(self, scores: Tensor, count: Tensor) -> Tensor:
        return scores / converted(count, scores.dtype) ** self.length_penalty

    def _is_open(self, state: _State, count: Tensor, scores: Tensor, ended: Tensor) -> Tensor:
        worst = F.min(ended, axis=1)
        is_open = F.logical_and(state.is_open, self._final(scores[:, 0], count) > worst)
        return F.logical_and(is_open, worst == -math.inf) if self.early_stopping else is_open


def _rowwise(cache: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Change the rows of all tensors in a cache; scalars have none."""
    leaves = Structure.of(cache)
    return leaves.pack([leaf if leaf.ndim == 0 else change(leaf) for leaf in leaves.tensors])


def _picked(texts: Tensor, index: Tensor) -> Tensor:
    """Take texts of each row.  texts: [B, N, L], index: [B, K] -> [B, K, L]"""
    result: Tensor = F.take_along_axis(texts, expand_dims(index, axis=2), axis=1)
    return result
