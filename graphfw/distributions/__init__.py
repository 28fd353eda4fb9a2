"""Probability distributions over tensors, public as `graphfw.distributions`.

```python
import graphfw as gf

with gf.Graph() as g:
    x = gf.placeholder(("n",), name="x")
    d = gf.distributions.Normal(1.0, 2.0)
    loss = -gf.mean(d.log_prob(x))
    noise = d.sample(x.shape)
```
"""

from typing import TYPE_CHECKING

from graphfw.distributions.base import Distribution
from graphfw.distributions.bounded import Beta, Uniform
from graphfw.distributions.classes import Categorical, Multinomial, OneHotCategorical
from graphfw.distributions.combined import Independent, MixtureSameFamily
from graphfw.distributions.counts import Bernoulli, Binomial, Geometric, Poisson
from graphfw.distributions.kl import kl_divergence, register_kl
from graphfw.distributions.location_scale import (
    Cauchy,
    Gumbel,
    HalfNormal,
    Laplace,
    Logistic,
    LogNormal,
    Normal,
    StudentT,
)
from graphfw.distributions.positive import Chi2, Exponential, Gamma, Pareto, Weibull
from graphfw.distributions.transforms import (
    AffineTransform,
    ExpTransform,
    SigmoidTransform,
    TanhTransform,
    Transform,
    TransformedDistribution,
)
from graphfw.distributions.vectors import Dirichlet, MultivariateNormal
from graphfw.hints.names import hints_for_module

__all__ = [
    "AffineTransform",
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Cauchy",
    "Chi2",
    "Dirichlet",
    "Distribution",
    "ExpTransform",
    "Exponential",
    "Gamma",
    "Geometric",
    "Gumbel",
    "HalfNormal",
    "Independent",
    "Laplace",
    "LogNormal",
    "Logistic",
    "MixtureSameFamily",
    "Multinomial",
    "MultivariateNormal",
    "Normal",
    "OneHotCategorical",
    "Pareto",
    "Poisson",
    "SigmoidTransform",
    "StudentT",
    "TanhTransform",
    "Transform",
    "TransformedDistribution",
    "Uniform",
    "Weibull",
    "kl_divergence",
    "register_kl",
]

if not TYPE_CHECKING:  # which would take a module with `__getattr__` to have every name
    __getattr__, __dir__ = hints_for_module("gf.distributions", __name__, __all__)
