"""Loss functions: how far predictions are from targets.

All take `reduction`: "mean" over the elements (the default), "sum", or "none" for a loss an
element. float16 and bfloat16 are computed and reduced in float32. Values agree with PyTorch's
functions of the same names; other than there, classes are along the last axis unless `axis` says
otherwise.
"""

from __future__ import annotations

from collections.abc import Callable

from graphfw.errors import DTypeError, ShapeError
from graphfw.ir.build import emit
from graphfw.ir.dtype import DType, int64
from graphfw.ir.functions import F, public
from graphfw.ir.shape import normalize_axis, reduced, shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.args import TensorLike, as_tensor, converted, promoted, ruled
from graphfw.ops.composed import demand, demand_one_of, floats, wide
from graphfw.ops.indexing import along_axis
from graphfw.ops.loss_inputs import warn_of_scores, warn_of_sigmoid, warn_of_softmax
from graphfw.ops.select import where
from graphfw.ops.selection import Gather

__all__ = [
    "bce",
    "bce_with_logits",
    "cosine_similarity",
    "cross_entropy",
    "huber",
    "kl_div",
    "l1",
    "mse",
    "nll",
    "smooth_l1",
]


@public
def cross_entropy(
    logits: TensorLike,
    target: TensorLike,
    /,
    *,
    axis: int = -1,
    weight: TensorLike | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """Cross-entropy between softmax(logits) and the target classes.  -> [] or [*B]

    logits: [*B, C] with the classes at `axis`; target: integers [*B], the index of each element's
    class, or floats [*B, C], the probability of each class.

    Args:
        logits: Unnormalised scores, without softmax; a UserWarning says where there is one. -inf
            for classes that are masked out.
        target: Class indices from 0 to C - 1, which a run checks, or probabilities.
        axis: Where the classes are.
        weight: [C], a factor for each class.
        ignore_index: Elements of this class index count nothing.
        label_smoothing: The share of probability, from 0 to 1, that is spread evenly.
        reduction: "mean", "sum" or "none". With indices the mean is weighted, and over the elements
            that are not ignored: NaN if all are. With probabilities it is over all elements.

    Raises:
        ShapeError: The shapes don't fit.
        DTypeError: The logits are not floats, or indices are not integers.
        ArgumentError: label_smoothing or reduction makes no sense.

    >>> import graphfw as gf
    >>> logits = gf.asarray([[2.0, 0.0, 0.0], [0.0, 5.0, 0.0]])
    >>> round(float(gf.nn.cross_entropy(logits, [0, 1])), 4)
    0.1265
    """
    name = "cross_entropy"
    scores = floats(name, logits)
    fits = 0 <= label_smoothing <= 1
    message = f"{name}: label_smoothing={label_smoothing} must be between 0 and 1"
    demand(fits, message, fix="use label_smoothing=0.1")
    place = ruled(name, scores, normalize_axis, axis, scores.ndim)
    goal = as_tensor(target)
    is_index = goal.dtype.is_integer
    _check_classes(name, scores, goal, place, or_probabilities=True)
    factors = _class_weight(name, weight, scores, place)
    warn_of_softmax(name, scores, "pass the scores themselves, as the loss has its own softmax")
    logp = F.log_softmax(wide(scores), axis=place)
    if is_index:
        losses, counted = _at_classes(name, logp, goal, place, factors, ignore_index)
        if label_smoothing:
            spread = -F.mean(logp if factors is None else logp * factors, axis=place)
            spread = where(converted(goal, int64) != ignore_index, spread, 0)
            losses = (1 - label_smoothing) * losses + label_smoothing * spread
        return _weighted(name, losses, counted, reduction, scores.dtype)
    chances = converted(goal, logp.dtype)
    if label_smoothing:
        classes = as_tensor(scores.shape[place], logp.dtype)
        chances = chances * (1 - label_smoothing) + label_smoothing / classes
    terms = _times_log(chances, logp)
    losses = -F.sum(terms if factors is None else terms * factors, axis=place)
    return _reduce(name, losses, reduction, scores.dtype)


@public
def nll(
    log_probabilities: TensorLike,
    target: TensorLike,
    /,
    *,
    axis: int = -1,
    weight: TensorLike | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Minus the log-probability of the target classes.  [*B, C], integers [*B] -> [] or [*B]

    As `cross_entropy`, for what is the output of `log_softmax` already.

    Raises:
        ShapeError: The shapes don't fit.
        DTypeError: The first are not floats, or the target not integers.
        ArgumentError: `reduction` is unknown.
    """
    scores = floats("nll", log_probabilities)
    warn_of_softmax("nll", scores, "pass gf.log_softmax(scores), or scores to gf.nn.cross_entropy")
    place = ruled("nll", scores, normalize_axis, axis, scores.ndim)
    goal = as_tensor(target)
    _check_classes("nll", scores, goal, place, or_probabilities=False)
    factors = _class_weight("nll", weight, scores, place)
    losses, counted = _at_classes("nll", wide(scores), goal, place, factors, ignore_index)
    return _weighted("nll", losses, counted, reduction, scores.dtype)


def _check_classes(
    name: str, logits: Tensor, target: Tensor, axis: int, *, or_probabilities: bool
) -> None:
    """See that a target is class indices for these logits, or probabilities where they may be."""
    batch = reduced(logits.shape, (axis,), keepdims=False)
    shown = {"logits": logits, "target": target}
    order = f"the scores come first: {name}(scores, target)" if target.ndim > logits.ndim else ""
    if or_probabilities and target.dtype.is_floating:
        fits = target.shape == logits.shape
        wanted = f"the logits' shape {shape_text(logits.shape)}"
        fix = order or "give a probability for each class"
        if target.shape == batch:
            fix = "for class indices use integers: gf.astype(target, gf.int64)"
        message = f"{name}: target probabilities must have {wanted}, not {shape_text(target.shape)}"
        demand(fits, message, shown, fix=fix, error=ShapeError)
        return
    kinds = " or probabilities of the logits' shape" if or_probabilities else ""
    message = f"{name}: target class indices must be integers{kinds}, not {target.dtype.name}"
    fix = order or "convert it: gf.astype(target, gf.int64)"
    demand(target.dtype.is_integer, message, shown, fix=fix, error=DTypeError)
    text = f"{name}: for logits of shape {shape_text(logits.shape)} with classes at axis {axis}"
    wanted = f"target class indices must have shape {shape_text(batch)}"
    demand(
        target.shape == batch,
        f"{text}, {wanted}, not {shape_text(target.shape)}",
        shown,
        fix=_class_fix(logits.shape, target.shape, batch),
        error=ShapeError,
    )


def _class_fix(logits: Shape, target: Shape, batch: Shape) -> str:
    if target == logits:
        return "for one-hot rows give floats, or indices: gf.argmax(target, axis=axis)"
    if target == (*batch, 1):
        return "drop the last dim: gf.squeeze(target, axis=-1)"
    if len(logits) > 2 and target == reduced(logits, (1,), keepdims=False):
        return "where the classes are in dim 1, say axis=1"
    return "give one class index for each row of logits"


def _class_weight(name: str, weight: TensorLike | None, logits: Tensor, axis: int) -> Tensor | None:
    """The classes' weights in a shape that broadcasts with the logits."""
    if weight is None:
        return None
    factors = wide(converted(floats(name, weight), logits.dtype))
    classes = logits.shape[axis]
    message = f"{name}: weight must have one entry a class, shape [{classes}]"
    demand(
        factors.shape == (classes,),
        f"{message}, not {shape_text(factors.shape)}",
        {"logits": logits, "weight": factors},
        fix='to weigh elements, multiply the losses of reduction="none"',
        error=ShapeError,
    )
    return F.reshape(factors, (classes, *[1] * (logits.ndim - 1 - axis)))


def _at_classes(
    name: str,
    logp: Tensor,
    target: Tensor,
    axis: int,
    factors: Tensor | None,
    ignore_index: int,
) -> tuple[Tensor, Tensor]:
    """Each element's loss, and its weight in the mean: 0 for both where it is ignored."""
    target = converted(target, int64)  # one that can hold ignore_index
    counts = target != ignore_index
    index = F.expand_dims(where(counts, target, 0), axis=axis)
    ignored = f"(ignore_index is {ignore_index})"
    refusal = f"{name}: class index {{index}} is out of range: there are {{size}} classes {ignored}"

    def at_class(x: Tensor) -> Tensor:
        gathered = emit(Gather(0, refusal), x, *along_axis(name, x, index, axis))
        return F.squeeze(gathered, axis=axis)

    picked = -at_class(logp)
    if factors is None:
        return where(counts, picked, 0), F.astype(counts, logp.dtype)
    share = at_class(F.broadcast_to(factors, logp.shape))
    return where(counts, picked * share, 0), where(counts, share, 0)


def _times_log(chance: Tensor, log: Tensor) -> Tensor:
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
    x, y, dtype = _pair("mse", prediction, target)
    difference = x - y
    return _reduce("mse", difference * difference, reduction, dtype)


@public
def l1(prediction: TensorLike, target: TensorLike, /, *, reduction: str = "mean") -> Tensor:
    """Mean absolute error, |prediction - target|.  [*A], [*A] -> [] or [*A]

    Raises:
        ShapeError: The shapes differ.
        DTypeError: They are not real.
        ArgumentError: `reduction` is unknown.
    """
    x, y, dtype = _pair("l1", prediction, target)
    return _reduce("l1", F.abs(x - y), reduction, dtype)


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
    x, y, dtype = _pair("huber", prediction, target)
    return _reduce("huber", _huber(x - y, delta), reduction, dtype)


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
    x, y, dtype = _pair("smooth_l1", prediction, target)
    return _reduce("smooth_l1", _huber(x - y, beta) / beta, reduction, dtype)


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
    p, t, dtype = _pair(name, probability, target)
    warn_of_scores(name, p, "pass scores to gf.nn.bce_with_logits, or gf.sigmoid(scores)")
    losses = -(t * _cut_log(F.log, p, 0.0) + (1 - t) * _cut_log(F.log1p, -p, -1.0))
    return _reduce(name, _scaled(name, losses, weight), reduction, dtype)


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
    x, t, dtype = _pair(name, logits, target)
    warn_of_sigmoid(name, x, "pass the scores themselves, or probabilities to gf.nn.bce")
    positive = _scaled(name, t * F.softplus(-x), pos_weight, "pos_weight")
    losses = positive + (1 - t) * F.softplus(x)
    return _reduce(name, _scaled(name, losses, weight), reduction, dtype)


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
    x, t, dtype = _pair("kl_div", log_prediction, target)
    warn_of_softmax("kl_div", x, "pass logarithms: gf.log_softmax(scores)")
    chances, logs = (F.exp(t), t) if log_target else (t, _safe_log(t))
    losses = _times_log(chances, logs) - _times_log(chances, x)
    if reduction != "batchmean":
        return _reduce("kl_div", losses, reduction, dtype, "batchmean")
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


def _pair(name: str, prediction: TensorLike, target: TensorLike) -> tuple[Tensor, Tensor, DType]:
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


def _scaled(name: str, losses: Tensor, weight: TensorLike | None, label: str = "weight") -> Tensor:
    """The losses times a weight that may be broadcast to them, but may not broadcast them."""
    if weight is None:
        return losses
    factors = converted(floats(name, weight), losses.dtype)
    scaled = losses * factors
    message = f"{name}: {label}'s shape {shape_text(factors.shape)} does not broadcast to"
    demand(
        scaled.shape == losses.shape,
        f"{message} {shape_text(losses.shape)}",
        {label: factors},
        fix="each of its dims must be that of the losses, or 1",
        error=ShapeError,
    )
    return scaled


def _weighted(name: str, losses: Tensor, counted: Tensor, reduction: str, dtype: DType) -> Tensor:
    """Reduce losses; the mean is over the weight that was counted."""
    if reduction == "mean":
        return converted(F.sum(losses) / F.sum(counted), dtype)
    return _reduce(name, losses, reduction, dtype)


def _reduce(name: str, losses: Tensor, reduction: str, dtype: DType, *others: str) -> Tensor:
    """Reduce losses as the user asked, and give them the dtype of the inputs."""
    choices = ("mean", "sum", "none", *others)
    demand_one_of(name, "reduction", reduction, choices)
    if reduction == "none":
        return converted(losses, dtype)
    return converted(F.mean(losses) if reduction == "mean" else F.sum(losses), dtype)
