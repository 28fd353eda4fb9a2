"""`Device`: one GPU through CuPy: modules, memory, and views of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

import numpy as np

from graphfw.errors import ExecutionError, ExecutorError
from graphfw.ir.literal import Array
from graphfw.runtime.cache import Cache, folder
from graphfw.runtime.cupy_executor import cudnn, failures
from graphfw.runtime.cupy_executor.addresses import WELL, GpuAddress
from graphfw.runtime.cupy_executor.build import GpuProgram
from graphfw.runtime.cupy_executor.codegen import GpuCode
from graphfw.runtime.cupy_executor.codegen.launch import SHARED
from graphfw.runtime.cupy_executor.cublaslt import CublasLt, load
from graphfw.runtime.cupy_executor.staging import Staging
from graphfw.runtime.cupy_executor.streams import StreamEvents
from graphfw.runtime.limits import shown_bytes
from graphfw.runtime.locations import location_of
from graphfw.utils import locks

OPTIONS = ("--std=c++17", "-fmad=false", "-ftz=false", "-prec-div=true", "-prec-sqrt=true", "-w")
"""The options of compiling kernels: without contraction of products and sums, and without flushing
of denormal numbers, as NumPy computes. CuPy's own way to compile flushes them."""

_COMPILING = locks.reentrant()
"""NVRTC compiles one module at a time."""

_OLDEST = 80
"""The compute capability that first had `cp.async` and products of bfloat16: 8.0, the A100's."""


