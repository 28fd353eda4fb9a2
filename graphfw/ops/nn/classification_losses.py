"""Losses of classes: `cross_entropy`, `focal`, `multi_margin`, `nll`.

Other than PyTorch's functions of the same names, they have classes along the last axis unless
`axis` says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable

from graphfw.errors import DTypeError, ShapeError
from graphfw.ir.build import emit
from graphfw.ir.dtype import DType, bool_, int64
from graphfw.ir.functions import F, public
from graphfw.ir.shape import normalize_axis, reduced, shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.args import TensorLike, as_tensor, converted, is_whole, ruled
from graphfw.ops.composed import demand, floats, wide
from graphfw.ops.elementwise.where_clip import where
from graphfw.ops.nn import loss_warnings
from graphfw.ops.nn.binary_losses import focused
from graphfw.ops.nn.losses import reduce_losses, times_log
from graphfw.ops.shape.gather_scatter import Gather
from graphfw.ops.shape.getitem import along_axis

__all__ = ["cross_entropy", "focal", "multi_margin", "nll"]


@public
def cross_entropy(
    logits: TensorLike,
    target: TensorLike,
    /,
    *,
    axis: int | None = None,
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
        axis: Where the classes are: on the last axis by default. A UserWarning says where the
            target fits axis 1, too, which is PyTorch's.
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
    goal = as_tensor(target)
    axis_index = _class_axis(name, scores, goal, axis)
    is_index = goal.dtype.is_integer
    _check_classes(name, scores, goal, axis_index, or_probabilities=True)
    factors = _class_weight(name, weight, scores, axis_index)
    fix = "pass the scores themselves, as the loss has its own softmax"
    loss_warnings.warn_of_probabilities(name, scores, fix)
    logp = F.log_softmax(wide(scores), axis=axis_index)
    if is_index:
        losses, counted = _at_classes(name, logp, goal, axis_index, factors, ignore_index)
        if label_smoothing:
            spread = -F.mean(logp if factors is None else logp * factors, axis=axis_index)
            spread = where(converted(goal, int64) != ignore_index, spread, 0)
            losses = (1 - label_smoothing) * losses + label_smoothing * spread
        return _weighted(name, losses, counted, reduction, scores.dtype)
    chances = converted(goal, logp.dtype)
    if label_smoothing:
        classes = as_tensor(scores.shape[axis_index], logp.dtype)
        chances = chances * (1 - label_smoothing) + label_smoothing / classes
    terms = times_log(chances, logp)
    losses = -F.sum(terms if factors is None else terms * factors, axis=axis_index)
    return reduce_losses(name, losses, reduction, scores.dtype)


@public
def nll(
    log_probabilities: TensorLike,
    target: TensorLike,
    /,
    *,
    axis: int | None = None,
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
    fix = "pass gf.log_softmax(scores), or scores to gf.nn.cross_entropy"
    loss_warnings.warn_of_no_logarithms("nll", scores, fix)
    goal = as_tensor(target)
    axis_index = _class_axis("nll", scores, goal, axis)
    _check_classes("nll", scores, goal, axis_index, or_probabilities=False)
    factors = _class_weight("nll", weight, scores, axis_index)
    losses, counted = _at_classes("nll", wide(scores), goal, axis_index, factors, ignore_index)
    return _weighted("nll", losses, counted, reduction, scores.dtype)


@public
def focal(
    logits: TensorLike,
    target: TensorLike,
    /,
    *,
    gamma: float = 2.0,
    axis: int | None = None,
    weight: TensorLike | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Cross-entropy times (1 - p)^gamma, with the target class's probability p.  -> [] or [*B]

    Classes that are predicted well count less, so rare ones count more. gamma=0 gives
    `cross_entropy`; for yes-or-no there is `binary_focal`. T.-Y. Lin et al., "Focal loss for dense
    object detection", 2017.

    Args:
        logits: [*B, C], scores without softmax.
        target: Integers [*B], from 0 to C - 1, which a run checks.
        gamma: How much less what is predicted well counts: 0 or more.
        axis: Where the classes are: on the last axis by default.
        weight: [C], a factor for each class.
        ignore_index: Elements of this class index count nothing.
        reduction: "mean", "sum" or "none". The mean is weighted, and over the elements that are
            not ignored.

    Raises:
        ShapeError: The shapes don't fit.
        DTypeError: The logits are not floats, or the target not integers.
        ArgumentError: gamma is negative, or `reduction` is unknown.

    >>> import graphfw as gf
    >>> logits = gf.asarray([[2.0, 0.0, 0.0], [0.0, 5.0, 0.0]])
    >>> round(float(gf.nn.focal(logits, [0, 1])), 4)
    0.0054
    """
    name = "focal"
    scores, goal, axis_index = _scored(name, logits, target, axis)
    demand(gamma >= 0, f"{name}: gamma={gamma} must not be negative", fix="use gamma=2.0")
    factors = _class_weight(name, weight, scores, axis_index)
    logp = F.log_softmax(wide(scores), axis=axis_index)
    losses, counted = _at_classes(
        name,
        logp,
        goal,
        axis_index,
        factors,
        ignore_index,
        lambda losses: focused(losses, -F.expm1(-losses), gamma),
    )
    return _weighted(name, losses, counted, reduction, scores.dtype)


