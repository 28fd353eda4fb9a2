"""cuBLASLt without a GPU: it takes what ctypes hands over, and multiplies with NumPy."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np

from graphfw.runtime.cupy_executor import cublaslt

_DTYPES = {0: np.float32, 1: np.float64, 2: np.float16, 14: ml_dtypes.bfloat16}
_SETTINGS = {  # what each attribute is, in bytes
    "desc": {cublaslt.TRANSA: 4, cublaslt.TRANSB: 4},
    "layout": {cublaslt.BATCH_COUNT: 4, cublaslt.BATCH_OFFSET: 8},
    "preference": {cublaslt.MAX_WORKSPACE: 8, **dict.fromkeys(cublaslt.ALIGNMENTS, 4)},
}


class FakeCublasLt:
    """The library.

    Attributes:
        products: Of each product that was run, the compute type.
        workspace: How much memory each product needs.
        status: What all functions return.
    """

    def __init__(self, workspace: int = 1000) -> None:
        self.products: list[int] = []
        self.workspace = workspace
        self.status = 0
        self._objects: list[dict[str, Any]] = []

    def cublasLtCreate(self, handle: Any) -> int:
        handle._obj.value = 77
        return self.status

    def cublasLtMatmulDescCreate(self, made: Any, compute: int, scale: int) -> int:
        assert scale == (1 if compute == cublaslt.COMPUTE_64F else 0)
        return self._new(made, "desc", compute=compute)

    def cublasLtMatrixLayoutCreate(
        self, made: Any, kind: int, rows: Any, columns: Any, lead: Any
    ) -> int:
        assert isinstance(rows, ctypes.c_uint64)
        assert isinstance(columns, ctypes.c_uint64)
        assert isinstance(lead, ctypes.c_int64)
        assert lead.value >= rows.value > 0
        assert columns.value > 0
        return self._new(
            made, "layout", dtype=_DTYPES[kind], shape=(rows.value, columns.value), lead=lead.value
        )

    def cublasLtMatmulPreferenceCreate(self, made: Any) -> int:
        return self._new(made, "preference")

    def cublasLtMatmulPreferenceDestroy(self, preference: Any) -> int:
        assert self._of(preference).pop("what") == "preference"
        return self.status

    def _set(self, of: Any, attribute: int, value: Any, size: Any) -> int:
        held = self._of(of)
        assert size.value == _SETTINGS[held["what"]][attribute]
        assert ctypes.sizeof(value._obj) == size.value
        held[attribute] = value._obj.value
        return self.status

    cublasLtMatmulDescSetAttribute = _set
    cublasLtMatrixLayoutSetAttribute = _set
    cublasLtMatmulPreferenceSetAttribute = _set

    def cublasLtMatmulAlgoGetHeuristic(
        self, handle: Any, description: Any, a: Any, b: Any, c: Any, d: Any, preference: Any,
        wanted: int, best: Any, count: Any,
    ) -> int:  # fmt: skip
        assert handle.value == 77
        assert wanted == 1
        wish = self._of(preference)
        assert wish[cublaslt.MAX_WORKSPACE] >= self.workspace
        best._obj.workspace = self.workspace
        best._obj.algorithm[0] = 99
        # What the addresses must be multiples of then.
        best._obj.algorithm[1:4] = [wish[n] for n in (*cublaslt.ALIGNMENTS[:2], 8)]
        count._obj.value = 1
        return self.status

    def cublasLtMatmul(
        self, handle: Any, description: Any, alpha: Any, a: Any, a_layout: Any, b: Any,
        b_layout: Any, beta: Any, c: Any, c_layout: Any, d: Any, d_layout: Any, algorithm: Any,
        workspace: Any, size: Any, stream: Any,
    ) -> int:  # fmt: skip
        self._check_algorithm(algorithm._obj, a, b, d, workspace, size)
        how = self._of(description)
        assert (alpha._obj.value, beta._obj.value) == (1, 0)
        is_double = how["compute"] == cublaslt.COMPUTE_64F
        assert isinstance(alpha._obj, ctypes.c_double if is_double else ctypes.c_float)
        assert c.value == d.value
        first, second, out = [
            self._matrices(pointer, layout)
            for pointer, layout in ((a, a_layout), (b, b_layout), (d, d_layout))
        ]
        if how.get(cublaslt.TRANSA):
            first = first.swapaxes(1, 2)
        if how.get(cublaslt.TRANSB):
            second = second.swapaxes(1, 2)
        wide = np.float64 if is_double else np.float32
        out[...] = (first.astype(wide) @ second.astype(wide)).astype(out.dtype)
        self.products.append(how["compute"])
        return self.status

    def _check_algorithm(
        self, found: Any, a: Any, b: Any, d: Any, workspace: Any, size: Any
    ) -> None:
        assert found.algorithm[0] == 99
        for pointer, multiple in zip((a, b, d), found.algorithm[1:4], strict=True):
            assert pointer.value % multiple == 0
        assert size.value == self.workspace
        ctypes.memset(workspace.value, 0xEE, self.workspace)

    def _matrices(self, pointer: Any, layout: Any) -> Any:
        """Return matrices by columns as an array: [batch, rows, columns]."""
        held = self._of(layout)
        dtype, (rows, columns) = np.dtype(held["dtype"]), held["shape"]
        batch, step = held.get(cublaslt.BATCH_COUNT, 1), held.get(cublaslt.BATCH_OFFSET, 0)
        count = (batch - 1) * step + (columns - 1) * held["lead"] + rows
        memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(pointer.value)
        flat = np.frombuffer(memory, dtype)
        strides = [n * dtype.itemsize for n in (step, 1, held["lead"])]
        return np.lib.stride_tricks.as_strided(flat, (batch, rows, columns), strides)

    def _new(self, made: Any, what: str, **facts: Any) -> int:
        self._objects.append({"what": what, **facts})
        made._obj.value = len(self._objects)
        return self.status

    def _of(self, pointer: Any) -> dict[str, Any]:
        return self._objects[pointer.value - 1]
