"""cuBLASLt, as much of it as matrix products need: a thin binding by ctypes.

CuPy's own calls of cuBLAS can't be captured in CUDA graphs, and allocate their results; here the
caller says where everything is. Numbers are those of NVIDIA's header `cublasLt.h`.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

from graphfw.errors import ExecutorError
from graphfw.ops.linalg.fused_matmul import FusedProduct
from graphfw.runtime.cupy_executor.products import ALIGNED, RESULT, ProductCode, alignment
from graphfw.utils import locks

WORKSPACE = 32 << 20
"""The most workspace of a product, in bytes: what NVIDIA advises."""

KINDS = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}  # cudaDataType
COMPUTE_32F, COMPUTE_32F_TF32, COMPUTE_64F = 68, 77, 70  # cublasComputeType_t
TRANSA, TRANSB = 3, 4  # cublasLtMatmulDescAttributes_t
TRANSPOSED = 1  # cublasOperation_t
BATCH_COUNT, BATCH_OFFSET = 5, 6  # cublasLtMatrixLayoutAttribute_t
EPILOGUE, BIAS_POINTER, AUX_POINTER, AUX_LEAD = 7, 8, 11, 12  # cublasLtMatmulDescAttributes_t
MAX_WORKSPACE, REDUCTIONS = 1, 3  # cublasLtMatmulPreferenceAttributes_t
ALIGNMENTS = (5, 6, 7, 8)  # the same, of A, B, C, D
IN_COMPUTE_TYPE = 2  # cublasLtReductionScheme_t

# cublasLtEpilogue_t. Its GELU is that of the hyperbolic tangent. Its ReLU makes 0 of NaN.
PLAIN, BIAS, GELU, GELU_AUX, DGELU, BGRADA = 1, 4, 32, 32 | 128, 64 | 128, 256

AUX_MULTIPLE = 8
"""The number that the width of what GELU keeps must be a multiple of."""

_INVALID_VALUE, _NOT_SUPPORTED = 7, 15  # cublasStatus_t


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t: an algorithm, and what it needs."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


class GemmOperand(NamedTuple):
    """A matrix by columns, or a batch of them.

    Attributes:
        number: Which operand of the step it is.
        offset: Where it begins in its storage, in bytes.
        layout: How it lies.
    """

    number: int
    offset: int
    layout: ctypes.c_void_p


class BoundGemm(NamedTuple):
    """A product that is ready to run: D = f(A B + beta C).

    Attributes:
        description: What is computed.
        matrices: A, B, C, D.
        pointers: By attribute of the description, which operand lies there.
        beta: 1 or 0.
        algorithm: How.
        workspace: The bytes that it needs besides.
        is_double: Whether factors are float64.
    """

    description: ctypes.c_void_p
    matrices: tuple[GemmOperand, GemmOperand, GemmOperand, GemmOperand]
    pointers: dict[int, int]
    beta: int
    algorithm: Heuristic
    workspace: int
    is_double: bool


class CublasLt:
    """The library, for one GPU, which must be the current one.

    Args:
        library: What `load` returns.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        self._handle = ctypes.c_void_p()
        self._lock = locks.reentrant()
        self._known: dict[tuple[ProductCode, tuple[int, ...]], BoundGemm | None] = {}
        self._call("cublasLtCreate", ctypes.byref(self._handle))

    def product(self, code: ProductCode, params: Sequence[int]) -> BoundGemm | None:
        """Prepare a product of these sizes: see `products.Sizes`.

        cuBLASLt knows matrices by columns. What lies row by row is the transposed one so, and
        (a @ b)^T = b^T @ a^T: so b comes first, as its A, and a is its B. Its result has n rows
        and m columns, and so, column after column, lies as that of a @ b does, row after row. What
        it adds to each row of its result, the bias, is one value for each of the n columns of ours;
        and what it adds up of A along k, BGRADA, is one for each column of our b.

        Returns:
            It; None where there is no algorithm that does what `code.op` wants besides.

        Raises:
            ExecutorError: There is no algorithm for the plain product.
        """
        key = (code, tuple(params))
        with self._lock:
            if key not in self._known:
                self._known[key] = self._prepared(code, params)
            return self._known[key]

    def run(self, one: BoundGemm, operands: Sequence[int], workspace: int, stream: int) -> None:
        """Launch a product; all memory is given by address."""
        factor = ctypes.c_double if one.is_double else ctypes.c_float
        a, b, c, d = [
            (ctypes.c_void_p(operands[matrix.number] + matrix.offset), matrix.layout)
            for matrix in one.matrices
        ]
        with self._lock:  # the description is the same for all who run this
            for attribute, number in one.pointers.items():
                self._describe(one.description, attribute, operands[number], ctypes.c_void_p)
            self._call(
                "cublasLtMatmul",
                self._handle,
                one.description,
                *(ctypes.byref(factor(1)), *a, *b, ctypes.byref(factor(one.beta)), *c, *d),
                ctypes.byref(one.algorithm),
                ctypes.c_void_p(workspace),
                ctypes.c_size_t(one.workspace),
                ctypes.c_void_p(stream),
            )

    def _prepared(self, code: ProductCode, params: Sequence[int]) -> BoundGemm | None:
        if not code.is_exact:
            return None
        m, n, k, batch, a, a_lead, a_batch, b, b_lead, b_batch, *others = params
        c, c_lead, d, d_lead, d_batch = others
        kind, item = KINDS[code.dtype.name], code.dtype.itemsize
        out = KINDS[code.out.name]
        first = (k, n) if code.b_across else (n, k)
        second = (m, k) if code.a_across else (k, m)
        layout = self._layout(out, (n, m), d_lead or n, batch, d_batch or m * n)
        result = GemmOperand(RESULT, d * code.out.itemsize, layout)
        added = result
        if "residual" in code.operands:
            layout = self._layout(out, (n, m), c_lead, batch, 0)
            added = GemmOperand(code.operands.index("residual"), c * code.out.itemsize, layout)
        matrices = (
            GemmOperand(1, b * item, self._layout(kind, first, b_lead, batch, b_batch)),
            GemmOperand(0, a * item, self._layout(kind, second, a_lead, batch, a_batch)),
            added,
            result,
        )
        description = self._description(code)
        pointers = self._pointers(description, code, n)
        if pointers is None:
            return None
        found = self._algorithm(description, matrices)
        if found is None and _epilogue(code.op) != PLAIN:
            return None
        if found is None:
            raise ExecutorError(
                "cuBLASLt has no algorithm for a product of these sizes",
                fix="this is a mistake in graphfw; GRAPHFW_JIT=0 has CuPy compute node by node "
                "instead",
            )
        beta, is_double = int(added is not result), code.dtype.name == "float64"
        return BoundGemm(description, matrices, pointers, beta, found, found.workspace, is_double)

    def _description(self, code: ProductCode) -> ctypes.c_void_p:
        compute = COMPUTE_64F if code.dtype.name == "float64" else COMPUTE_32F
        if code.dtype.name == "float32" and code.precision == "high":
            compute = COMPUTE_32F_TF32
        made = ctypes.c_void_p()
        scale = KINDS["float64" if compute == COMPUTE_64F else "float32"]
        self._call("cublasLtMatmulDescCreate", ctypes.byref(made), compute, scale)
        for attribute, is_across in ((TRANSA, code.b_across), (TRANSB, code.a_across)):
            if is_across:
                self._describe(made, attribute, TRANSPOSED)
        epilogue = _epilogue(code.op)
        if epilogue != PLAIN:
            self._describe(made, EPILOGUE, epilogue)
        return made

    def _pointers(
        self, description: ctypes.c_void_p, code: ProductCode, columns: int
    ) -> dict[int, int] | None:
        """Describe operands that are no matrices of the product; None if they can't be taken.

        Returns:
            By attribute which operand lies there.
        """
        names = {"bias": BIAS_POINTER, "sums": BIAS_POINTER, "at": AUX_POINTER}
        names["before"] = AUX_POINTER
        pointers = {
            names[name]: number for number, name in enumerate(code.operands) if name in names
        }
        for attribute in pointers:
            # The algorithm is chosen for addresses that are as well aligned as this one.
            self._describe(description, attribute, ALIGNED, ctypes.c_void_p)
        if AUX_POINTER in pointers:
            if columns % AUX_MULTIPLE:
                return None
            self._describe(description, AUX_LEAD, columns, ctypes.c_int64)
        return pointers

    def _describe(
        self, of: ctypes.c_void_p, attribute: int, value: int, kind: Any = ctypes.c_int32
    ) -> None:
        self._set("cublasLtMatmulDescSetAttribute", of, attribute, value, kind)

    def _layout(
        self, kind: int, shape: tuple[int, int], lead: int, batch: int, step: int
    ) -> ctypes.c_void_p:
        rows, columns = shape
        made = ctypes.c_void_p()
        self._call(
            "cublasLtMatrixLayoutCreate",
            ctypes.byref(made),
            kind,
            ctypes.c_uint64(rows),
            ctypes.c_uint64(columns),
            # Of a single column it does not matter, but must be large enough.
            ctypes.c_int64(max(lead, rows)),
        )
        name = "cublasLtMatrixLayoutSetAttribute"
        if batch > 1:
            self._set(name, made, BATCH_COUNT, batch)
            self._set(name, made, BATCH_OFFSET, step, ctypes.c_int64)
        return made

    def _algorithm(
        self, description: ctypes.c_void_p, matrices: Sequence[GemmOperand]
    ) -> Heuristic | None:
        preference = ctypes.c_void_p()
        self._call("cublasLtMatmulPreferenceCreate", ctypes.byref(preference))
        name = "cublasLtMatmulPreferenceSetAttribute"
        self._set(name, preference, MAX_WORKSPACE, WORKSPACE, ctypes.c_uint64)
        # Sums that several blocks share are joined in a second step, in float32: always in the same
        # order, and not in 16 bits.
        self._set(name, preference, REDUCTIONS, IN_COMPUTE_TYPE, ctypes.c_uint32)
        for attribute, matrix in zip(ALIGNMENTS, matrices, strict=True):
            self._set(name, preference, attribute, alignment(matrix.offset), ctypes.c_uint32)
        best, count = Heuristic(), ctypes.c_int()
        failed = self._library.cublasLtMatmulAlgoGetHeuristic(
            self._handle,
            description,
            *[matrix.layout for matrix in matrices],
            *(preference, 1, ctypes.byref(best), ctypes.byref(count)),
        )
        self._call("cublasLtMatmulPreferenceDestroy", preference)
        if failed not in (_NOT_SUPPORTED, _INVALID_VALUE):
            _check("cublasLtMatmulAlgoGetHeuristic", failed)
        return best if count.value and not failed else None

    def _set(
        self, name: str, of: ctypes.c_void_p, attribute: int, value: int, kind: Any = ctypes.c_int32
    ) -> None:
        held = kind(value)
        size = ctypes.c_size_t(ctypes.sizeof(held))
        self._call(name, of, attribute, ctypes.byref(held), size)

    def _call(self, name: str, *args: Any) -> None:
        _check(name, getattr(self._library, name)(*args))


