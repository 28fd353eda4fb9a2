"""Loss functions: how far predictions are from targets.

All take `reduction`: "mean" over the elements (the default), "sum", or "none" for a loss an
element. float16 and bfloat16 are computed and reduced in float32. Values agree with PyTorch's
functions of the same names. Those of classes are in `classification_losses.py`, of two classes and
masks in `binary_losses.py`, of pairs in `pair_losses.py`, of distributions' parameters in
`likelihood_losses.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from graphfw.errors import ShapeError
from graphfw.ir.dtype import DType
from graphfw.ir.functions import F, public
from graphfw.ir.shape import shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.args import TensorLike, as_tensor, converted, promoted
from graphfw.ops.composed import demand, demand_one_of, floats, wide
from graphfw.ops.elementwise.where_clip import where
from graphfw.ops.nn import loss_warnings

__all__ = [
    "bce",
    "bce_with_logits",
    "cosine_similarity",
    "huber",
    "kl_div",
    "l1",
    "mse",
    "smooth_l1",
]


def times_log(chance: Tensor, log: Tensor) -> Tensor:
    """chance * log, where 0 * -inf is 0: what has no chance contributes nothing."""
    impossible = (chance == 0) & F.isinf(log)
    return chance * where(impossible, 0, log)


@public
def mse(prediction: TensorLike, target: TensorLike, /, *, reduction: str = "mean") -> Tensor:
    """Mean squared error, (prediction - target)².  [*A], [*A] -> [] or [*A]

    Raises:
        ShapeError: The shapes differ: they are not broadcast, as that is nearly always a mistake.
        DTypeError: They are not real.
        ArgumentError: `reduction` is unknown.

    >>> import graphfw as gf
    >>> float(gf.nn.mse([1.0, 2.0], [1.0, 4.0]))
    2.0
    """
    x, y, dtype = paired("mse", prediction, target)
    difference = x - y
    return reduce_losses("mse", difference * difference, reduction, dtype)


@public
def l1(prediction: TensorLike, target: TensorLike, /, *, reduction: str = "mean") -> Tensor:
    """Mean absolute error, |prediction - target|.  [*A], [*A] -> [] or [*A]

    Raises:
        ShapeError: The shapes differ.
        DTypeError: They are not real.
        ArgumentError: `reduction` is unknown.
    """
    x, y, dtype = paired("l1", prediction, target)
    return reduce_losses("l1", F.abs(x - y), reduction, dtype)


@public
def huber(
    prediction: TensorLike,
    target: TensorLike,
    /,
    *,
    delta: float = 1.0,
    reduction: str = "mean",
) -> Tensor:
    """Half the squared error d² / 2 up to |d| = delta, then delta (|d| - delta / 2).

    [*A], [*A] -> [] or [*A].  P. J. Huber, "Robust estimation of a location parameter", 1964.

    Raises:
        ShapeError: The shapes differ.
        DTypeError: They are not real.
        ArgumentError: delta is not positive, or `reduction` is unknown.
    """
    demand(delta > 0, f"huber: delta={delta} must be positive", fix="use delta=1.0")
    x, y, dtype = paired("huber", prediction, target)
    return reduce_losses("huber", _huber(x - y, delta), reduction, dtype)


def _huber(difference: Tensor, delta: float) -> Tensor:
    size = F.abs(difference)
    # The square of the small ones only: that of the others might overflow.
    small = where(size <= delta, difference, 0)
    return where(size <= delta, 0.5 * small * small, delta * (size - 0.5 * delta))


@public
def smooth_l1(
    prediction: TensorLike,
    target: TensorLike,
    /,
    *,
    beta: float = 1.0,
    reduction: str = "mean",
) -> Tensor:
    """The absolute error, made smooth below beta: huber(delta=beta) / beta.

    [*A], [*A] -> [] or [*A].  R. Girshick, "Fast R-CNN", 2015.

    Raises:
        ShapeError: The shapes differ.
        DTypeError: They are not real.
        ArgumentError: beta is not positive, or `reduction` is unknown.
    """
    demand(beta > 0, f"smooth_l1: beta={beta} must be positive", fix="for beta=0 use l1")
    x, y, dtype = paired("smooth_l1", prediction, target)
    return reduce_losses("smooth_l1", _huber(x - y, beta) / beta, reduction, dtype)


@public
def bce(
    probability: TensorLike,
    target: TensorLike,
    /,
    *,
    weight: TensorLike | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Cross-entropy of yes-or-no: -(t log p + (1 - t) log(1 - p)).  [*A], [*A] -> [] or [*A]

    Logarithms are cut off at -100, as PyTorch does, with gradient 0 there;
    `bce_with_logits` needs no cutting, and is to be preferred. A UserWarning says where p is known
    to be none: a layer's scores, or values outside of [0, 1].

    Args:
        probability: In [0, 1].
        target: In [0, 1]; bools and integers too.
        weight: A factor for each element; a shape that broadcasts to theirs.
        reduction: "mean", "sum" or "none".

    Raises:
        ShapeError: The shapes differ.
        DTypeError: They are not real.
        ArgumentError: `reduction` is unknown.
    """
    name = "bce"
    p, t, dtype = paired(name, probability, target)
    loss_warnings.warn_of_scores(
        name, p, "pass scores to gf.nn.bce_with_logits, or gf.sigmoid(scores)"
    )
    loss_warnings.warn_of_target(name, t)
    losses = -(t * _cut_log(F.log, p, 0.0) + (1 - t) * _cut_log(F.log1p, -p, -1.0))
    return reduce_losses(name, scaled(name, losses, weight), reduction, dtype)


