"""Metrics of predicted classes, from how often each was predicted as each."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from graphfw.errors import DTypeError, ShapeError
from graphfw.hints.calls import explained
from graphfw.ir import ambient
from graphfw.ir.dtype import bool_, float64, int64
from graphfw.ir.functions import F
from graphfw.ir.shape import shape_text
from graphfw.ir.tensor import Tensor
from graphfw.nn.checks import checked_size
from graphfw.ops.args import TensorLike, as_tensor, converted
from graphfw.ops.composed import demand, demand_one_of
from graphfw.ops.elementwise.where_clip import where
from graphfw.ops.shape.getitem import one_hot
from graphfw.ops.shape.movement import reshape


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
    name = "confusion_matrix"
    number = checked_size(name, "classes", classes)
    said, wanted = _same(name, prediction, target)
    for label, tensor in (("prediction", said), ("target", wanted)):
        message = f"{name}: {label} must be integers, not {tensor.dtype.name}"
        fix = f"convert it: gf.astype({label}, gf.int64)"
        demand(tensor.dtype.is_integer, message, {label: tensor}, fix=fix, error=DTypeError)
    # A product of floats is fast, and float64 counts exactly up to 2^53.
    rows = one_hot(reshape(wanted, (-1,)), number, dtype=float64)
    columns = one_hot(reshape(said, (-1,)), number, dtype=float64)
    return converted(rows.mT @ columns, int64)


@explained
def precision(
    prediction: TensorLike,
    target: TensorLike,
    classes: int | None = None,
    /,
    *,
    average: str | None = "macro",
) -> Tensor:
    """The share of what is predicted to be of a class that is.  -> [], or [classes] without average

    0 for a class that is never predicted.

    Args:
        prediction: Integers [*B], the predicted classes, `gf.argmax(logits, axis=-1)`; without
            `classes` bools, such as `scores > 0`.
        target: Integers [*B], the right classes; without `classes` bools, or 0 and 1 of any dtype.
        classes: How many there are; None for yes-or-no, where only the yes counts. Elements with an
            index outside of them, predicted or wanted, are not counted.
        average: Of classes: "macro" for the mean over those that occur, as prediction or target;
            "micro" for that of all elements together; None for each class's own.

    Raises:
        ShapeError: The shapes differ.
        DTypeError: They are no integers; or, without classes, the prediction is no bools.
        ArgumentError: classes is no int, or below 1, or there is no such average.

    >>> import graphfw as gf
    >>> gf.nn.metrics.precision([0, 2, 2, 1], [0, 1, 2, 2], 3, average=None)
    Tensor([1. , 0. , 0.5], dtype=float32)
    >>> float(gf.nn.metrics.precision(gf.asarray([0.7, 0.2, 1.3]) > 0.5, [1, 1, 0]))
    0.5
    """
    return _share("precision", prediction, target, classes, average)


@explained
def recall(
    prediction: TensorLike,
    target: TensorLike,
    classes: int | None = None,
    /,
    *,
    average: str | None = "macro",
) -> Tensor:
    """The share of what is of a class that is predicted to be.  -> [], or [classes] without average

    0 for a class that does not occur in the target. Arguments and errors are `precision`'s.

    >>> import graphfw as gf
    >>> gf.nn.metrics.recall([0, 2, 2, 1], [0, 1, 2, 2], 3, average=None)
    Tensor([1. , 0. , 0.5], dtype=float32)
    """
    return _share("recall", prediction, target, classes, average)


@explained
def f1(
    prediction: TensorLike,
    target: TensorLike,
    classes: int | None = None,
    /,
    *,
    average: str | None = "macro",
) -> Tensor:
    """The harmonic mean of precision and recall.  -> [], or [classes] without average

    0 for a class that does not occur. Arguments and errors are `precision`'s.

    >>> import graphfw as gf
    >>> round(float(gf.nn.metrics.f1([0, 2, 2, 1], [0, 1, 2, 2], 3)), 4)
    0.5
    """
    return _share("f1", prediction, target, classes, average)


@explained
def iou(
    prediction: TensorLike,
    target: TensorLike,
    classes: int | None = None,
    /,
    *,
    average: str | None = "macro",
) -> Tensor:
    """Intersection over union, of the masks of each class.  -> [], or [classes] without average

    Also known as Jaccard index. With average="macro" it is the mean IoU of segmentation, over all
    elements of the batch. 0 for a class that does not occur. Arguments and errors are
    `precision`'s; a label to be ignored is one outside of the classes, such as 255 or -1.

    >>> import graphfw as gf
    >>> masks = [[0, 0, 1], [0, 1, 1]]
    >>> right = [[0, 1, 1], [255, 1, 1]]
    >>> gf.nn.metrics.iou(masks, right, 2, average=None)
    Tensor([0.5 , 0.75], dtype=float32)
    """
    return _share("iou", prediction, target, classes, average)


class _Counts(NamedTuple):
    """Of each class, how many elements are predicted and wanted, and how many are both."""

    predicted: Tensor
    wanted: Tensor
    both: Tensor


_SHARES: dict[str, Callable[[_Counts], tuple[Tensor, Tensor]]] = {
    "precision": lambda c: (c.both, c.predicted),
    "recall": lambda c: (c.both, c.wanted),
    "f1": lambda c: (2 * c.both, c.predicted + c.wanted),
    "iou": lambda c: (c.both, c.predicted + c.wanted - c.both),
}
"""Each metric as a fraction of counts."""


def _share(
    name: str,
    prediction: TensorLike,
    target: TensorLike,
    classes: int | None,
    average: str | None,
) -> Tensor:
    if classes is not None:
        checked_size(name, "classes", classes)
        return share_of(name, confusion_matrix(prediction, target, classes), average)
    said, wanted = _same(name, prediction, target)
    message = f"{name}: without classes, prediction must be bools, not {said.dtype.name}"
    fix = f"compare scores: {name}(scores > 0, target); "
    fix += f"or say how many classes: {name}(prediction, target, 10)"
    demand(said.dtype == bool_, message, {"prediction": said}, fix=fix, error=DTypeError)
    is_wanted = wanted != 0
    masks = said, is_wanted, said & is_wanted
    counts = _Counts(*[F.sum(converted(mask, float64)) for mask in masks])
    return converted(_fraction(*_SHARES[name](counts)), ambient.get_default_dtype())


def share_of(name: str, matrix: Tensor, average: str | None) -> Tensor:
    """Return a metric, by its name, of a confusion matrix.

    Raises:
        ArgumentError: There is no such average.
    """
    if average is not None:
        demand_one_of(name, "average", average, ("macro", "micro"))
    exact = converted(matrix, float64)
    counts = _Counts(F.sum(exact, axis=0), F.sum(exact, axis=1), F.diagonal(exact))
    if average == "micro":
        counts = _Counts(*[F.sum(count) for count in counts])
    share = _fraction(*_SHARES[name](counts))
    if average == "macro":
        occurs = converted(counts.predicted + counts.wanted > 0, float64)
        share = F.sum(share) / F.sum(occurs)
    return converted(share, ambient.get_default_dtype())


def _fraction(numerator: Tensor, denominator: Tensor) -> Tensor:
    is_empty = denominator == 0
    return where(is_empty, 0, numerator / where(is_empty, 1, denominator))


def _same(name: str, prediction: TensorLike, target: TensorLike) -> tuple[Tensor, Tensor]:
    """Return predicted and right classes, which must be of one shape."""
    said, wanted = as_tensor(prediction), as_tensor(target)
    message = f"{name}: the shapes differ: {shape_text(said.shape)} and {shape_text(wanted.shape)}"
    fix = "predict classes first: gf.argmax(logits, axis=-1)" if said.ndim > wanted.ndim else ""
    shown = {"prediction": said, "target": wanted}
    demand(said.shape == wanted.shape, message, shown, fix=fix, error=ShapeError)
    return said, wanted
