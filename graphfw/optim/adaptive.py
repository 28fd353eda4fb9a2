"""`RMSprop`, `Adagrad`, `Adadelta`: steps divided by the root of squares, averaged or summed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphfw.ir.functions import CALLED as F
from graphfw.ir.tensor import Tensor
from graphfw.optim.base import Optimizer, Rate, Scalar, Slots


@dataclass(frozen=True, eq=False)
class RMSprop(Optimizer):
    """Gradients divided by the root of the running mean of their squares.

    s = alpha s + (1 - alpha) g², p = p - lr g / (sqrt(s) + eps). With `centered` the square of the
    running mean of g is subtracted from s. With momentum: b = momentum b + g / (sqrt(s) + eps), and
    p = p - lr b. T. Tieleman, G. Hinton, "Lecture 6.5", 2012; A. Graves, "Generating sequences with
    recurrent neural networks", 2013.

    Args:
        lr: The learning rate.
        alpha: The fraction of the running means that is kept, in [0, 1).
        eps: The number that is added to the root.
        momentum: The fraction of the last step that goes into the next, in [0, 1).
        centered: Whether to divide by the deviation.
        weight_decay, clip_norm, clip_value, name: See `Optimizer`.

    Raises:
        ArgumentError: A number makes no sense.
    """

    lr: Rate = 1e-2
    alpha: float = 0.99
    eps: float = 1e-8
    momentum: float = 0.0
    centered: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("alpha", self.alpha, least=0, below=1)
        self._check("eps", self.eps, least=0)
        self._check("momentum", self.momentum, least=0, below=1)

    def slots(self) -> dict[str, float]:
        names = ["square", *["mean"] * self.centered, *["momentum"] * (self.momentum > 0)]
        return dict.fromkeys(names, 0.0)

    def direction(
        self, p: Tensor, g: Tensor, slots: Slots, shared: Sequence[Scalar]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        (lr,) = shared
        square = slots["square"] * self.alpha + g * g * (1 - self.alpha)
        remembered = {"square": square}
        variance = square
        if self.centered:
            mean = slots["mean"] + (g - slots["mean"]) * (1 - self.alpha)
            remembered["mean"] = mean
            # Rounding may take it below 0, where the root is no number.
            variance = F.maximum(square - mean * mean, 0)
        step = g / (F.sqrt(variance) + self.eps)
        if self.momentum:
            step = remembered["momentum"] = slots["momentum"] * self.momentum + step
        return lr * step, remembered


@dataclass(frozen=True, eq=False)
class Adagrad(Optimizer):
    """Gradients divided by the root of the sum of all their squares so far.

    s = s + g², p = p - lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps). J. Duchi et al., "Adaptive
    subgradient methods for online learning and stochastic optimization", 2011.

    Args:
        lr: The learning rate.
        lr_decay: The decay of the rate with the number of updates.
        eps: The number that is added to the root.
        initial_sum: The initial value of s.
        weight_decay, clip_norm, clip_value, name: See `Optimizer`.

    Raises:
        ArgumentError: A number makes no sense.
    """

    lr: Rate = 1e-2
    lr_decay: float = 0.0
    eps: float = 1e-10
    initial_sum: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("lr_decay", self.lr_decay, least=0)
        self._check("eps", self.eps, least=0)
        self._check("initial_sum", self.initial_sum, least=0)

    def slots(self) -> dict[str, float]:
        return {"sum": self.initial_sum}

    def shared(self, lr: Scalar, count: Tensor) -> tuple[Scalar, ...]:
        return (lr / (1 + (count - 1) * self.lr_decay),) if self.lr_decay else (lr,)

    def direction(
        self, p: Tensor, g: Tensor, slots: Slots, shared: Sequence[Scalar]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        (lr,) = shared
        total = slots["sum"] + g * g
        return lr * (g / (F.sqrt(total) + self.eps)), {"sum": total}


@dataclass(frozen=True, eq=False)
class Adadelta(Optimizer):
    """Gradients times the ratio of two roots: of the mean square of steps, and that of gradients.

    s = rho s + (1 - rho) g², d = sqrt(e + eps) / sqrt(s + eps) g, e = rho e + (1 - rho) d², and
    p = p - lr d. M. D. Zeiler, "ADADELTA: an adaptive learning rate method", 2012.

    Args:
        lr: The learning rate; 1 in the paper.
        rho: The fraction of the running means that is kept, in [0, 1).
        eps: The number that is added to the means.
        weight_decay, clip_norm, clip_value, name: See `Optimizer`.

    Raises:
        ArgumentError: A number makes no sense.
    """

    lr: Rate = 1.0
    rho: float = 0.9
    eps: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("rho", self.rho, least=0, below=1)
        self._check("eps", self.eps, least=0)

    def slots(self) -> dict[str, float]:
        return {"square": 0.0, "step_square": 0.0}

    def direction(
        self, p: Tensor, g: Tensor, slots: Slots, shared: Sequence[Scalar]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        (lr,) = shared
        square = slots["square"] * self.rho + g * g * (1 - self.rho)
        step = F.sqrt(slots["step_square"] + self.eps) / F.sqrt(square + self.eps) * g
        step_square = slots["step_square"] * self.rho + step * step * (1 - self.rho)
        return lr * step, {"square": square, "step_square": step_square}
