"""Eigenvalues and singular values.

Where a gradient divides by the distance of two eigenvalues or singular values, that of equal ones
gives 0: right for all functions of the vectors that have a gradient there, such as a projection on
the space that the equal ones share. Formulas: M. B. Giles, "Collected Matrix Derivative Results for
Forward and Reverse Mode Algorithmic Differentiation" (2008); for complex matrices as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from graphfw.errors import DTypeError, GradientError
from graphfw.ir.build import emit, emit_all
from graphfw.ir.dim import DimLike, always_ge, dim_min
from graphfw.ir.dtype import DType
from graphfw.ir.functions import F, public
from graphfw.ir.op import LOOSE, PURE, Case, Op, bad, ok, op
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.args import TensorLike, inexact
from graphfw.ops.composed import demand
from graphfw.ops.dtypes import complex_of
from graphfw.ops.elementwise.cast import finfo
from graphfw.ops.linalg.matrix_rules import (
    FINITE_FIX,
    Decomposition,
    adjoint,
    attempt,
    diagonal_matrix,
    hermitian,
    require_lapack,
    require_matrices,
    require_square,
)
from graphfw.ops.linalg.phases import phases
from graphfw.ops.linalg.single_precision import single_precision

__all__ = [
    "EigResult",
    "SVDResult",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "svd",
    "svdvals",
]


def _inverse_or_zero(x: Tensor, is_zero: Tensor) -> Tensor:
    """Return 1 / x, and 0 where `is_zero` says so: there x is 0 but for rounding errors."""
    return F.where(is_zero, 0, 1 / F.where(is_zero, 1, x))


def _in_single(
    op: Op, xp: Any, dtype: DType, name: str, found: Callable[..., Any]
) -> Callable[..., Any]:
    """Return an op's function with LAPACK's in single precision, where there is one, or its `eval`.

    Args:
        op: The op.
        xp: The array module.
        dtype: Of its input.
        name: See `single_precision`.
        found: Computes the op, given the array module, LAPACK's function and the input.
    """
    search = single_precision(xp, dtype, name)
    return partial(op.eval, xp) if search is None else partial(found, xp, search)


@op("eigvalsh")
class EigvalsH(Decomposition):
    """The eigenvalues of symmetric matrices.  x: [*B, M, M]  ->  [*B, M]"""

    traits = frozenset({PURE, LOOSE})

    def shape(self, x: Shape) -> Shape:
        return require_square(x)[:-1]

    def dtype(self, x: DType) -> DType:
        return require_lapack(x).real

    def eval(self, xp: Any, x: Any) -> Any:
        return self._found(xp, xp.linalg.eigvalsh, x)

    def kernel(self, xp: Any, *dtypes: DType) -> Callable[..., Any]:
        return _in_single(self, xp, dtypes[0], "eigvalsh", self._found)

    def _found(self, xp: Any, search: Callable[..., Any], x: Any) -> Any:
        failure = "eigvalsh: the search for eigenvalues does not converge"
        return attempt(failure, FINITE_FIX, search, hermitian(xp, x))

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        def gradient() -> Tensor:
            vectors = emit_all(EigH(), x)[1]
            result: Tensor = (vectors * F.expand_dims(ct, axis=-2)) @ adjoint(vectors)
            return result

        return (gradient,)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[3, 3]")
        yield ok("float32[2, n, n]")
        yield ok("complex64[3, 3]")
        yield bad("float32[2, 3]", match="wants square matrices")
        yield bad("float16[3, 3]", match="not float16", error=DTypeError)


@public
def eigvalsh(x: TensorLike, /) -> Tensor:
    """The eigenvalues of symmetric (Hermitian) matrices, ascending.  x: [*B, M, M] -> [*B, M] real

    Dtypes, symmetry and errors as for `eigh`. Eigenvalues that are equal share the gradient as the
    eigenvectors found by `eigh` have it; their sums and products have a gradient all the same.
    """
    return emit(EigvalsH(), inexact(x), shown=(x,))


@op("eigh")
class EigH(Decomposition):
    """Eigenvalues and eigenvectors of symmetric matrices.  [*B, M, M]  ->  [*B, M], [*B, M, M]

    Attributes:
        is_raw: Whether x is symmetric already, and vectors may have any signs: passes make it so.
    """

    traits = frozenset({PURE, LOOSE})

    is_raw: bool = False
    multiple = True

    def shape(self, x: Shape) -> tuple[Shape, ...]:
        return require_square(x)[:-1], x

    def dtype(self, x: DType) -> tuple[DType, ...]:
        return require_lapack(x).real, x

    def eval(self, xp: Any, x: Any) -> Any:
        return self._found(xp, xp.linalg.eigh, x)

    def kernel(self, xp: Any, *dtypes: DType) -> Callable[..., Any]:
        return _in_single(self, xp, dtypes[0], "eigh", self._found)

    def _found(self, xp: Any, search: Callable[..., Any], x: Any) -> Any:
        failure = "eigh: the search for eigenvalues does not converge"
        whole = x if self.is_raw else hermitian(xp, x)
        values, vectors = attempt(failure, FINITE_FIX, search, whole)
        return values, vectors if self.is_raw else vectors / phases(xp, vectors)

    def vjp(self, ct: Sequence[Tensor], y: Sequence[Tensor], x: Tensor) -> tuple[Any, ...]:
        def gradient() -> Tensor:
            (g_values, g_vectors), (values, vectors) = ct, y
            inner = _inverse_distances(values) * (adjoint(vectors) @ g_vectors)
            inner = inner + diagonal_matrix(g_values)
            whole = vectors @ inner @ adjoint(vectors)
            return 0.5 * (whole + adjoint(whole))

        return (gradient,)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[3, 3]")
        yield ok("float32[2, n, n]")
        yield ok("complex64[3, 3]", smooth=False)  # vectors are unique but for a phase
        yield bad("float32[2, 3]", match="wants square matrices")
        yield bad("float16[3, 3]", match="not float16", error=DTypeError)


def _inverse_distances(values: Tensor) -> Tensor:
    """Return 1 / (values[j] - values[i]), and 0 for equal ones.  [*B, K] -> [*B, K, K] (i, j)

    Equal are those whose distance is of the size of LAPACK's rounding errors.
    """
    distances = F.expand_dims(values, axis=-2) - F.expand_dims(values, axis=-1)
    return _inverse_or_zero(distances, F.abs(distances) <= _noise(values)[..., None])


def _noise(values: Tensor) -> Tensor:
    """Return the size of errors in eigenvalues and singular values.  [*B, K] -> [*B, 1]"""
    noise: Tensor = finfo(values.dtype.real).eps * F.sum(F.abs(values), axis=-1, keepdims=True)
    return noise


class EigResult(NamedTuple):
    """The result of `eig` and `eigh`: eigenvalues, and eigenvectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


