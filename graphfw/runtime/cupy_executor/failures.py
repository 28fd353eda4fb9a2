"""A GPU's refusals, as errors that say what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib import NumpyVersion

from graphfw.errors import ExecutionError, ExecutorError, GraphfwError
from graphfw.ir.dtype import bfloat16
from graphfw.ir.tensor import Tensor
from graphfw.runtime.cupy_executor.build import GpuProgram
from graphfw.runtime.cupy_executor.codegen import GpuCode
from graphfw.runtime.limits import shown_bytes
from graphfw.runtime.locations import location_of
from graphfw.runtime.planning.blocks import bytes_at
from graphfw.runtime.program import Program

if TYPE_CHECKING:
    from graphfw.runtime.cupy_executor.device import Device
    from graphfw.runtime.cupy_executor.layouts import GpuLayout, GpuLayouts

_HOST = 'use executor="numpy"'
_NO_DEVICE = 100  # cudaErrorNoDevice
_OLDEST = 80
"""The compute capability that first had `cp.async` and products of bfloat16: 8.0, the A100's."""
PACKAGES = 'pip install "cupy-cuda12x[ctk]" or "cupy-cuda13x[ctk]"'
_KNOW_BFLOAT16 = "CuPy 14 and NumPy 2.1.2"
"""From which on CuPy has bfloat16, by ml_dtypes: cupy/cupy#9494."""
_OLD_DRIVER = 35  # cudaErrorInsufficientDriver; also where there is no driver at all


def without_cupy(error: ImportError) -> ExecutorError:
    """Say that CuPy is not there."""
    return ExecutorError(
        f"the CuPy executor can't run here: {error}",
        fix=f"install CuPy: {PACKAGES}; or {_HOST}",
    )


def without_device(cupy: Any, error: Exception) -> ExecutorError:
    """Say why no device can be counted."""
    status = getattr(error, "status", None)
    if status == _OLD_DRIVER:
        driver = cupy.cuda.runtime.driverGetVersion()
        needed = cuda_version(cupy.cuda.runtime.runtimeGetVersion())
        if driver:
            return ExecutorError(
                f"the CuPy executor can't run here: the NVIDIA driver knows CUDA "
                f"{cuda_version(driver)} and CuPy needs {needed}",
                fix="update the driver, or install the CuPy of an older CUDA: "
                f'pip install "cupy-cuda12x[ctk]"; or {_HOST}',
            )
        return ExecutorError(
            "the CuPy executor can't run here: there is no NVIDIA driver",
            fix=f"install the NVIDIA driver, or {_HOST}",
        )
    if status == _NO_DEVICE:
        return ExecutorError(
            "the CuPy executor can't run here: the NVIDIA driver finds no GPU",
            fix=f"see whether nvidia-smi lists one and CUDA_VISIBLE_DEVICES hides none, or {_HOST}",
        )
    return ExecutorError(
        f"the CuPy executor can't run here: CuPy is installed, but CUDA says: {error}",
        fix=f"install or update the NVIDIA driver, or {_HOST}",
    )


def require_capability(device: Device) -> None:
    """Refuse GPUs that lack instructions which kernels are written with.

    Raises:
        ExecutorError: It is too old.
    """
    if int(device.capability) < _OLDEST:
        raise ExecutorError(
            f"kernels are compiled for GPUs of compute capability {_OLDEST // 10}.{_OLDEST % 10} "
            f"or newer, and this one has {device.capability[:-1]}.{device.capability[-1]}",
            fix=f"GRAPHFW_JIT=0 has CuPy compute node by node instead; or {_HOST}",
        )


def require_bfloat16(cupy: Any, program: Program) -> None:
    """Refuse programs with bfloat16 where CuPy does not have it yet.

    Raises:
        ExecutorError: A tensor has that dtype.
    """
    if int(cupy.__version__.split(".")[0]) >= 14 and NumpyVersion(np.__version__) >= "2.1.2":
        return
    tensors = [tensor for node in program.graph.nodes for tensor in node.outputs]
    tensor = next((tensor for tensor in tensors if tensor.dtype is bfloat16), None)
    if tensor is not None:
        raise ExecutorError(
            f"CuPy {cupy.__version__} has no bfloat16, which {tensor.name or tensor.node.op.name} "
            f"is, made at {location_of(tensor.node)}",
            fix=f"install {_KNOW_BFLOAT16}, or newer ones, or {_HOST}",
        )


def without_library(what: str, error: Exception) -> ExecutorError:
    """Say that a library of CUDA is not there, and what it would have done."""
    return ExecutorError(
        f"the CuPy executor can't {what}: {str(error).strip()}",
        fix=f"install CUDA's libraries along with CuPy: {PACKAGES}",
    )


