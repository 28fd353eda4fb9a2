"""The stages of a length, and the numbers that they multiply by."""

from __future__ import annotations

from functools import cache

import numpy as np

from graphfw.ir.dtype import DType
from graphfw.ir.literal import Literal
from graphfw.runtime.kernels.steps import Table
from graphfw.runtime.numpy_executor.fourier.roots import Array, roots

_ODD = (13, 11, 7, 5, 3)


def radices_of(n: int, registers: int) -> tuple[int, ...] | None:
    """Return the radices of the stages of a length; None where a prime factor is too large.

    Args:
        n: The length.
        registers: The number of vector registers.
    """
    found = []
    for prime in _ODD:
        while n % prime == 0:
            found.append(prime)
            n //= prime
    if n & (n - 1):
        return None
    bits = n.bit_length() - 1
    last = [16] if bits % 3 == 1 and bits > 1 and registers > 16 else []
    if bits % 3 == 1 and bits > 1:
        found += [] if last else [4, 4]
        bits -= 4
    elif bits % 3:
        found.append(1 << bits % 3)
        bits -= bits % 3
    found += [8] * (bits // 3) + last
    return tuple(found) or (1,)


def convolution_length(n: int, multiple: int) -> int:
    """Return a length for the convolutions of n numbers: a short one of small radices."""
    length = -(-(2 * n - 1) // multiple) * multiple
    while not _has_small_factors(length):
        length += multiple
    return length


def _has_small_factors(n: int) -> bool:
    for prime in (2, 3, 5):
        while n % prime == 0:
            n //= prime
    return n == 1


def cut_in_two(n: int, width: int) -> tuple[int, int] | None:
    """Return two lengths whose product is n, about equal; the second is a multiple of `width`."""
    found = [(n // second, second) for second in range(width, n // 2 + 1, width) if n % second == 0]
    return min(found, key=sum, default=None)


class Factors:
    """The table of a transform: what its stages multiply by, one after the other.

    Args:
        dtype: Of the components.
        scale: What results are multiplied by: the first number of the table.
    """

    def __init__(self, dtype: DType, scale: float) -> None:
        self._dtype = dtype
        self._numbers: list[Array] = []
        self._size = 0
        self.add(np.array([scale]))

    def add(self, numbers: Array) -> int:
        """Add numbers; return where they begin, in bytes."""
        begin, line = self._size, 64 // self._dtype.itemsize
        self._numbers.append(np.pad(numbers.ravel(), (0, -numbers.size % line)))
        self._size += self._numbers[-1].size
        return begin * self._dtype.itemsize

    def table(self) -> Table:
        """Return the table."""
        array = np.concatenate(self._numbers).astype(self._dtype.name)
        return Table(self._dtype, array.size, "factors of a Fourier transform", Literal(array))


@cache
def of_rows(radix: int, rows: int) -> Array:
    """Return the factors of the results of each row: a pair for each k but 0."""
    numbers = np.multiply.outer(np.arange(rows), np.arange(1, radix))
    turns = roots(numbers, radix * rows)
    return np.stack([turns.real, turns.imag], axis=-1)


@cache
def of_positions(radix: int, positions: int) -> Array:
    """Return the factors of the results at each position: for each k the real parts first."""
    numbers = np.multiply.outer(np.arange(radix), np.arange(positions))
    turns = roots(numbers, radix * positions)
    return np.stack([turns.real, turns.imag], axis=1)


@cache
def of_columns(rows: int, columns: int) -> Array:
    """Return exp(-2 pi i j k / n) for each row j and column k: first all real parts of a row."""
    turns = roots(np.multiply.outer(np.arange(rows), np.arange(columns)), rows * columns)
    return np.stack([turns.real, turns.imag], axis=1)


@cache
def of_chirp(n: int, *, across: bool) -> Array:
    """Return exp(-pi i j^2 / n): in pairs, or all real parts before all others."""
    numbers = np.arange(n, dtype=np.int64)
    turns = roots(numbers * numbers % (2 * n), 2 * n)
    return np.stack([turns.real, turns.imag], axis=-1 if across else 0)


@cache
def of_spectrum(n: int, length: int) -> Array:
    """Return the transform of exp(pi i j^2 / n), |j| < n, in a circle of a length; over that.

    First all real parts, then the others.
    """
    chirp = of_chirp(n, across=False)
    circle = np.zeros(length, np.complex128)
    circle[:n] = chirp[0] - 1j * chirp[1]
    circle[length - n + 1 :] = circle[1:n][::-1]
    turns = np.fft.fft(circle) / length
    return np.stack([turns.real, turns.imag])


@cache
def of_halves(n: int, *, across: bool) -> Array:
    """Return exp(-2 pi i k / n), 0 < k < n/2: in pairs, or all real parts before all others."""
    turns = roots(np.arange(1, n // 2), n)
    return np.stack([turns.real, turns.imag], axis=-1 if across else 0)
