"""`Muon`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from graphfw.ir.dtype import DTypeLike, as_dtype
from graphfw.ir.functions import CALLED as F
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import converted
from graphfw.ops.composed import demand, wide
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
    are those of PyTorch's. Tables of embeddings and the last layer are better trained by another
    rule: put them in a group with `"optimizer": gf.optim.AdamW(…)`.

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
        ns_dtype: The dtype of the iteration's matrices. In bfloat16, as in PyTorch, O differs by a
            few percent from that in float32, and both differ more from U Vᵀ.
        weight_decay: The strength of weight decay, decoupled from the gradient.
        clip_norm, clip_value, name: See `Optimizer`.

    Raises:
        ArgumentError: A number makes no sense, `ns_dtype` is not floating-point, or `others` is no
            optimiser, or clips.
        DTypeError: `ns_dtype` is no dtype.
    """

    momentum: float = 0.95
    nesterov: bool = True
    ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315)
    ns_steps: int = 5
    eps: float = 1e-7
    adjust_lr: Literal["original", "match_rms_adamw"] = "original"
    others: Optimizer | None = None
    ns_dtype: DTypeLike = field(default="bfloat16", kw_only=True)
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
        dtype = as_dtype(self.ns_dtype)
        message = f"Muon: ns_dtype={dtype.name}, and real matrices are multiplied in it"
        demand(dtype.is_floating, message, fix='use ns_dtype="bfloat16" or "float32"')
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
        dtype = as_dtype(self.ns_dtype)
        x = converted(x / F.maximum(norm(x), self.eps), dtype)
        for _ in range(self.ns_steps):  # sums are in float32, if products are in 16 bits
            gram = F.matmul(x, F.matrix_transpose(x))
            change = converted(wide(gram) * b + wide(F.matmul(gram, gram)) * c, dtype)
            x = converted(wide(x) * a + wide(F.matmul(change, x)), dtype)
        return converted(F.matrix_transpose(x) if is_tall else x, step.dtype)
