"""A matrix product and what a GPU's library computes along with it, as one op.

Nobody writes it, and nothing differentiates it: the CuPy executor makes it of the ops that a graph
has, after all other passes (`runtime/cupy_executor/epilogues.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from graphfw.errors import DTypeError
from graphfw.ir.dtype import DType
from graphfw.ir.functions import F
from graphfw.ir.op import NONDIFF, Case, Cost, Op, bad, ok, op
from graphfw.ir.shape import require
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape, TensorType
from graphfw.ops.args import converted
from graphfw.ops.composed import wide, wide_dtype
from graphfw.ops.dtypes import compute_dtype, require_one_dtype

_FIX = "use gf.matmul and what follows it; executors make this op themselves"


@op("fused_product")
class FusedProduct(Op):
    """f(a b + residual + bias), and what gradients need of it.

    a: [*B, M, K], b: [K, N], and, where the fields say so, residual: [*B, M, N], bias: [N],
    at: [*B, M, N] -> the result, [*B, M, N], and, where the fields say so, what f was given,
    [*B, M, N], and the sums of b's columns, [N].

    Products are added up in float32, or in float64 of that; what follows is rounded once, at the
    end.

    Attributes:
        activation: f: "" nothing, or "gelu", by the hyperbolic tangent; "gelu_grad": times the
            slope of that at `at`.
        bias: Whether there is a bias.
        residual: Whether there is a residual.
        keeps: Whether what f was given is a result.
        sums: Whether the sums of b's columns are.
        widens: Whether all but a and b is float32 where these are floats of 16 bits.
    """

    multiple = True
    vjp = NONDIFF
    activation: str = ""
    bias: bool = False
    residual: bool = False
    keeps: bool = False
    sums: bool = False
    widens: bool = False

    @property
    def others(self) -> tuple[str, ...]:
        """The kinds of the inputs after a and b."""
        there = {
            "residual": self.residual,
            "bias": self.bias,
            "at": self.activation == "gelu_grad",
        }
        return tuple([name for name, is_there in there.items() if is_there])

    @property
    def results(self) -> tuple[str, ...]:
        """The kinds of the outputs."""
        there = {"result": True, "before": self.keeps, "sums": self.sums}
        return tuple([name for name, is_there in there.items() if is_there])

    def shape(self, a: Shape, b: Shape, *others: Shape) -> tuple[Shape, ...]:
        require(len(a) >= 2, "a must have 2 dims or more", fix=_FIX)
        require(len(b) == 2, "b must be one matrix", fix=_FIX)
        require(a[-1] == b[0], "contracting dims differ", [(0, -1), (1, 0)], _FIX)
        result, columns = (*a[:-1], b[1]), b[1:]
        for number, (name, x) in enumerate(zip(self.others, others, strict=True), 2):
            wanted = columns if name == "bias" else result
            require(x == wanted, f"{name} does not fit the product", [(number, -1)], _FIX)
        shapes = {"result": result, "before": result, "sums": columns}
        return tuple([shapes[name] for name in self.results])

    def dtype(self, a: DType, b: DType, *others: DType) -> tuple[DType, ...]:
        require_one_dtype(a, b)
        wants = f"wants floating-point tensors, not {a.name}"
        require(a.is_floating, wants, fix=_FIX, error=DTypeError)
        to = wide_dtype(a) if self.widens else a
        fits = all(x is to for x in others)
        require(fits, f"all but a and b must be {to.name}", fix=_FIX, error=DTypeError)
        return (to,) * len(self.results)

    def eval(self, xp: Any, a: Any, b: Any, *others: Any) -> tuple[Any, ...]:
        dtype = compute_dtype(xp, a.dtype)
        given = {n: x.astype(dtype) for n, x in zip(self.others, others, strict=True)}
        product = xp.matmul(a.astype(dtype), b.astype(dtype)) + given.get("residual", 0)
        before = product + given["bias"] if self.bias else product
        found = {"result": before, "before": before}
        if self.activation == "gelu":
            found["result"] = _gelu(before, xp.tanh)
        elif self.activation == "gelu_grad":
            found["result"] = _gelu_grad(before, given["at"], xp.tanh)
        if self.sums:
            found["sums"] = xp.sum(b.astype(dtype), axis=0)
        to = dtype if self.widens else a.dtype
        return tuple([found[name].astype(to) for name in self.results])

    def rest(self, product: Tensor, b: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs made of other ops, from what is a b + residual already.

        product: [*B, M, N] of the results' dtype
        """
        given = dict(zip(self.others, others, strict=True))
        before = wide(product)
        if self.bias:
            before = before + wide(given["bias"])
        found = {"result": before if self.bias else product, "before": before}
        if self.activation == "gelu":
            found["result"] = _gelu(before, F.tanh)
        elif self.activation == "gelu_grad":
            found["result"] = _gelu_grad(before, wide(given["at"]), F.tanh)
        if self.sums:
            found["sums"] = F.sum(wide(b), axis=0)
        return tuple([converted(found[name], product.dtype) for name in self.results])

    def cost(self, outputs: tuple[TensorType, ...], *inputs: TensorType) -> Cost:
        flops = 2 * outputs[0].size * inputs[0].shape[-1]
        read, written = sum(x.nbytes for x in inputs), sum(x.nbytes for x in outputs)
        return Cost(flops, read, written)

    @staticmethod
    def cases() -> Iterator[Case]:
        matrices = ("float32[n, 3]", "float32[3, 4]")
        yield ok(*matrices)
        yield ok("float32[2, n, 3]", "float32[3, m]", "float32[m]", bias=True)
        yield ok(*matrices, "float32[n, 4]", residual=True)
        yield ok(*matrices, "float32[4]", bias=True, activation="gelu", keeps=True)
        yield ok(*matrices, "float32[n, 4]", activation="gelu_grad")
        yield ok(*matrices, sums=True)
        yield ok("bfloat16[2, 3]", "bfloat16[3, 4]", activation="gelu", widens=True)
        yield ok("float16[2, 3]", "float16[3, 4]", sums=True)
        yield bad("float32[3]", "float32[3, 4]", match="2 dims or more")
        yield bad(*matrices[:1], "float32[2, 3, 4]", match="one matrix")
        yield bad("float32[2, 3]", "float32[4, 5]", match="contracting dims differ")
        yield bad(*matrices, "float32[3]", bias=True, match="bias does not fit")
        yield bad(
            "bfloat16[2, 3]",
            "bfloat16[3, 4]",
            "float32[4]",
            bias=True,
            match="must be bfloat16",
            error=DTypeError,
        )
        yield bad("int32[2, 3]", "int32[3, 4]", match="floating-point", error=DTypeError)


_ROOT = math.sqrt(2 / math.pi)
_CUBIC = 0.044715


def _gelu(x: Any, tanh: Callable[[Any], Any]) -> Any:
    return 0.5 * x * (1 + tanh(_ROOT * x * (1 + _CUBIC * x * x)))


def _gelu_grad(ct: Any, x: Any, tanh: Callable[[Any], Any]) -> Any:
    """Return the cotangent of x, as the gradients of what `_gelu` is made of give it."""
    root, cubic = _ROOT * x, _CUBIC * x
    bent = 1 + cubic * x
    share = tanh(root * bent)
    inner = ct * (0.5 * x) * (1 - share * share)
    steep = inner * root
    return ct * (1 + share) * 0.5 + steep * cubic + steep * x * _CUBIC + inner * bent * _ROOT