@public
def eigh(x: TensorLike, /) -> EigResult:
    """Find the eigenvalues, ascending, and eigenvectors of symmetric (Hermitian) matrices.

    x: [*B, M, M] -> eigenvalues: [*B, M] real, eigenvectors: [*B, M, M], vector i is `[..., :, i]`.
    float32, float64 or complex; integers become floats.

    Both triangles of x count: it is taken as the mean of itself and its adjoint. Of the signs or
    phases that a vector may have, that is taken which makes its leading element positive. Gradients
    are for functions that do not depend on the phases of complex vectors, nor on how vectors of
    equal eigenvalues are chosen: there the gradient is not defined.

    Raises:
        ShapeError: The matrices are not square.
        ExecutionError: When it runs: the search does not converge.

    >>> import graphfw as gf
    >>> gf.linalg.eigh(gf.asarray([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
    Tensor([1., 2.], dtype=float32)
    """
    return EigResult(*emit_all(EigH(), inexact(x), shown=(x,)))


@op("eigvals")
class EigVals(Decomposition):
    """The eigenvalues of matrices.  x: [*B, M, M]  ->  [*B, M] complex"""

    def shape(self, x: Shape) -> Shape:
        return require_square(x)[:-1]

    def dtype(self, x: DType) -> DType:
        return complex_of(require_lapack(x))

    def eval(self, xp: Any, x: Any) -> Any:
        failure = "eigvals: the search for eigenvalues does not converge"
        values = attempt(failure, FINITE_FIX, xp.linalg.eigvals, x)
        return values.astype(xp.result_type(x.dtype, xp.complex64), copy=False)

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        def gradient() -> Tensor:
            rows = adjoint(emit_all(Eig(), x)[1])
            return F.solve(rows, F.expand_dims(ct, axis=-1) * rows)

        return (gradient,)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[3, 3]")
        yield ok("float32[2, n, n]")
        yield ok("complex64[3, 3]")
        yield bad("float32[2, 3]", match="wants square matrices")
        yield bad("float16[3, 3]", match="not float16", error=DTypeError)


