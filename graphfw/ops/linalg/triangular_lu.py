"""Triangular matrices: solving with them, and the LU decomposition."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphfw.errors import DTypeError, ExecutionError, GradientError
from graphfw.ir.build import emit, emit_all
from graphfw.ir.dim import always_ge, dim_min
from graphfw.ir.dtype import DType, int64
from graphfw.ir.functions import F, public
from graphfw.ir.op import LOOSE, NONDIFF, PURE, Case, Cost, bad, ok, op
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape, TensorType
from graphfw.ops.args import TensorLike, inexact, promoted
from graphfw.ops.composed import demand
from graphfw.ops.linalg.matrix_rules import (
    SINGULAR_FIX,
    Decomposition,
    Equations,
    adjoint,
    require_lapack,
    require_matrices,
)

__all__ = ["LUResult", "lu", "solve_triangular"]

_BLOCK = 64


class TriangularEquations(Equations):
    """The y with T y = x2, T a triangle of x1.  x1: [*B, M, M]  x2: [*B, M, K]  ->  [*B, M, K]

    Attributes:
        upper: Which triangle of x1 is read.
        unit_diagonal: Whether ones are read instead of the diagonal.
    """

    traits = frozenset({PURE, LOOSE})

    upper: bool = False
    unit_diagonal: bool = False

    @property
    def failure(self) -> str:
        """The error's text where a matrix is singular."""
        return f"{self.name}: a matrix is singular: it has a 0 on its diagonal"

    def eval(self, xp: Any, x1: Any, x2: Any) -> Any:
        size = x1.shape[-1]
        triangle = _triangle(xp, x1, self.upper, self.unit_diagonal)
        diagonal = xp.diagonal(triangle, axis1=-2, axis2=-1)
        if bool((diagonal == 0).any()):
            raise ExecutionError(self.failure, fix=SINGULAR_FIX)
        lead = np.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
        y = xp.empty((*lead, *x2.shape[-2:]), x2.dtype)
        starts = range(0, size, _BLOCK)
        for start in reversed(starts) if self.upper else starts:
            rows = slice(start, min(start + _BLOCK, size))
            known = slice(rows.stop, size) if self.upper else slice(0, start)
            rest = x2[..., rows, :] - triangle[..., rows, known] @ y[..., known, :]
            block = triangle[..., rows, rows]
            block = xp.broadcast_to(block, (*lead, *block.shape[-2:]))
            y[..., rows, :] = xp.linalg.solve(block, xp.broadcast_to(rest, y[..., rows, :].shape))
        return y

    def cost(self, outputs: tuple[TensorType, ...], *inputs: TensorType) -> Cost:
        flops = outputs[0].size * inputs[0].shape[-1]
        return super().cost(outputs, *inputs)._replace(flops=flops)


@op("solve_triangular")
class SolveTriangular(TriangularEquations):
    """The y with T y = x2, T a triangle of x1.  x1: [*B, M, M]  x2: [*B, M, K]  ->  [*B, M, K]"""

    def vjp(self, ct: Tensor, y: Tensor, x1: Tensor, x2: Tensor) -> tuple[Any, ...]:
        back = emit(SolveTriangular(not self.upper, self.unit_diagonal), adjoint(x1), ct)

        def by_triangle() -> Tensor:
            triangle, away = (F.triu, 1) if self.upper else (F.tril, -1)
            slope = triangle(-(back @ adjoint(y)), k=away if self.unit_diagonal else 0)
            return F.sum_to(slope, x1.shape)

        return by_triangle, lambda: F.sum_to(back, x2.shape)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield from Equations.cases()
        yield ok("float32[3, 3]", "float32[3, 2]", diagonal=4.0)
        yield ok("float32[2, n, n]", "float32[n, k]", upper=True, diagonal=4.0)
        yield ok("float32[3, 3]", "float32[2, 3, 1]", unit_diagonal=True, diagonal=4.0)
        yield ok("complex64[2, 2]", "complex64[2, 3]", diagonal=8.0)


