"""What a GPU refuses, as errors that say what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from graphfw.errors import ExecutionError, ExecutorError, GraphfwError
from graphfw.ir.dim_text import evaluate
from graphfw.ir.tensor import Tensor
from graphfw.runtime.cupy_executor.build import Build
from graphfw.runtime.cupy_executor.codegen import CudaCode
from graphfw.runtime.limits import shown_bytes
from graphfw.runtime.places import place_of

_HOST = 'use executor="numpy"'
_NO_DEVICE = 100  # cudaErrorNoDevice
_OLD_DRIVER = 35  # cudaErrorInsufficientDriver; also where there is no driver at all


def without_cupy(error: ImportError) -> ExecutorError:
    """Say that CuPy is not there."""
    return ExecutorError(
        f"the CuPy executor can't run here: {error}",
        fix=f'install CuPy: pip install "graphfw[cuda12]" or "graphfw[cuda13]"; or {_HOST}',
    )


def without_device(cupy: Any, error: Exception) -> ExecutorError:
    """Say why no device can be counted."""
    status = getattr(error, "status", None)
    if status == _OLD_DRIVER:
        driver = cupy.cuda.runtime.driverGetVersion()
        needed = _version(cupy.cuda.runtime.runtimeGetVersion())
        if driver:
            return ExecutorError(
                f"the CuPy executor can't run here: the NVIDIA driver knows CUDA "
                f"{_version(driver)} and CuPy needs {needed}",
                fix="update the driver, or install the CuPy of an older CUDA: "
                f'pip install "graphfw[cuda12]"; or {_HOST}',
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


def without_compiler(error: Exception) -> ExecutorError:
    """Say that the library that compiles kernels is not there."""
    return ExecutorError(
        f"the CuPy executor can't compile its kernels: {error}",
        fix="install CUDA's libraries along with CuPy: "
        'pip install "cupy-cuda12x[ctk]" or "cupy-cuda13x[ctk]"',
    )


def not_compiled(build: Build, log: str, architecture: str) -> ExecutorError:
    """Say which kernel was refused, what it computes, and where that was written."""
    guilty = next((code for code in build.codes if code.symbol in log), None)
    codes = build.codes if guilty is None else [guilty]
    lines = [log.strip()[:2000]]
    for code in codes[:1]:
        lines += ["the kernel:", code.key.rstrip(), "which computes:", *_made(build, code)]
    return ExecutorError(
        f"CUDA refuses a kernel that was generated for {architecture}",
        why="\n".join(lines),
        fix="this is a mistake in graphfw; GRAPHFW_JIT=0 has CuPy compute node by node instead",
    )


def _made(build: Build, code: CudaCode) -> list[str]:
    return [f"  {node.op.name} made at {place_of(node)}" for node in build.nodes_of(code)]


def too_large(build: Build, needed: int, sizes: Mapping[str, int], cupy: Any) -> ExecutionError:
    """Say what a run wanted, what is large in it, and what there was."""
    free, total = cupy.cuda.runtime.memGetInfo()
    held = {s: evaluate(s.size, sizes) * s.dtype.itemsize for s in build.block_of}
    held |= {s: evaluate(s.size, sizes) * s.dtype.itemsize for s in build.outputs}
    largest = sorted(held.items(), key=lambda entry: -entry[1])[:5]
    lines = [
        f"{shown_bytes(nbytes)}: "
        + (f"{s.node.op.name} made at {place_of(s.node)}" if isinstance(s, Tensor) else s.why)
        for s, nbytes in largest
    ]
    at = f" at {', '.join([f'{name} = {n}' for name, n in sizes.items()])}" if sizes else ""
    fix = "make fewer values live at once: gf.checkpoint computes some again"
    if sizes:
        fix = f"run it with smaller {' or '.join(sizes)}; or " + fix
    return ExecutionError(
        f"the GPU has too little memory: a run{at} takes {shown_bytes(needed)} besides variables "
        f"and feeds; {shown_bytes(free)} of {shown_bytes(total)} are free",
        why="the largest tensors: " + "; ".join(lines),
        fix=fix,
    )


def lasting(cupy: Any) -> tuple[type[Exception], ...]:
    """Return the errors after which CUDA does no more work for this process."""
    return cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError


@contextmanager
def told(cupy: Any) -> Iterator[None]:
    """Turn what CUDA says while a run goes on into an error of graphfw."""
    try:
        yield
    except lasting(cupy) as error:
        raise ExecutionError(
            f"the GPU has failed: {error}",
            why="CUDA refuses all further work of this process after such an error, so this "
            "session is lost",
            fix="start again from the last checkpoint; "
            "CUDA_LAUNCH_BLOCKING=1 shows which launch it was",
        ) from error


def is_missing_library(error: Exception) -> bool:
    """Whether an error of CuPy says that it can't load a library of CUDA."""
    return not isinstance(error, GraphfwError) and "failed to load" in str(error)


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"