@public
def eigvals(x: TensorLike, /) -> Tensor:
    """The eigenvalues of any square matrices, in no order.  x: [*B, M, M] -> [*B, M] complex

    Dtypes and errors as for `eig`.
    """
    return emit(EigVals(), inexact(x), shown=(x,))


@op("eig")
class Eig(Decomposition):
    """Eigenvalues and eigenvectors of matrices.  x: [*B, M, M]  ->  [*B, M], [*B, M, M], complex"""

    multiple = True

    def shape(self, x: Shape) -> tuple[Shape, ...]:
        return require_square(x)[:-1], x

    def dtype(self, x: DType) -> tuple[DType, ...]:
        return (complex_of(require_lapack(x)),) * 2

    def eval(self, xp: Any, x: Any) -> Any:
        failure = "eig: the search for eigenvalues does not converge"
        values, vectors = attempt(failure, FINITE_FIX, xp.linalg.eig, x)
        dtype = xp.result_type(x.dtype, xp.complex64)  # NumPy's are real where they all can be
        vectors = (vectors / phases(xp, vectors)).astype(dtype, copy=False)
        return values.astype(dtype, copy=False), vectors

    def vjp(self, ct: Sequence[Tensor], y: Sequence[Tensor], x: Tensor) -> tuple[Any, ...]:
        def gradient() -> Tensor:
            (g_values, g_vectors), (values, vectors) = ct, y
            rows = adjoint(vectors)
            along = rows @ g_vectors
            # Vectors keep their length: what would change it is taken off.
            longer = F.expand_dims(F.real(F.diagonal(along)), axis=-2)
            inner = F.conj(_inverse_distances(values)) * (along - rows @ (vectors * longer))
            return F.solve(rows, (inner + diagonal_matrix(g_values)) @ rows)

        return (gradient,)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[3, 3]", smooth=False)  # vectors are unique but for a phase
        yield ok("float32[2, n, n]", smooth=False)
        yield ok("complex64[3, 3]", smooth=False)
        yield bad("float32[2, 3]", match="wants square matrices")
        yield bad("float16[3, 3]", match="not float16", error=DTypeError)


@public
def eig(x: TensorLike, /) -> EigResult:
    """Find the eigenvalues, in no order, and eigenvectors of any square matrices.

    x: [*B, M, M] -> eigenvalues: [*B, M], eigenvectors: [*B, M, M], vector i is `[..., :, i]`, of
    length 1. float32, float64 or complex; integers become floats. The results are complex always.

    Signs, phases and gradients are as for `eigh`; a matrix without M independent eigenvectors has
    no gradient.

    Raises:
        ShapeError: The matrices are not square.
        ExecutionError: When it runs: the search does not converge.
    """
    return EigResult(*emit_all(Eig(), inexact(x), shown=(x,)))


