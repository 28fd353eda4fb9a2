"""Draws from the gamma distribution, and from those that are made of it. Public in `gf.random`.

By rejection (G. Marsaglia and W. W. Tsang, "A simple method for generating gamma variables", 2000):
a loop runs until all elements are accepted, a few iterations. Gradients flow to the parameters: by
the implicit function theorem, the quantile moves by -(dP/da) / density (M. Figurnov and others,
"Implicit reparameterization gradients", 2018).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from graphfw.errors import ShapeError
from graphfw.ir.build import emit
from graphfw.ir.dtype import DTypeLike
from graphfw.ir.functions import F
from graphfw.ir.modes import interceptable
from graphfw.ir.op import Case, ok, op
from graphfw.ir.shape import can_broadcast, shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.args import TensorLike, dims_of
from graphfw.ops.composed import demand, floats, wide, wide_dtype
from graphfw.ops.elementwise.incomplete_gamma_beta import GammaInc
from graphfw.ops.elementwise.table import Elementwise
from graphfw.ops.random.draws import (
    ShapeLike,
    Stream,
    demand_scale,
    deviates,
    float_dtype,
    is_number,
    named,
    parameter,
    refuse_bare_dims,
    refuse_lists,
    stream,
    waits,
)

__all__ = ["beta", "dirichlet", "gamma", "student_t"]


@op("implicit_gamma")
class ImplicitGamma(Elementwise):
    """The logarithm of a gamma draw, x itself, with the slope by the concentration that it has.

    x, a: floating-point, broadcast -> [*B]
    """

    accepts = "floating-point"
    labels = ("x", "a")

    def eval(self, xp: Any, x: Any, a: Any) -> Any:
        return xp.where(a == a, x, x)  # broadcast, in memory of its own

    def scalar(self, k: Any, x: Any, a: Any) -> Any:
        return x

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor, a: Tensor) -> tuple[Any, ...]:
        return (
            lambda: F.sum_to(ct, x.shape),
            lambda: F.sum_to(F.chain_multiply(ct, _slope(y, a)), a.shape),
        )

    @classmethod
    def cases(cls) -> Iterator[Case]:
        yield ok("float32[3, n]", "float32[3, n]", domain=(0.5, 2.0), smooth=False)
        yield ok("float32[3, 1]", "float32[n]", domain=(0.5, 2.0), smooth=False)


def _slope(log: Tensor, a: Tensor) -> Tensor:
    """Return the derivative of the logarithm of a gamma quantile by the concentration."""
    is_tiny = log < -18.4  # the logarithm of 1e-8
    safe = F.where(is_tiny, 0.0, log)
    z = F.exp(safe)
    density = F.exp(a * safe - z - F.lgamma(a))  # times z
    usual = -emit(GammaInc(False, 1), *F.broadcast_arrays(a, z)) / density
    # There P(a, z) is z^a / Gamma(a + 1).
    tiny: Tensor = F.where(is_tiny, (F.digamma(a + 1) - log) / a, usual)
    return tiny


def _log_gamma(what: str, a: Tensor, dims: Shape, path: Stream) -> tuple[Tensor, Tensor]:
    """Draw from the gamma distribution of scale 1: the numbers, and their logarithms.

    The numbers have no gradient, the logarithms have.
    """
    dtype = a.dtype
    fixed = F.broadcast_to(F.stop_gradient(a), dims)
    is_usual = (fixed > 0) & (fixed < float("inf"))
    boosted = F.where(fixed < 1, fixed + 1, fixed)  # whose power of a uniform number is drawn, too
    d = F.where(is_usual, boosted, 1.0) - 1 / 3
    c = 1 / F.sqrt(9 * d)

    def iteration(carry: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        found, is_done = carry
        x = deviates(what, dims, dtype, path.substream("normal"))
        wait = waits(
            what, dims, dtype, path.substream("wait")
        )  # minus the logarithm of a uniform draw
        root = 1 + c * x
        v = root * root * root
        safe = F.where(root > 0, v, 1.0)
        fits = (root > 0) & (-wait < 0.5 * x * x + d * (1 - v + F.log(safe)))
        return F.where(is_done | ~fits, found, d * safe), is_done | fits

    start = (F.where(fixed == 0, 0.0, fixed), ~is_usual)
    drawn, _ = F.while_loop(lambda carry: ~F.all(carry[1]), iteration, start)
    power = F.where(is_usual & (fixed < 1), waits(what, dims, dtype, path.substream("power")), 0.0)
    shrink = power / F.where(is_usual, fixed, 1.0)
    number = drawn * F.exp(-shrink)
    log = emit(ImplicitGamma(), F.log(drawn) - shrink, F.broadcast_to(a, dims))
    return number, log


def _with_slope(number: Tensor, log: Tensor) -> Tensor:
    """Return the number with the gradient that its logarithm has."""
    change = F.where((number > 0) & F.isfinite(number), log - F.stop_gradient(log), 0.0)
    moved: Tensor = number * F.exp(change)
    return moved


@interceptable
@refuse_bare_dims
def gamma(
    shape: ShapeLike,
    concentration: TensorLike,
    scale: TensorLike = 1.0,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Draw from the gamma distribution, x^(a-1) exp(-x / scale) for a concentration a.  -> shape

    float16 and bfloat16 are drawn in float32. Gradients flow to concentration and scale.

    Args:
        shape: Dims, static or symbolic.
        concentration: The distribution's shape parameter, above 0; a number or a tensor that
            broadcasts to `shape`. Of a tensor's elements below 0 the draw is NaN.
        scale: What draws are multiplied by; the same.
        dtype: A floating-point dtype; by default that of the parameters, or the default dtype.
        name: What to call the result and its stream.

    Raises:
        ArgumentError: concentration or scale is negative (checked for numbers), or a list or tuple.
        DTypeError: The dtype is not a floating-point one.
        ShapeError: `shape` is no shape, or a parameter does not broadcast to it.

    >>> import graphfw as gf
    >>> x = gf.random.gamma((1000,), 3.0, scale=2.0)
    >>> bool(gf.all(x > 0))
    True
    """
    order = "shape, concentration, scale"
    refuse_lists("gamma", order, concentration=concentration, scale=scale)
    dims = dims_of("random.gamma", shape)
    to = float_dtype("gamma", dtype, concentration, scale)
    demand_scale("gamma", "concentration", concentration)
    demand_scale("gamma", "scale", scale)
    a = parameter("gamma", "concentration", concentration, dims, wide_dtype(to))
    draw = F.astype(_with_slope(*_log_gamma("gamma", _valid(a), dims, stream("gamma", name))), to)
    if not (is_number(scale) and scale == 1):
        draw = draw * parameter("gamma", "scale", scale, dims, to)
    return named(draw, name)


