"""`Adafactor`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from graphfw.ir.functions import CALLED as F
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.composed import demand
from graphfw.optim.base import Optimizer, Rate, Scalar, Slots
from graphfw.optim.norms import root_mean_square
from graphfw.optim.slots import Initial


@dataclass(frozen=True, eq=False)
class Adafactor(Optimizer):
    """Adaptive steps whose mean squares are kept as those of rows and columns.

    Of a parameter [..., n, m] it remembers n + m numbers instead of n m: the mean squares R of rows
    and C of columns, where k = t^beta2_decay, R = R + k (mean(g², axis=-1) - R), and C so of axis
    -2; the mean square of an element is V = R C / mean(R). Parameters of fewer dims keep V itself.
    Then u = g / sqrt(V), u' = u / max(1, rms(u) / d), and
    p = p - max(eps[1], rms(p)) min(lr, 1 / sqrt(t)) u', where rms is the root of the mean square.
    N. Shazeer, M. Stern, "Adafactor: adaptive learning rates with sublinear memory cost", 2018; the
    numbers are those of PyTorch's.

    Args:
        lr: The largest rate, relative to the size of the parameter.
        beta2_decay: The exponent in k, at most 0.
        eps: The least of sqrt(V), by default that of the dtype, and the least size of a parameter.
        d: The size of steps above which they are scaled down, from 1 up.
        weight_decay: The strength of weight decay, decoupled from the gradient.
        clip_norm, clip_value, name: See `Optimizer`.

    Raises:
        ArgumentError: A number makes no sense.
    """

    lr: Rate = 1e-2
    beta2_decay: float = -0.8
    eps: tuple[float | None, float] = (None, 1e-3)
    d: float = 1.0

    decays_in_rule: ClassVar[bool] = True  # the size of a parameter is that before its decay

    def __post_init__(self) -> None:
        super().__post_init__()
        message = f"Adafactor: beta2_decay={self.beta2_decay} must be at most 0"
        demand(self.beta2_decay <= 0, message, fix="use beta2_decay=-0.8")
        eps: Any = self.eps
        fits = isinstance(eps, (tuple, list)) and len(eps) == 2 and eps[1] is not None
        given = [least for least in eps if least is not None] if fits else []
        fits = fits and all(isinstance(least, (int, float)) and least >= 0 for least in given)
        message = f"Adafactor: eps={eps!r} must be two numbers from 0 up, or None and one"
        demand(fits, message, fix="use eps=(None, 0.001)")
        self._check("d", self.d, least=1)

    def slots_for(self, shape: Shape) -> Mapping[str, Initial]:
        if len(shape) < 2:
            return {"square": 0.0}
        *stacked, rows, columns = shape
        return {
            "row_square": (0.0, (*stacked, rows, 1)),
            "column_square": (0.0, (*stacked, 1, columns)),
        }

    def shared(self, lr: Scalar, count: Tensor) -> tuple[Scalar, ...]:
        return (lr, F.minimum(lr, F.rsqrt(count)), F.pow(count, self.beta2_decay))

    def direction(
        self, p: Tensor, g: Tensor, slots: Slots, shared: Sequence[Scalar]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        lr, relative, new = shared
        least = self.eps[0]
        if least is None:
            least = F.finfo(p.dtype).eps
        square = g * g

        def moved(name: str, found: Tensor) -> Tensor:
            result: Tensor = slots[name] + (found - slots[name]) * new
            return result

        if p.ndim < 2:
            variance = moved("square", square)
            remembered = {"square": variance}
        else:
            rows = moved("row_square", _mean(square, -1))
            columns = moved("column_square", _mean(square, -2))
            remembered = {"row_square": rows, "column_square": columns}
            variance = rows * columns / F.maximum(_mean(rows, -2), least)
        step = F.rsqrt(F.maximum(variance, least * least)) * g
        size = F.maximum(root_mean_square(p), self.eps[1])
        rate = relative * size / F.maximum(root_mean_square(step) / self.d, 1.0)
        step = rate * step
        if self.weight_decay:
            step = step + p * (lr * self.weight_decay)
        return step, remembered


def _mean(x: Tensor, axis: int) -> Tensor:
    """Return the mean of an axis, which stays; 0 where it has no elements."""
    size = x.shape[axis]
    result: Tensor = F.sum(x, axis=axis, keepdims=True) / (size or 1)
    return result
