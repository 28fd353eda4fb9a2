"""Decompositions of matrices without iterations: Cholesky and QR.

Gradient formulas as in M. Seeger et al., "Auto-Differentiating Linear Algebra" (2017); for complex
matrices as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from graphfw.errors import DTypeError, GradientError
from graphfw.ir.build import emit, emit_all
from graphfw.ir.dim import always_ge, dim_min
from graphfw.ir.dtype import DType
from graphfw.ir.functions import F, public
from graphfw.ir.op import LOOSE, NONDIFF, PURE, Case, bad, ok, op
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.args import TensorLike, inexact
from graphfw.ops.composed import demand, demand_one_of
from graphfw.ops.linalg.matrix_rules import (
    Decomposition,
    SquareOp,
    adjoint,
    attempt,
    diagonal_matrix,
    hermitian,
    require_lapack,
    require_matrices,
)
from graphfw.ops.linalg.triangular_lu import SolveTriangular

__all__ = ["QRResult", "cholesky", "qr"]


@op("cholesky")
class Cholesky(SquareOp):
    """The lower triangular L with x = L L*.  x: [*B, M, M]  ->  [*B, M, M]"""

    def eval(self, xp: Any, x: Any) -> Any:
        failure = "cholesky: a matrix is not positive definite"
        fix = "make its eigenvalues larger: x + 1e-6 * gf.eye(n)"
        return attempt(failure, fix, xp.linalg.cholesky, hermitian(xp, x))

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        def gradient() -> Tensor:
            upper = adjoint(y)
            inner = F.tril(upper @ ct)
            inner = inner - 0.5 * diagonal_matrix(F.diagonal(inner))
            half = _upper_solved(upper, adjoint(_upper_solved(upper, inner)))
            half = adjoint(half)
            return 0.5 * (half + adjoint(half))

        return (gradient,)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[3, 3]", diagonal=9.0)
        yield ok("float32[2, n, n]", diagonal=9.0)
        yield ok("complex64[3, 3]", diagonal=12.0)
        yield bad("float32[2, 3]", match="wants square matrices: x\\[-2\\] = 2")
        yield bad("float32[3]", match="wants matrices, of 2 dims or more, not 1")
        yield bad("float16[3, 3]", match="not float16", error=DTypeError)


def _upper_solved(upper: Tensor, x: Tensor) -> Tensor:
    """Return the inverse of an upper triangle, times x."""
    return emit(SolveTriangular(upper=True), upper, x)


@public
def cholesky(x: TensorLike, /, *, upper: bool = False) -> Tensor:
    """Factor positive definite matrices as L L*, L lower triangular.  x: [*B, M, M] -> [*B, M, M]

    Both triangles of x count: it is taken as the mean of itself and its adjoint. float32, float64
    or complex; integers become floats.

    Args:
        x: Symmetric (Hermitian) positive definite matrices.
        upper: Whether to return U = L*, so that x = U* U.

    Raises:
        ShapeError: The matrices are not square.
        ExecutionError: When it runs: one is not positive definite.

    >>> import graphfw as gf
    >>> gf.linalg.cholesky(gf.asarray([[4.0, 2.0], [2.0, 5.0]]))
    Tensor([[2., 0.],
            [1., 2.]], dtype=float32)
    """
    lower = emit(Cholesky(), inexact(x), shown=(x,))
    return adjoint(lower) if upper else lower


@op("qr")
class QR(Decomposition):
    """Orthonormal columns, and upper triangular.  x: [*B, M, N]  ->  [*B, M, K], [*B, K, N]"""

    traits = frozenset({PURE, LOOSE})

    complete: bool = False
    multiple = True

    def shape(self, x: Shape) -> tuple[Shape, ...]:
        *batch, rows, columns = require_matrices(x)
        inner = rows if self.complete else dim_min(rows, columns)
        return (*batch, rows, inner), (*batch, inner, columns)

    def dtype(self, x: DType) -> tuple[DType, ...]:
        return (require_lapack(x),) * 2

    def eval(self, xp: Any, x: Any) -> Any:
        mode = "complete" if self.complete else "reduced"
        return tuple(xp.linalg.qr(x, mode=mode))

    def vjp(self, ct: Sequence[Tensor], y: Sequence[Tensor], x: Tensor) -> tuple[Any, ...]:
        rows, columns = x.shape[-2:]
        demand(
            not self.complete or always_ge(columns, rows),
            f'qr: with mode="complete" and {rows} x {columns} matrices it has no gradient: '
            "some columns of Q are any that complete a basis",
            {"x": x},
            fix='use mode="reduced"',
            error=GradientError,
        )
        is_known = always_ge(rows, columns) or always_ge(columns, rows)
        demand(
            is_known,
            f"qr: whether there are more rows or columns is not known: {rows} and {columns}",
            {"x": x},
            fix="give the dims sizes, or name what is larger as a sum: n + 8",
            error=GradientError,
        )
        (g_q, g_r), (q, r) = ct, y
        if always_ge(rows, columns):
            return (lambda: _qr_gradient(g_q, g_r, q, r),)

        def wide_gradient() -> Tensor:
            # The columns after the first M are Q R: Q and the first M columns of R do not see them.
            after = x[..., rows:]
            g_after = g_r[..., rows:]
            whole = g_q + after @ adjoint(g_after)
            first = _qr_gradient(whole, g_r[..., :rows], q, r[..., :rows])
            return F.concat([first, q @ g_after], axis=-1)

        return (wide_gradient,)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[3, 3]", diagonal=4.0)
        yield ok("float32[2, 5, 3]", diagonal=4.0)
        yield ok("float32[2, 3, 5]", diagonal=4.0)
        yield ok("complex64[4, 3]", diagonal=4.0)
        yield ok("float32[n, n]", diagonal=4.0)
        yield ok("float32[m, n]", sizes={"m": 4, "n": 2}, smooth=False, diagonal=4.0)
        yield ok("float32[3, 4]", complete=True, diagonal=4.0)
        yield ok("float32[4, 3]", complete=True, smooth=False, diagonal=4.0)
        yield bad("float32[3]", match="wants matrices, of 2 dims or more, not 1")
        yield bad("bfloat16[3, 3]", match="not bfloat16", error=DTypeError)


def _qr_gradient(g_q: Tensor, g_r: Tensor, q: Tensor, r: Tensor) -> Tensor:
    """Return the gradient for x with no more columns than rows, all of them independent."""
    upper = F.triu(g_r @ adjoint(r) - adjoint(q) @ g_q)
    mirrored = upper + adjoint(upper) - diagonal_matrix(F.conj(F.diagonal(upper)))
    mirrored = mirrored - _imaginary_diagonal(mirrored)
    return adjoint(_upper_solved(r, adjoint(g_q + q @ mirrored)))


def _imaginary_diagonal(x: Tensor) -> Tensor | int:
    """Return the imaginary part of the diagonal, which that of R has not."""
    if not x.dtype.is_complex:
        return 0
    return 0.5 * diagonal_matrix(F.diagonal(x) - F.conj(F.diagonal(x)))


@op("reflections")
class Reflections(Decomposition):
    """A QR decomposition, Q as reflections.  [*B, M, N] -> [*B, K, M], [*B, K, K], [*B, K, N]

    With Y, T and R, Q with all M columns is I - Y^T T Y: a product of K reflections (the compact
    WY representation). Y is 0 left of its diagonal of ones, and T is upper triangular;
    K = min(M, N).

    Nobody describes it, and nothing differentiates it: passes make it of QR decompositions of real
    matrices.
    """

    traits = frozenset({PURE, LOOSE})
    multiple = True
    vjp = NONDIFF

    def shape(self, x: Shape) -> tuple[Shape, ...]:
        *batch, rows, columns = require_matrices(x)
        inner = dim_min(rows, columns)
        return (*batch, inner, rows), (*batch, inner, inner), (*batch, inner, columns)

    def dtype(self, x: DType) -> tuple[DType, ...]:
        return (require_lapack(x),) * 3

    def eval(self, xp: Any, x: Any) -> tuple[Any, ...]:
        *batch, rows, columns = x.shape
        inner = min(rows, columns)
        packed, numbers = xp.linalg.qr(x, mode="raw")
        vectors = xp.triu(packed[..., :inner, :], 1) + xp.eye(inner, rows, dtype=x.dtype)
        products = vectors @ xp.swapaxes(vectors, -2, -1)
        joined = xp.zeros((*batch, inner, inner), dtype=x.dtype)
        for k in range(inner):
            tau = numbers[..., k, None]
            known = (joined[..., :k, :k] @ products[..., :k, k, None])[..., 0]
            joined[..., :k, k] = -tau * known
            joined[..., k, k] = numbers[..., k]
        upper = xp.triu(xp.swapaxes(packed, -2, -1)[..., :inner, :])
        return vectors, joined, xp.ascontiguousarray(upper)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[3, 3]", diagonal=4.0)
        yield ok("float32[2, 5, 3]", diagonal=4.0)
        yield ok("float32[2, 3, 5]", diagonal=4.0)
        yield ok("float64[m, n]", sizes={"m": 4, "n": 2}, diagonal=4.0)
        yield bad("float32[3]", match="wants matrices, of 2 dims or more, not 1")
        yield bad("bfloat16[3, 3]", match="not bfloat16", error=DTypeError)


class QRResult(NamedTuple):
    """The result of `qr`."""

    Q: Tensor
    R: Tensor


@public
def qr(x: TensorLike, /, *, mode: str = "reduced") -> QRResult:
    """Factor matrices as Q R, Q with orthonormal columns, R upper triangular.

    x: [*B, M, N] -> Q: [*B, M, K], R: [*B, K, N], K = min(M, N), or M in mode "complete".
    float32, float64 or complex; integers become floats.

    The gradient wants the first K columns of x to be independent; it has none in mode "complete"
    where M > N.

    Args:
        x: The matrices.
        mode: "reduced" or "complete".

    Raises:
        ShapeError: x has fewer than 2 dims.
        ArgumentError: There is no such mode.
    """
    demand_one_of("qr", "mode", mode, ("reduced", "complete"))
    return QRResult(*emit_all(QR(mode == "complete"), inexact(x), shown=(x,)))
