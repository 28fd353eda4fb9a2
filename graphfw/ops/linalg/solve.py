"""Linear equations: solve, inverses, determinants, rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphfw.errors import DTypeError
from graphfw.ir.build import emit, emit_all
from graphfw.ir.dim import dim_max
from graphfw.ir.dtype import DType, int64
from graphfw.ir.functions import F, public
from graphfw.ir.modes import interceptable
from graphfw.ir.op import LOOSE, NONDIFF, PURE, Case, Cost, Op, bad, ok, op
from graphfw.ir.shape import Requirement, can_broadcast, require
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape, TensorType
from graphfw.ops.args import TensorLike, as_tensor, converted, inexact, promoted, ruled
from graphfw.ops.batching import MappedAxis, aligned
from graphfw.ops.elementwise.cast import finfo
from graphfw.ops.linalg.matrix_rules import (
    FINITE_FIX,
    SINGULAR_FIX,
    Decomposition,
    Equations,
    SquareOp,
    adjoint,
    attempt,
    require_lapack,
    require_matrices,
    require_square,
)

__all__ = ["SlogdetResult", "det", "inv", "lstsq", "matrix_rank", "pinv", "slogdet", "solve"]


@op("solve")
class Solve(Equations):
    """The y with x1 y = x2.  x1: [*B, M, M]  x2: [*B, M, K]  ->  [*B, M, K]"""

    traits = frozenset({PURE, LOOSE})

    def eval(self, xp: Any, x1: Any, x2: Any) -> Any:
        lead = np.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])  # which CuPy's does not
        x1, x2 = [xp.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (x1, x2)]
        return attempt("solve: a matrix is singular", SINGULAR_FIX, xp.linalg.solve, x1, x2)

    def vjp(self, ct: Tensor, y: Tensor, x1: Tensor, x2: Tensor) -> tuple[Any, ...]:
        back = F.solve(adjoint(x1), ct)
        return (
            lambda: F.sum_to(-(back @ adjoint(y)), x1.shape),
            lambda: F.sum_to(back, x2.shape),
        )

    def cost(self, outputs: tuple[TensorType, ...], *inputs: TensorType) -> Cost:
        x1, x2 = inputs
        flops = 2 * x1.size * x1.shape[-1] // 3 + 2 * outputs[0].size * x1.shape[-1]
        return super().cost(outputs, x1, x2)._replace(flops=flops)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield from Equations.cases()
        yield ok("float32[3, 3]", "float32[3, 2]", diagonal=8.0)
        yield ok("float32[2, n, n]", "float32[n, k]", diagonal=8.0)
        yield ok("float32[3, 3]", "float32[2, 3, 1]", diagonal=8.0)
        yield ok("complex64[2, 2]", "complex64[2, 3]", diagonal=12.0)


@public
def solve(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """Solve the linear equations x1 y = x2.

    x1: [*B, M, M], x2: [*B, M, K] or [M] -> as x2; leading dims broadcast. float32, float64 or
    complex, promoted; integers become floats.

    Raises:
        ShapeError: x1 is not square, or x2 has another number of rows.
        ExecutionError: When it runs: a matrix is singular.

    >>> import graphfw as gf
    >>> gf.linalg.solve(gf.asarray([[2.0, 0.0], [0.0, 4.0]]), gf.asarray([2.0, 2.0]))
    Tensor([1. , 0.5], dtype=float32)
    """
    a, b = map(inexact, promoted("solve", x1, x2))
    if b.ndim != 1:
        return emit(Solve(), a, b, shown=(x1, x2))
    return F.squeeze(emit(Solve(), a, F.expand_dims(b, axis=1)), axis=-1)


@op("inv")
class Inv(SquareOp):
    """The inverse.  x: [*B, M, M]  ->  [*B, M, M]"""

    def eval(self, xp: Any, x: Any) -> Any:
        return attempt("inv: a matrix is singular", SINGULAR_FIX, xp.linalg.inv, x)

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        return (lambda: -(adjoint(y) @ ct @ adjoint(y)),)


@public
def inv(x: TensorLike, /) -> Tensor:
    """The inverse of matrices.  x: [*B, M, M] -> [*B, M, M]

    float32, float64 or complex; integers become floats. `solve(a, b)` is faster and more exact than
    `inv(a) @ b`.

    Raises:
        ShapeError: The matrices are not square.
        ExecutionError: When it runs: one is singular.
    """
    return emit(Inv(), inexact(x), shown=(x,))


@op("det")
class Det(SquareOp):
    """The determinant.  x: [*B, M, M]  ->  [*B]"""

    def shape(self, x: Shape) -> Shape:
        return require_square(x)[:-2]

    def eval(self, xp: Any, x: Any) -> Any:
        return xp.asarray(xp.linalg.det(x))

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        return (lambda: ct[..., None, None] * F.conj(emit(Cofactors(), x)),)


@public
def det(x: TensorLike, /) -> Tensor:
    """The determinant of square matrices.  x: [*B, M, M] -> [*B]

    float32, float64 or complex; integers become floats. That of large matrices is soon too large or
    too small for the dtype: see `slogdet`. The gradient is right for singular matrices, too; that
    of the gradient wants the inverse.

    Raises:
        ShapeError: The matrices are not square.
    """
    return emit(Det(), inexact(x), shown=(x,))


@op("cofactors")
class Cofactors(SquareOp):
    """The derivative of the determinant by each element: det(x) inv(x)^T.  [*B, M, M] -> same

    Through singular values, so that it does not divide: of singular matrices it need not be 0.
    """

    def eval(self, xp: Any, x: Any) -> Any:
        failure = "cofactors: the search for singular values does not converge"
        u, s, vh = attempt(failure, FINITE_FIX, xp.linalg.svd, x, full_matrices=False)
        one = xp.ones_like(s[..., :1])
        before = xp.cumprod(xp.concatenate([one, s[..., :-1]], axis=-1), axis=-1)
        after = xp.cumprod(xp.concatenate([one, s[..., :0:-1]], axis=-1), axis=-1)[..., ::-1]
        others = before * after
        turn = xp.linalg.det(u) * xp.linalg.det(vh)
        scaled = turn[..., None, None] * xp.conj(u) * others[..., None, :]
        return xp.matmul(scaled, xp.conj(vh)).astype(x.dtype, copy=False)

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        def gradient() -> Tensor:
            inverse = adjoint(F.inv(x))
            total = F.sum(ct * F.conj(y), axis=(-2, -1), keepdims=True)
            result: Tensor = total * inverse - F.conj(y) @ ct.mT @ inverse
            return result

        return (gradient,)


@op("slogdet")
class SLogDet(Decomposition):
    """Sign and logarithm of the size of the determinant.  x: [*B, M, M]  ->  [*B], [*B]"""

    traits = frozenset({PURE, LOOSE})
    multiple = True
    cases = staticmethod(SquareOp.cases)

    def shape(self, x: Shape) -> tuple[Shape, ...]:
        return (require_square(x)[:-2],) * 2

    def dtype(self, x: DType) -> tuple[DType, ...]:
        return require_lapack(x), x.real

    def eval(self, xp: Any, x: Any) -> Any:
        sign, logarithm = xp.linalg.slogdet(x)
        return xp.asarray(sign), xp.asarray(logarithm)

    def vjp(self, ct: Sequence[Tensor], y: Sequence[Tensor], x: Tensor) -> tuple[Any, ...]:
        def gradient() -> Tensor:
            g_sign, slope = ct
            if x.dtype.is_complex:  # the sign turns; that of real matrices can only jump
                slope = slope - 1j * F.imag(F.conj(g_sign) * y[0])
            result: Tensor = slope[..., None, None] * adjoint(F.inv(x))
            return result

        return (gradient,)


class SlogdetResult(NamedTuple):
    """The result of `slogdet`: the determinant is sign * exp(logabsdet)."""

    sign: Tensor
    logabsdet: Tensor


@public
def slogdet(x: TensorLike, /) -> SlogdetResult:
    """Sign and logarithm of the size of the determinant, which does not overflow.

    x: [*B, M, M] -> sign: [*B], logabsdet: [*B] real. float32, float64 or complex; integers become
    floats. Of a singular matrix they are 0 and -inf, and there is no gradient: when it runs, it is
    an error.

    Raises:
        ShapeError: The matrices are not square.
    """
    return SlogdetResult(*emit_all(SLogDet(), inexact(x), shown=(x,)))


class Truncating(Op):
    """The base of what takes small singular values for 0.  x: [*B, M, N]  rtol: [*B]"""

    def dtype(self, x: DType, rtol: DType) -> DType:
        if require_lapack(x).real is not rtol:
            message = f"wants rtol in {x.real.name}, not {rtol.name}"
            fix = f"convert it: gf.astype(rtol, gf.{x.real.name})"
            raise Requirement(message, fix=fix, error=DTypeError)
        return x

    def batch(self, mapped: MappedAxis, batched: Sequence[bool], x: Tensor, rtol: Tensor) -> Tensor:
        full = mapped.everywhere(x, batched[0])
        return emit(self, *aligned((True, batched[1]), (full, rtol), (2, 0)))

    def cost(self, outputs: tuple[TensorType, ...], *inputs: TensorType) -> Cost:
        x = inputs[0]
        flops = 2 * x.size * dim_max(x.shape[-2], x.shape[-1])
        return super().cost(outputs, *inputs)._replace(flops=flops)


def _require_rtol(x: Shape, rtol: Shape) -> Shape:
    require_matrices(x)
    fix = "give one number, or one for each matrix"
    require(can_broadcast(rtol, x[:-2]), "rtol does not broadcast to the leading dims", (), fix)
    return x


@op("pinv")
class PInv(Truncating):
    """The pseudo-inverse.  x: [*B, M, N]  rtol: [*B]  ->  [*B, N, M]"""

    def shape(self, x: Shape, rtol: Shape) -> Shape:
        *batch, rows, columns = _require_rtol(x, rtol)
        return (*batch, columns, rows)

    def eval(self, xp: Any, x: Any, rtol: Any) -> Any:
        failure = "pinv: the search for singular values does not converge"
        u, s, vh = attempt(failure, FINITE_FIX, xp.linalg.svd, x, full_matrices=False)
        keep = s > rtol[..., None] * s[..., :1] if s.shape[-1] else s > 0
        inverse = xp.where(keep, 1 / xp.where(keep, s, xp.ones_like(s)), xp.zeros_like(s))
        v = xp.conj(xp.swapaxes(vh, -2, -1)) * inverse[..., None, :]
        return xp.matmul(v, xp.conj(xp.swapaxes(u, -2, -1)))

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor, rtol: Tensor) -> tuple[Any, ...]:
        def gradient() -> Tensor:
            # Golub and Pereyra (1973), for matrices whose rank stays
            inverse = adjoint(y)
            change = adjoint(ct)
            in_rows = change @ y  # [M, M]
            in_columns = y @ change  # [N, N]
            moved = -adjoint(in_columns @ y)
            rows = (in_rows - x @ (y @ in_rows)) @ inverse
            columns = inverse @ (in_columns - (in_columns @ y) @ x)
            result: Tensor = moved + rows + columns
            return result

        return (gradient, None)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[3, 2]", "float32[]", domain=(0.01, 0.1), diagonal=1.0)
        yield ok("float32[2, 3, 4]", "float32[2]", domain=(0.01, 0.1), diagonal=1.0)
        yield ok("complex64[3, 3]", "float32[]", domain=(0.01, 0.1), diagonal=1.0)
        yield ok("float32[k, m, n]", "float32[1]", domain=(0.01, 0.1), diagonal=1.0)
        yield bad("float32[3]", "float32[]", match="wants matrices, of 2 dims or more")
        yield bad("float32[3, 2]", "float32[2]", match="rtol does not broadcast")
        yield bad("float32[3, 2]", "float64[]", match="wants rtol in float32", error=DTypeError)
        yield bad("float16[3, 3]", "float16[]", match="not float16", error=DTypeError)


def _tolerance(name: str, x: Tensor, rtol: TensorLike | None) -> Tensor:
    """Return a relative tolerance as a tensor: by default that of the errors in singular values."""
    dtype = x.dtype.real
    if rtol is not None:
        return converted(as_tensor(rtol, dtype), dtype)
    *_, rows, columns = ruled(name, x, require_matrices, x.shape)
    return as_tensor(dim_max(rows, columns), dtype) * finfo(dtype).eps


@public
def pinv(x: TensorLike, /, *, rtol: TensorLike | None = None) -> Tensor:
    """The pseudo-inverse (Moore-Penrose) of matrices.  x: [*B, M, N] -> [*B, N, M]

    float32, float64 or complex; integers become floats. Its gradient keeps the rank.

    Args:
        x: The matrices.
        rtol: Singular values up to this fraction of the largest one count as 0. A number, or a
            tensor that broadcasts to [*B]; by default max(M, N) times the dtype's epsilon.

    Raises:
        ShapeError: x has fewer than 2 dims, or `rtol` does not fit.
        ExecutionError: When it runs: the search for singular values does not converge.
    """
    tensor = inexact(x)
    return emit(PInv(), tensor, _tolerance("pinv", tensor, rtol))


@interceptable
def lstsq(a: TensorLike, b: TensorLike, /, *, rtol: TensorLike | None = None) -> Tensor:
    """Find the y, of several the smallest, that makes the norm of a y - b least.

    a: [*B, M, N], b: [*B, M, K] or [M] -> [*B, N, K] or [*B, N]. The pseudo-inverse times b:
    dtypes, `rtol`, gradients and errors are those of `pinv`.

    >>> import graphfw as gf
    >>> round(float(gf.linalg.lstsq([[1.0], [1.0]], [1.0, 3.0])[0]), 4)
    2.0
    """
    left, right = promoted("lstsq", a, b)
    return F.matmul(pinv(left, rtol=rtol), inexact(right))


@op("matrix_rank")
class MatrixRank(Truncating):
    """The number of singular values that are not 0.  x: [*B, M, N]  rtol: [*B]  ->  [*B]"""

    vjp = NONDIFF

    def shape(self, x: Shape, rtol: Shape) -> Shape:
        return _require_rtol(x, rtol)[:-2]

    def dtype(self, x: DType, rtol: DType) -> DType:
        super().dtype(x, rtol)
        return int64

    def eval(self, xp: Any, x: Any, rtol: Any) -> Any:
        failure = "matrix_rank: the search for singular values does not converge"
        s = attempt(failure, FINITE_FIX, xp.linalg.svd, x, compute_uv=False)
        counted = s > rtol[..., None] * s[..., :1] if s.shape[-1] else s > 0
        return xp.asarray(counted.sum(axis=-1, dtype=xp.int64))

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[3, 2]", "float32[]", domain=(0.01, 0.1), diagonal=1.0)
        yield ok("float32[2, m, n]", "float32[2]", domain=(0.01, 0.1), diagonal=1.0)
        yield bad("float32[3]", "float32[]", match="wants matrices, of 2 dims or more")
        yield bad("float16[3, 3]", "float16[]", match="not float16", error=DTypeError)


@public
def matrix_rank(x: TensorLike, /, *, rtol: TensorLike | None = None) -> Tensor:
    """The rank of matrices: how many singular values are not 0.  x: [*B, M, N] -> [*B] int64

    Arguments and errors as for `pinv`.
    """
    tensor = inexact(x)
    return emit(MatrixRank(), tensor, _tolerance("matrix_rank", tensor, rtol))
