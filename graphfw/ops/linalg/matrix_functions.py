"""Functions of square matrices: whole powers and the exponential."""

from __future__ import annotations

import math
import operator

from graphfw.ir.dtype import int64
from graphfw.ir.functions import F, public
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import TensorLike, as_tensor, inexact, is_whole, ruled
from graphfw.ops.composed import demand
from graphfw.ops.dtypes import require_numeric
from graphfw.ops.linalg.matrix_rules import require_lapack, require_square
from graphfw.ops.linalg.solve import inv

__all__ = ["matrix_exp", "matrix_power"]

_LIMITS = {False: (7, 3.925724783138660), True: (13, 5.371920351148152)}
"""The degree of the Padé approximant for single and double precision, and the largest norm for
which it is exact (Higham 2005, table 2.3)."""


@public
def matrix_exp(x: TensorLike, /) -> Tensor:
    """The exponential of square matrices, the sum of x^n / n!.  x: [*B, M, M] -> [*B, M, M]

    By scaling and squaring (N. J. Higham, "The scaling and squaring method for the matrix
    exponential revisited", 2005). float32, float64 or complex; integers become floats. Gradients of
    any order flow.

    Raises:
        ShapeError: The matrices are not square.
        DTypeError: The dtype is float16 or bfloat16.

    >>> import graphfw as gf
    >>> gf.linalg.matrix_exp(gf.asarray([[0.0, 1.0], [0.0, 0.0]]))
    Tensor([[1., 1.],
            [0., 1.]], dtype=float32)
    """
    tensor = inexact(x)
    ruled("matrix_exp", tensor, require_square, tensor.shape)
    ruled("matrix_exp", tensor, require_lapack, tensor.dtype)
    real = tensor.dtype.real
    degree, limit = _LIMITS[real.itemsize == 8]
    sums = F.sum(F.abs(F.stop_gradient(tensor)), axis=-2)
    zero = F.zeros((*sums.shape[:-1], 1), dtype=real)  # matrices may have no rows
    norm = F.max(F.concat([sums, zero], axis=-1), axis=-1)
    # The exponent of norm / limit, rounded up; of NaN and infinity nothing is to be scaled.
    is_usual = (norm > limit) & F.isfinite(norm)
    count = F.ceil(F.log2(F.where(is_usual, norm / limit, 1.0)))
    scaled = tensor * F.pow(F.full_like(count, 2.0), -count)[..., None, None]
    result = _approximated(scaled, degree)
    left = F.astype(count, int64)

    def square(carry: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        result, left = carry
        more = (left > 0)[..., None, None]
        return F.where(more, result @ result, result), left - 1

    squared: Tensor = F.while_loop(lambda carry: F.any(carry[1] > 0), square, (result, left))[0]
    return squared


def _approximated(x: Tensor, degree: int) -> Tensor:
    """Return p(x) / p(-x), p the polynomial of the Padé approximant of a degree."""
    coefficients = [
        math.factorial(2 * degree - j)
        * math.factorial(degree)
        / (math.factorial(2 * degree) * math.factorial(j) * math.factorial(degree - j))
        for j in range(degree + 1)
    ]
    one = F.eye(x.shape[-1], dtype=x.dtype)
    square = x @ x
    powers = [one, square]
    for _ in range(2, degree // 2 + 1):
        powers.append(powers[-1] @ square)
    even = sum([c * p for c, p in zip(coefficients[0::2], powers, strict=True)], start=0 * x)
    odd = x @ sum([c * p for c, p in zip(coefficients[1::2], powers, strict=True)], start=0 * x)
    return F.solve(even - odd, even + odd)


@public
def matrix_power(x: TensorLike, n: int, /) -> Tensor:
    """Multiply square matrices by themselves n times.  x: [*B, M, M] -> [*B, M, M]

    Power 0 is the identity matrix; a negative n gives the power of the inverse. Numeric dtypes;
    the inverse makes floats of integers.

    Raises:
        ShapeError: The matrices are not square.
        ArgumentError: n is no int.
        ExecutionError: When it runs: n is negative, and a matrix is singular.
    """
    tensor = as_tensor(x)
    ruled("matrix_power", tensor, require_square, tensor.shape)
    ruled("matrix_power", tensor, require_numeric, tensor.dtype)
    is_int = is_whole(n) and not isinstance(n, Tensor)
    demand(is_int, f"matrix_power: n={n!r} is no int", {"x": tensor}, fix="pass an int")
    left = operator.index(n)
    if left < 0:
        tensor, left = inv(tensor), -left
    if left == 0:
        one = F.eye(tensor.shape[-1], dtype=tensor.dtype)
        return F.broadcast_to(one, tensor.shape)
    result: Tensor | None = None
    while True:  # x^13 = x^8 x^4 x: by the binary digits of n
        if left % 2:
            result = tensor if result is None else result @ tensor
        left //= 2
        if left == 0 and result is not None:
            return result
        tensor = tensor @ tensor
