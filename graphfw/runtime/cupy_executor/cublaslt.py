"""cuBLASLt, as much of it as matrix products need: a thin binding by ctypes.

CuPy's own calls of cuBLAS can't be captured in CUDA graphs, and allocate their results; here the
caller says where everything lies. Numbers are those of NVIDIA's header `cublasLt.h`.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

from graphfw.errors import ExecutorError
from graphfw.runtime.cupy_executor.products import ProductCode, alignment

WORKSPACE = 32 << 20
"""How much memory a product may be given besides its operands, in bytes: what NVIDIA advises."""

KINDS = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}  # cudaDataType
COMPUTE_32F, COMPUTE_32F_TF32, COMPUTE_64F = 68, 77, 70  # cublasComputeType_t
TRANSA, TRANSB = 3, 4  # cublasLtMatmulDescAttributes_t
TRANSPOSED = 1  # cublasOperation_t
BATCH_COUNT, BATCH_OFFSET = 5, 6  # cublasLtMatrixLayoutAttribute_t
MAX_WORKSPACE = 1  # cublasLtMatmulPreferenceAttributes_t
ALIGNMENTS = (5, 6, 7, 8)  # the same, of A, B, C, D

_NOT_SUPPORTED = 15


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t: an algorithm, and what it needs."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


class Product(NamedTuple):
    """A product that is ready to run.

    Attributes:
        description: What is computed.
        layouts: Of b, a and the result, as matrices by columns.
        algorithm: How.
        workspace: The bytes that it needs besides.
        offsets: Where b and a begin in their storages, in bytes.
        is_double: Whether factors are float64.
    """

    description: ctypes.c_void_p
    layouts: tuple[ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    algorithm: Heuristic
    workspace: int
    offsets: tuple[int, int]
    is_double: bool


class CublasLt:
    """The library, for one GPU, which must be the current one.

    Args:
        library: What `load` returns.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        self._handle = ctypes.c_void_p()
        self._call("cublasLtCreate", ctypes.byref(self._handle))

    def product(self, code: ProductCode, params: Sequence[int]) -> Product:
        """Prepare a product of these sizes: see `products.Sizes`.

        cuBLASLt knows matrices by columns. What lies row by row is the transposed one so, and
        (a @ b)^T = b^T @ a^T: so b comes first.

        Raises:
            ExecutorError: There is no algorithm for it.
        """
        m, n, k, batch, a, a_lead, a_batch, b, b_lead, b_batch = params
        kind, item = KINDS[code.dtype.name], code.dtype.itemsize
        description = self._description(code)
        first = (k, n) if code.b_across else (n, k)
        second = (m, k) if code.a_across else (k, m)
        layouts = (
            self._layout(kind, first, b_lead, batch, b_batch),
            self._layout(kind, second, a_lead, batch, a_batch),
            self._layout(kind, (n, m), n, batch, m * n),
        )
        offsets = (b * item, a * item)
        found = self._algorithm(description, layouts, offsets)
        is_double = code.dtype.name == "float64"
        return Product(description, layouts, found, found.workspace, offsets, is_double)

    def run(self, one: Product, a: int, b: int, result: int, workspace: int, stream: int) -> None:
        """Launch a product; all memory is given by address."""
        factor = ctypes.c_double if one.is_double else ctypes.c_float
        first, second, out = one.layouts
        self._call(
            "cublasLtMatmul",
            self._handle,
            one.description,
            ctypes.byref(factor(1)),
            ctypes.c_void_p(b + one.offsets[0]),
            first,
            ctypes.c_void_p(a + one.offsets[1]),
            second,
            ctypes.byref(factor(0)),
            ctypes.c_void_p(result),
            out,
            ctypes.c_void_p(result),
            out,
            ctypes.byref(one.algorithm),
            ctypes.c_void_p(workspace),
            ctypes.c_size_t(one.workspace),
            ctypes.c_void_p(stream),
        )

    def _description(self, code: ProductCode) -> ctypes.c_void_p:
        compute = COMPUTE_64F if code.dtype.name == "float64" else COMPUTE_32F
        if code.dtype.name == "float32" and code.precision == "high":
            compute = COMPUTE_32F_TF32
        made = ctypes.c_void_p()
        scale = KINDS["float64" if compute == COMPUTE_64F else "float32"]
        self._call("cublasLtMatmulDescCreate", ctypes.byref(made), compute, scale)
        for attribute, is_across in ((TRANSA, code.b_across), (TRANSB, code.a_across)):
            if is_across:
                self._set("cublasLtMatmulDescSetAttribute", made, attribute, TRANSPOSED)
        return made

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
        self,
        description: ctypes.c_void_p,
        layouts: tuple[ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p],
        offsets: tuple[int, int],
    ) -> Heuristic:
        preference = ctypes.c_void_p()
        self._call("cublasLtMatmulPreferenceCreate", ctypes.byref(preference))
        name = "cublasLtMatmulPreferenceSetAttribute"
        self._set(name, preference, MAX_WORKSPACE, WORKSPACE, ctypes.c_uint64)
        for attribute, offset in zip(ALIGNMENTS, (*offsets, 0, 0), strict=True):
            self._set(name, preference, attribute, alignment(offset), ctypes.c_uint32)
        best, count = Heuristic(), ctypes.c_int()
        first, second, out = layouts
        failed = self._library.cublasLtMatmulAlgoGetHeuristic(
            self._handle,
            *(description, first, second, out, out),
            *(preference, 1, ctypes.byref(best), ctypes.byref(count)),
        )
        self._call("cublasLtMatmulPreferenceDestroy", preference)
        if failed != _NOT_SUPPORTED:
            _check("cublasLtMatmulAlgoGetHeuristic", failed)
        if not count.value:
            raise ExecutorError(
                "cuBLASLt has no algorithm for a product of these sizes",
                fix="this is a mistake in graphfw; GRAPHFW_JIT=0 has CuPy compute node by node "
                "instead",
            )
        return best

    def _set(
        self, name: str, of: ctypes.c_void_p, attribute: int, value: int, kind: Any = ctypes.c_int32
    ) -> None:
        held = kind(value)
        size = ctypes.c_size_t(ctypes.sizeof(held))
        self._call(name, of, attribute, ctypes.byref(held), size)

    def _call(self, name: str, *args: Any) -> None:
        _check(name, getattr(self._library, name)(*args))


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
