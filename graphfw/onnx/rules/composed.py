"""Ops that ONNX lacks, as compositions of others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import graphfw as gf
from graphfw.ir.build import emit
from graphfw.ir.dim import always_ge
from graphfw.ir.tensor import Tensor
from graphfw.onnx.errors import Unsupported
from graphfw.onnx.table import composes
from graphfw.ops.nn.attention_ops import Attention, AttentionGrad
from graphfw.ops.shape.gather_scatter import Slice


@composes("attention", "attention_grad")
def _attention(op: Attention | AttentionGrad, *xs: Tensor) -> tuple[Tensor, ...]:
    return op.composed(*xs)


def _in_float32(compose: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Compute with 16-bit floats in float32, and round once."""

    def wide(op: Any, *xs: Tensor) -> Tensor:
        if not xs[0].dtype.is_low_precision:
            return compose(op, *xs)
        made = compose(op, *[gf.astype(x, gf.float32) for x in xs])
        return gf.astype(made, xs[0].dtype)

    return wide


# Exponentials and logarithms


@composes("expm1")
@_in_float32
def _expm1(op: Any, x: Tensor) -> Tensor:
    """By W. Kahan: the error of exp(x) - 1 is that of log(exp(x)), by which it is divided."""
    u = gf.exp(x)
    less = u - 1
    usual = gf.isfinite(u) & (u != 1) & (less != -1)
    ratio = x / gf.where(usual, gf.log(gf.where(usual, u, 2)), 1)
    return gf.where(u == 1, x, gf.where(usual, less * ratio, less))


@composes("log1p")
@_in_float32
def _log1p(op: Any, x: Tensor) -> Tensor:
    """By W. Kahan: see `_expm1`."""
    u = 1 + x
    usual = (u != 1) & gf.isfinite(u)
    ratio = x / gf.where(usual, u - 1, 1)
    return gf.where(u == 1, x, gf.where(usual, gf.log(u) * ratio, gf.log(u)))


@composes("log2")
@_in_float32
def _log2(op: Any, x: Tensor) -> Tensor:
    return gf.log(x) / math.log(2)


@composes("log10")
@_in_float32
def _log10(op: Any, x: Tensor) -> Tensor:
    return gf.log(x) / math.log(10)


@composes("logaddexp")
@_in_float32
def _logaddexp(op: Any, a: Tensor, b: Tensor) -> Tensor:
    usual = gf.maximum(a, b) + gf.log1p(gf.exp(-gf.abs(a - b)))
    return gf.where(a == b, a + math.log(2), usual)  # of equal infinities the distance is NaN


@composes("softplus")
@_in_float32
def _softplus(op: Any, x: Tensor) -> Tensor:
    """Softplus in ONNX Runtime is log(1 + exp(x)) as it stands: 0 where exp(x) is small."""
    return gf.maximum(x, 0) + gf.log1p(gf.exp(-gf.abs(x)))


# Lengths, angles and signs


@composes("hypot")
@_in_float32
def _hypot(op: Any, a: Tensor, b: Tensor) -> Tensor:
    large, small = gf.maximum(gf.abs(a), gf.abs(b)), gf.minimum(gf.abs(a), gf.abs(b))
    usual = (large != 0) & gf.isfinite(large)
    ratio = small / gf.where(usual, large, 1)
    return gf.where(usual, large * gf.sqrt(1 + ratio * ratio), large)


@composes("signbit")
def _signbit(op: Any, x: Tensor) -> Tensor:
    return gf.where(x == 0, 1 / x, x) < 0


@composes("copysign")
def _copysign(op: Any, a: Tensor, b: Tensor) -> Tensor:
    return gf.where(gf.signbit(b), -gf.abs(a), gf.abs(a))


@composes("atan2")
@_in_float32
def _atan2(op: Any, y: Tensor, x: Tensor) -> Tensor:
    """The angle in the right half of the plane, turned into the left one where x is negative."""
    both = gf.isinf(x) & gf.isinf(y)
    across = gf.where(both, gf.copysign(1.0, y), y)
    along = gf.where(both, gf.copysign(1.0, x), x)
    vertical = along == 0
    acute = gf.atan(across / gf.where(vertical, 1, along))
    angle = gf.where(gf.signbit(along), acute + gf.copysign(math.pi, across), acute)
    # On the vertical through the origin atan is asked for the angle of (0, across).
    upright = gf.where(across == 0, angle - acute + across, gf.copysign(math.pi / 2, across))
    return gf.where(vertical, upright, angle)


@composes("trunc")
def _trunc(op: Any, x: Tensor) -> Tensor:
    return gf.where(x < 0, gf.ceil(x), gf.floor(x))


