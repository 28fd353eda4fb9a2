"""Activation functions, softmax and its kin, dropout."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from graphfw.errors import DTypeError, ShapeError
from graphfw.ir import ambient
from graphfw.ir.build import emit
from graphfw.ir.concrete import describe
from graphfw.ir.dim import exact_div
from graphfw.ir.functions import F, public
from graphfw.ir.graph import current_graph
from graphfw.ir.op import Case, bad, ok, op
from graphfw.ir.shape import normalize_axis
from graphfw.ir.shared_ops import shared
from graphfw.ir.tensor import Tensor
from graphfw.ops import random
from graphfw.ops.args import Axes, TensorLike, axes_of, converted, promoted, ruled
from graphfw.ops.composed import demand, demand_one_of, demand_probability, floats, wide
from graphfw.ops.elementwise.table import Elementwise, unary_function, unary_op
from graphfw.ops.elementwise.where_clip import where
from graphfw.ops.reduce.reductions import Max

__all__ = [
    "celu",
    "dropout",
    "elu",
    "gelu",
    "glu",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "leaky_relu",
    "log_sigmoid",
    "log_softmax",
    "logsumexp",
    "mish",
    "prelu",
    "relu",
    "relu6",
    "selu",
    "silu",
    "softmax",
    "softmin",
    "softplus",
    "softsign",
]

# G. Klambauer et al., "Self-normalizing neural networks", 2017: with these, activations of mean 0
# and variance 1 keep them.
_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946

# A row, not `maximum(x, 0)`: its gradient at 0 is 0, where maximum shares it between both inputs.
Relu = unary_op(
    "relu",
    doc="""The positive part max(x, 0), elementwise; its gradient at 0 is 0.  x: real -> same type

    >>> import graphfw as gf
    >>> gf.relu(gf.asarray([-1.0, 2.0]))
    Tensor([0., 2.], dtype=float32)
    """,
    accepts="real",
    xp=lambda xp, x: xp.maximum(x, x.dtype.type(0)),
    vjp=lambda ct, y, x: where(y > 0, ct, 0),
    smooth=False,
    scalar=lambda k, x: k.max(x, 0),
    mixed_precision="follows",
)
relu = unary_function(Relu)


@op("softplus")
class SoftplusOp(Elementwise):
    """log(1 + exp(x)): an op, for no composition has the right derivative at 0 and at infinity."""

    accepts = "floating-point"
    labels = ("x",)

    def eval(self, xp: Any, x: Any) -> Any:
        return xp.logaddexp(x, x.dtype.type(0))

    def scalar(self, k: Any, x: Any) -> Any:
        return k.add(k.max(x, 0), k.log1p(k.exp(k.neg(k.abs(x)))))

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        return (lambda: ct * F.sigmoid(x),)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        yield ok("float32[3, n]")
        yield ok("float32[4]", domain=(-200.0, 200.0), smooth=False)
        yield bad("complex64[2]", match="wants floating-point tensors", error=DTypeError)


@public
def softplus(x: TensorLike, /, *, beta: float = 1.0) -> Tensor:
    """The smooth ReLU log(1 + exp(beta x)) / beta, elementwise.  x: float -> the same type

    Exact for large |x| too, so there is no threshold to switch to the linear function at.

    Raises:
        ArgumentError: beta is not positive.
    """
    demand(beta > 0, f"softplus: beta={beta} must be positive", fix="use beta=1.0")
    tensor = floats("softplus", x)
    if beta == 1:
        return emit(SoftplusOp(), tensor)
    return emit(SoftplusOp(), tensor * beta) / beta


@public
def relu6(x: TensorLike, /) -> Tensor:
    """ReLU cut off at 6: min(max(x, 0), 6), elementwise.  x: float -> the same type

    Raises:
        DTypeError: x is complex.
    """
    return hardtanh(x, min=0.0, max=6.0)


@public
def leaky_relu(x: TensorLike, /, *, negative_slope: float = 0.01) -> Tensor:
    """x where it is positive, else negative_slope x, elementwise.  x: float -> the same type

    Raises:
        DTypeError: x is complex.
    """
    tensor = floats("leaky_relu", x)
    return where(tensor > 0, tensor, tensor * negative_slope)


@public
def prelu(x: TensorLike, weight: TensorLike, /) -> Tensor:
    """Leaky ReLU with slopes that are learnt: x where it is positive, else weight x.

    x: [*B], weight: a shape that broadcasts with x (one slope: []; one a channel of [N, C, H, W]:
    [C, 1, 1]) -> [*B].  Floats.

    Raises:
        DTypeError: x or weight is complex.
        ShapeError: The shapes don't broadcast.
    """
    tensor, slope = (floats("prelu", value) for value in promoted("prelu", x, weight))
    return where(tensor > 0, tensor, tensor * slope)


@public
def elu(x: TensorLike, /, *, alpha: float = 1.0) -> Tensor:
    """x where it is positive, else alpha (exp(x) - 1), elementwise.  x: float -> the same type

    D.-A. Clevert et al., "Fast and accurate deep network learning by exponential linear units",
    2015.

    Raises:
        DTypeError: x is complex.
    """
    tensor = floats("elu", x)
    return where(tensor > 0, tensor, alpha * F.expm1(_at_most_zero(tensor)))


@public
def celu(x: TensorLike, /, *, alpha: float = 1.0) -> Tensor:
    """x where it is positive, else alpha (exp(x / alpha) - 1), elementwise.  x: float -> same type

    J. T. Barron, "Continuously differentiable exponential linear units", 2017.

    Raises:
        ArgumentError: alpha is 0.
    """
    demand(alpha != 0, "celu: alpha must not be 0", fix="use relu, or alpha=1.0")
    tensor = floats("celu", x)
    return where(tensor > 0, tensor, alpha * F.expm1(_at_most_zero(tensor) / alpha))


@public
def selu(x: TensorLike, /) -> Tensor:
    """The ELU, scaled so that activations keep mean 0 and variance 1.  x: float -> the same type

    G. Klambauer et al., "Self-normalizing neural networks", 2017.

    Raises:
        DTypeError: x is complex.
    """
    return _SELU_SCALE * elu(x, alpha=_SELU_ALPHA)


def _at_most_zero(x: Tensor) -> Tensor:
    """The values that are not positive, others 0: their exponentials don't overflow."""
    return where(x > 0, 0, x)


