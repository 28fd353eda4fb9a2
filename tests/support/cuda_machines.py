"""The machines that run kernels in tests: on the CPU, or, with GRAPHFW_TEST_GPU=1, on a GPU by
CuPy.

With GRAPHFW_TEST_CHECK=1 the CPU checks what they do: see `cuda_checks`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from graphfw.runtime.cupy_executor.device import OPTIONS, Device
from tests.support.cuda_checks import Room
from tests.support.cuda_host import host_module

Array = np.ndarray[Any, np.dtype[Any]]


class OnCpu:
    """Kernels as functions of the host, on NumPy's own memory."""

    def __init__(self) -> None:
        self._rooms: list[Room] = []

    def function(self, source: str, name: str, wide: bool, shared: int) -> Callable[..., Any]:
        """Return a kernel's function, which is called as CuPy's are.

        Args:
            source: The module that it is in.
            name: What it is called.
            wide: Whether indices are computed in 64 bits.
            shared: How many bytes of memory of its own a block will have.
        """
        return functools.partial(host_module(source, wide)[name], rooms=self._rooms)

    def address(self, array: Array, guard: int = 0, *, is_fresh: bool = False) -> int:
        """Return where the contents of an array lie in a run.

        Args:
            array: The array, of bytes if it has guards.
            guard: How many bytes before and behind them are no part of them.
            is_fresh: Whether a kernel has to write them before it reads them.
        """
        begin = array.ctypes.data + guard
        self._rooms.append(Room(begin, array.nbytes - 2 * guard, is_fresh))
        return begin

    def bring_home(self) -> None:
        """Write what has become of the contents back to the arrays."""


class OnGpu(OnCpu):
    """Kernels on a GPU, on copies of the arrays."""

    def __init__(self) -> None:
        super().__init__()
        import cupy

        self._cupy = cupy
        self._copies: list[tuple[Array, Any]] = []

    def function(self, source: str, name: str, wide: bool, shared: int) -> Callable[..., Any]:
        found: Callable[..., Any] = _gpu_module(source, wide).get_function(name)
        Device(self._cupy, 0).allow_shared(found, shared)
        return found

    def address(self, array: Array, guard: int = 0, *, is_fresh: bool = False) -> int:
        # Memory of its own, outside of CuPy's pool, so that memory checkers see where it ends;
        # and bytes, as CuPy does not have all dtypes.
        with self._cupy.cuda.using_allocator(None):
            copy = self._cupy.array(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        self._copies.append((array, copy))
        return int(copy.data.ptr) + guard

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
