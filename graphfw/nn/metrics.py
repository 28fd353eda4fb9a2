"""Metrics: functions that measure predictions, to be fetched and not to be trained by.

Over many batches there are the modules `Mean` and `ConfusionMatrix`.
The mean absolute and squared errors are `gf.nn.l1` and `gf.nn.mse`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from graphfw.errors import DTypeError, ShapeError, counted
from graphfw.hints.calls import explained
from graphfw.hints.names import hints_for_module
from graphfw.ir import ambient
from graphfw.ir.dim import Dim
from graphfw.ir.dtype import float64
from graphfw.ir.functions import F
from graphfw.ir.shape import normalize_axis, reduced, shape_text
from graphfw.ir.tensor import Tensor
from graphfw.nn.checks import checked_size
from graphfw.nn.confusion import confusion_matrix, f1, iou, precision, recall
from graphfw.nn.streaming_metrics import ConfusionMatrix, Mean
from graphfw.ops.args import Axes, TensorLike, as_tensor, axes_of, converted, ruled
from graphfw.ops.composed import demand, floats, wide
from graphfw.ops.elementwise.where_clip import where
from graphfw.ops.nn.classification_losses import cross_entropy
from graphfw.ops.reduce import reductions
from graphfw.ops.reduce.statistics import mean
from graphfw.ops.shape.axes import expand_dims
from graphfw.ops.shape.movement import reshape
from graphfw.ops.sorting.sort_search import searchsorted, sort, topk

__all__ = [
    "ConfusionMatrix",
    "Mean",
    "accuracy",
    "binary_accuracy",
    "confusion_matrix",
    "f1",
    "iou",
    "perplexity",
    "precision",
    "r2",
    "recall",
    "roc_auc",
    "topk_accuracy",
]

if not TYPE_CHECKING:  # which would take a module with `__getattr__` to have every name
    __getattr__, __dir__ = hints_for_module("gf.nn.metrics", __name__, __all__)


@explained
def accuracy(logits: TensorLike, target: TensorLike, /, *, axis: int = -1) -> Tensor:
    """The share of elements whose largest score is that of the target class.  -> []

    Args:
        logits: [*B, C] with the classes at `axis`: scores or probabilities.
        target: Integers [*B], the right classes.
        axis: Where the classes are.

    Raises:
        ShapeError: The shape of target is not [*B].
        DTypeError: target is no integers.
        AxisError: There is no such axis.

    >>> import graphfw as gf
    >>> float(gf.nn.metrics.accuracy(gf.asarray([[0.1, 0.9], [0.8, 0.2]]), [1, 1]))
    0.5
    """
    scores, classes, axis_index = _scored("accuracy", logits, target, axis)
    return _share(reductions.argmax(scores, axis=axis_index) == classes)


@explained
def topk_accuracy(logits: TensorLike, target: TensorLike, k: int, /, *, axis: int = -1) -> Tensor:
    """The share of elements whose target class is among the k with the largest scores.  -> []

    Args:
        logits: [*B, C] with the classes at `axis`: scores or probabilities.
        target: Integers [*B], the right classes.
        k: How many classes count.
        axis: Where the classes are.

    Raises:
        ShapeError: The shape of target is not [*B].
        DTypeError: target is no integers.
        ArgumentError: k is below 1, or above C.
        AxisError: There is no such axis.
    """
    scores, classes, axis_index = _scored("topk_accuracy", logits, target, axis)
    count = checked_size("topk_accuracy", "k", k)
    number = scores.shape[axis_index]
    fits = isinstance(number, Dim) or count <= number
    message = f"topk_accuracy: k={k} of {counted(number, 'class', 'classes')}"
    demand(fits, message, {"logits": scores}, fix=f"use k={number} or less")
    best = topk(scores, count, axis=axis_index)[1]
    return _share(reductions.any(best == expand_dims(classes, axis=axis_index), axis=axis_index))


@explained
def binary_accuracy(logits: TensorLike, target: TensorLike, /, *, threshold: float = 0.0) -> Tensor:
    """The share of elements whose score is above a threshold where the target is 1, and only there.

    [*A], [*A] -> [].  For probabilities the threshold is 0.5.

    Args:
        logits: Scores.
        target: 0 and 1, of any dtype, or bools.
        threshold: What scores must be above to say 1.

    Raises:
        ShapeError: The shapes differ.
    """
    scores, wanted = _pair("binary_accuracy", logits, target, "logits")
    return _share((scores > threshold) == (wanted != 0))


@explained
def roc_auc(scores: TensorLike, target: TensorLike, /) -> Tensor:
    """The area under the receiver operating characteristic.  [*A], [*A] -> []

    It is the chance that a yes has a larger score than a no, where equal scores count half. NaN
    without a yes or without a no, and where a score is NaN. J. Hanley, B. McNeil, "The meaning and
    use of the area under a receiver operating characteristic (ROC) curve", 1982.

    Args:
        scores: Scores or probabilities.
        target: 0 and 1, of any dtype, or bools.

    Raises:
        ShapeError: The shapes differ.
        DTypeError: The scores are not real.

    >>> import graphfw as gf
    >>> float(gf.nn.metrics.roc_auc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]))
    0.75
    """
    name = "roc_auc"
    values, wanted = _pair(name, scores, target, "scores")
    values = values if values.dtype.is_integer else floats(name, values)
    x, is_yes = reshape(values, (-1,)), reshape(wanted != 0, (-1,))
    ordered = sort(x)
    # Twice the mean rank among equals, so that all is counted in whole numbers.
    ends = searchsorted(ordered, x, side="left"), searchsorted(ordered, x, side="right")
    ranks = converted(ends[0] + ends[1] + 1, float64)
    yes = reductions.sum(converted(is_yes, float64))
    no = reductions.sum(converted(~is_yes, float64))
    above = (reductions.sum(where(is_yes, ranks, 0)) - yes * (yes + 1)) / 2
    area = where(reductions.any(F.isnan(x)), math.nan, above / (yes * no))
    return converted(area, ambient.get_default_dtype())


@explained
def perplexity(
    logits: TensorLike,
    target: TensorLike,
    /,
    *,
    axis: int = -1,
    ignore_index: int = -100,
) -> Tensor:
    """The exponential of the mean cross-entropy: among how many equal choices a model is in doubt.

    logits: [*B, C] with the classes at `axis`; target: integers [*B] -> [].

    Args:
        logits: Unnormalised scores, without softmax.
        target: The right classes.
        axis: Where the classes are.
        ignore_index: Elements of this class index count nothing.

    Raises:
        ShapeError: The shape of target is not [*B].
        DTypeError: target is no integers.
        AxisError: There is no such axis.

    >>> import graphfw as gf
    >>> round(float(gf.nn.metrics.perplexity(gf.zeros((2, 8)), [3, 5])), 4)
    8.0
    """
    scores, classes, axis_index = _scored("perplexity", floats("perplexity", logits), target, axis)
    losses = cross_entropy(wide(scores), classes, axis=axis_index, ignore_index=ignore_index)
    return converted(F.exp(losses), ambient.get_default_dtype())


@explained
def r2(prediction: TensorLike, target: TensorLike, /, *, axis: Axes = None) -> Tensor:
    """The share of the target's variance that is predicted, R², the coefficient of determination.

    [*A], [*A] -> [*A without axis]: 1 - sum((target - prediction)²) / sum((target - its mean)²). A
    constant target gives 1 where all predictions are right, else 0.

    Args:
        prediction: The predicted numbers.
        target: The right ones.
        axis: The axis or axes of the samples; all by default.

    Raises:
        ShapeError: The shapes differ.
        DTypeError: They are not real.
        AxisError: There is no such axis.

    >>> import graphfw as gf
    >>> round(float(gf.nn.metrics.r2([2.5, 0.0, 2.0, 8.0], [3.0, -0.5, 2.0, 7.0])), 4)
    0.9486
    """
    name = "r2"
    x, y = _pair(name, prediction, target, "prediction")
    x, y = (converted(floats(name, t), float64) for t in (x, y))
    axes = axes_of(name, y, axis)
    left = reductions.sum((y - x) ** 2, axis=axes)
    whole = reductions.sum((y - mean(y, axis=axes, keepdims=True)) ** 2, axis=axes)
    is_constant = whole == 0
    constant = where(left == 0, 1.0, 0.0)
    share = where(is_constant, constant, 1 - left / where(is_constant, 1, whole))
    return converted(share, ambient.get_default_dtype())


def _pair(name: str, values: TensorLike, target: TensorLike, label: str) -> tuple[Tensor, Tensor]:
    """Return tensors, which must be of one shape."""
    x, y = as_tensor(values), as_tensor(target)
    message = f"{name}: the shapes differ: {shape_text(x.shape)} and {shape_text(y.shape)}"
    fix = "reshape one of them to the other's shape"
    demand(x.shape == y.shape, message, {label: x, "target": y}, fix=fix, error=ShapeError)
    return x, y


def _scored(
    name: str, logits: TensorLike, target: TensorLike, axis: int
) -> tuple[Tensor, Tensor, int]:
    scores, classes = as_tensor(logits), as_tensor(target)
    axis_index = ruled(name, scores, normalize_axis, axis, scores.ndim)
    message = f"{name}: target classes must be integers, not {classes.dtype.name}"
    is_one_hot = classes.shape == scores.shape
    fix = f"for one-hot rows use gf.argmax(target, axis={axis})" if is_one_hot else ""
    if classes.ndim > scores.ndim:
        fix = f"the scores come first: {name}(scores, target)"
    shown = {"logits": scores, "target": classes}
    wanted = reduced(scores.shape, (axis_index,), keepdims=False)
    text = f"{name}: target must have shape {shape_text(wanted)}, not {shape_text(classes.shape)}"
    demand(classes.shape == wanted, text, shown, fix=fix, error=ShapeError)
    fix = "convert it: gf.astype(target, gf.int64)"
    demand(classes.dtype.is_integer, message, shown, fix=fix, error=DTypeError)
    return scores, classes, axis_index


def _share(right: Tensor) -> Tensor:
    return mean(converted(right, ambient.get_default_dtype()))
