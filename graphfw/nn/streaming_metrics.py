"""Metrics over many batches: modules whose state is what the batches so far add up to."""

from __future__ import annotations

from typing import Any, NoReturn

from graphfw.errors import GraphError, ShapeError
from graphfw.hints.calls import explained
from graphfw.ir import ambient
from graphfw.ir.dtype import float64, int64
from graphfw.ir.functions import CALLED as F
from graphfw.ir.shape import shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ir.updates import group, update
from graphfw.ir.variable import Update, Variable
from graphfw.nn import init
from graphfw.nn.checks import checked_size
from graphfw.nn.confusion import confusion_matrix, share_of
from graphfw.nn.module import Module
from graphfw.nn.parameters import parameter
from graphfw.ops.args import TensorLike, as_tensor, converted
from graphfw.ops.composed import demand, floats


@explained
class StreamingMetric(Module):
    """The base of metrics over many batches: sums in variables, which updates add to.

    A subclass has `update`, which returns the update of a batch, and `result`.
    """

    def reset(self) -> Update:
        """Return the update to what it is before the first batch."""
        return group(*[update(v, F.zeros_like(v)) for v in self._variables.values()])

    def forward(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse calls: a metric is no layer.

        Raises:
            GraphError: Always.
        """
        raise GraphError(
            f"{type(self).__name__} is no layer, and has nothing to call",
            fix="write update(…) for a batch, and result() for all batches so far",
        )


@explained
class Mean(StreamingMetric):
    """The mean of values over many batches, with or without weights: a loss, an accuracy.

    Fetch `update(values)` for each batch, then `result()`, then `reset()`. A run reads the state as
    it is when the run starts, so a result has the batches of the runs before. The sums are float64,
    so the result is that of all values at once.

    Args:
        name: See `Module`.

    Attributes:
        total: The sum of the values times their weights so far, [], not trained.
        weight: The sum of the weights so far, [], not trained.

    >>> import graphfw as gf
    >>> with gf.Graph() as g:
    ...     x = gf.placeholder(("batch",), name="x")
    ...     mean = gf.nn.metrics.Mean()
    ...     step, result = mean.update(x), mean.result()
    >>> with gf.Session(g) as session:
    ...     for batch in ([1.0, 2.0, 3.0], [6.0]):
    ...         session.run(step, {x: batch})
    ...     float(session.run(result))
    3.0
    """

    total: Variable
    weight: Variable

    def __init__(self, *, name: str | None = None) -> None:
        super().__init__(name=name)
        self.total = parameter(init.zeros, (), float64, trainable=False)
        self.weight = parameter(init.zeros, (), float64, trainable=False)

    def update(self, values: TensorLike, weight: TensorLike | None = None) -> Update:
        """Return the update that adds the values of a batch.

        Args:
            values: [*A]; bools count as 0 and 1: `gf.argmax(logits, axis=-1) == labels`.
            weight: How much each value counts, a shape that broadcasts to [*A]: of a mean over a
                batch, the batch's size, `x.shape[0]`. 1 by default; with 0 a value counts nothing,
                even if it is NaN.

        Raises:
            ShapeError: The shape of the weights does not broadcast to that of the values.
            DTypeError: They are not real.
            GraphError: No graph is open, or it is another than the module's.
        """
        given = as_tensor(values)
        x = given if given.dtype.is_integer else floats("Mean", given)
        x, w = converted(x, float64), as_tensor(1 if weight is None else weight, float64)
        w = converted(floats("Mean", w), float64)
        message = f"Mean: the weights' shape {shape_text(w.shape)} does not broadcast to"
        shown = {"values": x, "weight": w}
        weighted = F.where(w == 0, 0, x * w)  # as the mean of an empty batch is NaN
        fits = weighted.shape == x.shape
        fix = "give each value a weight, or all of them one"
        demand(fits, f"{message} {shape_text(x.shape)}", shown, fix=fix, error=ShapeError)
        return group(
            update(self.total, self.total + F.sum(weighted)),
            update(self.weight, self.weight + F.sum(F.broadcast_to(w, x.shape))),
        )

    def result(self) -> Tensor:
        """Return the mean over all batches so far, []: NaN before the first."""
        return converted(self.total / self.weight, ambient.get_default_dtype())


@explained
class ConfusionMatrix(StreamingMetric):
    """Counts of predictions of each class as each class, over many batches, and metrics of them.

    Fetch `update(prediction, target)` for each batch, then `result()`, or `f1()` and the others,
    then `reset()`. A run reads the state as it is when the run starts, so a result has the batches
    of the runs before; it is that of all of them at once.

    Args:
        classes: How many there are. Elements with an index outside of 0 to classes - 1, predicted
            or wanted, are not counted.
        name: See `Module`.

    Attributes:
        counts: Row i, column j: how many elements of class i were predicted to be of class j so
            far. [classes, classes] of int64, not trained.

    Raises:
        ArgumentError: classes is no int, or below 1.

    >>> import graphfw as gf
    >>> with gf.Graph() as g:
    ...     x = gf.placeholder(("batch",), gf.int64, name="x")
    ...     y = gf.placeholder(("batch",), gf.int64, name="y")
    ...     matrix = gf.nn.metrics.ConfusionMatrix(2)
    ...     step, fetches = matrix.update(x, y), [matrix.result(), matrix.accuracy()]
    >>> with gf.Session(g) as session:
    ...     session.run(step, {x: [0, 1, 1], y: [0, 0, 1]})
    ...     session.run(step, {x: [1], y: [1]})
    ...     session.run(fetches)
    [array([[1, 1],
           [0, 2]]), array(0.75, dtype=float32)]
    """

    counts: Variable

    def __init__(self, classes: int, *, name: str | None = None) -> None:
        super().__init__(name=name)
        self.classes = checked_size("ConfusionMatrix", "classes", classes)
        shape = (self.classes, self.classes)
        self.counts = parameter(init.zeros, shape, int64, trainable=False)

    def update(self, prediction: TensorLike, target: TensorLike) -> Update:
        """Return the update that adds the counts of a batch.

        Args:
            prediction: Integers [*B], the predicted classes: of scores,
                `gf.argmax(logits, axis=-1)`.
            target: Integers [*B], the right classes.

        Raises:
            ShapeError: The shapes differ.
            DTypeError: They are no integers.
            GraphError: No graph is open, or it is another than the module's.
        """
        return update(self.counts, self.counts + confusion_matrix(prediction, target, self.classes))

    def result(self) -> Tensor:
        """Return the matrix of all batches so far, [classes, classes] of int64."""
        return F.identity(self.counts)

    def accuracy(self) -> Tensor:
        """Return the share of elements whose class is predicted, []: NaN before the first batch."""
        exact = converted(self.counts, float64)
        right = F.sum(F.diagonal(exact))
        return converted(right / F.sum(exact), ambient.get_default_dtype())

    def precision(self, *, average: str | None = "macro") -> Tensor:
        """Return `gf.nn.metrics.precision` of all batches so far.

        Raises:
            ArgumentError: There is no such average.
        """
        return share_of("precision", self.counts, average)

    def recall(self, *, average: str | None = "macro") -> Tensor:
        """Return `gf.nn.metrics.recall` of all batches so far.

        Raises:
            ArgumentError: There is no such average.
        """
        return share_of("recall", self.counts, average)

    def f1(self, *, average: str | None = "macro") -> Tensor:
        """Return `gf.nn.metrics.f1` of all batches so far.

        Raises:
            ArgumentError: There is no such average.
        """
        return share_of("f1", self.counts, average)

    def iou(self, *, average: str | None = "macro") -> Tensor:
        """Return `gf.nn.metrics.iou` of all batches so far.

        Raises:
            ArgumentError: There is no such average.
        """
        return share_of("iou", self.counts, average)

    def extra_repr(self) -> str:
        """Return the text of the number of classes."""
        return str(self.classes)
