"""`generate` continues texts by a language model; `sample_logits` draws one token."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from graphfw.errors import ShapeError
from graphfw.ir import ambient
from graphfw.ir.dim import DimLike, dim_min
from graphfw.ir.functions import F
from graphfw.ir.modes import interceptable
from graphfw.ir.tensor import Tensor
from graphfw.nn.beam_search import searched
from graphfw.nn.decoding import Request, requested, whole_from
from graphfw.nn.outside import runs_outside
from graphfw.ops.args import TensorLike, as_tensor, converted
from graphfw.ops.composed import demand, floats, wide, wide_dtype
from graphfw.ops.control.control_flow import while_loop
from graphfw.ops.elementwise.where_clip import where
from graphfw.ops.random.distributions import categorical
from graphfw.ops.run_checks import checked
from graphfw.ops.shape.axes import expand_dims
from graphfw.ops.shape.concat import concat


@interceptable
@runs_outside
def generate(
    model: Any,
    tokens: TensorLike,
    max_new_tokens: DimLike,
    *,
    do_sample: bool = False,
    temperature: TensorLike = 1.0,
    top_k: int | None = None,
    top_p: TensorLike | None = None,
    num_beams: int = 1,
    length_penalty: float = 1.0,
    eos_id: int | Sequence[int] | None = None,
    pad_id: int | None = None,
    mask: TensorLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Continue texts by a language model.  tokens: ints [B, T] -> int64 [B, T + max_new_tokens]

    The model reads the prompts in one call. Then a loop makes one token after the other, with a
    cache: see `gf.nn.KVCache`. One run computes all of this, of the open graph or, outside of
    graphs, of the model's own session. Layers are in evaluation, as by `gf.training(False)`. By
    default each token is the one with the largest logit.

    Args:
        model: The language model. `model(tokens, cache=cache)` takes tokens [B, T] and returns
            (logits [B, T, V], cache). `model.init_cache(batch, max_length)` makes the first cache:
            any structure of tensors, which have the batch first or are scalars.
        tokens: The prompts.
        max_new_tokens: The largest number of tokens to make.
        do_sample: Draw tokens, by `sample_logits` with `temperature`, `top_k` and `top_p`.
        temperature: Divides the logits: see `sample_logits`.
        top_k: Draw from the k most probable tokens.
        top_p: Draw from the fewest most probable tokens that together have this probability.
        num_beams: With 2 or more the result is the best of a `beam_search`.
        length_penalty: See `beam_search`.
        eos_id: The token that ends a text, or several such; the loop ends when all texts have
            ended.
        pad_id: The token after the end; the (first) `eos_id` by default, or else 0.
        mask: Bools [B, T], True for tokens and False for padding, where prompts have different
            lengths. Padding moves to the left of its row. `model.init_cache` then gets
            `start=padding`, the number of tokens that are padding in each row.
        name: The name scope; draws depend on it, and on the session's seed.

    Raises:
        ArgumentError: A number is out of range; options contradict each other; the model does not
            return a pair, or has no `init_cache`.
        ShapeError: Tokens, mask or logits have other shapes.
        DTypeError: Tokens are no integers, or the mask is not of bools.
        ExecutionError: When run: a row of the mask has no token; a model finds a position beyond
            its last one.

    >>> import graphfw as gf
    >>> class Counter:  # after each token comes the one above
    ...     def init_cache(self, batch, max_length):
    ...         return ()
    ...
    ...     def __call__(self, tokens, cache):
    ...         return gf.one_hot((tokens + 1) % 10, 10), cache
    >>> gf.nn.generate(Counter(), gf.asarray([[3, 4], [0, 7]]), 4, eos_id=9, pad_id=0)
    Tensor([[3, 4, 5, 6, 7, 8],
            [0, 7, 8, 9, 0, 0]], dtype=int64)
    """
    what = "generate"
    request = requested(what, model, tokens, max_new_tokens, eos_id, pad_id, mask)
    beams = whole_from(what, "num_beams", num_beams, 1)
    is_plain = isinstance(temperature, (int, float)) and temperature == 1
    message = f"{what}: without do_sample, temperature, top_k and top_p have no effect"
    fix = "write do_sample=True, or leave them out"
    demand(do_sample or (is_plain and top_k is None and top_p is None), message, fix=fix)
    with ambient.name_scope(name or what):
        if beams > 1:
            message = f"{what}: beam search draws nothing"
            demand(not do_sample, message, fix="leave out do_sample, or num_beams")
            return searched(request, beams, length_penalty).tokens[:, 0]
        message = f"{what}: length_penalty={length_penalty} has no effect without beams"
        demand(length_penalty == 1, message, fix="use num_beams=4, or leave it out")
        if not do_sample:
            return _generated(request, lambda logits: F.argmax(logits, axis=-1))
        draw = _sampler(what, temperature, top_k, top_p)
        return _generated(request, draw)


