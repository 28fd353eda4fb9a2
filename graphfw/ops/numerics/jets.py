"""Jets: power series in two variables, cut off, of arrays or tensors.

`Jet({(0, 0): x, (1, 0): dx}, (1, 0))` is x + dx s: what x becomes as a parameter moves by s. The
coefficient of s^i t^j, times i! j!, is a partial derivative.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

__all__ = ["MOST_ITERATIONS", "Jet", "exponential", "has_converged", "settled"]

MOST_ITERATIONS = 20_000
"""After so many terms, sums and continued fractions end in any case."""

Powers: TypeAlias = tuple[int, int]


class Jet(NamedTuple):
    """A power series; absent terms are 0.

    Attributes:
        terms: (powers of both variables) -> coefficient.
        order: The highest powers that are kept.
    """

    terms: dict[Powers, Any]
    order: Powers

    @classmethod
    def of(cls, values: Sequence[Any], order: Powers) -> Jet:
        """Return the jet that has these `values()`."""
        return cls(dict(zip(_powers(order), values, strict=True)), order)

    @classmethod
    def linear(cls, value: Any, slope: Any, order: Powers) -> Jet:
        """Return a jet with a value and a slope in the first variable."""
        return cls({(0, 0): value, (1, 0): slope} if order[0] else {(0, 0): value}, order)

    def values(self) -> tuple[Any, ...]:
        """Return all terms, also those that are 0."""
        zero = 0.0 * self.value
        return tuple([self.terms.get(powers, zero) for powers in _powers(self.order)])

    @property
    def value(self) -> Any:
        """The constant term."""
        return self.terms[0, 0]

    def derivative(self) -> Any:
        """The derivative of the highest order that is kept."""
        i, j = self.order
        return self.terms.get((i, j), 0.0) * (math.factorial(i) * math.factorial(j))

    def plus(self, other: Jet) -> Jet:
        terms = dict(self.terms)
        for powers, term in other.terms.items():
            terms[powers] = terms[powers] + term if powers in terms else term
        return Jet(terms, self.order)

    def times(self, other: Jet | Any) -> Jet:
        """The product with a jet or a number."""
        if not isinstance(other, Jet):
            return Jet({powers: term * other for powers, term in self.terms.items()}, self.order)
        terms: dict[Powers, Any] = {}
        for (i, j), a in self.terms.items():
            for (k, m), b in other.terms.items():
                powers = (i + k, j + m)
                if powers[0] <= self.order[0] and powers[1] <= self.order[1]:
                    terms[powers] = terms[powers] + a * b if powers in terms else a * b
        return Jet(terms, self.order)

    def over(self, other: Jet) -> Jet:
        """The quotient."""
        first = other.value
        terms: dict[Powers, Any] = {}
        for i, j in _powers(self.order):
            rest = self.terms.get((i, j), 0.0)
            for (k, m), b in other.terms.items():
                if (k, m) != (0, 0) and k <= i and m <= j and (i - k, j - m) in terms:
                    rest = rest - b * terms[i - k, j - m]
            terms[i, j] = rest / first
        return Jet(terms, self.order)


def exponential(x: Jet, value: Any) -> Jet:
    """The exponential, whose own value is given: it may be known more exactly."""
    terms: dict[Powers, Any] = {(0, 0): value}
    for i, j in _powers(x.order):
        if i or j:
            # The derivative by the first variable that has a power: y' = x' y.
            along = 0 if i else 1
            total: Any = 0.0
            for powers, a in x.terms.items():
                k, m = powers
                if powers[along] and k <= i and m <= j:
                    total = total + powers[along] * a * terms[i - k, j - m]
            terms[i, j] = total / (i if i else j)
    return Jet(terms, x.order)


def has_converged(xp: Any, change: Jet, total: Jet, eps: float) -> Any:
    """Return where all coefficients change by little more than rounding, or stay NaN."""
    scale = xp.abs(total.value)
    done = ~(xp.abs(change.value) > eps * scale)
    for powers, step in change.terms.items():
        if powers != (0, 0):
            wide = 16.0 * (scale + xp.abs(total.terms[powers]))
            done = done & ~(xp.abs(step) > eps * wide)
    return done


def settled(xp: Any, ratio: Jet, found: Jet, done: Any) -> tuple[Jet, Any]:
    """The new value of continued fractions, and which are done: these stay, for errors add up."""
    change = found.plus(ratio.times(-1.0))
    kept = [xp.where(done, *pair) for pair in zip(ratio.values(), found.values(), strict=True)]
    return Jet.of(kept, found.order), done | has_converged(xp, change, found, 2.0**-52)


def _powers(order: Powers) -> Iterator[Powers]:
    for i in range(order[0] + 1):
        for j in range(order[1] + 1):
            yield i, j
