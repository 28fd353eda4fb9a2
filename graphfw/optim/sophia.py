"""`Sophia`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from graphfw.errors import ArgumentError
from graphfw.ir import ambient
from graphfw.ir.functions import CALLED as F
from graphfw.ir.graph import current_graph
from graphfw.ir.tensor import Tensor
from graphfw.loc import capture
from graphfw.ops import random
from graphfw.ops.args import converted, is_whole
from graphfw.ops.composed import demand, wide
from graphfw.optim.base import (
    Differentiate,
    Gradients,
    Groups,
    Moves,
    Optimizer,
    Rate,
    Scalar,
    Slots,
)
from graphfw.optim.carried import carried_pairs
from graphfw.optim.parameters import gradients_of
from graphfw.optim.slots import Initial, OptimizerSlots
from graphfw.transforms.grad import gradients
from graphfw.utils.collecting import without_collection


@dataclass(frozen=True, eq=False)
class Sophia(Optimizer):
    """Momentum divided by an estimate of the Hessian's diagonal, and clipped: Sophia-H.

    m = b1 m + (1 - b1) g, and p = p - lr weight_decay p - lr clip(m / max(gamma h, eps), -1, 1).
    Every `update_interval` steps, h = b2 h + (1 - b2) u * (H u) with the Hessian H of the loss and
    normal random numbers u: Hutchinson's estimate, for which such a step computes the gradients of
    the gradients. H. Liu et al., "Sophia: a scalable stochastic second-order optimizer for language
    model pre-training", 2023, algorithms 1 and 3.

    Args:
        lr: The learning rate: the largest change of an element.
        betas: The fractions b1, b2 of the running means that are kept, each in [0, 1).
        gamma: The factor of the Hessian, above 0. With a smaller one, more elements are clipped.
        eps: The least denominator, above 0.
        update_interval: The number of steps from one estimate to the next.
        weight_decay: The strength of weight decay, decoupled from the gradient.
        clip_norm, clip_value, name: See `Optimizer`.

    Raises:
        ArgumentError: A number makes no sense.

    >>> import graphfw as gf
    >>> with gf.Graph() as g:
    ...     w = gf.Variable([4.0, -1.0], name="w")
    ...     train = gf.optim.Sophia(0.5, weight_decay=0.0).minimize(gf.sum(w**4))
    >>> with gf.Session(g) as session:
    ...     session.run(train)
    ...     session[w].tolist()
    [3.5, -0.5]
    """

    lr: Rate = 1e-4
    betas: tuple[float, float] = (0.96, 0.99)
    gamma: float = 0.01
    eps: float = 1e-12
    update_interval: int = 10
    weight_decay: float = field(default=0.2, kw_only=True)
    _estimate: list[Tensor] = field(default_factory=list, init=False, repr=False)

    decoupled: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_betas(self.betas)
        self._check("gamma", self.gamma, above=0)
        self._check("eps", self.eps, above=0)
        every = self.update_interval
        message = f"Sophia: update_interval={every!r} must be an int of at least 1"
        demand(is_whole(every) and every >= 1, message, fix="use update_interval=10")

    def slots(self) -> Mapping[str, Initial]:
        return {"m": 0.0, "h": 0.0}

    def shared(self, lr: Scalar, count: Tensor) -> tuple[Scalar, ...]:
        is_due = converted((count - 1) % self.update_interval == 0, count.dtype)
        return lr, is_due * (1 - self.betas[1])

    def direction(
        self, p: Tensor, g: Tensor, slots: Slots, shared: Sequence[Scalar]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        if not self._estimate:
            raise ArgumentError(
                "Sophia: it computes second derivatives of the loss itself",
                fix="write gf.optim.Sophia(1e-4).minimize(loss): not in a chain, as the optimizer "
                "of another's group, or with apply_gradients()",
            )
        lr, weight = shared
        m = slots["m"] + (g - slots["m"]) * (1 - self.betas[0])
        h = slots["h"] + (self._estimate[0] - slots["h"]) * weight
        step = F.clip(m / F.maximum(h * self.gamma, self.eps), -1, 1)
        return lr * step, {"m": m, "h": h}

    def _descended(self, loss: Tensor, groups: Groups, differentiate: Differentiate) -> Moves:
        variables = [variable for _, found in groups for variable in found]
        found = differentiate(loss, variables)
        # An optimiser around this one may have changed them: with the sums of several batches, say.
        own = found if differentiate is gradients_of else gradients_of(loss, variables)
        triples = iter(zip(found, own, variables, strict=True))
        rules: list[tuple[Optimizer, Gradients]] = []
        for rule, members in groups:
            group = [next(triples) for _ in members]
            if not isinstance(rule, Sophia):
                rules.append((rule, [(g, v) for g, _, v in group]))
                continue
            estimates = rule._estimates([(g, v) for _, g, v in group], self._states[0])
            for (g, _, v), estimate in zip(group, estimates, strict=True):
                estimating = replace(rule)
                estimating._estimate.append(estimate)
                rules.append((estimating, [(g, v)]))
        return self._moved(rules, carried_pairs(loss))

    def _estimates(self, pairs: Gradients, state: OptimizerSlots) -> list[Tensor]:
        """Return the estimates of the Hessian's diagonal, which are 0 in steps that make none."""
        for _, variable in pairs:
            self._check_dtype(variable)
        slopes = [wide(g) for g, _ in pairs]

        def estimated() -> list[Tensor]:
            draws = [random.normal(g.shape, dtype=g.dtype) for g in slopes]
            slope: Any = sum(F.sum(g * u) for g, u in zip(slopes, draws, strict=True))
            products = gradients(slope, [variable for _, variable in pairs])
            return [
                F.zeros_like(u) if product is None else wide(product) * u
                for product, u in zip(products, draws, strict=True)
            ]

        def absent() -> list[Tensor]:
            return [F.zeros_like(g) for g in slopes]

        graph = current_graph()
        with (
            without_collection(),
            ambient.override(ambient.current_scope, state.name),
            graph.located(graph.provenance or capture(state.name)),
        ):
            is_due = state.step % self.update_interval == 0
            found: list[Tensor] = F.cond(is_due, estimated, absent)
        return found
