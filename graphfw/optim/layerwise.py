"""`LARS` and `LAMB`: steps in proportion to the norm of each parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphfw.ir.functions import CALLED as F
from graphfw.ir.tensor import Tensor
from graphfw.optim.adam import Moments, weight
from graphfw.optim.base import Optimizer, Rate, Scalar, Slots
from graphfw.optim.norms import norm, norm_ratio
from graphfw.optim.slots import Initial


@dataclass(frozen=True, eq=False)
class LARS(Optimizer):
    """Gradient descent with momentum, whose rate is scaled by the norms of each parameter.

    r = trust |p| / (|g| + weight_decay |p|), or 1 where a norm is 0; then
    v = momentum v + lr r (g + weight_decay p), and p = p - v. Y. You et al., "Large batch training
    of convolutional networks", 2017. There biases and the parameters of norms make ordinary steps:
    put them in a group with `"optimizer": gf.optim.SGD(…)`.

    Args:
        lr: The learning rate.
        momentum: The fraction of the last step that goes into the next, in [0, 1).
        trust: The length of a step as a fraction of the parameter's, at lr = 1.
        weight_decay, clip_norm, clip_value, name: See `Optimizer`.

    Raises:
        ArgumentError: A number makes no sense.
    """

    lr: Rate = 1.0
    momentum: float = 0.9
    trust: float = 1e-3

    decays_in_rule: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("momentum", self.momentum, least=0, below=1)
        self._check("trust", self.trust, above=0)

    def slots(self) -> Mapping[str, Initial]:
        return {"momentum": 0.0}

    def direction(
        self, p: Tensor, g: Tensor, slots: Slots, shared: Sequence[Scalar]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        (lr,) = shared
        size = norm(p)
        ratio = norm_ratio(size, norm(g) + size * self.weight_decay, self.trust)
        velocity = slots["momentum"] * self.momentum + lr * ratio * (g + p * self.weight_decay)
        return velocity, {"momentum": velocity}


@dataclass(frozen=True, eq=False)
class LAMB(Moments):
    """Adam whose steps have lengths in proportion to the norm of each parameter.

    With m' and v' as in `Adam`: u = m' / (sqrt(v') + eps) + weight_decay p, and
    p = p - lr |p| / |u| u; the ratio is 1 where a norm is 0. Y. You et al., "Large batch
    optimization for deep learning: training BERT in 76 minutes", 2020.

    Args:
        lr: The learning rate.
        betas: The fractions of the running means that are kept, each in [0, 1).
        eps: The number that is added to the root.
        weight_decay, clip_norm, clip_value, name: See `Optimizer`.

    Raises:
        ArgumentError: A number makes no sense.
    """

    eps: float = 1e-6

    decays_in_rule: ClassVar[bool] = True

    def shared(self, lr: Scalar, count: Tensor) -> tuple[Scalar, ...]:
        b1, b2 = self.betas
        return (lr, weight(b1, count), F.sqrt(weight(b2, count)))

    def direction(
        self, p: Tensor, g: Tensor, slots: Slots, shared: Sequence[Scalar]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        lr, bias, root_of_bias = shared
        remembered = self._moments(g, slots)
        root = F.sqrt(remembered["v"]) / root_of_bias
        step = remembered["m"] / bias / (root + self.eps)
        if self.weight_decay:
            step = step + p * self.weight_decay
        return lr * norm_ratio(norm(p), norm(step)) * step, remembered
