"""The rules and helpers of ops on matrices: types, LAPACK's errors, small compositions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any

import numpy as np

from graphfw.errors import DTypeError, ExecutionError
from graphfw.ir.build import emit
from graphfw.ir.dim import dim_min
from graphfw.ir.dtype import DType
from graphfw.ir.functions import F
from graphfw.ir.op import LOOSE, PURE, Case, Cost, Op, bad, ok
from graphfw.ir.shape import broadcast_batch, require
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape, TensorType
from graphfw.ops.batching import MappedAxis, aligned, leading
from graphfw.ops.dtypes import require_one_dtype

FINITE_FIX = "look for NaN and infinite values in what it got"
SINGULAR_FIX = "use gf.linalg.pinv or gf.linalg.lstsq, or add a small multiple of gf.eye"


class Decomposition(Op):
    """The base of the decompositions: they take matrices with any leading dims, and cubic time."""

    batch = leading

    def cost(self, outputs: tuple[TensorType, ...], *inputs: TensorType) -> Cost:
        (x,) = inputs
        flops = 2 * x.size * dim_min(x.shape[-2], x.shape[-1])
        return super().cost(outputs, x)._replace(flops=flops)


class SquareOp(Decomposition):
    """The base of the inverse, the determinants and Cholesky's triangle.

    x: [*B, M, M]  ->  [*B, M, M], unless a subclass says otherwise.
    """

    traits = frozenset({PURE, LOOSE})

    def shape(self, x: Shape) -> Shape:
        return require_square(x)

    def dtype(self, x: DType) -> DType:
        return require_lapack(x)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[3, 3]", diagonal=4.0)
        yield ok("float32[2, n, n]", diagonal=4.0)
        yield ok("complex64[2, 2]", diagonal=4.0)
        yield bad("float32[2, 3]", match="wants square matrices")
        yield bad("float32[3]", match="wants matrices, of 2 dims or more, not 1")
        yield bad("float16[3, 3]", match="not float16", error=DTypeError)


class Equations(Op):
    """The base of ops that solve linear equations.

    x1: [*B, M, M]  x2: [*B, M, K]  ->  [*B, M, K]
    """

    def shape(self, x1: Shape, x2: Shape) -> Shape:
        require_square(x1)
        require_matrices(x2)
        fix = "x2 needs as many rows as x1 has"
        require(x1[-1] == x2[-2], "rows differ", [(0, -1), (1, -2)], fix)
        return (*broadcast_batch(x1, x2), *x2[-2:])

    def dtype(self, x1: DType, x2: DType) -> DType:
        require_one_dtype(x1, x2)
        return require_lapack(x1)

    def batch(self, mapped: MappedAxis, batched: Sequence[bool], x1: Tensor, x2: Tensor) -> Tensor:
        return emit(self, *aligned(batched, (x1, x2), (2, 2)))

    def guess(self, *types: TensorType) -> tuple[TensorType, ...]:
        return types[1:]

    @staticmethod
    def cases() -> Iterator[Case]:
        yield bad("float32[2, 3]", "float32[2, 3]", match="wants square matrices")
        yield bad("float32[3, 3]", "float32[2, 3]", match="rows differ")
        yield bad("float32[3, 3]", "float32[3]", match="wants matrices, of 2 dims or more")
        yield bad("float32[2, 2]", "float64[2, 2]", match="wants one dtype", error=DTypeError)
        yield bad("float16[2, 2]", "float16[2, 2]", match="not float16", error=DTypeError)


def require_matrices(x: Shape) -> Shape:
    """Require two dims or more."""
    fix = "gf.expand_dims makes a matrix of a vector"
    require(len(x) >= 2, f"wants matrices, of 2 dims or more, not {len(x)}", fix=fix)
    return x


def require_square(x: Shape, operand: int = 0) -> Shape:
    """Require matrices of as many rows as columns."""
    require_matrices(x)
    fix = "give both dims one name or size; gf.linalg.lstsq and pinv take others"
    at = [(operand, -2), (operand, -1)]
    require(x[-2] == x[-1], "wants square matrices", at, fix)
    return x


def require_lapack(dtype: DType) -> DType:
    """Require a dtype that LAPACK computes in: floats of 4 or 8 bytes, and complex numbers."""
    known = dtype.is_inexact and not dtype.is_low_precision
    message = f"wants float32, float64 or complex tensors, not {dtype.name}"
    fix = "convert it first: gf.astype(x, gf.float32)"
    require(known, message, fix=fix, error=DTypeError)
    return dtype


def attempt(
    failure: str, fix: str, function: Callable[..., Any], *args: Any, **options: Any
) -> Any:
    """Call a function of LAPACK's, and say in our words why it gives up.

    Raises:
        ExecutionError: It gives up.
    """
    try:
        with _telling(function):
            return function(*args, **options)
    except np.linalg.LinAlgError as error:  # CuPy raises NumPy's, too
        raise ExecutionError(failure, fix=fix) from error


def _telling(function: Callable[..., Any]) -> AbstractContextManager[None]:
    """Return a context in which a function raises errors: CuPy's do not unless they are set to."""
    if function.__module__.partition(".")[0] != "cupy":
        return nullcontext()
    made: AbstractContextManager[None] = import_module("cupyx").errstate(linalg="raise")
    return made


def adjoint(x: Tensor) -> Tensor:
    """Conjugate and transpose.  x: [*B, M, N] -> [*B, N, M]"""
    return F.conj(x.mT)


def hermitian(xp: Any, x: Any) -> Any:
    """Return the mean of arrays of matrices and their adjoints.

    So both triangles count, and the gradient of what reads them is symmetric.
    """
    half = 0.5 * x
    other = xp.swapaxes(half, -2, -1)
    return half + (xp.conj(other) if xp.iscomplexobj(x) else other)


def diagonal_matrix(values: Tensor) -> Tensor:
    """Put values on the diagonals of square matrices of 0.  [*B, N] -> [*B, N, N]"""
    size = values.shape[-1]
    matrix = F.expand_dims(values, axis=-1) * F.eye(size, dtype=values.dtype)
    return matrix