def _epilogue(op: FusedProduct | None) -> int:
    """Return cuBLASLt's name of an epilogue."""
    if op is None:
        return PLAIN
    if op.sums:
        return BGRADA
    if op.activation == "gelu_grad":
        return DGELU
    epilogue = {"": 0, "gelu": GELU_AUX if op.keeps else GELU}[op.activation]
    return epilogue | (BIAS if op.bias else 0) or PLAIN


def _check(name: str, failed: int) -> None:
    if failed:
        raise ExecutorError(f"cuBLASLt: {name} returns {failed}", fix="python -m graphfw doctor")


def load(cuda: int) -> Any:
    """Return the library that belongs to a version of CUDA, such as 12.

    Raises:
        ExecutorError: It is not there.
    """
    name = f"cublasLt64_{cuda}.dll" if sys.platform == "win32" else f"libcublasLt.so.{cuda}"
    with contextlib.suppress(Exception):  # CuPy's own way to what wheels bring
        found = import_module("cuda.pathfinder").load_nvidia_dynamic_lib("cublasLt").abs_path
        name = found if found.endswith(name) else name
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise ExecutorError(
            f"the CuPy executor multiplies matrices by cuBLASLt, which is not there: {error}",
            fix=f'pip install "cupy-cuda{cuda}x[ctk]"',
        ) from None
