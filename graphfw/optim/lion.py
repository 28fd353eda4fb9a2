"""`Lion`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphfw.ir.functions import CALLED as F
from graphfw.ir.tensor import Tensor
from graphfw.optim.base import Optimizer, Rate, Scalar, Slots


@dataclass(frozen=True, eq=False)
class Lion(Optimizer):
    """Steps of exactly lr in each coordinate, in the direction of a running mean's sign.

    p = p - lr (sign(b1 m + (1 - b1) g) + weight_decay p), then m = b2 m + (1 - b2) g. X. Chen et
    al., "Symbolic discovery of optimization algorithms", 2023; it advises an lr 3 to 10 times
    smaller, and a weight_decay as much larger, than for AdamW.

    Args:
        lr: The learning rate.
        betas: b1 and b2, each in [0, 1).
        weight_decay, clip_norm, clip_value, name: See `Optimizer`.

    Raises:
        ArgumentError: A number makes no sense.
    """

    lr: Rate = 1e-4
    betas: tuple[float, float] = (0.9, 0.99)

    decoupled: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_betas(self.betas)

    def slots(self) -> dict[str, float]:
        return {"m": 0.0}

    def direction(
        self, p: Tensor, g: Tensor, slots: Slots, shared: Sequence[Scalar]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        (lr,) = shared
        b1, b2 = self.betas
        sign = F.sign(slots["m"] * b1 + g * (1 - b1))
        return lr * sign, {"m": slots["m"] * b2 + g * (1 - b2)}