def _cut_log(log: Callable[[Tensor], Tensor], x: Tensor, pole: float) -> Tensor:
    """A logarithm that is -inf at the pole, cut off at -100; gradients see nothing of the pole."""
    beyond = x > pole
    return where(beyond, F.maximum(log(where(beyond, x, 1)), -100), -100)


@public
def bce_with_logits(
    logits: TensorLike,
    target: TensorLike,
    /,
    *,
    weight: TensorLike | None = None,
    pos_weight: TensorLike | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Cross-entropy of yes-or-no with the probability sigmoid(logits).  [*A], [*A] -> [] or [*A]

    Exact for logits of any size.

    Args:
        logits: Scores, without sigmoid.
        target: In [0, 1]; bools and integers too.
        weight: A factor for each element; a shape that broadcasts to theirs.
        pos_weight: A factor for the targets' share that is 1; a shape that broadcasts to theirs.
        reduction: "mean", "sum" or "none".

    Raises:
        ShapeError: The shapes differ.
        DTypeError: They are not real.
        ArgumentError: `reduction` is unknown.
    """
    name = "bce_with_logits"
    x, t, dtype = paired(name, logits, target)
    fix = "pass the scores themselves, or probabilities to gf.nn.bce"
    loss_warnings.warn_of_probabilities(name, x, fix)
    loss_warnings.warn_of_target(name, t)
    positive = scaled(name, t * F.softplus(-x), pos_weight, "pos_weight")
    losses = positive + (1 - t) * F.softplus(x)
    return reduce_losses(name, scaled(name, losses, weight), reduction, dtype)


@public
def kl_div(
    log_prediction: TensorLike,
    target: TensorLike,
    /,
    *,
    log_target: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Kullback-Leibler divergence, target (log target - log_prediction).  [*A], [*A] -> [] or [*A]

    Args:
        log_prediction: Logarithms of the predicted probabilities.
        target: Probabilities, or their logarithms.
        log_target: Whether `target` is logarithms.
        reduction: "mean", "sum", "none", or "batchmean": the sum divided by the size of dim 0: the
            divergence as it is defined, where "mean" divides by the number of classes too.

    Raises:
        ShapeError: The shapes differ, or there is no dim 0 for "batchmean".
        DTypeError: They are not real.
        ArgumentError: `reduction` is unknown.
    """
    x, t, dtype = paired("kl_div", log_prediction, target)
    loss_warnings.warn_of_no_logarithms("kl_div", x, "pass logarithms: gf.log_softmax(scores)")
    chances, logs = (F.exp(t), t) if log_target else (t, _safe_log(t))
    losses = times_log(chances, logs) - times_log(chances, x)
    if reduction != "batchmean":
        return reduce_losses("kl_div", losses, reduction, dtype, "batchmean")
    message = "kl_div: batchmean needs a dim 0"
    shown = {"log_prediction": x}
    demand(x.ndim > 0, message, shown, fix='use reduction="sum"', error=ShapeError)
    return converted(F.sum(losses) / as_tensor(x.shape[0], losses.dtype), dtype)


def _safe_log(x: Tensor) -> Tensor:
    """log(x), but 0 where x is 0, with gradient 0 there."""
    return F.log(where(x == 0, 1, x))


@public
def cosine_similarity(
    x1: TensorLike, x2: TensorLike, /, *, axis: int = -1, eps: float = 1e-8
) -> Tensor:
    """The cosine of the angle between vectors along an axis.  [*A], [*A] -> [*A without axis]

    Norms below eps count as eps, so a vector of zeros is at a right angle to all.

    Raises:
        ShapeError: The shapes don't broadcast.
        AxisError: There is no such axis.
        DTypeError: They are not real.
    """
    a, b = (floats("cosine_similarity", x) for x in promoted("cosine_similarity", x1, x2))
    first = F.normalize(wide(a), axis=axis, eps=eps)
    second = F.normalize(wide(b), axis=axis, eps=eps)
    return converted(F.sum(first * second, axis=axis), a.dtype)


def paired(name: str, prediction: TensorLike, target: TensorLike) -> tuple[Tensor, Tensor, DType]:
    """Both as real floats, wide enough to sum, with the dtype of the result."""
    x, y = as_tensor(prediction), as_tensor(target)
    message = f"{name}: the shapes differ: {shape_text(x.shape)} and {shape_text(y.shape)}"
    demand(
        x.shape == y.shape,
        message,
        {"prediction": x, "target": y},
        fix=_shape_fix(x.shape, y.shape),
        error=ShapeError,
    )
    x, y = (floats(name, tensor) for tensor in promoted(name, x, y))
    return wide(x), wide(y), x.dtype


def _shape_fix(x: Shape, y: Shape) -> str:
    if x == (*y, 1):
        return "drop the prediction's last dim: gf.squeeze(prediction, axis=-1)"
    if y == (*x, 1):
        return "drop the target's last dim: gf.squeeze(target, axis=-1)"
    return "they are compared element by element: gf.broadcast_to repeats one on purpose"


def scaled(name: str, losses: Tensor, weight: TensorLike | None, label: str = "weight") -> Tensor:
    """The losses times a weight that may be broadcast to them, but may not broadcast them."""
    if weight is None:
        return losses
    factors = converted(floats(name, weight), losses.dtype)
    product = losses * factors
    message = f"{name}: {label}'s shape {shape_text(factors.shape)} does not broadcast to"
    demand(
        product.shape == losses.shape,
        f"{message} {shape_text(losses.shape)}",
        {label: factors},
        fix="each of its dims must be that of the losses, or 1",
        error=ShapeError,
    )
    return product


def reduce_losses(name: str, losses: Tensor, reduction: str, dtype: DType, *others: str) -> Tensor:
    """Reduce losses as the user asked, and give them the dtype of the inputs."""
    choices = ("mean", "sum", "none", *others)
    demand_one_of(name, "reduction", reduction, choices)
    if reduction == "none":
        return converted(losses, dtype)
    return converted(F.mean(losses) if reduction == "mean" else F.sum(losses), dtype)
