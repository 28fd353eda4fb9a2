"""Losses of pairs of scores or vectors.

`cosine_embedding`, `info_nce`, `margin_ranking`, `triplet_margin`.
"""

from __future__ import annotations

from graphfw.errors import ShapeError
from graphfw.ir.dtype import DType
from graphfw.ir.functions import F, public
from graphfw.ir.shape import normalize_axis, reduced, shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import TensorLike, as_tensor, converted, promoted, ruled
from graphfw.ops.composed import demand, floats, wide
from graphfw.ops.elementwise.where_clip import where
from graphfw.ops.nn.binary_losses import signs
from graphfw.ops.nn.losses import reduce_losses

__all__ = ["cosine_embedding", "info_nce", "margin_ranking", "triplet_margin"]


@public
def margin_ranking(
    x1: TensorLike,
    x2: TensorLike,
    target: TensorLike,
    /,
    *,
    margin: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """Say which of two scores is to be the larger: max(0, margin - target (x1 - x2)).

    [*A], [*A], [*A] -> [] or [*A].

    Args:
        x1: Scores.
        x2: Scores.
        target: 1 where x1 is to be larger, -1 where x2 is, or bools. A UserWarning says where it is
            known to have other values.
        margin: How much larger it is to be.
        reduction: "mean", "sum" or "none".

    Raises:
        ShapeError: The shapes differ.
        DTypeError: They are not real.
        ArgumentError: `reduction` is unknown.

    >>> import graphfw as gf
    >>> float(gf.nn.margin_ranking([3.0, 1.0], [2.0, 2.0], [1, 1]))
    0.5
    """
    name = "margin_ranking"
    values, dtype = _alike(name, x1=x1, x2=x2, target=signs(name, target))
    first, second, sign = values
    losses = F.relu(margin - sign * (first - second))
    return reduce_losses(name, losses, reduction, dtype)


@public
def triplet_margin(
    anchor: TensorLike,
    positive: TensorLike,
    negative: TensorLike,
    /,
    *,
    margin: float = 1.0,
    ord: float = 2.0,
    swap: bool = False,
    axis: int = -1,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """Bring the anchor nearer to the positive than the negative by a margin.  -> [] or [*B]

    max(0, margin + |anchor - positive| - |anchor - negative|).  [*B, D], [*B, D], [*B, D]. F.
    Schroff et al., "FaceNet", 2015.

    Args:
        anchor: Vectors.
        positive: Vectors that are to be near.
        negative: Vectors that are to be far.
        margin: How much nearer: above 0.
        ord: The norm of the difference, see `gf.vector_norm`.
        swap: Whether the negative is to be far from the positive, too, where that is nearer.
            V. Balntas et al., "Learning local feature descriptors with triplets", 2016.
        axis: The axis of a vector.
        eps: What is added to each difference, so that the norm has a gradient.
        reduction: "mean", "sum" or "none".

    Raises:
        ShapeError: The shapes differ.
        AxisError: There is no such axis.
        DTypeError: They are not real.
        ArgumentError: The margin is not positive, or `reduction` is unknown.

    >>> import graphfw as gf
    >>> round(float(gf.nn.triplet_margin([[0.0, 0.0]], [[3.0, 4.0]], [[0.0, 2.0]])), 3)
    4.0
    """
    name = "triplet_margin"
    demand(margin > 0, f"{name}: margin={margin} must be positive", fix="use margin=1.0")
    values, dtype = _alike(name, anchor=anchor, positive=positive, negative=negative)
    middle, near, far = values
    axis_index = ruled(name, middle, normalize_axis, axis, middle.ndim)

    def distance(x: Tensor, y: Tensor) -> Tensor:
        return F.vector_norm(x - y + eps, axis=axis_index, ord=ord)

    apart = distance(middle, far)
    if swap:
        apart = F.minimum(apart, distance(near, far))
    losses = F.relu(margin + distance(middle, near) - apart)
    return reduce_losses(name, losses, reduction, dtype)


@public
def cosine_embedding(
    x1: TensorLike,
    x2: TensorLike,
    target: TensorLike,
    /,
    *,
    margin: float = 0.0,
    axis: int = -1,
    reduction: str = "mean",
) -> Tensor:
    """1 - cosine of vectors that are to be alike, max(0, cosine - margin) of others.  -> [] or [*B]

    Args:
        x1: Vectors, [*B, D].
        x2: Vectors, [*B, D].
        target: [*B], 1 where they are to be alike and -1 where not, or bools. A UserWarning says
            where it is known to have other values.
        margin: The cosine that is small enough, from -1 to 1.
        axis: The axis of a vector.
        reduction: "mean", "sum" or "none".

    Raises:
        ShapeError: The shapes don't fit.
        AxisError: There is no such axis.
        DTypeError: They are not real.
        ArgumentError: margin or reduction makes no sense.

    >>> import graphfw as gf
    >>> float(gf.nn.cosine_embedding([[1.0, 0.0]], [[0.0, 2.0]], [1]))
    1.0
    """
    name = "cosine_embedding"
    fits = -1 <= margin <= 1
    demand(fits, f"{name}: margin={margin} must be between -1 and 1", fix="use margin=0.5")
    (first, second), dtype = _alike(name, x1=x1, x2=x2)
    sign = signs(name, target)
    axis_index = ruled(name, first, normalize_axis, axis, first.ndim)
    batch = reduced(first.shape, (axis_index,), keepdims=False)
    vectors = f"for vectors of shape {shape_text(first.shape)} along axis {axis}"
    wanted = f"target must have shape {shape_text(batch)}, not {shape_text(sign.shape)}"
    demand(
        sign.shape == batch,
        f"{name}: {vectors}, {wanted}",
        {"x1": first, "target": sign},
        fix="give one sign for each pair of vectors",
        error=ShapeError,
    )
    cosine = F.cosine_similarity(first, second, axis=axis_index)
    losses = where(sign > 0, 1 - cosine, F.relu(cosine - margin))
    return reduce_losses(name, losses, reduction, dtype)


@public
def info_nce(
    queries: TensorLike,
    keys: TensorLike,
    /,
    *,
    temperature: TensorLike = 0.1,
    symmetric: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Find each query's own key among all keys of the batch, by the cosine.  -> [] or [*B, N]

    [*B, N, D], [*B, N, D].  Row i of the keys belongs to row i of the queries; the others are its
    negatives. The cross-entropy of softmax(cosine / temperature). A. van den Oord et al.,
    "Representation learning with contrastive predictive coding", 2018.

    Args:
        queries: Vectors.
        keys: Vectors.
        temperature: What the cosines are divided by, above 0; a number or a tensor [].
        symmetric: Whether each key is to find its query, too, and the loss is the mean of both. A.
            Radford et al., "Learning transferable visual models from natural language
            supervision" (CLIP), 2021.
        reduction: "mean", "sum" or "none".

    Raises:
        ShapeError: The shapes differ, or have fewer than two dims; or the temperature has dims.
        DTypeError: They are not real.
        ArgumentError: The temperature is not positive, or `reduction` is unknown.

    >>> import graphfw as gf
    >>> x = gf.eye(3)
    >>> round(float(gf.nn.info_nce(x, x, temperature=1.0)), 4)
    0.5514
    """
    name = "info_nce"
    fits = not isinstance(temperature, (int, float)) or temperature > 0
    message = f"{name}: temperature={temperature} must be positive"
    demand(fits, message, fix="use temperature=0.1")
    (first, second), dtype = _alike(name, queries=queries, keys=keys)
    message = f"{name}: needs a batch of vectors, not shape {shape_text(first.shape)}"
    shown = {"queries": first, "keys": second}
    fix = "pass a batch of pairs, [N, D]: its other keys are the negatives"
    demand(first.ndim >= 2, message, shown, fix=fix, error=ShapeError)
    scale = converted(as_tensor(temperature, first.dtype), first.dtype)
    message = f"{name}: temperature must be one number, not of shape {shape_text(scale.shape)}"
    shown = {"temperature": scale}
    demand(scale.ndim == 0, message, shown, fix="reshape it to ()", error=ShapeError)
    scores = F.normalize(first) @ F.normalize(second).mT / scale
    losses = -F.diagonal(F.log_softmax(scores, axis=-1))
    if symmetric:
        losses = (losses - F.diagonal(F.log_softmax(scores, axis=-2))) / 2
    return reduce_losses(name, losses, reduction, dtype)


def _alike(name: str, **given: TensorLike) -> tuple[list[Tensor], DType]:
    """Return tensors of one shape as real floats, wide enough to sum, and the result's dtype."""
    tensors = {label: as_tensor(x) for label, x in given.items()}
    shapes = [x.shape for x in tensors.values()]
    text = " and ".join(map(shape_text, shapes))
    demand(
        all(shape == shapes[0] for shape in shapes),
        f"{name}: the shapes differ: {text}",
        tensors,
        fix="they are compared row by row: gf.broadcast_to repeats one on purpose",
        error=ShapeError,
    )
    real = [floats(name, x) for x in promoted(name, *tensors.values())]
    return [wide(x) for x in real], real[0].dtype
