"""Random numbers, public as `graphfw.random`: one op that draws bits, and what is composed of it.

Every draw has a stream of its own, fixed by the session's seed, the draw's key and the run's step.
The key is the path of the name scope that the draw is made in with the draw's `name`, or, where it
has none, its position among the scope's draws without a name. So adding a draw to one scope or
layer moves no stream of another; in one scope, give draws names to the same end.

The bits are the same on all executors, and so are the results of `uniform` with static bounds,
`randint`, `bernoulli` and `permutation`. Others go through functions that executors compute to
within some units in the last place (ULP).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphfw.hints.names import hints_for_module
from graphfw.ops.random.counts import choice, multinomial, poisson
from graphfw.ops.random.distributions import (
    bernoulli,
    categorical,
    exponential,
    gumbel,
    normal,
    permutation,
    randint,
    truncated_normal,
    uniform,
)
from graphfw.ops.random.gammas import beta, dirichlet, gamma, student_t
from graphfw.ops.random.heavy_tails import cauchy, laplace

__all__ = [
    "bernoulli",
    "beta",
    "categorical",
    "cauchy",
    "choice",
    "dirichlet",
    "exponential",
    "gamma",
    "gumbel",
    "laplace",
    "multinomial",
    "normal",
    "permutation",
    "poisson",
    "randint",
    "student_t",
    "truncated_normal",
    "uniform",
]

if not TYPE_CHECKING:  # which would take a module with `__getattr__` to have every name
    __getattr__, __dir__ = hints_for_module("gf.random", __name__, __all__)