@public
def gelu(x: TensorLike, /, *, approximate: str = "none") -> Tensor:
    """x times the normal distribution function at x, elementwise.  x: float -> the same type

    float16 and bfloat16 are computed in float32.  D. Hendrycks, K. Gimpel, "Gaussian error linear
    units", 2016.

    In graphs of opset 1 it is 0.5 x (1 + erf(x / sqrt(2))), which has no correct digits where x is
    far below 0.

    Args:
        x: The tensor.
        approximate: "none", or "tanh" for 0.5 x (1 + tanh(sqrt(2/π) (x + 0.044715 x³))), which is
            within 5e-4 of it.

    Raises:
        ArgumentError: `approximate` is something else.
    """
    demand_one_of("gelu", "approximate", approximate, ("none", "tanh"))
    given = floats("gelu", x)
    tensor = wide(given)
    if approximate == "none" and current_graph().opset >= 2:
        return converted(tensor * F.ndtr(tensor), given.dtype)
    if approximate == "none":
        share: Tensor = 1 + F.erf(tensor * math.sqrt(0.5))
    else:
        inner = math.sqrt(2 / math.pi) * tensor * (1 + 0.044715 * tensor * tensor)
        share = 1 + F.tanh(inner)
    return converted(0.5 * tensor * share, given.dtype)


@public
def silu(x: TensorLike, /) -> Tensor:
    """x sigmoid(x), also called swish, elementwise.  x: float -> the same type

    Raises:
        DTypeError: x is complex.
    """
    tensor = floats("silu", x)
    gate = F.sigmoid(tensor)
    return tensor * gate


