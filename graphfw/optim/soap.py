"""`SOAP`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from graphfw.ir.functions import CALLED as F
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.args import converted, is_whole
from graphfw.ops.composed import demand
from graphfw.optim.adam import Moments, weight
from graphfw.optim.base import Rate, Scalar, Slots
from graphfw.optim.slots import Initial


@dataclass(frozen=True, eq=False)
class SOAP(Moments):
    """AdamW in the basis of the eigenvectors of Shampoo's preconditioners.

    For a matrix: L = b L + (1 - b) g gᵀ and R = b R + (1 - b) gᵀ g, with eigenvectors Q and P. Then
    v = b2 v + (1 - b2) (Qᵀ g P)², and m as in `Adam`; the step is
    lr Q (Qᵀ m' P / (sqrt(v') + eps)) Pᵀ. After every `precondition_frequency` steps Q is the Q of
    the QR decomposition of L Q, and P that of R P. Each axis of a parameter of more dims has a
    basis of its own; parameters of fewer than two make AdamW's steps. The first update finds the
    bases, and changes no parameter. N. Vyas et al., "SOAP: improving and stabilizing Shampoo using
    Adam", 2024.

    Args:
        lr: The learning rate.
        betas: The fractions b1, b2 of the running means that are kept, each in [0, 1).
        eps: The number that is added to the root, above 0.
        shampoo_beta: The fraction b of L and R that is kept; b2 if it is None.
        precondition_frequency: The number of steps after which the bases are computed again.
        max_precond_dim: The length above which an axis has no basis.
        weight_decay: The strength of weight decay, decoupled from the gradient.
        clip_norm, clip_value, name: See `Optimizer`.

    Raises:
        ArgumentError: A number makes no sense.
    """

    lr: Rate = 3e-3
    betas: tuple[float, float] = (0.95, 0.95)
    shampoo_beta: float | None = None
    precondition_frequency: int = 10
    max_precond_dim: int = 10_000
    weight_decay: float = field(default=1e-2, kw_only=True)

    decays_in_rule: ClassVar[bool] = True  # the first update changes nothing

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("eps", self.eps, above=0)
        if self.shampoo_beta is not None:
            self._check("shampoo_beta", self.shampoo_beta, least=0, below=1)
        for option in ("precondition_frequency", "max_precond_dim"):
            value = getattr(self, option)
            message = f"SOAP: {option}={value!r} must be an int of at least 1"
            demand(is_whole(value) and value >= 1, message, fix=f"use {option}=10")

    def slots_for(self, shape: Shape) -> Mapping[str, Initial]:
        found: dict[str, Initial] = dict(self.slots())
        for axis in self._axes(shape):
            square = (0.0, (shape[axis], shape[axis]))
            found |= {f"gram_{axis}": square, f"basis_{axis}": square}
        return found

    def shared(self, lr: Scalar, count: Tensor) -> tuple[Scalar, ...]:
        b1, b2 = self.betas
        steps = count - 1  # the first update makes none
        number = F.maximum(steps, 1)
        is_due = steps % self.precondition_frequency == 0
        rate = lr / weight(b1, number)
        flags = [converted(flag, count.dtype) for flag in (steps > 0, is_due)]
        return (rate, lr * self.weight_decay, F.sqrt(weight(b2, number)), *flags)

    def direction(
        self, p: Tensor, g: Tensor, slots: Slots, shared: Sequence[Scalar]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        rate, decay, root_of_bias, moves, is_due = shared
        axes = self._axes(p.shape)
        bases = {axis: slots[f"basis_{axis}"] for axis in axes}
        after = self._moments(_rotated(g, bases, 0), slots)
        m = slots["m"] + (g - slots["m"]) * (1 - self.betas[0])
        step = _rotated(m, bases, 0) / (F.sqrt(after["v"]) / root_of_bias + self.eps)
        step = rate * _rotated(step, bases, 1)
        if self.weight_decay:
            step = step + p * decay
        is_step: Any = moves > 0
        remembered = {
            "m": F.where(is_step, m, 0),
            "v": F.where(is_step, after["v"], 0),
        }
        kept = self.betas[1] if self.shampoo_beta is None else self.shampoo_beta
        for axis in axes:
            others = [i for i in range(g.ndim) if i != axis]
            gram = slots[f"gram_{axis}"] * kept
            gram = gram + F.tensordot(g, g, axes=(others, others)) * (1 - kept)
            remembered[f"gram_{axis}"] = gram
            remembered[f"basis_{axis}"] = _basis(gram, bases[axis], is_step, is_due)
        return F.where(is_step, step, 0), remembered

    def _axes(self, shape: Shape) -> list[int]:
        """Return the axes that have a basis."""
        if len(shape) < 2:
            return []
        return [axis for axis, dim in enumerate(shape) if 0 < int(dim) <= self.max_precond_dim]


def _rotated(x: Tensor, bases: Mapping[int, Tensor], side: int) -> Tensor:
    """Rotate a tensor into the bases of its axes, or with side 1 back from them."""
    for axis in range(x.ndim):  # each moves the first axis to the end
        basis = bases.get(axis)
        moved: Tensor = (
            F.moveaxis(x, 0, -1) if basis is None else F.tensordot(x, basis, axes=([0], [side]))
        )
        x = moved
    return x


def _basis(gram: Tensor, basis: Tensor, is_step: Any, is_due: Any) -> Tensor:
    """Return the eigenvectors of `gram` in the first step; later one QR iteration towards them."""
    found: Tensor = F.cond(
        is_step,
        lambda: F.cond(is_due > 0, lambda: F.qr(F.matmul(gram, basis))[0], lambda: basis),
        lambda: F.eigh(gram)[1],
    )
    return found
