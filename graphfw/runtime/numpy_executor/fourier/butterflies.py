"""The Fourier transforms of a few numbers, written out: the arithmetic of one stage.

Complex numbers are pairs of expressions. Where a number is turned by a multiple of an eighth of the
circle, only signs change, components are exchanged, or both are multiplied by the same root.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from graphfw.runtime.kernels.complex_numbers import Components
from graphfw.runtime.kernels.ir import Const, Expr
from graphfw.runtime.kernels.primitives import PrimitiveCalls
from graphfw.runtime.numpy_executor.fourier.roots import roots

RADICES = (16, 13, 11, 8, 7, 5, 4, 3, 2)
"""The radices of stages: the numbers that one transform takes."""

_K = PrimitiveCalls()
_ROOT_HALF = sqrt(0.5)


def butterfly(x: Sequence[Components]) -> list[Components]:
    """Return the transform of some numbers, as many as a radix says."""
    n = len(x)
    if n == 1:
        return list(x)
    if n == 2:
        return [plus(x[0], x[1]), minus(x[0], x[1])]
    if n % 2:
        return _odd(x)
    inner = 2 if n == 8 else 4 if n % 4 == 0 else 2
    outer = n // inner
    if outer == 1:
        return _four(x)
    columns = [butterfly(x[begin::inner]) for begin in range(inner)]
    result = [x[0]] * n
    for row in range(outer):
        rotated = [_rotated(columns[j][row], j * row, n) for j in range(inner)]
        result[row::outer] = butterfly(rotated)
    return result


def multiplied(x: Components, y: Components) -> Components:
    """Return the product of two complex numbers."""
    real = _K.sub(_K.mul(x.real, y.real), _K.mul(x.imag, y.imag))
    return Components(real, _K.add(_K.mul(x.real, y.imag), _K.mul(x.imag, y.real)))


def scaled(x: Components, factor: Expr) -> Components:
    """Return a complex number times a real one."""
    return Components(_K.mul(x.real, factor), _K.mul(x.imag, factor))


def plus(x: Components, y: Components) -> Components:
    """Return x + y."""
    return Components(_K.add(x.real, y.real), _K.add(x.imag, y.imag))


def minus(x: Components, y: Components) -> Components:
    """Return x - y."""
    return Components(_K.sub(x.real, y.real), _K.sub(x.imag, y.imag))


def plus_rotated(x: Components, y: Components) -> Components:
    """Return x + i y."""
    return Components(_K.sub(x.real, y.imag), _K.add(x.imag, y.real))


def minus_rotated(x: Components, y: Components) -> Components:
    """Return x - i y."""
    return Components(_K.add(x.real, y.imag), _K.sub(x.imag, y.real))


def _four(x: Sequence[Components]) -> list[Components]:
    a, b = plus(x[0], x[2]), minus(x[0], x[2])
    c, d = plus(x[1], x[3]), minus(x[1], x[3])
    return [plus(a, c), minus_rotated(b, d), minus(a, c), plus_rotated(b, d)]


def _odd(x: Sequence[Components]) -> list[Components]:
    """Return the transform of an odd count: of sums, and of differences, of opposite numbers."""
    n, half = len(x), len(x) // 2
    sums = [plus(x[j], x[n - j]) for j in range(1, half + 1)]
    differences = [minus(x[j], x[n - j]) for j in range(1, half + 1)]
    total = x[0]
    for term in sums:
        total = plus(total, term)
    result = [total] * n
    for row in range(1, half + 1):
        turns = roots([row * j for j in range(1, half + 1)], n)
        even, odd = x[0], _combined(differences, (-turns.imag).tolist())
        for term, factor in zip(sums, turns.real.tolist(), strict=True):
            even = plus(even, scaled(term, _constant(term, factor)))
        result[row], result[n - row] = minus_rotated(even, odd), plus_rotated(even, odd)
    return result


def _combined(terms: Sequence[Components], factors: Sequence[float]) -> Components:
    first, *others = [
        scaled(term, _constant(term, factor)) for term, factor in zip(terms, factors, strict=True)
    ]
    for term in others:
        first = plus(first, term)
    return first


def _rotated(x: Components, number: int, n: int) -> Components:
    """Return a number times exp(-2 pi i number / n)."""
    eighth, rest = divmod(8 * (number % n), n)
    if rest:
        turn = roots(number, n)
        factor = Components(_constant(x, float(turn.real)), _constant(x, float(turn.imag)))
        return multiplied(x, factor)
    if eighth % 2:
        root = _constant(x, _ROOT_HALF)
        x = scaled(Components(_K.add(x.real, x.imag), _K.sub(x.imag, x.real)), root)
    for _ in range(eighth // 2):
        x = Components(x.imag, _K.neg(x.real))
    return x


def _constant(like: Components, value: float) -> Expr:
    return Const(like.real.dtype, value)