def not_compiled(build: GpuProgram, log: str, architecture: str) -> ExecutorError:
    """Say which kernel was refused, what it computes, and where that was written."""
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


def too_large(
    build: GpuProgram, layouts: GpuLayouts, layout: GpuLayout, cupy: Any
) -> ExecutionError:
    """Say what a run wanted, what is large in it, what there was, and what would fit."""
    free, total = cupy.cuda.runtime.memGetInfo()
    sizes = layout.sizes
    held = {s: bytes_at(s, sizes) for s in (*build.block_of, *build.outputs)}
    largest = sorted(held.items(), key=lambda entry: -entry[1])[:5]
    lines = [
        f"{shown_bytes(nbytes)}: "
        + (f"{s.node.op.name} made at {location_of(s.node)}" if isinstance(s, Tensor) else s.why)
        for s, nbytes in largest
    ]
    at = f" at {', '.join([f'{name} = {n}' for name, n in sizes.items()])}" if sizes else ""
    fix = "make fewer values live at once: gf.checkpoint computes some again"
    if sizes:
        fix = f"run it with smaller {' or '.join(sizes)}; or " + fix
        # Where there is enough, but in pieces, nobody knows what would fit.
        wanted = sizes if layout.needed > free else ()
        found = {name: _fitting(layouts, sizes, name, free) for name in wanted}
        fitting = [f"{name} = {size}" for name, size in found.items() if size]
        if fitting:
            fix = f"{' or '.join(fitting)} would fit, or " + fix
    return ExecutionError(
        f"the GPU has too little memory: a run{at} takes {shown_bytes(layout.needed)} besides "
        f"variables and feeds; {shown_bytes(free)} of {shown_bytes(total)} are free",
        why="the largest tensors: " + "; ".join(lines),
        fix=fix,
    )


def _fitting(layouts: GpuLayouts, sizes: Mapping[str, int], name: str, free: int) -> int:
    """Return the largest size of a dim below this one with which a run fits; 0 if there is none."""
    low, high = 0, sizes[name]
    while high - low > 1:
        middle = (low + high) // 2
        try:
            needed = layouts.made(tuple({**sizes, name: middle}.values())).needed
        except ArithmeticError:
            return 0
        low, high = (middle, high) if needed <= free else (low, middle)
    return low


def lasting(cupy: Any) -> tuple[type[Exception], ...]:
    """Return the errors by which CUDA says that it has failed, perhaps for good."""
    return cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError


@contextmanager
def translated(device: Device) -> Iterator[None]:
    """Turn what CUDA says into an error of graphfw, which says whether it goes on."""
    if device.lost:
        raise _lost(device)
    try:
        yield
    except lasting(device.cupy) as error:
        try:
            device.cupy.cuda.runtime.deviceSynchronize()
        except lasting(device.cupy):
            device.lost = str(error)
            raise _lost(device) from error
        raise ExecutionError(
            f"CUDA refuses what it is asked for: {error}",
            why="the GPU goes on: the variables are as they were before, and can be saved",
            fix="python -m graphfw doctor says what is there",
        ) from error
    except device.cupy.cuda.memory.OutOfMemoryError as error:
        free, total = device.cupy.cuda.runtime.memGetInfo()
        raise ExecutionError(
            f"the GPU has too little memory: {shown_bytes(free)} of {shown_bytes(total)} are free",
            why=str(error),
            fix="close sessions and drop arrays that are not needed any more",
        ) from error


def _lost(device: Device) -> ExecutionError:
    return ExecutionError(
        f"the GPU has failed: {device.lost}",
        why="CUDA refuses all further work of this process after such an error, so this session is "
        "lost, and what its variables contained with it",
        fix="start again from the last checkpoint; CUDA_LAUNCH_BLOCKING=1 shows which launch it "
        "was",
    )


def is_missing_library(error: Exception) -> bool:
    """Whether an error of CuPy, or of `cuda.pathfinder`, says that a library of CUDA is missing."""
    if isinstance(error, GraphfwError | ModuleNotFoundError):  # the latter is about Python's
        return False
    names = [one.__name__ for one in type(error).__mro__]
    is_known = isinstance(error, ImportError) or "DynamicLibNotFoundError" in names
    return is_known or "failed to load" in str(error)


def cuda_version(number: int) -> str:
    """Return a version of CUDA as it is written, given the driver's number of it."""
    return f"{number // 1000}.{number % 1000 // 10}"
