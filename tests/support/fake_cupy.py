"""A CuPy without a GPU: NumPy with CuPy's restrictions, and kernels that run on the CPU.

It has what the executor uses of CuPy, records each launch and each piece of memory that is asked
for, and can be told to fail as CUDA does.
"""

from __future__ import annotations

import ctypes
import types
from typing import Any

import numpy as np

from tests.strict_xp import StrictArray, plain_array, strict, strict_array
from tests.support.cuda_host import HostFunction, host_module


class CUDARuntimeError(RuntimeError):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class CUDADriverError(RuntimeError):
    pass


class NVRTCError(RuntimeError):
    pass


class OutOfMemoryError(MemoryError):
    pass


class _Program:
    def __init__(self, source: str) -> None:
        self.source = source
        self.options: tuple[str, ...] = ()


class FakeCupy(types.SimpleNamespace):
    """The module.

    Attributes:
        launches: Of each launch the function's name, the grid, the block, the arguments, and the
            memory of a block.
        allocated: The bytes of each array that was asked for, empty.
        compiled: The options of each module that was compiled.
        limit: How many bytes may be asked for at once.
        compiler_log: What the compiler says instead of compiling, where that is not empty.
        broken: What a launch says instead of running, where that is not empty.
    """

    def __init__(self, devices: int = 1) -> None:
        super().__init__()
        self.launches: list[tuple[str, tuple[int, ...], tuple[int, ...], list[int], int]] = []
        self.allocated: list[int] = []
        self.compiled: list[tuple[str, ...]] = []
        self.limit = 1 << 30
        self.compiler_log = ""
        self.broken = ""
        self.devices = devices
        self.ndarray = StrictArray
        self.__version__ = "14.0"
        self.ufunc = type("ufunc", (), {})  # nothing is computed in place
        self.asnumpy = lambda array: plain_array(array).copy()
        self.lib = types.SimpleNamespace(
            stride_tricks=types.SimpleNamespace(
                sliding_window_view=strict.lib.stride_tricks.sliding_window_view,
                as_strided=_as_strided,
            )
        )
        runtime = types.SimpleNamespace(
            CUDARuntimeError=CUDARuntimeError,
            getDeviceCount=self._count,
            driverGetVersion=lambda: 12040,
            runtimeGetVersion=lambda: 12090,
            memGetInfo=lambda: (3 << 30, 8 << 30),
            memsetAsync=lambda pointer, value, size, stream: ctypes.memset(pointer, value, size),
        )
        nvrtc = types.SimpleNamespace(
            NVRTCError=NVRTCError,
            createProgram=lambda source, name, headers, names: _Program(source),
            compileProgram=self._compile,
            getCUBIN=lambda program: repr((program.source, program.options)).encode(),
            getProgramLog=lambda program: self.compiler_log,
            getVersion=lambda: (12, 9, id(self)),  # nothing that is kept on disk is found again
            destroyProgram=lambda program: None,
        )
        self.cuda = types.SimpleNamespace(
            runtime=runtime,
            driver=types.SimpleNamespace(CUDADriverError=CUDADriverError),
            memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
            nvrtc=nvrtc,
            Device=_Device,
            get_current_stream=lambda: types.SimpleNamespace(ptr=0),
            Module=lambda: _Module(self),
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(strict, name)

    def empty(self, shape: Any, dtype: Any = float) -> StrictArray:
        made = np.empty(shape, dtype)
        self.allocated.append(made.nbytes)
        if made.nbytes > self.limit:
            raise OutOfMemoryError(f"Out of memory allocating {made.nbytes} bytes")
        made.reshape(-1).view(np.uint8)[:] = 0xA5  # what is read before it is written shows
        return strict_array(made)

    def array(self, value: Any, dtype: Any = None, order: str = "K") -> StrictArray:
        """Return a copy; of NumPy arrays too: this is how they come to the GPU."""
        plain = value.view(np.ndarray) if isinstance(value, np.ndarray) else value
        return strict_array(np.array(plain, dtype, order=order))

    def _count(self) -> int:
        if self.devices < 0:
            raise CUDARuntimeError(-self.devices, "cudaErrorThatThisIs")
        return self.devices

    def _compile(self, program: _Program, options: tuple[str, ...]) -> None:
        if self.compiler_log:
            raise NVRTCError("NVRTC_ERROR_COMPILATION (6)")
        self.compiled.append(options)
        program.options = options


class _Device:
    compute_capability = "90"

    def __init__(self, number: int = 0) -> None:
        self.id = number

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


class _Module:
    def __init__(self, fake: FakeCupy) -> None:
        self._fake = fake
        self._functions: dict[str, HostFunction] = {}

    def load(self, binary: bytes) -> None:
        source, options = eval(binary)  # what `getCUBIN` made
        self._functions = host_module(source, "-DGF_WIDE" in options)

    def get_function(self, name: str) -> Any:
        function = self._functions[name]

        def launch(
            grid: tuple[int, ...], block: tuple[int, ...], args: list[Any], *, shared_mem: int = 0
        ) -> None:
            if self._fake.broken:
                raise CUDADriverError(self._fake.broken)
            numbers = [int(arg) for arg in args]
            self._fake.launches.append((name, grid, block, numbers, shared_mem))
            function(grid, block, args, shared_mem=shared_mem)

        return launch


def _as_strided(array: StrictArray, shape: Any, strides: Any) -> StrictArray:
    plain = plain_array(array)
    return strict_array(np.lib.stride_tricks.as_strided(plain, shape, strides))