class Device:
    """A GPU.

    Args:
        cupy: The module.
        number: Which GPU.

    Attributes:
        cupy: The module.
        number: Which GPU.
        staging: Copies arrays to it and back to the host.
        streams: What its streams have to wait for.
        lost: What CUDA said when it failed for good; empty while it works.
    """

    def __init__(self, cupy: Any, number: int) -> None:
        self.cupy = cupy
        self.number = number
        self.staging = Staging(cupy, number)
        self.streams = StreamEvents(cupy)
        self.lost = ""
        self._lock = locks.reentrant()
        self._numbers: list[Any] = []

    def current(self) -> Any:
        """Return a context in which CuPy works on this GPU."""
        return self.cupy.cuda.Device(self.number)

    def numbers(self, count: int) -> GpuAddress:
        """Return where the numbers from 0 on lie, so many or more: int64, 16 bytes apart."""
        with self._lock:
            if not self._numbers or self._numbers[-1].size < 2 * count:
                most = 1 << max(count - 1, 63).bit_length()
                pairs = np.stack([np.arange(most), np.zeros(most, np.int64)], axis=1)
                # Those before are kept: CUDA graphs may know them.
                self._numbers.append(self.cupy.asarray(pairs.reshape(-1)))
                self.cupy.cuda.get_current_stream().synchronize()  # others may read them, too
            array = self._numbers[-1]
            return GpuAddress(array.data.ptr, array, 0)

    @property
    def capability(self) -> str:
        """Its compute capability, such as "90"."""
        found: str = self.cupy.cuda.Device(self.number).compute_capability
        return found

    @property
    def architecture(self) -> str:
        """The architecture that machine code is made for, as compilers call it."""
        return f"sm_{self.capability}"

    def require_capability(self) -> None:
        """Refuse GPUs that lack instructions which kernels are written with.

        Raises:
            ExecutorError: It is too old.
        """
        if int(self.capability) < _OLDEST:
            raise ExecutorError(
                f"kernels are compiled for GPUs of compute capability {_OLDEST // 10}."
                f"{_OLDEST % 10} or newer, and this one has {self.capability[:-1]}."
                f"{self.capability[-1]}",
                fix=f"GRAPHFW_JIT=0 has CuPy compute node by node instead; or {failures.HOST}",
            )

    @cached_property
    def products(self) -> CublasLt:
        """The library that multiplies matrices."""
        with self.current():
            return CublasLt(load(self.cupy.cuda.runtime.runtimeGetVersion() // 1000))

    @cached_property
    def by_cudnn(self) -> cudnn.Cudnn:
        """The library that plans and runs what cuDNN computes."""
        found = self.cupy.cuda.runtime.getDeviceProperties(self.number)
        driver = self.cupy.cuda.runtime.driverGetVersion()
        facts = found["name"], self.capability, found["multiProcessorCount"], driver, self.number
        # cuDNN compiles by NVRTC, whose second library CUDA 13's wheel finds for nobody. CuPy loads
        # both; where they are missing, that is said by what needs them.
        with suppress(Exception):
            self.cupy.cuda.nvrtc.getVersion()
        with self.current():
            return cudnn.Cudnn(cudnn.load(), repr(facts))

    def functions(self, build: GpuProgram, codes: Sequence[GpuCode], *, wide: bool) -> Any:
        """Compile kernels of a program, or find them on disk.

        Args:
            build: The program.
            codes: The kernels.
            wide: Whether indices are computed in 64 bits.

        Returns:
            A loaded module, whose `get_function(name)` gives what is launched.

        Raises:
            ExecutorError: A kernel is refused, or a library of CUDA is missing.
        """
        options = (f"-arch={self.architecture}", *OPTIONS, *(["-DGF_WIDE"] if wide else []))
        source = build.source(codes)
        with _COMPILING:
            try:
                nvrtc = self.cupy.cuda.nvrtc
                text = "\0".join([source, *options, repr(nvrtc.getVersion())])
                name = hashlib.sha256(text.encode()).hexdigest()
                cache = Cache(folder())
                binary = cache.load(name)
                if binary is None:
                    binary = self._compiled(build, source, options)
                    cache.store(name, binary)
            except Exception as error:
                if failures.is_missing_library(error):
                    raise failures.without_library("compile its kernels", error) from error
                raise
        loaded = self.cupy.cuda.Module()
        loaded.load(binary)
        return loaded

    def _compiled(self, build: GpuProgram, source: str, options: Sequence[str]) -> bytes:
        nvrtc = self.cupy.cuda.nvrtc
        program = nvrtc.createProgram(source, "graphfw.cu", [], [])
        try:
            nvrtc.compileProgram(program, tuple(options))
            binary: bytes = nvrtc.getCUBIN(program)
        except nvrtc.NVRTCError as error:
            log = nvrtc.getProgramLog(program)
            if "invalid value for --gpu-architecture" in log:
                raise ExecutorError(
                    f"the installed CUDA is too old for this GPU, which is {self.architecture}",
                    fix="install the CuPy of a newer CUDA",
                ) from error
            raise _not_compiled(build, log, self.architecture) from error
        finally:
            nvrtc.destroyProgram(program)
        return binary

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turn what CUDA says into an error of graphfw, which says whether it goes on."""
        if self.lost:
            raise self._lost()
        try:
            yield
        except failures.lasting(self.cupy) as error:
            try:
                self.cupy.cuda.runtime.deviceSynchronize()
            except failures.lasting(self.cupy):
                self.lost = str(error)
                raise self._lost() from error
            raise ExecutionError(
                f"CUDA refuses what it is asked for: {error}",
                why="the GPU goes on: the variables are as they were before, and can be saved",
                fix="python -m graphfw doctor says what is there",
            ) from error
        except self.cupy.cuda.memory.OutOfMemoryError as error:
            free, total = self.cupy.cuda.runtime.memGetInfo()
            left = f"{shown_bytes(free)} of {shown_bytes(total)} are free"
            raise ExecutionError(
                f"the GPU has too little memory: {left}",
                why=str(error),
                fix="close sessions and drop arrays that are not needed any more",
            ) from error

    def _lost(self) -> ExecutionError:
        return ExecutionError(
            f"the GPU has failed: {self.lost}",
            why="CUDA refuses all further work of this process after such an error, so this "
            "session is lost, and what its variables contained with it",
            fix="start again from the last checkpoint; CUDA_LAUNCH_BLOCKING=1 shows which launch "
            "it was",
        )

    def allow_shared(self, function: Any, nbytes: int) -> None:
        """Allow launches of a function with so much memory for each block."""
        if nbytes > SHARED:
            driver = self.cupy.cuda.driver
            attribute = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            driver.funcSetAttribute(function.ptr, attribute, nbytes)

    def constant(self, array: Array) -> Any:
        """Return an array that many runs read."""
        return self.streams.lasting(self.in_a_row(self.cupy.asarray(array)))

    def in_a_row(self, array: Any) -> Any:
        """Return an array that kernels can take: contiguous and well aligned; itself if it is."""
        if array.flags.c_contiguous and array.data.ptr % WELL == 0:
            return array
        return self.cupy.array(array, order="C")

    def viewed(
        self, array: Any, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> Any:
        """Return a view of an array's elements, which are contiguous; all in elements."""
        if 0 in shape:
            return self.cupy.empty(shape, array.dtype)
        flat = array.reshape(-1)[offset:]
        steps = tuple([stride * array.dtype.itemsize for stride in strides])
        return self.cupy.lib.stride_tricks.as_strided(flat, shape, steps)


def _not_compiled(build: GpuProgram, log: str, architecture: str) -> ExecutorError:
    """Return which kernel was refused, what it computes, and where that was written."""
    every = [*build.codes, *build.spare]
    guilty = next((code for code in every if code.symbol in log), None)
    codes = every if guilty is None else [guilty]
    lines = [log.strip()[:2000]]
    for code in codes[:1]:
        lines += ["the kernel:", code.key.rstrip(), "which computes:", *_made(build, code)]
    return ExecutorError(
        f"CUDA refuses a kernel that was generated for {architecture}",
        why="\n".join(lines),
        fix="this is a mistake in graphfw; GRAPHFW_JIT=0 has CuPy compute node by node instead",
    )


def _made(build: GpuProgram, code: GpuCode) -> list[str]:
    return [f"  {node.op.name} made at {location_of(node)}" for node in build.nodes_of(code)]
