"""Attention."""

from __future__ import annotations

from graphfw.errors import DTypeError, ShapeError, counted
from graphfw.ir import ambient
from graphfw.ir.build import emit_all
from graphfw.ir.functions import F, public
from graphfw.ir.shape import broadcast_batch, can_broadcast, shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.args import TensorLike, as_tensor, converted, promoted, ruled
from graphfw.ops.composed import demand, demand_probability, floats
from graphfw.ops.nn.attention_ops import Attention, masked_scores, score_factor

__all__ = ["scaled_dot_product_attention"]


@public
def scaled_dot_product_attention(
    q: TensorLike,
    k: TensorLike,
    v: TensorLike,
    mask: TensorLike | None = None,
    /,
    *,
    causal: bool = False,
    scale: float | Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Each query's mean of the values, weighted by softmax(scale q·k).

    q: [*B, Tq, D], k: [*B, Tk, D], v: [*B, Tk, E] -> [*B, Tq, E]; the leading dims (batch, heads)
    broadcast. A. Vaswani et al., "Attention is all you need", 2017.

    A query whose keys are all masked gets 0. Without dropout no tensor of queries by keys is made,
    neither here nor in the gradient, unless there are at most 32 keys or the mask itself needs a
    gradient: memory grows with Tq + Tk, not with their product. float16 and bfloat16 are computed
    in float32; on a GPU the weights are rounded to them before they multiply the values.

    Args:
        q: The queries.
        k: The keys.
        v: The values, one a key.
        mask: What broadcasts to [*B, Tq, Tk]: bools, True where the query may see the key; or
            floats that are added to the scores, -inf where it may not.
        causal: Query i sees keys 0 to i only, counted from the first ones also where Tq and
            Tk differ. May be joined with a mask.
        scale: The factor of the scores, 1 / sqrt(D) by default; a tensor may broadcast to the
            queries and have a gradient.
        dropout: In training, the fraction of the weights that are set to 0, as by `gf.dropout`.

    Raises:
        ShapeError: The shapes don't fit.
        DTypeError: They are not real, or the mask is of integers.
        ArgumentError: `dropout` is not from 0 to below 1.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     x = gf.placeholder(("batch", 8, "time", 64), name="x")
    ...     gf.scaled_dot_product_attention(x, x, x, causal=True).shape
    (batch, 8, time, 64)
    """
    name = "scaled_dot_product_attention"
    query, key, value = (floats(name, x) for x in promoted(name, q, k, v))
    _check_shapes(name, query, key, value)
    demand_probability(name, "dropout", dropout)
    seen = () if mask is None else (_checked_mask(name, query, key, as_tensor(mask)),)
    if dropout == 0 or not ambient.asks_for_training():
        if isinstance(scale, Tensor):
            query, scale = query * scale, 1.0
        factor = None if scale is None else float(scale)
        return emit_all(Attention(causal, factor), query, key, value, *seen)[0]
    # Scaled before the product, which might overflow float16 otherwise.
    scores = (query * (score_factor(query) if scale is None else scale)) @ key.mT
    weights = F.softmax(masked_scores(scores, *seen, causal=causal), axis=-1)
    result = F.dropout(weights, dropout) @ value
    return result


def _check_shapes(name: str, q: Tensor, k: Tensor, v: Tensor) -> None:
    for label, x in (("q", q), ("k", k), ("v", v)):
        message = f"{name}: {label} must have 2 dims or more, not {x.ndim}"
        demand(x.ndim >= 2, message, {label: x}, fix="gf.expand_dims adds a dim", error=ShapeError)
    message = f"{name}: q has width {q.shape[-1]}, and k {k.shape[-1]}"
    fix = "project both to one width: that of a head"
    demand(q.shape[-1] == k.shape[-1], message, {"q": q, "k": k}, fix=fix, error=ShapeError)
    message = (
        f"{name}: there are {counted(k.shape[-2], 'key')}, and {counted(v.shape[-2], 'value')}"
    )
    fix = "give one value for each key"
    demand(k.shape[-2] == v.shape[-2], message, {"k": k, "v": v}, fix=fix, error=ShapeError)
    ruled(name, q, broadcast_batch, q.shape, k.shape, v.shape)


def _checked_mask(name: str, q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
    """Return the mask, in the queries' dtype if it is of floats."""
    scores: Shape = (*broadcast_batch(q.shape, k.shape), q.shape[-2], k.shape[-2])
    text = f"{name}: the mask's shape {shape_text(mask.shape)} does not broadcast to the scores'"
    demand(
        can_broadcast(mask.shape, scores),
        f"{text}, {shape_text(scores)}",
        {"mask": mask},
        fix="its last two dims are queries and keys, or 1: mask[:, None, None, :] for keys alone",
        error=ShapeError,
    )
    if mask.dtype.is_bool:
        return mask
    message = f"{name}: the mask must be of bools or floats, not {mask.dtype.name}"
    demand(mask.dtype.is_floating, message, {"mask": mask}, fix="write mask != 0", error=DTypeError)
    return converted(mask, q.dtype)