@composes("erfc")
@_in_float32
def _erfc(op: Any, x: Tensor) -> Tensor:
    """By a Chebyshev fit with a relative error of 1.2e-7 everywhere.

    W. H. Press and others, "Numerical Recipes in C", 2nd edition, section 6.2.
    """
    if x.dtype is gf.float64:
        raise Unsupported("of float64")
    coefficients = (
        *(-1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806),
        *(0.27886807, -1.13520398, 1.48851587, -0.82215223, 0.17087277),
    )
    size = gf.abs(x)
    t = 1 / (1 + 0.5 * size)
    right = t * gf.exp(_polynomial(coefficients, t) - size * size)
    return gf.where(x < 0, 2 - right, right)


@composes("ndtr")
@_in_float32
def _ndtr(op: Any, x: Tensor) -> Tensor:
    """By erfc; in float64, for which there is none, by erf: small results are exact to 1e-16."""
    if x.dtype is gf.float64:
        return 0.5 * (1 + gf.erf(x * math.sqrt(0.5)))
    return 0.5 * gf.erfc(x * -math.sqrt(0.5))


@composes("erfinv")
@_in_float32
def _erfinv(op: Any, x: Tensor) -> Tensor:
    """By M. Giles, "Approximating the erfinv function", GPU Computing Gems, 2010."""
    if x.dtype is gf.float64:
        raise Unsupported("of float64")
    near = (
        *(1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087),
        *(-4.39150654e-06, -3.5233877e-06, 3.43273939e-07, 2.81022636e-08),
    )
    far = (
        *(2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773),
        *(-0.00367342844, 0.00134934322, 0.000100950558, -0.000200214257),
    )
    at_end = gf.abs(x) == 1
    w = -gf.log((1 - gf.where(at_end, 0, x)) * (1 + x))
    left = _polynomial(near, w - 2.5)
    right = _polynomial(far, gf.sqrt(gf.maximum(w, 0)) - 3)
    return gf.where(at_end, x * math.inf, gf.where(w < 5, left, right) * x)


def _polynomial(coefficients: Sequence[float], x: Tensor) -> Tensor:
    """Return the sum of the coefficients, from that of 1 on, times the powers of x."""
    *lower, last = coefficients
    total = gf.full_like(x, last)
    for coefficient in reversed(lower):
        total = total * x + coefficient
    return total


# Quotients


@composes("chain_multiply")
def _chain_multiply(op: Any, a: Tensor, b: Tensor) -> Tensor:
    return gf.where((a == 0) | (b == 0), 0, a * b)


@composes("chain_divide")
def _chain_divide(op: Any, a: Tensor, b: Tensor) -> Tensor:
    return gf.where(a == 0, a, a / b)


# Along an axis


@composes("searchsorted")
def _searchsorted(op: Any, x1: Tensor, x2: Tensor) -> Tensor:
    """Count the sorted elements that are less, or not more."""
    each = gf.expand_dims(x2, axis=-1)
    before = x1 < each if op.side == "left" else x1 <= each
    return gf.sum(gf.astype(before, gf.int64), axis=-1)


@composes("cumulative_prod")
def _cumulative_prod(op: Any, x: Tensor) -> Tensor:
    wide = gf.float32 if x.dtype.is_low_precision else x.dtype
    lines = gf.astype(gf.moveaxis(x, op.axis, 0), wide)

    def iteration(total: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
        after = total * factor
        return after, total if op.exclusive else after

    start = gf.ones(lines.shape[1:], dtype=wide)
    _, made = gf.scan(iteration, start, lines, reverse=op.reverse)
    return gf.astype(gf.moveaxis(made, 0, op.axis), x.dtype)


@composes("recurrence")
def _recurrence(op: Any, a: Tensor, b: Tensor) -> Tensor:
    wide = gf.float32 if a.dtype.is_low_precision else a.dtype
    factors, terms = (gf.astype(gf.moveaxis(x, op.axis, 0), wide) for x in (a, b))

    def iteration(state: Tensor, step: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return step[0] * state + step[1], state

    start = gf.zeros(factors.shape[1:], dtype=wide)
    _, made = gf.scan(iteration, start, (factors, terms), reverse=op.reverse)
    return gf.astype(gf.moveaxis(made, 0, op.axis), a.dtype)


@composes("resize")
def _resize(op: Any, x: Tensor) -> Tensor:
    """Concatenate zeros where elements may be missing, and slice."""
    for axis, length in zip(op.axes, op.lengths, strict=True):
        front, size, back = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
        if not always_ge(size, length):
            x = gf.concat([x, gf.zeros((*front, length, *back), dtype=x.dtype)], axis=axis)
        x = emit(Slice((0,) * x.ndim, (*front, length, *back), (1,) * x.ndim), x)
    return x