@op("svdvals")
class SVDVals(Decomposition):
    """The singular values.  x: [*B, M, N]  ->  [*B, min(M, N)]"""

    traits = frozenset({PURE, LOOSE})

    def shape(self, x: Shape) -> Shape:
        *batch, rows, columns = require_matrices(x)
        return (*batch, dim_min(rows, columns))

    def dtype(self, x: DType) -> DType:
        return require_lapack(x).real

    def eval(self, xp: Any, x: Any) -> Any:
        return self._found(xp, xp.linalg.svd, x, compute_uv=False)

    def kernel(self, xp: Any, *dtypes: DType) -> Callable[..., Any]:
        return _in_single(self, xp, dtypes[0], "svdvals", self._found)

    def _found(self, xp: Any, search: Callable[..., Any], x: Any, **options: bool) -> Any:
        failure = "svdvals: the search for singular values does not converge"
        return attempt(failure, FINITE_FIX, search, x, **options)

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        def gradient() -> Tensor:
            u, _, vh = emit_all(SVD(False), x)
            result: Tensor = (u * F.expand_dims(ct, axis=-2)) @ vh
            return result

        return (gradient,)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[3, 3]")
        yield ok("float32[2, m, n]", sizes={"m": 4, "n": 2})
        yield ok("complex64[2, 3]")
        yield bad("float32[3]", match="wants matrices, of 2 dims or more, not 1")
        yield bad("float16[3, 3]", match="not float16", error=DTypeError)


@public
def svdvals(x: TensorLike, /) -> Tensor:
    """The singular values of matrices, descending.  x: [*B, M, N] -> [*B, min(M, N)] real

    Dtypes and errors as for `svd`.
    """
    return emit(SVDVals(), inexact(x), shown=(x,))


@op("svd")
class SVD(Decomposition):
    """x = U diag(S) Vh.  x: [*B, M, N]  ->  [*B, M, K], [*B, K], [*B, K, N]

    Attributes:
        full_matrices: Whether U and Vh are square.
        is_raw: Whether vectors may have any signs: passes make it so.
    """

    traits = frozenset({PURE, LOOSE})

    full_matrices: bool = True
    is_raw: bool = False
    multiple = True

    def shape(self, x: Shape) -> tuple[Shape, ...]:
        *batch, rows, columns = require_matrices(x)
        inner = dim_min(rows, columns)
        of_u, of_v = (rows, columns) if self.full_matrices else (inner, inner)
        return (*batch, rows, of_u), (*batch, inner), (*batch, of_v, columns)

    def dtype(self, x: DType) -> tuple[DType, ...]:
        return require_lapack(x), x.real, x

    def eval(self, xp: Any, x: Any) -> Any:
        return self._found(xp, xp.linalg.svd, x, full_matrices=self.full_matrices)

    def kernel(self, xp: Any, *dtypes: DType) -> Callable[..., Any]:
        name = "full svd" if self.full_matrices else "svd"
        return _in_single(self, xp, dtypes[0], name, self._found)

    def _found(self, xp: Any, search: Callable[..., Any], x: Any, **options: bool) -> Any:
        failure = "svd: the search for singular values does not converge"
        u, s, vh = attempt(failure, FINITE_FIX, search, x, **options)
        if self.is_raw:
            return u, s, vh
        of_u = phases(xp, u)
        size = s.shape[-1]
        # What a column of U is divided by, its row of Vh is multiplied with.
        of_v = xp.swapaxes(phases(xp, xp.swapaxes(vh, -2, -1)), -2, -1)
        paired = xp.conj(xp.swapaxes(of_u[..., :size], -2, -1))
        return u / of_u, s, vh / xp.concatenate([paired, of_v[..., size:, :]], axis=-2)

    def vjp(self, ct: Sequence[Tensor], y: Sequence[Tensor], x: Tensor) -> tuple[Any, ...]:
        demand(
            not self.full_matrices or x.shape[-2] == x.shape[-1],
            "svd: with full_matrices=True and matrices that are not square it has no gradient: "
            "some vectors are any that complete a basis",
            {"x": x},
            fix="use full_matrices=False",
            error=GradientError,
        )
        return (lambda: _svd_gradient(ct, y, *x.shape[-2:]),)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[3, 3]")
        yield ok("float32[2, 4, 2]", full_matrices=False)
        yield ok("float32[2, 4]", full_matrices=False)
        yield ok("float32[2, m, n]", sizes={"m": 2, "n": 3}, full_matrices=False)
        yield ok("float32[2, m, n]", sizes={"m": 3, "n": 2}, smooth=False)
        yield ok("float32[3, 4]", smooth=False)
        yield ok("complex64[4, 3]", smooth=False)  # vectors are unique but for a phase
        yield bad("float32[3]", match="wants matrices, of 2 dims or more, not 1")
        yield bad("float16[3, 3]", match="not float16", error=DTypeError)


