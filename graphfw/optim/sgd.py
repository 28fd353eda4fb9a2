"""`SGD`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphfw.ir.tensor import Tensor
from graphfw.ops.args import converted
from graphfw.ops.composed import demand
from graphfw.optim.base import Optimizer, Scalar, Slots


@dataclass(frozen=True, eq=False)
class SGD(Optimizer):
    """Gradient descent, with momentum where it is asked for.

    With momentum: v = momentum v + (1 - dampening) g, and p = p - lr v; v begins as the first g.
    With `nesterov` p = p - lr (g + momentum v). I. Sutskever et al., "On the importance of
    initialization and momentum in deep learning", 2013.

    Args:
        lr: The learning rate.
        momentum: The fraction of the last step that goes into the next, in [0, 1).
        dampening: The fraction of the gradient that does not, in [0, 1).
        nesterov: Whether to look ahead; wants momentum, and no dampening.
        weight_decay, clip_norm, clip_value, name: See `Optimizer`.

    Raises:
        ArgumentError: A number makes no sense.
    """

    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False

    takes_complex: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("momentum", self.momentum, least=0, below=1)
        self._check("dampening", self.dampening, least=0, below=1)
        fits = not self.nesterov or (self.momentum > 0 and self.dampening == 0)
        demand(
            fits,
            "SGD: nesterov=True wants momentum above 0 and no dampening",
            fix="use momentum=0.9",
        )

    def slots(self) -> dict[str, float]:
        return {"momentum": 0.0} if self.momentum else {}

    def shared(self, lr: Scalar, count: Tensor) -> tuple[Scalar, ...]:
        if not self.dampening:
            return (lr, 1.0)
        return (lr, 1 - self.dampening * converted(count > 1, count.dtype))

    def direction(
        self, p: Tensor, g: Tensor, slots: Slots, shared: Sequence[Scalar]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        lr, share = shared
        if not self.momentum:
            return lr * g, {}
        kept = slots["momentum"] * self.momentum
        velocity = kept + (g * share if self.dampening else g)
        step = g + velocity * self.momentum if self.nesterov else velocity
        return lr * step, {"momentum": velocity}
