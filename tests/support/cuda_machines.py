"""Where kernels run in tests: on the CPU, or, with GRAPHFW_TEST_GPU=1, on a GPU by CuPy."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from graphfw.runtime.cupy_executor.device import OPTIONS, Device
from tests.support.cuda_host import host_module

Array = np.ndarray[Any, np.dtype[Any]]


class OnCpu:
    """Kernels as functions of the host, on NumPy's own memory."""

    def function(self, source: str, name: str, wide: bool, shared: int) -> Callable[..., Any]:
        """Return a kernel's function, which is called as CuPy's are.

        Args:
            source: The module that it is in.
            name: What it is called.
            wide: Whether indices are computed in 64 bits.
            shared: How many bytes of memory of its own a block will have.
        """
        return host_module(source, wide)[name]

    def address(self, array: Array) -> int:
        """Return where the contents of an array lie in a run."""
        return array.ctypes.data

    def bring_home(self) -> None:
        """Write what has become of the contents back to the arrays."""


class OnGpu(OnCpu):
    """Kernels on a GPU, on copies of the arrays."""

    def __init__(self) -> None:
        import cupy

        self._cupy = cupy
        self._copies: list[tuple[Array, Any]] = []

    def function(self, source: str, name: str, wide: bool, shared: int) -> Callable[..., Any]:
        found: Callable[..., Any] = _gpu_module(source, wide).get_function(name)
        Device(self._cupy, 0).allow_shared(found, shared)
        return found

    def address(self, array: Array) -> int:
        # Memory of its own, outside of CuPy's pool, so that memory checkers see where it ends;
        # and bytes, as CuPy does not have all dtypes.
        with self._cupy.cuda.using_allocator(None):
            copy = self._cupy.array(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        self._copies.append((array, copy))
        return int(copy.data.ptr)

    def bring_home(self) -> None:
        for array, copy in self._copies:
            array[...] = self._cupy.asnumpy(copy).view(array.dtype).reshape(array.shape)


def here() -> OnCpu:
    """Return where this run of the tests has its kernels."""
    return OnGpu() if os.environ.get("GRAPHFW_TEST_GPU") else OnCpu()


@functools.cache
def _gpu_module(source: str, wide: bool) -> Any:
    import cupy

    nvrtc = cupy.cuda.nvrtc
    program = nvrtc.createProgram(source, "graphfw.cu", [], [])
    architecture = f"-arch=sm_{cupy.cuda.Device().compute_capability}"
    nvrtc.compileProgram(program, (architecture, *OPTIONS, *(["-DGF_WIDE"] if wide else [])))
    loaded = cupy.cuda.Module()
    loaded.load(nvrtc.getCUBIN(program))
    return loaded