@public
def mish(x: TensorLike, /) -> Tensor:
    """x tanh(softplus(x)), elementwise.  x: float -> the same type

    D. Misra, "Mish: a self regularized non-monotonic activation function", 2019.

    Raises:
        DTypeError: x is complex.
    """
    tensor = floats("mish", x)
    gate = F.tanh(softplus(tensor))
    return tensor * gate


@public
def softsign(x: TensorLike, /) -> Tensor:
    """x / (1 + |x|), elementwise.  x: float -> the same type

    Raises:
        DTypeError: x is complex.
    """
    tensor = floats("softsign", x)
    size = F.abs(tensor)
    return tensor / (1 + size)


@public
def hardtanh(x: TensorLike, /, *, min: float = -1.0, max: float = 1.0) -> Tensor:
    """x cut off at `min` and `max`, elementwise; the gradient is 0 there.  x: float -> same type

    Raises:
        ArgumentError: min is not below max.
    """
    demand(min < max, f"hardtanh: min={min} must be below max={max}", fix="exchange them")
    tensor = floats("hardtanh", x)
    return where(tensor >= max, max, where(tensor <= min, min, tensor))


@public
def hardsigmoid(x: TensorLike, /) -> Tensor:
    """The line x / 6 + 1/2 cut off at 0 and 1, elementwise.  x: float -> the same type

    Raises:
        DTypeError: x is complex.
    """
    return relu6(floats("hardsigmoid", x) + 3) / 6


@public
def hardswish(x: TensorLike, /) -> Tensor:
    """x hardsigmoid(x), elementwise.  x: float -> the same type

    A. Howard et al., "Searching for MobileNetV3", 2019.

    Raises:
        DTypeError: x is complex.
    """
    tensor = floats("hardswish", x)
    return tensor * hardsigmoid(tensor)


@public
def log_sigmoid(x: TensorLike, /) -> Tensor:
    """The logarithm of sigmoid(x), exact where that underflows.  x: float -> the same type

    Raises:
        DTypeError: x is complex.
    """
    return -softplus(-floats("log_sigmoid", x))


@public
def glu(x: TensorLike, /, *, axis: int = -1) -> Tensor:
    """The first half along an axis, times the sigmoid of the second.  x: [*A, 2 N] -> [*A, N]

    Y. N. Dauphin et al., "Language modeling with gated convolutional networks", 2016.

    Raises:
        ShapeError: The dim is odd, or can't be shown to be even.
    """
    tensor = floats("glu", x)
    axis_index = ruled("glu", tensor, normalize_axis, axis, tensor.ndim)
    dim = tensor.shape[axis_index]
    half = exact_div(dim, 2)
    if half is None:
        raise ShapeError(
            f"glu: dim {axis} must be even to be halved, and it is {dim}",
            operands=[describe("x", tensor)],
            fix="give the layer before it an even number of features, 2 * n",
        )
    halves = F.reshape(
        tensor, (*tensor.shape[:axis_index], 2, half, *tensor.shape[axis_index + 1 :])
    )
    before = (slice(None),) * axis_index
    gate = F.sigmoid(halves[(*before, 1)])
    return halves[(*before, 0)] * gate


@public
def softmax(x: TensorLike, /, *, axis: Axes = -1) -> Tensor:
    """exp(x) divided by its sum along an axis: positive, and summing to 1.  x: [*A] -> [*A]

    Floats; float16 and bfloat16 are computed in float32. Never overflows. Entries of -inf get 0;
    where all entries along the axis are -inf, the result is all 0, and so is the gradient: a row
    that masks everything has no effect.

    Args:
        x: The tensor.
        axis: Along which axis or axes; None: all.

    Raises:
        AxisError: There is no such axis.

    >>> import graphfw as gf
    >>> gf.softmax(gf.asarray([[0.0, 0.0], [1000.0, -gf.inf]]))
    Tensor([[0.5, 0.5],
            [1. , 0. ]], dtype=float32)
    """
    tensor = floats("softmax", x)
    axes = axes_of("softmax", tensor, axis)
    powers = F.exp(_shifted(tensor, axes))
    return converted(powers / _total(powers, axes), tensor.dtype)