def _svd_gradient(
    ct: Sequence[Tensor], y: Sequence[Tensor], rows: DimLike, columns: DimLike
) -> Tensor:
    """Return the gradient of the reduced decomposition."""
    (g_u, g_s, g_vh), (u, s, vh) = ct, y
    left, right = adjoint(u) @ g_u, vh @ adjoint(g_vh)
    left, right = left - adjoint(left), right - adjoint(right)
    s_row, s_column = F.expand_dims(s, axis=-2), F.expand_dims(s, axis=-1)
    is_zero = s <= _noise(s)
    inverse = _inverse_or_zero(s, is_zero)
    # 1 / (s[j]^2 - s[i]^2), without squares that lose digits; both may be 0 where they are equal.
    sums = s_row + s_column
    weights = _inverse_distances(s) * _inverse_or_zero(sums, sums == 0)
    on_diagonal = g_s
    if u.dtype.is_complex:
        on_diagonal = g_s + 0.5 * F.diagonal(left) * inverse
    inner = weights * (left * s_row + s_column * right) + diagonal_matrix(on_diagonal)
    gradient = u @ inner @ vh
    if not always_ge(columns, rows):  # what of U's change leaves the space of its columns
        scaled = g_u * F.expand_dims(inverse, axis=-2)
        gradient = gradient + (scaled - u @ (adjoint(u) @ scaled)) @ vh
    if not always_ge(rows, columns):
        scaled = F.expand_dims(inverse, axis=-1) * g_vh
        gradient = gradient + u @ (scaled - (scaled @ adjoint(vh)) @ vh)
    result: Tensor = gradient
    return result


class SVDResult(NamedTuple):
    """The result of `svd`: x = U diag(S) Vh."""

    U: Tensor
    S: Tensor
    Vh: Tensor


@public
def svd(x: TensorLike, /, *, full_matrices: bool = True) -> SVDResult:
    """Factor matrices as U diag(S) Vh, S descending and not negative.

    x: [*B, M, N] -> U: [*B, M, K], S: [*B, min(M, N)] real, Vh: [*B, K, N], where K = min(M, N), or
    M for U and N for Vh with `full_matrices`. float32, float64 or complex; integers become floats.

    Signs or phases are chosen so that the leading element of each column of U is positive.
    Gradients are for functions that do not depend on the phases of complex vectors, nor on how
    vectors of equal singular values are chosen: there the gradient is not defined. There is none
    with `full_matrices` unless the matrices are square.

    Args:
        x: The matrices.
        full_matrices: Whether to complete U and Vh to square matrices.

    Raises:
        ShapeError: x has fewer than 2 dims.
        ExecutionError: When it runs: the search does not converge, because of a NaN.
    """
    return SVDResult(*emit_all(SVD(bool(full_matrices)), inexact(x), shown=(x,)))
