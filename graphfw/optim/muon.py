"""`Muon`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from graphfw.ir.functions import CALLED as F
from graphfw.ir.tensor import Tensor
from graphfw.ops.composed import demand
from graphfw.optim.adam import AdamW
from graphfw.optim.base import Gradients, Optimizer, Scalar, Slots
from graphfw.optim.norms import norm
from graphfw.optim.slots import Initial


@dataclass(frozen=True, eq=False)
class Muon(Optimizer):
    """Steps for matrices whose singular values are all about 1; other parameters make AdamW's.

    m = momentum m + (1 - momentum) g, u = g + momentum (m - g), or m without `nesterov`, and
    p = p - lr weight_decay p - lr s O(u). O is near U Vᵀ where u = U S Vᵀ: u / max(|u|, eps), then
    `ns_steps` times X = a X + b (X Xᵀ) X + c (X Xᵀ)² X, the Newton-Schulz iteration. For a matrix
    [inputs, outputs], as the weight of `gf.nn.Linear` is, s is sqrt(max(1, outputs / inputs)).
    K. Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024; the numbers
    are those of PyTorch's, which iterates in bfloat16. Tables of embeddings and the last layer are
    better trained by another rule: put them in a group with `"optimizer": gf.optim.AdamW(…)`.

    Args:
        lr: The learning rate.
        momentum: The fraction of the running mean that is kept, in [0, 1).
        nesterov: Whether to look ahead.
        ns_coefficients: a, b and c.
        ns_steps: The number of iterations.
        eps: The least norm to divide by.
        adjust_lr: The choice of s: `"original"`, or `"match_rms_adamw"`, for which it is
            0.2 sqrt(max(inputs, outputs)), so that a step is as large as one of AdamW. J. Liu et
            al., "Muon is scalable for LLM training", 2025.
        others: The optimiser of parameters that are no matrices; by default AdamW with this lr and
            weight_decay.
        weight_decay: The strength of weight decay, decoupled from the gradient.
        clip_norm, clip_value, name: See `Optimizer`.

    Raises:
        ArgumentError: A number makes no sense, or `others` is no optimiser, or clips.
    """

    momentum: float = 0.95
    nesterov: bool = True
    ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315)
    ns_steps: int = 5
    eps: float = 1e-7
    adjust_lr: Literal["original", "match_rms_adamw"] = "original"
    others: Optimizer | None = None
    weight_decay: float = field(default=0.1, kw_only=True)

    decoupled: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("momentum", self.momentum, least=0, below=1)
        self._check("eps", self.eps, above=0)
        self._check("ns_steps", self.ns_steps, least=1)
        given: Any = self.ns_coefficients
        message = f"Muon: ns_coefficients={given!r} are no three numbers"
        is_triple = isinstance(given, (tuple, list)) and len(given) == 3
        demand(is_triple, message, fix="use ns_coefficients=(3.4445, -4.7750, 2.0315)")
        if self.others is not None:
            self._checked_rule(self.others, "others")

    def slots(self) -> Mapping[str, Initial]:
        return {"momentum": 0.0}

    def direction(
        self, p: Tensor, g: Tensor, slots: Slots, shared: Sequence[Scalar]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        (lr,) = shared
        mean = slots["momentum"] + (g - slots["momentum"]) * (1 - self.momentum)
        step = self._orthogonal(g + (mean - g) * self.momentum if self.nesterov else mean)
        return lr * self._scale(p) * step, {"momentum": mean}

    def _subgroups(self, pairs: Gradients) -> Sequence[tuple[Optimizer, Gradients]]:
        matrices = [(g, v) for g, v in pairs if v.ndim == 2]
        rest = [(g, v) for g, v in pairs if v.ndim != 2]
        others = self.others or AdamW(self.lr, weight_decay=self.weight_decay)
        groups = [(self, matrices), *others._subgroups(rest)]
        return [(rule, found) for rule, found in groups if found]

    def _scale(self, p: Tensor) -> float:
        inputs, outputs = (int(dim) for dim in p.shape)
        if self.adjust_lr == "match_rms_adamw":
            return 0.2 * math.sqrt(max(inputs, outputs))
        return math.sqrt(max(1.0, outputs / max(inputs, 1)))

    def _orthogonal(self, step: Tensor) -> Tensor:
        """Return a matrix of the same singular vectors whose singular values are about 1."""
        a, b, c = self.ns_coefficients
        rows, columns = step.shape
        is_tall = rows > columns  # and its transpose has the smaller products
        x = F.matrix_transpose(step) if is_tall else step
        x = x / F.maximum(norm(x), self.eps)
        for _ in range(self.ns_steps):
            gram = F.matmul(x, F.matrix_transpose(x))
            x = x * a + F.matmul(gram * b + F.matmul(gram, gram) * c, x)
        found: Tensor = F.matrix_transpose(x) if is_tall else x
        return found