@public
def log_softmax(x: TensorLike, /, *, axis: Axes = -1) -> Tensor:
    """The logarithm of softmax, exact where that underflows.  x: [*A] -> [*A]

    As `softmax`; where all entries along the axis are -inf, so is the result.

    Raises:
        AxisError: There is no such axis.
    """
    tensor = floats("log_softmax", x)
    axes = axes_of("log_softmax", tensor, axis)
    shifted = _shifted(tensor, axes)
    return converted(shifted - F.log(_total(F.exp(shifted), axes)), tensor.dtype)


@public
def softmin(x: TensorLike, /, *, axis: Axes = -1) -> Tensor:
    """softmax(-x): the smallest entry gets most.  x: [*A] -> [*A]

    Raises:
        AxisError: There is no such axis.
    """
    return softmax(-floats("softmin", x), axis=axis)


@public
def logsumexp(x: TensorLike, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Compute log(sum(exp(x))) along axes, without overflow.  x: [*A] -> [*A without axis]

    Real floating-point; integers become the default dtype. Where all elements are -inf, or one is
    inf, the result is that, and its gradient is that of `max`: finite. Of no elements it is -inf.

    Raises:
        AxisError: There is no such axis.
        DTypeError: The tensor is complex.

    >>> import graphfw as gf
    >>> gf.logsumexp(gf.asarray([1000.0, 1000.0]))
    Tensor(1000.6932, dtype=float32)
    """
    tensor = floats("logsumexp", x)
    axes = axes_of("logsumexp", tensor, axis)
    top = emit(shared(Max, axes, True, True), tensor)
    # Any shift gives the same sum, so the shift needs no gradient.
    shift = F.stop_gradient(top)
    finite = F.isfinite(shift)
    exps = F.exp(F.where(finite, tensor - shift, 0))
    result = F.where(finite, F.log(F.sum(exps, axis=axes, keepdims=True)) + shift, top)
    return result if keepdims else F.squeeze(result, axis=axes)


def _shifted(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """x minus its maximum along the axes, in float32 or wider.

    The result of softmax does not depend on the shift, so no gradient flows through it. A maximum
    of -inf is replaced, for -inf - -inf is no number.
    """
    x = wide(x)
    lowest = float(np.finfo(x.dtype.dtype).min)
    top = emit(shared(Max, axes, True, True), F.stop_gradient(x))
    finite = F.maximum(top, lowest)
    return x - finite


def _total(powers: Tensor, axes: tuple[int, ...]) -> Tensor:
    """The sum of the powers, 1 where it is 0 because all entries are -inf."""
    total = F.sum(powers, axis=axes, keepdims=True)
    return where(total == 0, 1, total)


@public
def dropout(
    x: TensorLike, /, p: float = 0.5, *, training: bool | None = None, name: str | None = None
) -> Tensor:
    """Set elements to 0 with probability `p` and divide the others by 1 - p.  x: [*A] -> [*A]

    N. Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting", 2014.

    Args:
        x: Floats.
        p: The probability of being dropped, in [0, 1).
        training: Whether to drop; else x is returned as it is. None for the mode of the call, which
            `model(x, training=False)`, `eval` and `gf.training` set.
        name: The name of the random stream; see `graphfw.random`.

    Raises:
        ArgumentError: p is outside [0, 1).
    """
    demand_probability("dropout", "p", p)
    tensor = floats("dropout", x)
    if p == 0 or not (ambient.asks_for_training() if training is None else training):
        return tensor
    keep = random.bernoulli(1 - p, shape=tensor.shape, name=name)
    return where(keep, tensor / (1 - p), 0)
