"""A CuPy without a GPU: NumPy with CuPy's restrictions, and kernels that run on the CPU.

It has what the executor uses of CuPy, records each launch and each piece of memory that is asked
for, and can be told to fail as CUDA does.
"""

from __future__ import annotations

import contextlib
import ctypes
import types
import weakref
from bisect import bisect, insort
from typing import Any, ClassVar

import numpy as np

from tests.strict_xp import LENT, StrictArray, plain_array, strict, strict_array
from tests.support.cuda_checks import Room, seed
from tests.support.cuda_host import HostFunction, host_module
from tests.support.fake_streams import CUDARuntimeError, Streams, stream_names


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
        broken: What a launch says instead of running, where that is not empty; with `survives`
            the GPU goes on afterwards.
        used: The GPUs on which something was launched.
        streams: The streams, and the graphs that are recorded there.
        copied: Of each copy that goes on by itself its kind, as CUDA numbers them, and its bytes.
    """

    def __init__(self, devices: int = 1) -> None:
        super().__init__()
        self.launches: list[tuple[str, tuple[int, ...], tuple[int, ...], list[int], int]] = []
        self.allocated: list[int] = []
        self.compiled: list[tuple[str, ...]] = []
        self.limit = 1 << 30
        self.compiler_log = ""
        self.broken = ""
        self.survives = False
        self.used: set[int] = set()
        self.streams = Streams(self.require_working)
        self.copied: list[tuple[int, int]] = []
        self._memory: list[tuple[int, int, int, weakref.ref[Any]]] = []
        self._kept: list[Any] = []
        self._rooms: list[Any] = []
        self.devices = devices
        self.ndarray = StrictArray
        self.__version__ = "14.0"
        self.ufunc = type("ufunc", (), {})  # nothing is computed in place
        self.asnumpy = lambda array: np.array(array.view(np.ndarray))
        self.lib = types.SimpleNamespace(
            stride_tricks=types.SimpleNamespace(
                sliding_window_view=strict.lib.stride_tricks.sliding_window_view,
                as_strided=_as_strided,
            )
        )
        runtime = types.SimpleNamespace(
            CUDARuntimeError=CUDARuntimeError,
            getDeviceCount=self._count,
            getDeviceProperties=lambda number: {"name": b"stand-in", "multiProcessorCount": 2},
            driverGetVersion=lambda: 12040,
            runtimeGetVersion=lambda: 12090,
            memGetInfo=lambda: (3 << 30, 8 << 30),
            memsetAsync=lambda pointer, value, size, stream: self.streams.perform(
                lambda: ctypes.memset(pointer, value, size), stream
            ),
            memcpyAsync=self._copy,
            memcpyHostToDevice=1,
            memcpyDeviceToHost=2,
            memcpyDeviceToDevice=3,
            deviceSynchronize=self._synchronize,
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
            driver=types.SimpleNamespace(
                CUDADriverError=CUDADriverError,
                CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8,
                funcSetAttribute=_set_attribute,
            ),
            memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
            nvrtc=nvrtc,
            Device=_Device,
            Module=lambda: _Module(self),
            alloc_pinned_memory=self._pinned,
            using_allocator=contextlib.nullcontext,
            **vars(stream_names(self.streams)),
        )

    def __getattr__(self, name: str) -> Any:
        assert not self.streams.is_recording, f"cupy.{name} while launches are recorded"
        return getattr(strict, name)

    def empty(self, shape: Any, dtype: Any = float) -> StrictArray:
        assert not self.streams.is_recording, "memory is asked for while launches are recorded"
        made = np.empty(shape, dtype)
        self.allocated.append(made.nbytes)
        if made.nbytes > self.limit:
            raise OutOfMemoryError(f"Out of memory allocating {made.nbytes} bytes")
        made.reshape(-1).view(np.uint8)[:] = 0xA5  # what is read before it is written shows
        return self._noted(made)

    def array(self, value: Any, dtype: Any = None, order: str = "K") -> StrictArray:
        """Return a copy; of NumPy arrays too: this is how they come to the GPU."""
        plain = value.view(np.ndarray) if isinstance(value, np.ndarray) else value
        return self._noted(np.array(plain, dtype, order=order))

    def _noted(self, made: np.ndarray[Any, Any]) -> StrictArray:
        """Return an array in memory that none is given afterwards, and remember where that is."""
        count = max(made.nbytes, 1)
        room = np.empty(count + 64, np.uint8)
        begin = -room.ctypes.data % 64
        owner = (ctypes.c_char * count).from_buffer(room[begin : begin + count])
        insort(self._memory, (ctypes.addressof(owner), len(self._kept), count, weakref.ref(owner)))
        self._kept.append(room)
        placed = np.ndarray(made.shape, made.dtype, owner, strides=made.strides)
        placed[...] = made
        return strict_array(placed)

    def require_working(self) -> None:
        self.used.add(_Device.current[-1])
        if self.broken:
            raise CUDADriverError(self.broken)

    def require_memory(self, addresses: list[int]) -> None:
        """Refuse addresses of memory that has been given back."""
        for address in addresses:
            index = bisect(self._memory, (address, len(self._kept))) - 1
            if index >= 0:
                begin, _, count, owner = self._memory[index]
                is_gone = address < begin + count and owner() is None
                assert not is_gone, "a launch knows an address in memory that is gone"

    def _pinned(self, nbytes: int) -> Any:
        facts = {"ptr": property(ctypes.addressof)}
        self._rooms.append(type("PinnedMemoryPointer", (ctypes.c_char * nbytes,), facts)())
        return self._rooms[-1]

    def _require_pinned(self, address: int, nbytes: int) -> None:
        """Refuse memory of the host that its owner may change while it is copied."""
        begins = [(ctypes.addressof(room), ctypes.sizeof(room)) for room in self._rooms]
        assert any(begin <= address and address + nbytes <= begin + n for begin, n in begins)

    def _copy(self, target: int, source: int, nbytes: int, kind: int, stream: int) -> None:
        def copy() -> None:
            self.require_memory([source] * (kind > 1) + [target] * (kind != 2))
            if kind < 3:
                self._require_pinned(source if kind == 1 else target, nbytes)
            self.copied.append((kind, nbytes))
            ctypes.memmove(target, source, nbytes)

        self.streams.perform(copy, stream)

    def _synchronize(self) -> None:
        if self.broken and not self.survives:
            raise CUDARuntimeError(700, self.broken)

    def _count(self) -> int:
        if self.devices <= 0:
            raise CUDARuntimeError(-self.devices or 100, "cudaErrorThatThisIs")
        return self.devices

    def _compile(self, program: _Program, options: tuple[str, ...]) -> None:
        if self.compiler_log:
            raise NVRTCError("NVRTC_ERROR_COMPILATION (6)")
        self.compiled.append(options)
        program.options = options


class _Device:
    compute_capability = "90"
    current: ClassVar[list[int]] = [0]

    def __init__(self, number: int = 0) -> None:
        self.id = number

    def __enter__(self) -> None:
        _Device.current.append(self.id)

    def __exit__(self, *_: object) -> None:
        _Device.current.pop()


class _Module:
    def __init__(self, fake: FakeCupy) -> None:
        self._fake = fake
        self._functions: dict[str, HostFunction] = {}
        self._found: dict[str, _Function] = {}

    def load(self, binary: bytes) -> None:
        source, options = eval(binary)  # what `getCUBIN` made
        self._functions = host_module(source, "-DGF_WIDE" in options)

    def get_function(self, name: str) -> _Function:
        if name not in self._found:
            self._found[name] = _Function(self._fake, name, self._functions[name])
        return self._found[name]


_FUNCTIONS: list[_Function] = []
"""By handle."""


class _Function:
    """A kernel's function, which is called to launch it."""

    def __init__(self, fake: FakeCupy, name: str, function: HostFunction) -> None:
        self._fake = fake
        self._name = name
        self._run = function
        self.most_shared = 48 << 10
        self.ptr = len(_FUNCTIONS)
        _FUNCTIONS.append(self)

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: list[Any],
        *,
        shared_mem: int = 0,
    ) -> None:
        assert (type(grid), type(block)) == (tuple, tuple), "CuPy takes nothing else"
        self._fake.require_working()
        if shared_mem > self.most_shared:
            raise CUDADriverError("CUDA_ERROR_INVALID_VALUE: invalid argument")
        numbers = [int(arg) for arg in args]
        kinds = zip(numbers, self._run.kinds, strict=True)
        addresses = [number for number, kind in kinds if kind.endswith("*")]

        def run() -> None:
            self._fake.require_memory(addresses)
            self._fake.launches.append((self._name, grid, block, numbers, shared_mem))
            rooms = [Room(begin, whole.nbytes) for begin, whole in LENT.items()] if seed() else []
            self._run(grid, block, args, shared_mem=shared_mem, rooms=rooms)

        self._fake.streams.perform(run)


def _set_attribute(function: int, attribute: int, value: int) -> None:
    assert attribute == 8
    if value > 227 << 10:  # what compute capability 9.0 has
        raise CUDADriverError("CUDA_ERROR_INVALID_VALUE: invalid argument")
    _FUNCTIONS[function].most_shared = value


def _as_strided(array: StrictArray, shape: Any, strides: Any) -> StrictArray:
    plain = plain_array(array)
    return strict_array(np.lib.stride_tricks.as_strided(plain, shape, strides))
