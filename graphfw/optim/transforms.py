"""Members of chains: optimisers that change gradients in one way each.

`gf.optim.chain` combines them. Any optimiser with `lr=1.0` is a member, too. The names are those of
optax.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphfw.hints.calls import explained
from graphfw.hints.names import hints_for_module
from graphfw.ir.functions import CALLED as F
from graphfw.ir.tensor import Tensor
from graphfw.ops import random
from graphfw.ops.composed import demand
from graphfw.optim.adam import Adam, weight
from graphfw.optim.base import Optimizer, Rate, Scalar, Slots
from graphfw.optim.schedules import Schedule
from graphfw.optim.sgd import SGD
from graphfw.optim.slots import Initial

__all__ = [
    "add_decayed_weights",
    "add_noise",
    "centralize",
    "clip_by_global_norm",
    "clip_by_value",
    "ema",
    "scale",
    "scale_by_adam",
    "scale_by_schedule",
    "trace",
]

if not TYPE_CHECKING:  # which would take a module with `__getattr__` to have every name
    __getattr__, __dir__ = hints_for_module("gf.optim.transforms", __name__, __all__)


@explained
def clip_by_global_norm(max_norm: float) -> Optimizer:
    """Scale all gradients by one factor, so that their norm together is at most max_norm.

    Args:
        max_norm: The largest norm.

    Raises:
        ArgumentError: max_norm is not positive.
    """
    return SGD(1.0, clip_norm=max_norm, name="clip_by_global_norm")


@explained
def clip_by_value(limit: float) -> Optimizer:
    """Cut off each element of the gradients at -limit and limit.

    Args:
        limit: The largest size of an element.

    Raises:
        ArgumentError: limit is not positive.
    """
    return SGD(1.0, clip_value=limit, name="clip_by_value")


@explained
def add_decayed_weights(weight_decay: float) -> Optimizer:
    """Add weight_decay times the parameter: after `scale_by_adam` that is the decay of `AdamW`.

    Args:
        weight_decay: The fraction of the parameter, from 0 up.

    Raises:
        ArgumentError: weight_decay is negative.
    """
    return SGD(1.0, weight_decay=weight_decay, name="add_decayed_weights")


@explained
def scale(factor: float) -> Optimizer:
    """Multiply by a number.

    Args:
        factor: The number, from 0 up.

    Raises:
        ArgumentError: factor is negative: the result of a chain is subtracted.
    """
    message = f"scale: factor={factor!r} is negative, and a chain's result is subtracted"
    demand(not factor < 0, message, fix=f"write scale({factor!r})".replace("-", ""))
    return SGD(factor, name="scale")


@explained
def scale_by_schedule(schedule: Schedule) -> Optimizer:
    """Multiply by a function of the number of updates made, such as one of `gf.optim.schedules`."""
    return SGD(schedule, name="scale_by_schedule")


@explained
def trace(decay: float, nesterov: bool = False) -> Optimizer:
    """Keep momentum: v = decay v + g, as `SGD` does.

    Args:
        decay: The fraction of the last v that is kept, above 0 and below 1.
        nesterov: Whether the result is g + decay v, and not v.

    Raises:
        ArgumentError: decay makes no sense.
    """
    return SGD(1.0, decay, nesterov=nesterov, name="trace")


@explained
def scale_by_adam(
    betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, amsgrad: bool = False
) -> Optimizer:
    """Scale as `Adam` does with lr=1.0.

    Args:
        betas: See `Adam`.
        eps: See `Adam`.
        amsgrad: See `Adam`.

    Raises:
        ArgumentError: A number makes no sense.
    """
    return Adam(1.0, betas, eps, amsgrad, name="scale_by_adam")


@explained
def ema(decay: float, debias: bool = True) -> Optimizer:
    """Take the running mean: m = decay m + (1 - decay) g.

    Args:
        decay: The fraction of the mean that is kept, in [0, 1).
        debias: Whether the bias of beginning at 0 is taken out: m / (1 - decay^t).

    Raises:
        ArgumentError: decay makes no sense.
    """
    return _Mean(1.0, decay, debias, name="ema")


@explained
def centralize() -> Optimizer:
    """Subtract from the gradient of each unit's weights their mean.

    The weights of a unit are a column of a matrix [inputs, outputs], or element i of the weight of
    a convolution, [outputs, inputs, …]. Parameters of fewer than two dims stay as they are. H. Yong
    et al., "Gradient centralization: a new optimization technique for deep neural networks", 2020.
    """
    return _Centred(1.0, name="centralize")


@explained
def add_noise(eta: float, gamma: float) -> Optimizer:
    """Add normal noise of the variance eta / t^gamma, where t is 1 in the first update.

    The noise depends on the session's seed. A. Neelakantan et al., "Adding gradient noise improves
    learning for very deep networks", 2015.

    Args:
        eta: The variance in the first update, from 0 up.
        gamma: The exponent by which it falls, from 0 up.

    Raises:
        ArgumentError: A number is negative.
    """
    return _Noisy(1.0, eta, gamma, name="add_noise")


@dataclass(frozen=True, eq=False)
class _Mean(Optimizer):
    """The running mean of gradients."""

    lr: Rate = 1.0
    decay: float = 0.9
    debias: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("decay", self.decay, least=0, below=1)

    def slots(self) -> Mapping[str, Initial]:
        return {"mean": 0.0}

    def shared(self, lr: Scalar, count: Tensor) -> tuple[Scalar, ...]:
        return (lr / weight(self.decay, count) if self.debias else lr,)

    def direction(
        self, p: Tensor, g: Tensor, slots: Slots, shared: Sequence[Scalar]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        (rate,) = shared
        mean = slots["mean"] + (g - slots["mean"]) * (1 - self.decay)
        return rate * mean, {"mean": mean}


@dataclass(frozen=True, eq=False)
class _Centred(Optimizer):
    """The gradients without the means of units."""

    lr: Rate = 1.0

    def direction(
        self, p: Tensor, g: Tensor, slots: Slots, shared: Sequence[Scalar]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        (lr,) = shared
        if g.ndim < 2:
            return lr * g, {}
        axes = (0,) if g.ndim == 2 else tuple(range(1, g.ndim))
        return lr * (g - F.mean(g, axis=axes, keepdims=True)), {}


@dataclass(frozen=True, eq=False)
class _Noisy(Optimizer):
    """The gradients with noise."""

    lr: Rate = 1.0
    eta: float = 0.01
    gamma: float = 0.55

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("eta", self.eta, least=0)
        self._check("gamma", self.gamma, least=0)

    def shared(self, lr: Scalar, count: Tensor) -> tuple[Scalar, ...]:
        return (lr, F.sqrt(self.eta * F.pow(count, -self.gamma)))

    def direction(
        self, p: Tensor, g: Tensor, slots: Slots, shared: Sequence[Scalar]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        lr, deviation = shared
        return lr * (g + random.normal(g.shape, dtype=g.dtype) * deviation), {}
