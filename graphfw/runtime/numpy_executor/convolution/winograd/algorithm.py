"""`Algorithm`: the matrices of F(m x m, 3 x 3), exact.

m x m positions of a correlation with 3 x 3 elements are, by Winograd's algorithm,

    positions = At @ ((G @ weight @ G.T) * (Bt @ image @ Bt.T)) @ At.T

of an image's (m + 2) x (m + 2) elements: (m + 2)^2 multiplications for each channel instead of
9 m^2. See Lavin, Gray: Fast algorithms for convolutional neural networks, 2015 (arXiv:1509.09308).
The matrices evaluate polynomials at points, the last of which is infinity, and interpolate.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import TypeAlias

from graphfw.utils.records import record

Matrix: TypeAlias = tuple[tuple[Fraction, ...], ...]

TAPS = 3
"""The taps of a window along each dim."""


@record
class Algorithm:
    """One algorithm, the same along both dims.

    Attributes:
        points: The points at which polynomials are evaluated, besides infinity. Each is followed by
            its negative, so that half of the products with its powers serve for both.
    """

    points: tuple[Fraction, ...]

    @property
    def size(self) -> int:
        """The number of elements of the image that a tile sees, along each dim."""
        return len(self.points) + 1

    @property
    def positions(self) -> int:
        """The number of output positions of a tile, along each dim."""
        return self.size - TAPS + 1

    @property
    def products(self) -> int:
        """The number of multiplications of a tile for each channel and output."""
        return self.size**2

    @cached_property
    def of_image(self) -> Matrix:
        """`Bt`: the polynomials that are 0 at all points but one, by their coefficients."""
        rows = [
            (*_polynomial([one for one in self.points if one != point]), Fraction(0))
            for point in self.points
        ]
        return (*rows, _polynomial(self.points))

    @cached_property
    def of_weight(self) -> Matrix:
        """`G`: the weights' polynomial at each point, divided by the factor of `Bt` there."""
        rows = []
        for point in self.points:
            scale = Fraction(1)
            for one in self.points:
                scale *= point - one if one != point else 1
            rows.append(tuple([point**k / scale for k in range(TAPS)]))
        return (*rows, _unit(TAPS))

    @cached_property
    def of_result(self) -> Matrix:
        """`At`: powers of the points."""
        ends = _unit(self.positions)
        return tuple(
            [(*[point**i for point in self.points], ends[i]) for i in range(self.positions)],
        )


def _polynomial(roots: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """Return the coefficients of the product of `x - root`, the lowest power first."""
    found = [Fraction(1)]
    for root in roots:
        shifted, scaled = [Fraction(0), *found], [*[root * c for c in found], Fraction(0)]
        found = [x - y for x, y in zip(shifted, scaled, strict=True)]
    return tuple(found)


def _unit(size: int) -> tuple[Fraction, ...]:
    """Return zeros and a final one: the point at infinity sees the highest power."""
    return tuple([Fraction(int(i == size - 1)) for i in range(size)])


def _around_zero(*points: Fraction) -> tuple[Fraction, ...]:
    return (Fraction(0), *[one for point in points for one in (point, -point)])


F4 = Algorithm(_around_zero(Fraction(3, 4), Fraction(3, 2)))
"""4 x 4 positions. With points of these sizes the largest error of 256 channels is a quarter of
that with the usual 1 and 2, about 1e-5 of the standard deviation of the result."""

F2 = Algorithm(_around_zero(Fraction(1)))
"""2 x 2 positions: all factors of the image and of the result are 1 or -1."""