def _valid(a: Tensor) -> Tensor:
    kept: Tensor = F.where(a >= 0, a, float("nan"))
    return kept


@interceptable
@refuse_bare_dims
def beta(
    shape: ShapeLike,
    a: TensorLike,
    b: TensorLike,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Draw from the beta distribution on [0, 1], x^(a-1) (1-x)^(b-1).  -> shape

    The fraction that one gamma draw is of the sum of two. Gradients flow to a and b.

    Args:
        shape: Dims, static or symbolic.
        a: How strongly it is drawn to 1, above 0; a number or a tensor that broadcasts to `shape`.
        b: How strongly to 0; the same.
        dtype: A floating-point dtype; by default that of a and b, or the default dtype.
        name: What to call the result and its stream.

    Raises:
        ArgumentError: a or b is negative (checked for numbers), or a list or tuple.
        DTypeError: The dtype is not a floating-point one.
        ShapeError: `shape` is no shape, or a or b does not broadcast to it.
    """
    refuse_lists("beta", "shape, a, b", a=a, b=b)
    dims = dims_of("random.beta", shape)
    to = float_dtype("beta", dtype, a, b)
    path = stream("beta", name)
    logs = []
    for label, value in (("a", a), ("b", b)):
        demand_scale("beta", label, value)
        given = _valid(parameter("beta", label, value, dims, wide_dtype(to)))
        logs.append(_log_gamma("beta", given, dims, path.substream(label))[1])
    return named(F.astype(F.sigmoid(logs[0] - logs[1]), to), name)


@interceptable
def dirichlet(
    concentration: TensorLike, shape: ShapeLike | None = None, name: str | None = None
) -> Tensor:
    """Draw probabilities, which add up to 1, from the Dirichlet distribution.

    concentration: [*B, K] above 0 -> [*B, K] or [*shape, K]. Gamma draws, divided by their sum.
    Gradients flow to the concentration.

    Args:
        concentration: Floats; how much weight each of the K classes has.
        shape: What [*B] broadcasts to, for several draws of each; [*B] by default.
        name: What to call the result and its stream.

    Raises:
        DTypeError: The concentration is complex.
        ShapeError: It has no dim, or [*B] does not broadcast to `shape`.

    >>> import graphfw as gf
    >>> gf.random.dirichlet(gf.asarray([1.0, 2.0, 3.0]), shape=2).shape
    (2, 3)
    """
    given = floats("random.dirichlet", concentration)
    message = "random.dirichlet: the concentration is a number, not one for each class"
    demand(given.ndim > 0, message, {"concentration": given}, fix="pass [K]", error=ShapeError)
    dims = (*given.shape[:-1],) if shape is None else dims_of("random.dirichlet", shape)
    demand(
        can_broadcast(given.shape[:-1], dims),
        f"random.dirichlet: concentrations for {shape_text(given.shape[:-1])} don't broadcast to "
        f"{shape_text(dims)}",
        {"concentration": given},
        fix="shape is [*B], or more dims before it",
        error=ShapeError,
    )
    whole = (*dims, given.shape[-1])
    path = stream("dirichlet", name)
    log = _log_gamma("dirichlet", _valid(wide(given)), whole, path)[1]
    return named(F.astype(F.softmax(log, axis=-1), given.dtype), name)


@interceptable
@refuse_bare_dims
def student_t(
    shape: ShapeLike,
    freedom: TensorLike,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Draw from Student's t distribution.  -> shape

    A normal draw over the root of an independent estimate of its variance. Gradients flow to
    `freedom`.

    Args:
        shape: Dims, static or symbolic.
        freedom: The degrees of freedom, above 0; a number or a tensor that broadcasts to `shape`.
        dtype: A floating-point dtype; by default that of `freedom`, or the default dtype.
        name: What to call the result and its stream.

    Raises:
        ArgumentError: `freedom` is negative (checked for a number), or a list or tuple.
        DTypeError: The dtype is not a floating-point one.
        ShapeError: `shape` is no shape, or `freedom` does not broadcast to it.
    """
    refuse_lists("student_t", "shape, freedom", freedom=freedom)
    dims = dims_of("random.student_t", shape)
    to = float_dtype("student_t", dtype, freedom)
    demand_scale("student_t", "freedom", freedom)
    path = stream("student_t", name)
    half = 0.5 * _valid(parameter("student_t", "freedom", freedom, dims, wide_dtype(to)))
    normal = deviates("student_t", dims, half.dtype, path.substream("normal"))
    log = _log_gamma("student_t", half, dims, path.substream("gamma"))[1]
    return named(F.astype(normal * F.exp(0.5 * (F.log(half) - log)), to), name)
