"""Bessel functions of orders 0 and 1, elementwise: public in `graphfw.special`.

Formulas and their sources: `graphfw.ops.numerics.bessel`. The derivatives are those of Abramowitz &
Stegun 9.1.28, 9.1.30, 9.6.27 and 9.6.28.
"""

from __future__ import annotations

from typing import Any

from graphfw.ir.functions import F
from graphfw.ir.tensor import Tensor
from graphfw.ops.elementwise.table import unary
from graphfw.ops.numerics import bessel
from graphfw.ops.numerics.wide import native, rounded

__all__ = ["i0", "i0e", "i1", "i1e", "j0", "j1", "y0", "y1"]


def _over(y: Tensor, x: Tensor) -> Tensor:
    """Return y / x, and 1/2 at 0, of a y that is x / 2 there."""
    is_zero = x == 0
    return F.where(is_zero, 0.5, y / F.where(is_zero, 1, x))


def _facts(compute: Any) -> dict[str, Any]:
    return {
        "xp": rounded(compute),
        "scalar": native(compute),
        "accepts": "floating-point",
    }


i0 = unary(
    "i0",
    doc="""The modified Bessel function of the first kind of order 0.  x: floats [*A] -> [*A]

    >>> import graphfw as gf
    >>> gf.special.i0(gf.asarray([0.0, 1.0]))
    Tensor([1.       , 1.2660658], dtype=float32)
    """,
    vjp=lambda ct, y, x: F.chain_multiply(ct, F.i1(x)),
    **_facts(bessel.i0),
)
i0e = unary(
    "i0e",
    doc="exp(-|x|) times `i0`, which does not overflow.  x: floating-point [*A] -> [*A]",
    vjp=lambda ct, y, x: ct * (F.i1e(x) - F.sign(x) * y),
    **_facts(bessel.i0e),
    domain=(0.5, 20.0),
)
i1 = unary(
    "i1",
    doc="The modified Bessel function of the first kind of order 1.  x: floats [*A] -> [*A]",
    vjp=lambda ct, y, x: F.chain_multiply(ct, F.i0(x) - _over(y, x)),
    **_facts(bessel.i1),
)
i1e = unary(
    "i1e",
    doc="exp(-|x|) times `i1`, which does not overflow.  x: floating-point [*A] -> [*A]",
    vjp=lambda ct, y, x: ct * (F.i0e(x) - F.sign(x) * y - _over(y, x)),
    **_facts(bessel.i1e),
    domain=(0.5, 20.0),
)
j0 = unary(
    "j0",
    doc="""The Bessel function of the first kind of order 0.  x: floating-point [*A] -> [*A]

    >>> import graphfw as gf
    >>> gf.special.j0(gf.asarray([0.0, 1.0, gf.inf], dtype=gf.float64))
    Tensor([1.        , 0.76519769, 0.        ], dtype=float64)
    """,
    vjp=lambda ct, y, x: -ct * F.j1(x),
    **_facts(bessel.j0),
    domain=(-20.0, 20.0),
)
j1 = unary(
    "j1",
    doc="The Bessel function of the first kind of order 1.  x: floating-point [*A] -> [*A]",
    vjp=lambda ct, y, x: ct * (F.j0(x) - _over(y, x)),
    **_facts(bessel.j1),
    domain=(-20.0, 20.0),
)
y0 = unary(
    "y0",
    doc="""The Bessel function of the second kind of order 0.  x: floating-point [*A] -> [*A]

    -inf at 0, NaN below.
    """,
    vjp=lambda ct, y, x: F.chain_multiply(-ct, F.y1(x)),
    **_facts(bessel.y0),
    domain=(0.5, 20.0),
)
y1 = unary(
    "y1",
    doc="""The Bessel function of the second kind of order 1.  x: floating-point [*A] -> [*A]

    -inf at 0, NaN below.
    """,
    vjp=lambda ct, y, x: F.chain_multiply(ct, F.y0(x) - y / x),
    **_facts(bessel.y1),
    domain=(0.5, 20.0),
)
