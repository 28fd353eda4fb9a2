"""`Adamax`, `NAdam` and `RAdam`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graphfw.ir.functions import CALLED as F
from graphfw.ir.tensor import Tensor
from graphfw.optim.adam import Moments, weight
from graphfw.optim.base import Rate, Scalar, Slots
from graphfw.optim.slots import Initial


@dataclass(frozen=True, eq=False)
class _Decoupling(Moments):
    """The frame of optimisers for which an option says what weight decay acts on."""

    decoupled_weight_decay: bool = field(default=False, kw_only=True)

    def _is_decoupled(self) -> bool:
        return self.decoupled_weight_decay


@dataclass(frozen=True, eq=False)
class Adamax(_Decoupling):
    """Adam, divided by the largest gradient so far instead of by the root of the mean square.

    m = b1 m + (1 - b1) g, u = max(b2 u, abs(g) + eps), p = p - lr / (1 - b1^t) m / u. D. P. Kingma,
    J. Ba, "Adam: a method for stochastic optimization", 2015, section 7.1.

    Args:
        lr: The learning rate.
        betas: The fractions of the running mean and of the largest gradient that are kept, each in
            [0, 1).
        eps: The number that is added to the gradient's size.
        decoupled_weight_decay: Whether weight decay acts on the parameter itself, as in `AdamW`.
        weight_decay, clip_norm, clip_value, name: See `Optimizer`.

    Raises:
        ArgumentError: A number makes no sense.
    """

    lr: Rate = 2e-3

    def slots(self) -> Mapping[str, Initial]:
        return {"m": 0.0, "u": 0.0}

    def shared(self, lr: Scalar, count: Tensor) -> tuple[Scalar, ...]:
        return (lr / weight(self.betas[0], count),)

    def direction(
        self, p: Tensor, g: Tensor, slots: Slots, shared: Sequence[Scalar]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        (rate,) = shared
        m = self._mean(g, slots)
        u = F.maximum(slots["u"] * self.betas[1], F.abs(g) + self.eps)
        return rate * (m / u), {"m": m, "u": u}


@dataclass(frozen=True, eq=False)
class NAdam(_Decoupling):
    """Adam with Nesterov's momentum, which grows with the number of updates.

    With m, v and v' as in `Adam`, c(t) = b1 (1 - 0.96^(t momentum_decay) / 2), and C(t) the product
    of c(1) to c(t): p = p - lr ((1 - c(t)) / (1 - C(t)) g + c(t + 1) / (1 - C(t + 1)) m) /
    (sqrt(v') + eps). T. Dozat, "Incorporating Nesterov momentum into Adam", 2016.

    Args:
        lr: The learning rate.
        betas: The fractions b1, b2 of the running means that are kept, each in [0, 1).
        eps: The number that is added to the root.
        momentum_decay: The rate at which c(t) goes from b1 / 2 to b1.
        decoupled_weight_decay: Whether weight decay acts on the parameter itself, as in `AdamW`.
        weight_decay, clip_norm, clip_value, name: See `Optimizer`.

    Raises:
        ArgumentError: A number makes no sense.
    """

    lr: Rate = 2e-3
    momentum_decay: float = 4e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("momentum_decay", self.momentum_decay, least=0)

    def slots(self) -> Mapping[str, Initial]:
        return {**super().slots(), "product": (1.0, ())}

    def shared(self, lr: Scalar, count: Tensor) -> tuple[Scalar, ...]:
        root_of_bias = F.sqrt(weight(self.betas[1], count))
        return (lr, self._momentum(count), self._momentum(count + 1), root_of_bias)

    def _momentum(self, count: Tensor) -> Tensor:
        momentum: Tensor = self.betas[0] * (1 - 0.5 * F.pow(0.96, count * self.momentum_decay))
        return momentum

    def direction(
        self, p: Tensor, g: Tensor, slots: Slots, shared: Sequence[Scalar]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        lr, momentum, next_momentum, root_of_bias = shared
        remembered = self._moments(g, slots)
        product = remembered["product"] = slots["product"] * momentum
        of_g = lr * ((1 - momentum) / (1 - product))
        of_m = lr * (next_momentum / (1 - product * next_momentum))
        step = (of_g * g + of_m * remembered["m"]) / (
            F.sqrt(remembered["v"]) / root_of_bias + self.eps
        )
        return step, remembered


@dataclass(frozen=True, eq=False)
class RAdam(_Decoupling):
    """Adam whose first steps are those of momentum, until enough is known of the mean square.

    With m', v and b2 as in `Adam`, n = 2 / (1 - b2) - 1 and r = n - 2 t b2^t / (1 - b2^t): while r
    is at most 5, p = p - lr m'; then p = p - lr s m' sqrt(1 - b2^t) / (sqrt(v) + eps), with
    s² = (r - 4) (r - 2) n / ((n - 4) (n - 2) r). L. Liu et al., "On the variance of the adaptive
    learning rate and beyond", 2020.

    Args:
        lr: The learning rate.
        betas: The fractions b1, b2 of the running means that are kept, each in [0, 1).
        eps: The number that is added to the root.
        decoupled_weight_decay: Whether weight decay acts on the parameter itself, as in `AdamW`.
        weight_decay, clip_norm, clip_value, name: See `Optimizer`.

    Raises:
        ArgumentError: A number makes no sense.
    """

    def shared(self, lr: Scalar, count: Tensor) -> tuple[Scalar, ...]:
        b1, b2 = self.betas
        rate = lr / weight(b1, count)
        longest = 2 / (1 - b2) - 1
        if longest <= 5:  # and no number of updates is enough
            return (rate, 0.0)
        bias = weight(b2, count)
        length = longest - 2 * count * F.pow(b2, count) / bias
        known = F.maximum(length, 5.0)
        square = (known - 4) * (known - 2) * longest / ((longest - 4) * (longest - 2) * known)
        return (rate, F.where(length > 5, F.sqrt(square * bias), 0.0))

    def direction(
        self, p: Tensor, g: Tensor, slots: Slots, shared: Sequence[Scalar]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        rate, rectified = shared
        remembered = self._moments(g, slots)
        m = remembered["m"]
        if isinstance(rectified, Tensor):
            scale = rectified / (F.sqrt(remembered["v"]) + self.eps)
            m = m * F.where(rectified > 0, scale, 1.0)
        return rate * m, remembered
