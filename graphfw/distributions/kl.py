"""The Kullback-Leibler divergence of pairs of distributions, by a table of classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from graphfw.distributions.base import EULER, INF, Distribution, times_log
from graphfw.distributions.bounded import Beta, Uniform
from graphfw.distributions.classes import Categorical, OneHotCategorical
from graphfw.distributions.combined import Independent
from graphfw.distributions.counts import Bernoulli, Binomial, Geometric, Poisson
from graphfw.distributions.location_scale import (
    Cauchy,
    Gumbel,
    HalfNormal,
    Laplace,
    LogNormal,
    Normal,
)
from graphfw.distributions.positive import Exponential, Gamma, Pareto
from graphfw.distributions.vectors import Dirichlet, MultivariateNormal
from graphfw.errors import ArgumentError, ShapeError, a_type
from graphfw.hints.calls import explained
from graphfw.ir.dtype import promote_all
from graphfw.ir.functions import CALLED as F
from graphfw.ir.shape import Requirement, broadcast, shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import as_tensor, converted
from graphfw.ops.composed import demand

__all__ = ["kl_divergence", "register_kl"]

Formula: TypeAlias = Callable[[Any, Any], Tensor]

_FORMULAS: dict[tuple[type, type], Formula] = {}


@explained
def register_kl(p: type[Distribution], q: type[Distribution]) -> Callable[[Formula], Formula]:
    """Return a decorator that registers a function for `kl_divergence` of two classes.

    The function is called with distributions of the classes, or of subclasses for which there is no
    nearer function. A second function for a pair replaces the first.

    Args:
        p: The class of the first distribution.
        q: That of the second.

    Raises:
        ArgumentError: One is no class of distributions.

    >>> import graphfw as gf
    >>> D = gf.distributions
    >>> @D.register_kl(D.Uniform, D.Exponential)
    ... def divergence(p, q):
    ...     return -p.entropy() - gf.log(q.rate) + q.rate * p.mean
    >>> D.kl_divergence(D.Uniform(0.0, 1.0), D.Exponential(rate=2.0)).shape
    ()
    """
    kinds: dict[str, Any] = {"p": p, "q": q}
    for label, kind in kinds.items():
        is_kind = isinstance(kind, type) and issubclass(kind, Distribution)
        message = f"register_kl: {label} is {a_type(kind)}, not a class of distributions"
        demand(is_kind, message, fix="write @register_kl(Normal, Laplace) in front of a function")

    def register(formula: Formula) -> Formula:
        _FORMULAS[p, q] = formula
        return formula

    return register


@explained
def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """Return the Kullback-Leibler divergence of p from q.  -> [*B]

    It is the mean of log p(x) - log q(x) over draws x of p; both batch shapes broadcast to B. It
    is 0 where both are the same, and infinite where p draws values that q never does.

    Args:
        p: The distribution that draws.
        q: The distribution that it is compared with.

    Raises:
        ArgumentError: One is no distribution, or there is no closed form for the pair.
        ShapeError: The event shapes differ, or the batch shapes don't broadcast.

    >>> import graphfw as gf
    >>> D = gf.distributions
    >>> D.kl_divergence(D.Normal(1.0, 1.0), D.Normal(0.0, 1.0))
    Tensor(0.5, dtype=float32)
    """
    for label, each in (("p", p), ("q", q)):
        message = f"kl_divergence: {label} is {a_type(each)}, not a distribution"
        fix = "of tensors of probabilities take gf.nn.kl_div"
        demand(isinstance(each, Distribution), message, fix=fix)
    found = _formula(type(p), type(q))
    names = f"{type(p).__name__} and {type(q).__name__}"
    if found is None:
        raise ArgumentError(
            f"kl_divergence: there is no closed form for {names}",
            fix="estimate it from draws x of p: gf.mean(p.log_prob(x) - q.log_prob(x), axis=0); "
            "or add one with gf.distributions.register_kl",
        )
    shapes = f"{shape_text(p.event_shape)} and {shape_text(q.event_shape)}"
    message = f"kl_divergence: the event shapes of {names} differ: {shapes}"
    fix = "draws of both must be alike"
    demand(p.event_shape == q.event_shape, message, fix=fix, error=ShapeError)
    try:
        batch = broadcast(p.batch_shape, q.batch_shape)
    except Requirement as failed:
        shapes = f"{shape_text(p.batch_shape)} and {shape_text(q.batch_shape)}"
        message = f"kl_divergence: the batch shapes of {names}, {shapes}, don't broadcast"
        raise ShapeError(message, fix=failed.fix) from None
    to = promote_all((p._float, q._float))
    wide = promote_all((p._wide_dtype(to), q._wide_dtype(to)))
    result = found(p._in(wide), q._in(wide))
    return converted(F.broadcast_to(result, batch), to)


def _formula(p: type, q: type) -> Formula | None:
    """Return the function for the nearest classes that there is one for."""
    for first in p.__mro__:
        for second in q.__mro__:
            if (first, second) in _FORMULAS:
                return _FORMULAS[first, second]
    return None


@register_kl(Normal, Normal)
@register_kl(LogNormal, LogNormal)
def _normal(p: Normal | LogNormal, q: Normal | LogNormal) -> Tensor:
    ratio = p.scale / q.scale
    off = (p.loc - q.loc) / q.scale
    return 0.5 * (ratio * ratio + off * off - 1) - F.log(ratio)


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: HalfNormal, q: HalfNormal) -> Tensor:
    ratio = p.scale / q.scale
    return 0.5 * (ratio * ratio - 1) - F.log(ratio)


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Tensor:
    off = F.abs(p.loc - q.loc)
    spread = p.scale * F.exp(-off / p.scale) + off
    return F.log(q.scale / p.scale) + spread / q.scale - 1


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    # F. Chyzak and F. Nielsen, "A closed-form formula for the Kullback-Leibler divergence between
    # Cauchy distributions", 2019.
    both, off = p.scale + q.scale, p.loc - q.loc
    return F.log(both * both + off * off) - F.log(4 * p.scale * q.scale)


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Gumbel, q: Gumbel) -> Tensor:
    ratio = p.scale / q.scale
    off = (p.loc - q.loc) / q.scale
    moment = F.exp(F.lgamma(1 + ratio) - off)  # the mean of exp(-z) of q
    return -F.log(ratio) - (1 + EULER) + off + ratio * EULER + moment


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    log = F.log((q.high - q.low) / (p.high - p.low))
    return F.where((q.low <= p.low) & (p.high <= q.high), log, INF)


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = p.scale / q.scale
    return ratio - 1 - F.log(ratio)


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    ratio = p.scale / q.scale
    factors = F.lgamma(b) - F.lgamma(a) - b * F.log(ratio)
    return (a - b) * F.digamma(a) + factors + a * (ratio - 1)


@register_kl(Pareto, Pareto)
def _pareto(p: Pareto, q: Pareto) -> Tensor:
    ratio = q.concentration / p.concentration
    is_inside = p.scale >= q.scale
    scales = F.log(F.where(is_inside, p.scale / q.scale, 1.0))
    finite = q.concentration * scales - F.log(ratio) + ratio - 1
    return F.where(is_inside, finite, INF)


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Tensor:
    whole = F.digamma(p.a + p.b)
    first = (p.a - q.a) * (F.digamma(p.a) - whole)
    second = (p.b - q.b) * (F.digamma(p.b) - whole)
    return F.betaln(q.a, q.b) - F.betaln(p.a, p.b) + first + second


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    whole = F.sum(a, axis=-1, keepdims=True)
    factors = F.lgamma(whole[..., 0]) - F.lgamma(F.sum(b, axis=-1))
    terms = F.lgamma(b) - F.lgamma(a) + (a - b) * (F.digamma(a) - F.digamma(whole))
    return factors + F.sum(terms, axis=-1)


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli | Binomial, q: Bernoulli | Binomial) -> Tensor:
    yes, no = p.probs, p._no
    return p._log_chance(yes, no) - q._log_chance(yes, no)


@register_kl(Geometric, Geometric)
def _geometric(p: Geometric, q: Geometric) -> Tensor:
    yes, no = F.ones_like(p.probs), p._no / p.probs
    return p._log_chance(yes, no) - q._log_chance(yes, no)


@register_kl(Binomial, Binomial)
def _binomial(p: Binomial, q: Binomial) -> Tensor:
    message = f"kl_divergence: the counts of both differ: {p.count} and {q.count}"
    demand(p.count == q.count, message, fix="compare draws of the same number of tries")
    return as_tensor(p.count, p._float) * _bernoulli(p, q)


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Tensor:
    return F.xlogy(p.rate, p.rate) - F.xlogy(p.rate, q.rate) - p.rate + q.rate


@register_kl(Categorical, Categorical)
@register_kl(OneHotCategorical, OneHotCategorical)
def _categorical(p: Categorical | OneHotCategorical, q: Categorical | OneHotCategorical) -> Tensor:
    first, second = p._weights.shape[-1], q._weights.shape[-1]
    message = f"kl_divergence: {first} classes and {second} classes"
    demand(first == second, message, fix="give both the same classes", error=ShapeError)
    return F.sum(times_log(p.probs, p.logits - q.logits), axis=-1)


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate_normal(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    between = F.solve_triangular(q.scale_tril, p.scale_tril)
    off = F.solve_triangular(q.scale_tril, F.expand_dims(p.loc - q.loc, axis=-1))[..., 0]
    trace = F.sum(between * between, axis=(-1, -2))
    size = as_tensor(p.event_shape[0], p._float)
    return q._log_det() - p._log_det() + 0.5 * (trace + F.sum(off * off, axis=-1) - size)


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    message = f"kl_divergence: events of {p.ndims} batch dims, and of {q.ndims}"
    demand(p.ndims == q.ndims, message, fix="make both of the same number", error=ShapeError)
    return F.sum(kl_divergence(p.base, q.base), axis=tuple(range(-p.ndims, 0)))
