"""Losses of two classes, and of masks: `binary_focal`, `dice`, `hinge`."""

from __future__ import annotations

from graphfw.ir.dtype import bool_
from graphfw.ir.functions import F, public
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import Axes, TensorLike, as_tensor
from graphfw.ops.composed import demand
from graphfw.ops.elementwise.where_clip import where
from graphfw.ops.nn import loss_warnings
from graphfw.ops.nn.losses import paired, reduce_losses, scaled

__all__ = ["binary_focal", "dice", "hinge"]


@public
def hinge(
    scores: TensorLike,
    target: TensorLike,
    /,
    *,
    margin: float = 1.0,
    power: int = 1,
    weight: TensorLike | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Hinge loss of yes-or-no, max(0, margin - target score)^power.  [*A], [*A] -> [] or [*A]

    As of a support vector machine. C. Cortes, V. Vapnik, "Support-vector networks", 1995.

    Args:
        scores: Of any size: above 0 for yes.
        target: 1 for yes and -1 for no, or bools. A UserWarning says where it is known to have
            other values.
        margin: How far a score is to be from 0.
        power: 1, or 2 for squares.
        weight: A factor for each element; a shape that broadcasts to theirs.
        reduction: "mean", "sum" or "none".

    Raises:
        ShapeError: The shapes differ.
        DTypeError: They are not real.
        ArgumentError: power or reduction makes no sense.

    >>> import graphfw as gf
    >>> float(gf.nn.hinge([2.0, 0.5], [1, -1]))
    0.75
    """
    name = "hinge"
    demand(power in (1, 2), f"{name}: power={power!r} must be 1 or 2", fix="use power=1")
    x, t, dtype = paired(name, scores, signs(name, target))
    over = F.relu(margin - t * x)
    losses = over if power == 1 else over * over
    return reduce_losses(name, scaled(name, losses, weight), reduction, dtype)


def signs(name: str, target: TensorLike) -> Tensor:
    """Return a target of -1 and 1: bools as these; warn of other values where they are known."""
    goal = as_tensor(target)
    if goal.dtype == bool_:
        return where(goal, 1.0, -1.0)
    loss_warnings.warn_of_signs(name, goal)
    return goal


@public
def binary_focal(
    logits: TensorLike,
    target: TensorLike,
    /,
    *,
    gamma: float = 2.0,
    alpha: float | None = 0.25,
    weight: TensorLike | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Cross-entropy of yes-or-no that counts what is predicted well less.  [*A], [*A] -> [] or [*A]

    -a (1 - p)^gamma log p, with the probability p of what the target says, and a = alpha where it
    says yes, 1 - alpha where it says no. T.-Y. Lin et al., "Focal loss for dense object detection",
    2017; for classes there is `focal`.

    Args:
        logits: Scores, without sigmoid.
        target: In [0, 1]; bools and integers too.
        gamma: How much less what is predicted well counts: 0 or more.
        alpha: The factor for yes, in [0, 1]; None for no factors.
        weight: A factor for each element; a shape that broadcasts to theirs.
        reduction: "mean", "sum" or "none".

    Raises:
        ShapeError: The shapes differ.
        DTypeError: They are not real.
        ArgumentError: gamma, alpha or reduction makes no sense.

    >>> import graphfw as gf
    >>> round(float(gf.nn.binary_focal([3.0, 0.0], [1, 0])), 4)
    0.065
    """
    name = "binary_focal"
    demand(gamma >= 0, f"{name}: gamma={gamma} must not be negative", fix="use gamma=2.0")
    fits = alpha is None or 0 <= alpha <= 1
    demand(fits, f"{name}: alpha={alpha} must be between 0 and 1", fix="use alpha=0.25, or None")
    x, t, dtype = paired(name, logits, target)
    fix = "pass the scores themselves"
    loss_warnings.warn_of_probabilities(name, x, fix)
    loss_warnings.warn_of_target(name, t)
    losses = t * F.softplus(-x) + (1 - t) * F.softplus(x)
    wrong = t * F.sigmoid(-x) + (1 - t) * F.sigmoid(x)
    losses = focused(losses, wrong, gamma)
    if alpha is not None:
        losses = losses * (alpha * t + (1 - alpha) * (1 - t))
    return reduce_losses(name, scaled(name, losses, weight), reduction, dtype)


def focused(losses: Tensor, wrong: Tensor, gamma: float) -> Tensor:
    """Return losses times the gamma-th power of the probability of being wrong.

    That probability may be 0, where the derivative of the power may be infinite, or no number.
    """
    if gamma == 0:
        return losses
    is_zero = wrong == 0
    return losses * where(is_zero, 0, where(is_zero, 1, wrong) ** gamma)


@public
def dice(
    probability: TensorLike,
    target: TensorLike,
    /,
    *,
    axis: Axes = None,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """1 - the share of two masks' sizes that they have in common, 2 sum(p t) / (sum(p) + sum(t)).

    [*A], [*A] -> [] or [*A without axis].  F. Milletari et al., "V-Net", 2016, without squares.

    Args:
        probability: A mask in [0, 1], such as sigmoid(scores). A UserWarning says where it is known
            to be none.
        target: The right mask, in [0, 1]; bools and integers too.
        axis: The axes of one mask, such as (-2, -1) for one in each image and channel; all by
            default. `reduction` is over the others.
        eps: What is added to both parts of the fraction: two empty masks have loss 0.
        reduction: "mean", "sum" or "none".

    Raises:
        ShapeError: The shapes differ.
        AxisError: There is no such axis.
        DTypeError: They are not real.
        ArgumentError: eps is not positive, or `reduction` is unknown.

    >>> import graphfw as gf
    >>> round(float(gf.nn.dice([1.0, 1.0, 0.0], [1, 0, 0])), 4)
    0.3333
    """
    name = "dice"
    demand(eps > 0, f"{name}: eps={eps} must be positive", fix="use eps=1e-6")
    p, t, dtype = paired(name, probability, target)
    loss_warnings.warn_of_scores(name, p, "pass gf.sigmoid(scores), or gf.softmax(scores)")
    loss_warnings.warn_of_target(name, t)
    common, sizes = (F.sum(x, axis=axis) for x in (p * t, p + t))
    return reduce_losses(name, 1 - (2 * common + eps) / (sizes + eps), reduction, dtype)
