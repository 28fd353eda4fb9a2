"""cuBLASLt without a GPU: it takes what ctypes hands over, and multiplies with NumPy."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from graphfw.runtime.cupy_executor import cublaslt

_DTYPES = {0: np.float32, 1: np.float64, 2: np.float16, 14: ml_dtypes.bfloat16}
_SETTINGS = {  # what each attribute is, in bytes
    "desc": {
        cublaslt.TRANSA: 4,
        cublaslt.TRANSB: 4,
        cublaslt.EPILOGUE: 4,
        cublaslt.BIAS_POINTER: 8,
        cublaslt.AUX_POINTER: 8,
        cublaslt.AUX_LEAD: 8,
    },
    "layout": {cublaslt.BATCH_COUNT: 4, cublaslt.BATCH_OFFSET: 8},
    "preference": {
        cublaslt.MAX_WORKSPACE: 8,
        cublaslt.REDUCTIONS: 4,
        **dict.fromkeys(cublaslt.ALIGNMENTS, 4),
    },
}
_SIXTEEN = (np.float16, ml_dtypes.bfloat16)


class FakeCublasLt:
    """The library.

    Attributes:
        products: Of each product that was run, the compute type.
        epilogues: Of each product that was run, what was done besides.
        refused: Epilogues that there is no algorithm for.
        searches: How often an algorithm was asked for.
        workspace: How much memory each product needs.
        status: What all functions return.
        perform: What does a product on a stream, or records it for later.
    """

    def __init__(self, workspace: int = 1000) -> None:
        self.products: list[int] = []
        self.epilogues: list[int] = []
        self.refused: set[int] = set()
        self.searches = 0
        self.workspace = workspace
        self.status = 0
        self.perform: Callable[[Callable[[], None], int], None] = lambda work, stream: work()
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
        self.searches += 1
        if not self._is_supported(self._of(description), *[self._of(x) for x in (a, b, c, d)]):
            return 15
        wish = self._of(preference)
        assert wish[cublaslt.MAX_WORKSPACE] >= self.workspace
        assert wish[cublaslt.REDUCTIONS] & 5 == 0, "parts are joined in the dtype of the result"
        best._obj.workspace = self.workspace
        best._obj.algorithm[0] = 99
        # What the addresses must be multiples of then.
        best._obj.algorithm[1:5] = [wish[n] for n in cublaslt.ALIGNMENTS]
        count._obj.value = 1
        return self.status

    def _is_supported(self, how: Any, a: Any, b: Any, c: Any, d: Any) -> bool:
        """Whether there is an algorithm: what NVIDIA's header, and its tables of types, say."""
        assert a["dtype"] == b["dtype"]
        assert (c["dtype"], c["shape"]) == (d["dtype"], d["shape"])
        assert d["dtype"] == a["dtype"] or (d["dtype"] == np.float32 and a["dtype"] in _SIXTEEN)
        epilogue = how.get(cublaslt.EPILOGUE, 1)
        if epilogue == 1:
            return True
        if a["dtype"] == np.float64 or epilogue in self.refused:
            return False
        if epilogue & (cublaslt.BIAS | cublaslt.BGRADA):
            assert how[cublaslt.BIAS_POINTER] % 16 == 0, "kernels read 16 bytes of it at once"
        if epilogue & 128:
            assert how[cublaslt.AUX_POINTER] % 16 == 0
            assert how[cublaslt.AUX_LEAD] >= d["shape"][0]
            return how[cublaslt.AUX_LEAD] % 8 == 0
        return True

    def cublasLtMatmul(
        self, handle: Any, description: Any, alpha: Any, a: Any, a_layout: Any, b: Any,
        b_layout: Any, beta: Any, c: Any, c_layout: Any, d: Any, d_layout: Any, algorithm: Any,
        workspace: Any, size: Any, stream: Any,
    ) -> int:  # fmt: skip
        self._check_algorithm(algorithm._obj, (a, b, c, d), workspace, size)
        how = dict(self._of(description))  # as it is now, whenever the product is done
        assert alpha._obj.value == 1
        is_double = how["compute"] == cublaslt.COMPUTE_64F
        for factor in (alpha, beta):
            assert isinstance(factor._obj, ctypes.c_double if is_double else ctypes.c_float)
        layouts = [self._of(x) for x in (a_layout, b_layout, c_layout, d_layout)]
        assert self._is_supported(how, *layouts)
        assert beta._obj.value in (0, 1)
        assert beta._obj.value or c.value == d.value
        self.perform(
            partial(self._multiply, how, beta._obj.value, (a, b, c, d), layouts, workspace),
            stream.value or 0,
        )
        return self.status

    def _multiply(
        self, how: Any, beta: float, pointers: Sequence[Any], layouts: Sequence[Any], workspace: Any
    ) -> None:
        ctypes.memset(workspace.value, 0xEE, self.workspace)
        is_double = how["compute"] == cublaslt.COMPUTE_64F
        first, second, added, out = [
            _matrices(pointer.value, layout)
            for pointer, layout in zip(pointers, layouts, strict=True)
        ]
        if how.get(cublaslt.TRANSA):
            first = first.swapaxes(1, 2)
        if how.get(cublaslt.TRANSB):
            second = second.swapaxes(1, 2)
        wide = np.float64 if is_double else np.float32
        product = first.astype(wide) @ second.astype(wide)
        if beta:
            product = product + added.astype(wide)
        epilogue = how.get(cublaslt.EPILOGUE, 1)
        out[...] = self._after(epilogue, how, product, first, out.dtype).astype(out.dtype)
        self.products.append(how["compute"])
        self.epilogues.append(epilogue)

    def _after(self, epilogue: int, how: Any, x: Any, a: Any, dtype: Any) -> Any:
        """Do what an epilogue does: to x, [1, rows, columns], the result before it."""
        if epilogue == 1:
            return x
        assert len(x) == 1
        rows, columns = x.shape[1:]
        if epilogue & cublaslt.BGRADA:
            assert epilogue == cublaslt.BGRADA
            _vector(how[cublaslt.BIAS_POINTER], rows, dtype)[:] = a[0].astype(x.dtype).sum(axis=1)
            return x
        if epilogue & cublaslt.BIAS:
            bias = _vector(how[cublaslt.BIAS_POINTER], rows, dtype)
            x = x + bias.astype(x.dtype)[:, None]
        aux = None
        if epilogue & 128:
            pointer, lead = how[cublaslt.AUX_POINTER], how[cublaslt.AUX_LEAD]
            flat = _vector(pointer, (columns - 1) * lead + rows, dtype)
            strides = (dtype.itemsize, lead * dtype.itemsize)
            aux = np.lib.stride_tricks.as_strided(flat, (rows, columns), strides)
        if epilogue & 64:
            assert aux is not None
            return x * _slope(aux.astype(x.dtype))
        if epilogue & cublaslt.GELU:
            if aux is not None:
                aux[:] = x[0].astype(dtype)
            return _gelu(x)
        return x

    def _check_algorithm(
        self, found: Any, pointers: tuple[Any, ...], workspace: Any, size: Any
    ) -> None:
        assert found.algorithm[0] == 99
        for pointer, multiple in zip(pointers, found.algorithm[1:5], strict=True):
            assert pointer.value % multiple == 0
        assert size.value == self.workspace

    def _new(self, made: Any, what: str, **facts: Any) -> int:
        self._objects.append({"what": what, **facts})
        made._obj.value = len(self._objects)
        return self.status

    def _of(self, pointer: Any) -> dict[str, Any]:
        return self._objects[pointer.value - 1]


def _matrices(address: int, held: Any) -> Any:
    """Return matrices by columns as an array: [batch, rows, columns]."""
    dtype, (rows, columns) = np.dtype(held["dtype"]), held["shape"]
    batch, step = held.get(cublaslt.BATCH_COUNT, 1), held.get(cublaslt.BATCH_OFFSET, 0)
    count = (batch - 1) * step + (columns - 1) * held["lead"] + rows
    flat = _vector(address, count, dtype)
    strides = [n * dtype.itemsize for n in (step, 1, held["lead"])]
    return np.lib.stride_tricks.as_strided(flat, (batch, rows, columns), strides)


def _vector(address: int, length: int, dtype: Any) -> Any:
    memory = (ctypes.c_char * (length * dtype.itemsize)).from_address(address)
    return np.frombuffer(memory, dtype)


def _gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))


def _slope(x: Any) -> Any:
    """Return the derivative of `_gelu`, by complex steps."""
    return np.imag(_gelu(x.astype(np.complex128) + 1e-30j)) * 1e30
