"""`softcap`: values drawn smoothly into an interval."""

from __future__ import annotations

from typing import Any

import graphfw as gf
from graphfw.extend import ELEMENTWISE, PURE, bad, ok, require


@gf.op("extras.softcap")
class Softcap(gf.Op):
    """tanh(x / cap) * cap, elementwise.  x: [*A]  ->  [*A]"""

    cap: float
    traits = frozenset({PURE, ELEMENTWISE})

    def shape(self, x):
        return x

    def dtype(self, x):
        require(x.is_floating, f"wants floats, not {x.name}", error=gf.DTypeError)
        return x

    def eval(self, xp, x):
        """The reference result, for NumPy and CuPy."""
        return xp.tanh(x / self.cap) * self.cap

    def scalar(self, k, x):
        """One element: with it the op is compiled, and fused with its neighbours."""
        return k.mul(k.tanh(k.div(x, self.cap)), self.cap)

    def vjp(self, ct, y, x):
        """d/dx = 1 - tanh(x / cap)^2, of the result y, so that x need not be kept."""
        return (ct * (1 - (y / self.cap) ** 2),)

    @staticmethod
    def cases():
        yield ok("float32[3, n]", cap=30.0, domain=(-60, 60))
        yield ok("float64[]", cap=1.0)
        yield bad("int32[3]", cap=1.0, match="wants floats, not int32", error=gf.DTypeError)


def softcap(x: Any, *, cap: float) -> gf.Tensor:
    """Draw values smoothly into the interval from -cap to cap.  x: [*A] -> [*A]

    As for the attention scores of Gemma 2 (arXiv:2408.00118).

    Raises:
        ArgumentError: `cap` is not above 0.
        DTypeError: x is no tensor of real floats.
    """
    if not cap > 0:
        raise gf.ArgumentError(f"softcap: cap={cap} is not above 0", fix="use cap=30.0")
    return gf.apply(Softcap(float(cap)), x)
