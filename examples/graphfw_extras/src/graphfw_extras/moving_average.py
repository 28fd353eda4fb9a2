"""`moving_average`: the exponential moving average along rows. `native.py` has its native code."""

from __future__ import annotations

from typing import Any

import graphfw as gf
from graphfw.extend import bad, ok, require


@gf.op("extras.moving_average")
class MovingAverage(gf.Op):
    """y[n, t] = decay * y[n, t - 1] + (1 - decay) * x[n, t], from 0.  x: [N, T]  ->  [N, T]"""

    decay: float
    linear = "jointly"

    def shape(self, x):
        require(len(x) == 2, "wants a matrix")
        return x

    def dtype(self, x):
        is_right = x in (gf.float32, gf.float64)
        require(is_right, f"wants float32 or float64, not {x.name}", error=gf.DTypeError)
        return x

    def eval(self, xp, x):
        """Return the reference result, with NumPy or CuPy."""
        y, last = xp.empty_like(x), xp.zeros(len(x), x.dtype)
        for t in range(x.shape[1]):
            y[:, t] = last = self.decay * last + (1 - self.decay) * x[:, t]
        return y

    def vjp(self, ct, y, x):
        """Return the moving average of the cotangent from the last column to the first."""
        return (lambda: gf.flip(gf.apply(self, gf.flip(ct, axis=1)), axis=1),)

    def batch(self, mapped, batched, x):
        """Treat the mapped axis and the rows as one axis."""
        return gf.reshape(gf.apply(self, gf.reshape(x, (-1, x.shape[2]))), x.shape)

    @staticmethod
    def cases():
        yield ok("float32[3, n]", decay=0.75)
        yield ok("float64[2, 0]", decay=0.5)
        yield bad("float32[3]", decay=0.5, match="wants a matrix")
        yield bad("int32[3, 2]", decay=0.5, match="not int32", error=gf.DTypeError)


def moving_average(x: Any, *, decay: float) -> gf.Tensor:
    """The exponential moving average along rows, from 0.  x: [N, T] -> [N, T]

    Raises:
        ArgumentError: `decay` is not between 0 and 1.
        DTypeError: x is not float32 or float64.
        ShapeError: x is no matrix.
    """
    if not 0 <= decay <= 1:
        raise gf.ArgumentError(f"moving_average: decay={decay} is not between 0 and 1")
    return gf.apply(MovingAverage(float(decay)), x)
