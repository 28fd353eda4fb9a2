"""Special functions, named as in SciPy. Those that are in `graphfw` itself are not repeated here.

These are `gf.digamma`, `gf.erf`, `gf.erfc`, `gf.erfinv`, `gf.lgamma`, `gf.logsumexp`,
`gf.polygamma` and `gf.sigmoid`.
"""

from typing import TYPE_CHECKING

from graphfw.hints.names import hints_for_module
from graphfw.ops.elementwise.bessel import i0, i0e, i1, i1e, j0, j1, y0, y1
from graphfw.ops.elementwise.incomplete_gamma_beta import betainc, betaln, gammainc, gammaincc
from graphfw.ops.elementwise.statistical_functions import (
    entr,
    erfcx,
    gamma,
    log_ndtr,
    logit,
    ndtr,
    ndtri,
    xlog1py,
    xlogy,
)

__all__ = [
    "betainc",
    "betaln",
    "entr",
    "erfcx",
    "gamma",
    "gammainc",
    "gammaincc",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "j0",
    "j1",
    "log_ndtr",
    "logit",
    "ndtr",
    "ndtri",
    "xlog1py",
    "xlogy",
    "y0",
    "y1",
]

if not TYPE_CHECKING:  # which would take a module with `__getattr__` to have every name
    __getattr__, __dir__ = hints_for_module("gf.special", __name__, __all__)