@public
def multi_margin(
    scores: TensorLike,
    target: TensorLike,
    /,
    *,
    margin: float = 1.0,
    power: int = 1,
    axis: int | None = None,
    weight: TensorLike | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Hinge loss of classes: the scores of others are to stay below the right one's.  -> [] or [*B]

    The sum of max(0, margin + score - right score)^power over the other classes, divided by C.
    J. Weston, C. Watkins, "Support vector machines for multi-class pattern recognition", 1999.

    Args:
        scores: [*B, C], of any size.
        target: Integers [*B], from 0 to C - 1, which a run checks.
        margin: How far the right class's score is to be above the others.
        power: 1, or 2 for squares.
        axis: Where the classes are: on the last axis by default.
        weight: [C], a factor for each target class.
        reduction: "mean" over the elements, not weighted, "sum" or "none".

    Raises:
        ShapeError: The shapes don't fit.
        DTypeError: The scores are not floats, or the target not integers.
        ArgumentError: power or reduction makes no sense.

    >>> import graphfw as gf
    >>> float(gf.nn.multi_margin(gf.asarray([[0.0, 0.5, 2.0]]), [2]))
    0.0
    >>> float(gf.nn.multi_margin(gf.asarray([[0.0, 0.5, 2.0]]), [1]))
    1.0
    """
    name = "multi_margin"
    demand(power in (1, 2), f"{name}: power={power!r} must be 1 or 2", fix="use power=1")
    values, goal, axis_index = _scored(name, scores, target, axis)
    factors = _class_weight(name, weight, values, axis_index)
    at_class = _class_gather(name, goal, axis_index)
    wider = wide(values)
    over = F.relu(margin + wider - F.expand_dims(at_class(wider), axis=axis_index))
    is_right = F.one_hot(goal, values.shape[axis_index], axis=axis_index, dtype=bool_)
    losses = F.mean(where(is_right, 0, over if power == 1 else over * over), axis=axis_index)
    if factors is not None:
        losses = losses * at_class(F.broadcast_to(factors, values.shape))
    return reduce_losses(name, losses, reduction, values.dtype)


def _scored(
    name: str, logits: TensorLike, target: TensorLike, axis: int | None
) -> tuple[Tensor, Tensor, int]:
    """Return scores and class indices that fit together, and where the classes are."""
    scores, goal = floats(name, logits), as_tensor(target)
    axis_index = _class_axis(name, scores, goal, axis)
    _check_classes(name, scores, goal, axis_index, or_probabilities=False)
    fix = "pass the scores themselves"
    loss_warnings.warn_of_probabilities(name, scores, fix)
    return scores, goal, axis_index


def _class_axis(name: str, logits: Tensor, target: Tensor, axis: int | None) -> int:
    """Return where the classes are; warn if the target leaves that open, and the user, too."""
    if axis is None and logits.ndim > 2 and target.dtype.is_integer:
        shape, axis_index = logits.shape, logits.ndim - 1
        may_be = [reduced(shape, (at,), keepdims=False) for at in (1, axis_index)]
        # Scores of pairs, [b, n, n], have dims of one name.
        if may_be == [target.shape] * 2 and isinstance(shape[1], int) and shape[1] > 1:
            loss_warnings.warn(
                f"{name}: the target fits logits of shape {shape_text(shape)} with classes at axis "
                f"{axis_index}, and at axis 1, too, where PyTorch has them: say axis=1 or "
                f"axis={axis_index}"
            )
    return ruled(name, logits, normalize_axis, -1 if axis is None else axis, logits.ndim)


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
    change: Callable[[Tensor], Tensor] = lambda losses: losses,
) -> tuple[Tensor, Tensor]:
    """Each element's loss, and its weight in the mean: 0 for both where it is ignored.

    `change` is what to make of -log p before it is weighted.
    """
    message = f"{name}: ignore_index={ignore_index!r} is no int"
    demand(is_whole(ignore_index), message, fix="use ignore_index=-100")
    target = converted(target, int64)  # one that can hold ignore_index
    counts = target != ignore_index
    note = f" (ignore_index is {ignore_index})"
    at_class = _class_gather(name, where(counts, target, 0), axis, note)
    picked = change(-at_class(logp))
    if factors is None:
        return where(counts, picked, 0), F.astype(counts, logp.dtype)
    share = at_class(F.broadcast_to(factors, logp.shape))
    return where(counts, picked * share, 0), where(counts, share, 0)


def _class_gather(
    name: str, target: Tensor, axis: int, note: str = ""
) -> Callable[[Tensor], Tensor]:
    """Return a function that takes each element's entry of its class."""
    index = F.expand_dims(converted(target, int64), axis=axis)
    refusal = f"{name}: class index {{index}} is out of range: there are {{size}} classes{note}"

    def at_class(x: Tensor) -> Tensor:
        gathered = emit(Gather(0, refusal), x, *along_axis(name, x, index, axis))
        return F.squeeze(gathered, axis=axis)

    return at_class


def _weighted(name: str, losses: Tensor, counted: Tensor, reduction: str, dtype: DType) -> Tensor:
    """Reduce losses; the mean is over the weight that was counted."""
    if reduction == "mean":
        return converted(F.sum(losses) / F.sum(counted), dtype)
    return reduce_losses(name, losses, reduction, dtype)
