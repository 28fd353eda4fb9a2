"""Metrics: functions that measure predictions, to be fetched and not to be trained by.

The mean absolute and squared errors are `gf.nn.l1` and `gf.nn.mse`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphfw.errors import DTypeError, ShapeError, counted
from graphfw.hints.calls import explained
from graphfw.hints.names import hints_for_module
from graphfw.ir import ambient
from graphfw.ir.dim import Dim
from graphfw.ir.dtype import float64, int64
from graphfw.ir.shape import normalize_axis, reduced, shape_text
from graphfw.ir.tensor import Tensor
from graphfw.nn.checks import checked_size
from graphfw.ops.args import TensorLike, as_tensor, converted, ruled
from graphfw.ops.composed import demand
from graphfw.ops.reduce import reductions
from graphfw.ops.reduce.statistics import mean
from graphfw.ops.shape.axes import expand_dims
from graphfw.ops.shape.getitem import one_hot
from graphfw.ops.shape.movement import reshape
from graphfw.ops.sorting.sort_search import topk

__all__ = ["accuracy", "binary_accuracy", "confusion_matrix", "topk_accuracy"]

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
    scores, wanted = as_tensor(logits), as_tensor(target)
    message = f"the shapes differ: {shape_text(scores.shape)} and {shape_text(wanted.shape)}"
    fits = scores.shape == wanted.shape
    shown = {"logits": scores, "target": wanted}
    fix = "reshape one of them to the other's shape"
    demand(fits, f"binary_accuracy: {message}", shown, fix=fix, error=ShapeError)
    return _share((scores > threshold) == (wanted != 0))


@explained
def confusion_matrix(prediction: TensorLike, target: TensorLike, classes: int, /) -> Tensor:
    """Count how often each class was predicted as each class.  int64 [classes, classes]

    Row i, column j: how many elements of class i were predicted to be of class j. Elements with an
    index outside 0 to classes - 1, predicted or wanted, are not counted.

    Args:
        prediction: Integers [*B], the predicted classes: of scores, `gf.argmax(logits, axis=-1)`.
        target: Integers [*B], the right classes.
        classes: How many there are.

    Raises:
        ShapeError: The shapes differ.
        DTypeError: They are no integers.
        ArgumentError: classes is no int, or below 1.

    >>> import graphfw as gf
    >>> gf.nn.metrics.confusion_matrix([0, 1, 1], [0, 0, 1], 2)
    Tensor([[1, 1],
            [0, 1]], dtype=int64)
    """
    number = checked_size("confusion_matrix", "classes", classes)
    said, wanted = as_tensor(prediction), as_tensor(target)
    shown = {"prediction": said, "target": wanted}
    message = f"the shapes differ: {shape_text(said.shape)} and {shape_text(wanted.shape)}"
    fix = "predict classes first: gf.argmax(logits, axis=-1)" if said.ndim > wanted.ndim else ""
    fits = said.shape == wanted.shape
    demand(fits, f"confusion_matrix: {message}", shown, fix=fix, error=ShapeError)
    for label, tensor in shown.items():
        message = f"confusion_matrix: {label} must be integers, not {tensor.dtype.name}"
        fix = f"convert it: gf.astype({label}, gf.int64)"
        demand(tensor.dtype.is_integer, message, {label: tensor}, fix=fix, error=DTypeError)
    # A product of floats is fast, and float64 counts exactly up to 2^53.
    rows = one_hot(reshape(wanted, (-1,)), number, dtype=float64)
    columns = one_hot(reshape(said, (-1,)), number, dtype=float64)
    return converted(rows.mT @ columns, int64)


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
