"""The roots of one, exp(-2 pi i j / n), as accurate as float64 is."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def roots(numbers: Any, n: int) -> Array:
    """Return exp(-2 pi i j / n) for whole numbers j, as complex128.

    Angles are reduced to an eighth of the circle as whole numbers, so that all roots are as
    accurate as those near 1, and those on the axes are exact.
    """
    # In units of 1 / (8 n) of the circle; an eighth of it has n of them.
    eighths, rest = np.divmod(8 * (np.asarray(numbers, np.int64) % n), n)
    back = eighths % 2 == 1
    exact = np.where(back, n - rest, rest).astype(np.longdouble) * (_PI / (4 * n))
    # Sines of float64 take a tenth of the time of longer ones; what the angle lacks is added.
    angle = exact.astype(np.float64)
    lacking = (exact - angle).astype(np.float64)
    cosine, sine = np.cos(angle), np.sin(angle)
    cosine, sine = cosine - lacking * sine, sine + lacking * cosine
    quarter = (eighths + 1) // 2 % 4  # how many quarters of a turn the nearest axis lies away
    sine = np.where(back, -sine, sine)
    real = np.choose(quarter, [cosine, -sine, -cosine, sine])
    imag = np.choose(quarter, [sine, cosine, -sine, -cosine])
    found: Array = real - 1j * imag
    return found


_PI = np.longdouble("3.14159265358979323846264338327950288")