@op("solve_factor")
class SolveFactor(TriangularEquations):
    """A triangular solve that another op contains, whose error it raises.

    Nobody describes it, and nothing differentiates it: passes make it of solutions and inverses.

    Attributes:
        whole: The name of the other op.
    """

    vjp = NONDIFF

    whole: str = "solve"

    @property
    def failure(self) -> str:
        return f"{self.whole}: a matrix is singular"

    @staticmethod
    def cases() -> Iterator[Case]:
        yield from Equations.cases()
        yield ok("float32[3, 3]", "float32[3, 2]", diagonal=4.0)
        yield ok("float32[2, n, n]", "float32[n, k]", upper=True, whole="inv", diagonal=4.0)


def _triangle(xp: Any, x: Any, upper: bool, unit_diagonal: bool) -> Any:
    if not unit_diagonal:
        return xp.triu(x) if upper else xp.tril(x)
    strict = xp.triu(x, 1) if upper else xp.tril(x, -1)
    return strict + xp.eye(x.shape[-1], dtype=x.dtype)


@public
def solve_triangular(
    x1: TensorLike, x2: TensorLike, /, *, upper: bool = False, unit_diagonal: bool = False
) -> Tensor:
    """Solve the linear equations T y = x2, where T is a triangle of x1.

    x1: [*B, M, M], x2: [*B, M, K] or [M] -> as x2; leading dims broadcast. float32, float64 or
    complex, promoted; integers become floats. The other triangle is not read, and may hold
    anything.

    Args:
        x1: The matrices.
        x2: The right-hand sides.
        upper: Whether T is the upper triangle, not the lower one. For the transposed matrix pass
            x1.mT, and the other triangle.
        unit_diagonal: Whether T has ones on its diagonal, whatever x1 has there.

    Raises:
        ShapeError: x1 is not square, or x2 has another number of rows.
        ExecutionError: When it runs: a diagonal has a 0.

    >>> import graphfw as gf
    >>> gf.linalg.solve_triangular(gf.asarray([[2.0, 9.0], [1.0, 4.0]]), gf.asarray([2.0, 9.0]))
    Tensor([1., 2.], dtype=float32)
    """
    a, b = map(inexact, promoted("solve_triangular", x1, x2))
    made = SolveTriangular(upper, unit_diagonal)
    if b.ndim != 1:
        return emit(made, a, b, shown=(x1, x2))
    return F.squeeze(emit(made, a, F.expand_dims(b, axis=1)), axis=-1)


@op("lu")
class LU(Decomposition):
    """The order of rows, and the triangles.  x: [*B, M, N] -> [*B, M] int64, [*B, M, K], [*B, K, N]

    The rows of x in that order are the product of the triangles; K = min(M, N).
    """

    traits = frozenset({PURE, LOOSE})

    multiple = True

    def shape(self, x: Shape) -> tuple[Shape, ...]:
        *batch, rows, columns = require_matrices(x)
        inner = dim_min(rows, columns)
        return (*batch, rows), (*batch, rows, inner), (*batch, inner, columns)

    def dtype(self, x: DType) -> tuple[DType, ...]:
        return int64, require_lapack(x), x

    def eval(self, xp: Any, x: Any) -> tuple[Any, ...]:
        *batch, rows, columns = x.shape
        inner = min(rows, columns)
        a = x.reshape((math.prod(batch), rows, columns)).copy()
        order = xp.broadcast_to(xp.arange(rows), a.shape[:2]).copy()
        for start in range(0, inner, _BLOCK):
            end = min(start + _BLOCK, inner)
            for k in range(start, end):
                _eliminate(xp, a, order, k, end)
            if end < columns:
                block = xp.tril(a[:, start:end, start:end], -1) + xp.eye(end - start, dtype=x.dtype)
                right = xp.linalg.solve(block, a[:, start:end, end:])
                a[:, start:end, end:] = right
                a[:, end:, end:] -= a[:, end:, start:end] @ right
        lower = xp.tril(a[:, :, :inner], -1) + xp.eye(rows, inner, dtype=x.dtype)
        upper = xp.triu(a[:, :inner, :])
        return (
            _batched(xp, order.astype(xp.int64), batch),
            _batched(xp, lower, batch),
            _batched(xp, upper, batch),
        )

    def vjp(self, ct: Sequence[Any], y: Sequence[Tensor], x: Tensor) -> tuple[Any, ...]:
        rows, columns = x.shape[-2:]
        is_tall, is_wide = always_ge(rows, columns), always_ge(columns, rows)
        demand(
            is_tall or is_wide,
            f"lu: whether there are more rows or columns is not known: {rows} and {columns}",
            {"x": x},
            fix="give the dims sizes, or name what is larger as a sum: n + 8",
            error=GradientError,
        )
        order, lower, upper = y
        (_, g_l, g_u) = ct

        def gradient() -> Tensor:
            if is_wide:
                left, right = upper[..., :rows], upper[..., rows:]
                inner = adjoint(lower) @ g_l - g_u[..., rows:] @ adjoint(right)
                inner = F.tril(inner, k=-1) + F.triu(g_u[..., :rows] @ adjoint(left))
                first = _from_left(lower, _from_right(left, inner))
                found = F.concat([first, _from_left(lower, g_u[..., rows:])], axis=-1)
            else:
                top, bottom = lower[..., :columns, :], lower[..., columns:, :]
                inner = g_u @ adjoint(upper) - adjoint(bottom) @ g_l[..., columns:, :]
                inner = F.triu(inner) + F.tril(adjoint(top) @ g_l[..., :columns, :], k=-1)
                first = _from_left(top, _from_right(upper, inner))
                below = _from_right(upper, g_l[..., columns:, :])
                found = F.concat([first, below], axis=-2)
            back = F.argsort(order, axis=-1)
            return F.take_along_axis(found, F.expand_dims(back, axis=-1), axis=-2)

        return (gradient,)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[3, 3]", diagonal=4.0)
        yield ok("float32[2, n, n]", diagonal=4.0)
        yield ok("float32[2, 5, 3]", diagonal=4.0)
        yield ok("float32[3, 5]", diagonal=4.0)
        yield ok("complex64[3, 3]", diagonal=8.0)
        yield bad("float32[3]", match="wants matrices, of 2 dims or more, not 1")
        yield bad("bfloat16[3, 3]", match="not bfloat16", error=DTypeError)


