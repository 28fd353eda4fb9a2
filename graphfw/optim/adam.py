"""`Adam` and `AdamW`, and what they share with their relatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from graphfw.ir.functions import CALLED as F
from graphfw.ir.tensor import Tensor
from graphfw.optim.base import Optimizer, Scalar, Slots
from graphfw.optim.slots import Initial


@dataclass(frozen=True, eq=False)
class Moments(Optimizer):
    """The frame of optimisers that keep running means of the gradient and of its square."""

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_betas(self.betas)
        self._check("eps", self.eps, least=0)

    def slots(self) -> Mapping[str, Initial]:
        return {"m": 0.0, "v": 0.0}

    def _mean(self, g: Tensor, slots: Slots) -> Tensor:
        """Return the new running mean of the gradient, m."""
        m: Tensor = slots["m"] + (g - slots["m"]) * (1 - self.betas[0])
        return m

    def _moments(self, g: Tensor, slots: Slots) -> dict[str, Tensor]:
        """Return the new running means of the gradient and of its square, m and v."""
        b2 = self.betas[1]
        return {"m": self._mean(g, slots), "v": slots["v"] * b2 + g * g * (1 - b2)}


def weight(beta: float, count: Tensor) -> Tensor:
    """Return the sum of the weights in a running mean that began at 0, after `count` updates."""
    # In float64: in float32, 1 - 0.999 has lost half of its digits.
    total: Tensor = 1 - F.pow(beta, count)
    return total


@dataclass(frozen=True, eq=False)
class Adam(Moments):
    """Steps of about lr in each coordinate, whatever the gradient's scale.

    m = b1 m + (1 - b1) g and v = b2 v + (1 - b2) g²; with the bias of beginning at 0 taken out,
    m' = m / (1 - b1^t) and v' = v / (1 - b2^t), p = p - lr m' / (sqrt(v') + eps). D. P. Kingma,
    J. Ba, "Adam: a method for stochastic optimization", 2015.

    Args:
        lr: The learning rate.
        betas: The fractions b1, b2 of the running means that are kept, each in [0, 1).
        eps: The number that is added to the root.
        amsgrad: Whether v is the largest so far. S. J. Reddi et al., "On the convergence of Adam
            and beyond", 2018.
        weight_decay, clip_norm, clip_value, name: See `Optimizer`.

    Raises:
        ArgumentError: A number makes no sense.
    """

    amsgrad: bool = False

    def slots(self) -> Mapping[str, Initial]:
        return {**super().slots(), **({"v_max": 0.0} if self.amsgrad else {})}

    def shared(self, lr: Scalar, count: Tensor) -> tuple[Scalar, ...]:
        b1, b2 = self.betas
        return (lr / weight(b1, count), F.sqrt(weight(b2, count)))

    def direction(
        self, p: Tensor, g: Tensor, slots: Slots, shared: Sequence[Scalar]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        rate, root_of_bias = shared
        remembered = self._moments(g, slots)
        v = remembered["v"]
        if self.amsgrad:
            v = remembered["v_max"] = F.maximum(slots["v_max"], v)
        return rate * (remembered["m"] / (F.sqrt(v) / root_of_bias + self.eps)), remembered


@dataclass(frozen=True, eq=False)
class AdamW(Adam):
    """Adam, with weight decay apart from the gradient: p = p - lr weight_decay p - Adam's step.

    I. Loshchilov, F. Hutter, "Decoupled weight decay regularization", 2019.

    Args:
        lr, betas, eps, amsgrad: See `Adam`.
        weight_decay, clip_norm, clip_value, name: See `Optimizer`.

    Raises:
        ArgumentError: A number makes no sense.
    """

    weight_decay: float = field(default=1e-2, kw_only=True)

    decoupled: ClassVar[bool] = True
