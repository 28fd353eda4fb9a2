"""Requests to continue texts: checked arguments, and a language model's next logits."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from graphfw.errors import ArgumentError, DTypeError, ShapeError, a_type, counted
from graphfw.ir import ambient
from graphfw.ir.dim import Dim, DimLike
from graphfw.ir.dtype import int32, int64
from graphfw.ir.functions import F
from graphfw.ir.shape import shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import TensorLike, as_tensor, converted, is_whole
from graphfw.ops.composed import callback, demand, wide
from graphfw.ops.run_checks import checked
from graphfw.ops.shape.axes import expand_dims


class Request(NamedTuple):
    """A call of `generate` or `beam_search`, checked.

    Attributes:
        what: The function.
        model: The model's call.
        init_cache: The model's method.
        tokens: The prompts, int64 [B, T], with padding on the left.
        padding: The number of padding tokens in each row, int32 [B]; None if there are none.
        limit: The largest number of tokens to make.
        ends: The tokens that end a text.
        pad: The token after the end.
    """

    what: str
    model: Callable[..., Any]
    init_cache: Callable[..., Any]
    tokens: Tensor
    padding: Tensor | None
    limit: DimLike
    ends: tuple[int, ...]
    pad: int

    def started(self) -> tuple[Tensor, Any]:
        """Return the logits of the first new token, [B, V], and the cache after the prompts."""
        batch, length = self.tokens.shape
        padding = {} if self.padding is None else {"start": self.padding}
        slots = length + self.limit - 1  # the last token's keys are never read
        return self._logits(self.tokens, self.init_cache(batch, slots, **padding))

    def continued(self, last: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """Return the logits after the last tokens, [B] -> [B, V], and the next cache."""
        return self._logits(expand_dims(last, axis=1), cache)

    def _logits(self, tokens: Tensor, cache: Any) -> tuple[Tensor, Any]:
        with ambient.training(False):
            returned = self.model(tokens, cache=cache)
        is_pair = isinstance(returned, tuple) and len(returned) == 2
        message = f"{self.what}: with a cache the model returns {a_type(returned)}, not a pair"
        fix = "return (logits, cache), with the cache that the layers return"
        demand(is_pair, message, fix=fix)
        logits, after = as_tensor(returned[0]), returned[1]
        fits = logits.ndim == 3 and logits.shape[:2] == tokens.shape
        message = f"{self.what}: of {shape_text(tokens.shape)} tokens the model makes logits "
        message += shape_text(logits.shape)
        fix = "return logits of the shape [batch, time, vocabulary]"
        demand(fits, message, {"logits": logits}, fix=fix, error=ShapeError)
        self._check_ends(logits.shape[-1])
        return wide(logits[:, -1]), after

    def _check_ends(self, vocabulary: DimLike) -> None:
        beyond = [end for end in self.ends if isinstance(vocabulary, int) and end >= vocabulary]
        message = f"{self.what}: eos_id={beyond[:1]}, and there are {counted(vocabulary, 'logit')}"
        demand(not beyond, message, fix="give the token that ends a text, of the vocabulary")

    def is_end(self, tokens: Tensor) -> Tensor:
        """Return whether tokens end their text.  [*A] -> bools [*A]"""
        found = F.zeros(tokens.shape, dtype="bool")
        for end in self.ends:
            found = F.logical_or(found, tokens == end)
        return found

    def unwritten(self, *batch: DimLike) -> Tensor:
        """Return new tokens that are all padding.  -> int64 [*batch, limit]"""
        return F.full((*batch, self.limit), self.pad, dtype=int64)


def requested(
    what: str,
    model: Any,
    tokens: TensorLike,
    max_new_tokens: DimLike,
    eos_id: int | Sequence[int] | None,
    pad_id: int | None,
    mask: TensorLike | None,
) -> Request:
    """Return a request, whose arguments are those of `gf.nn.generate`.

    Raises:
        ArgumentError: The model lacks a method, or a number is no int or out of range.
        ShapeError, DTypeError: Tokens are not ints [B, T], or the mask not bools of their shape.
    """
    call = callback(what, "model", model, "model(tokens, cache=cache)")
    method = getattr(model, "init_cache", None)
    message = f"{what}: {a_type(model)} has no method init_cache"
    fix = "define model.init_cache(batch, max_length): it calls init_cache of the layers"
    demand(method is not None, message, fix=fix)
    init_cache = callback(what, "model.init_cache", method, "init_cache(batch, max_length, start=)")
    prompts = as_tensor(tokens)
    operands = {"tokens": prompts}
    message = f"{what}: tokens have the shape {shape_text(prompts.shape)}, not [batch, time]"
    fix = "a single prompt is tokens[None]"
    demand(prompts.ndim == 2, message, operands, fix=fix, error=ShapeError)
    fix = "begin with a token that marks the beginning"
    message = f"{what}: the prompts have no tokens"
    demand(prompts.shape[1] != 0, message, operands, fix=fix, error=ShapeError)
    message = f"{what}: tokens must be integers, not {prompts.dtype.name}"
    fix = "write gf.astype(tokens, gf.int64)"
    demand(prompts.dtype.is_integer, message, operands, fix=fix, error=DTypeError)
    limit = max_new_tokens
    if not isinstance(limit, Dim):
        limit = whole_from(what, "max_new_tokens", limit, 1)
    ends = () if eos_id is None else _several(what, "eos_id", eos_id)
    pad = next(iter(ends), 0) if pad_id is None else whole_from(what, "pad_id", pad_id, 0)
    return Request(
        what,
        call,
        init_cache,
        *_aligned(what, converted(prompts, int64), mask),
        limit,
        ends,
        pad,
    )


def whole_from(what: str, name: str, value: Any, least: int) -> int:
    """Return an argument as an int.

    Raises:
        ArgumentError: It is no int, or below `least`.
    """
    fits = is_whole(value) and operator.index(value) >= least
    message = f"{what}: {name}={value!r} is no int from {least} on"
    demand(fits, message, fix=f"use {name}={least} or more")
    return operator.index(value)


def _several(what: str, name: str, values: Any) -> tuple[int, ...]:
    if not isinstance(values, (list, tuple)):
        return (whole_from(what, name, values, 0),)
    if not values:
        raise ArgumentError(f"{what}: {name}={values!r} is empty", fix=f"use {name}=None")
    return tuple([whole_from(what, name, value, 0) for value in values])


def _aligned(what: str, tokens: Tensor, mask: TensorLike | None) -> tuple[Tensor, Tensor | None]:
    """Return the prompts with all padding on the left, and its length in each row."""
    if mask is None:
        return tokens, None
    is_token = as_tensor(mask)
    operands = {"tokens": tokens, "mask": is_token}
    message = f"{what}: the mask must be of bools, not {is_token.dtype.name}"
    demand(is_token.dtype.is_bool, message, operands, fix="write mask != 0", error=DTypeError)
    message = f"{what}: the mask has the shape {shape_text(is_token.shape)}"
    fix = f"give one of the tokens' shape, {shape_text(tokens.shape)}: True for no padding"
    demand(is_token.shape == tokens.shape, message, operands, fix=fix, error=ShapeError)
    ranks = converted(is_token, int32)
    counts = checked(
        {"mask": F.sum(ranks, axis=1, dtype=int32)},
        lambda count: count > 0,
        f"{what}: a row of the mask has no token",
        fix="give a token that marks the beginning to rows without others",
    )
    order = F.argsort(ranks, axis=1)
    padding = F.subtract(tokens.shape[1], counts)
    return F.take_along_axis(tokens, order, axis=1), padding