def _generated(request: Request, choose: Callable[[Tensor], Tensor]) -> Tensor:
    """Make the tokens one after the other; `choose` returns each from its logits."""
    logits, cache = request.started()
    token = choose(logits)
    made = request.unwritten(token.shape[0]).at[:, 0].set(token)

    def goes_on(state: tuple[Any, ...]) -> Tensor:
        count, _, _, has_ended, _ = state
        going: Tensor = F.logical_and(count < request.limit, ~F.all(has_ended))
        return going

    def step(state: tuple[Any, ...]) -> tuple[Any, ...]:
        count, made, token, has_ended, cache = state
        logits, cache = request.continued(token, cache)
        token = where(has_ended, request.pad, choose(logits))
        has_ended = F.logical_or(has_ended, request.is_end(token))
        return count + 1, made.at[:, count].set(token), token, has_ended, cache

    first = (as_tensor(1), made, token, request.is_end(token), cache)
    made = while_loop(goes_on, step, first)[1]
    return concat([request.tokens, made], axis=1)


@interceptable
def sample_logits(
    logits: TensorLike,
    /,
    temperature: TensorLike = 1.0,
    top_k: int | None = None,
    top_p: TensorLike | None = None,
    *,
    name: str | None = None,
) -> Tensor:
    """Draw a class from the most probable ones.  logits: [*B, V] -> int64 [*B]

    Draws have the probabilities softmax(logits / temperature), among the classes that `top_k` and
    `top_p` leave. To draw from all classes, use `gf.random.categorical`.

    Args:
        logits: Unnormalised logarithms of probabilities.
        temperature: Below 1 the probable classes become more probable, above 1 less so; a number,
            or a tensor that broadcasts to the logits.
        top_k: Leave only the k most probable classes.
        top_p: Leave only the fewest most probable classes that together have this probability
            (A. Holtzman et al., "The curious case of neural text degeneration", 2020), of those
            that `top_k` leaves; a number or a tensor, as temperature.
        name: The name of the result and of its stream.

    Raises:
        ArgumentError: temperature is not above 0, top_k below 1 or no int, or top_p outside (0, 1].
        ShapeError: The logits have no dim.
        DTypeError: The logits are complex.
        ExecutionError: When run: a temperature or a top_p of a tensor is out of range.

    >>> import graphfw as gf
    >>> gf.nn.sample_logits([[5.0, 1.0, 4.0], [1.0, 2.0, 0.0]], top_k=1)
    Tensor([0, 1], dtype=int64)
    """
    what = "sample_logits"
    tensor = floats(what, logits)
    message = f"{what}: the logits are a scalar"
    demand(tensor.ndim > 0, message, {"logits": tensor}, fix="give one a class", error=ShapeError)
    has_some = tensor.shape[-1] != 0
    message = f"{what}: there are no classes"
    demand(has_some, message, {"logits": tensor}, fix="give one a class", error=ShapeError)
    return _sampler(what, temperature, top_k, top_p)(tensor, name)


def _sampler(
    what: str, temperature: TensorLike, top_k: int | None, top_p: TensorLike | None
) -> Callable[..., Tensor]:
    """Return a function that draws from logits, as `sample_logits` describes it."""
    heat = _in_range(what, "temperature", temperature, math.inf)
    if top_k is not None:
        top_k = whole_from(what, "top_k", top_k, 1)
    mass = None if top_p is None else _in_range(what, "top_p", top_p, 1.0)

    def draw(logits: Tensor, name: str | None = None) -> Tensor:
        scaled = wide(logits) / converted(heat, wide_dtype(logits.dtype))
        if top_k is None and mass is None:
            return categorical(scaled, name=name)
        classes = scaled.shape[-1]
        best, indices = F.topk(scaled, classes if top_k is None else dim_min(classes, top_k))
        if mass is not None:
            probabilities = F.softmax(best, axis=-1)
            before = F.cumulative_sum(probabilities, axis=-1, include_initial=True)[..., :-1]
            best = where(before < mass, best, -math.inf)
        chosen = expand_dims(categorical(best, name=name), axis=-1)
        return F.take_along_axis(indices, chosen, axis=-1)[..., 0]

    return draw


def _in_range(what: str, name: str, value: TensorLike, most: float) -> Tensor:
    """Return an option as a tensor whose elements are above 0 and not above a number.

    Raises:
        ArgumentError: They are not, or are no real numbers; those that only a run knows it checks.
    """
    fits = isinstance(value, Tensor) or (
        hasattr(value, "__float__") and not isinstance(value, bool)
    )
    message = f"{what}: {name}={value!r} is no number"
    demand(fits, message, fix=f"use {name}=0.9")
    shown = "" if isinstance(value, Tensor) else f"={value}"
    limit = "" if most == math.inf else f" and at most {most:g}"
    return checked(
        {name: floats(what, value)},
        lambda x: (x > 0) & (x <= most),
        f"{what}: {name}{shown} must be above 0{limit}",
        fix=f"use {name}=0.9",
    )