def _eliminate(xp: Any, a: Any, order: Any, k: int, end: int) -> None:
    """Bring the largest of a column up, and subtract its row below it, up to column `end`."""
    each = xp.arange(a.shape[0])
    pivot = k + xp.argmax(xp.abs(a[:, k:, k]), axis=1)
    for held in (a, order):
        row = held[each, pivot]
        held[each, pivot] = held[:, k]
        held[:, k] = row
    divisor = a[:, k, k]
    divisor = xp.where(divisor == 0, xp.ones_like(divisor), divisor)
    a[:, k + 1 :, k] /= divisor[:, None]
    a[:, k + 1 :, k + 1 : end] -= a[:, k + 1 :, k, None] * a[:, None, k, k + 1 : end]


def _batched(xp: Any, x: Any, batch: Sequence[int]) -> Any:
    return xp.ascontiguousarray(x.reshape((*batch, *x.shape[1:])))


def _from_left(lower: Tensor, x: Tensor) -> Tensor:
    """Return the inverse of the adjoint of a unit lower triangle, times x."""
    return emit(SolveTriangular(upper=True, unit_diagonal=True), adjoint(lower), x)


def _from_right(upper: Tensor, x: Tensor) -> Tensor:
    """Return x times the inverse of the adjoint of an upper triangle."""
    return adjoint(emit(SolveTriangular(upper=True), upper, adjoint(x)))


class LUResult(NamedTuple):
    """The result of `lu`."""

    P: Tensor
    L: Tensor
    U: Tensor


@public
def lu(x: TensorLike, /) -> LUResult:
    """Factor matrices as P L U: a permutation, unit lower triangular, upper triangular.

    x: [*B, M, N] -> P: [*B, M, M], L: [*B, M, K], U: [*B, K, N], K = min(M, N). float32, float64 or
    complex; integers become floats. By Gaussian elimination with partial pivoting: so no element
    of L is larger than 1. Singular matrices have an LU decomposition, too; the gradient wants the
    first K rows of P^T x, cut to K columns, to be regular.

    Gradient formulas as in PyTorch.

    Raises:
        ShapeError: x has fewer than 2 dims.

    >>> import graphfw as gf
    >>> p, l, u = gf.linalg.lu(gf.asarray([[1.0, 2.0], [4.0, 4.0]]))
    >>> u
    Tensor([[4., 4.],
            [0., 1.]], dtype=float32)
    """
    tensor = inexact(x)
    order, lower, upper = emit_all(LU(), tensor, shown=(x,))
    return LUResult(F.one_hot(order, tensor.shape[-2], dtype=tensor.dtype, axis=-2), lower, upper)
