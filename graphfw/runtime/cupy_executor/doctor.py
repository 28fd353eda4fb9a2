"""A report of the hardware and the libraries that the CuPy executor needs."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from importlib import import_module, metadata
from typing import Any

from graphfw.errors import ExecutorError, GraphfwError, first_line
from graphfw.ir.graph import Graph
from graphfw.ops.creation.inputs import placeholder
from graphfw.runtime.cupy_executor import capture, cublaslt, cudnn, failures
from graphfw.runtime.cupy_executor.codegen import PRELUDE
from graphfw.runtime.cupy_executor.device import OPTIONS
from graphfw.runtime.doctor import Finding
from graphfw.runtime.limits import shown_bytes

_NAME = "GPU"


def findings() -> Iterator[Finding]:
    """Yield the findings, one after the other; none that depends on something missing."""
    driver = _driver()
    if driver is None:
        yield Finding(
            "NVIDIA driver",
            "missing",
            "there is none",
            "where there is a GPU, install it from nvidia.com or by the system's packages",
        )
    else:
        yield Finding("NVIDIA driver", "good", f"for CUDA {failures.cuda_version(driver)}")
    wheels = sorted({name for name in _distributions() if name.startswith("cupy")})
    if len(wheels) > 1:
        yield Finding(
            "CuPy",
            "broken",
            f"{', '.join(wheels)} are installed, and are in each other's way",
            f"pip uninstall {' '.join(wheels)}, then {failures.PACKAGES}",
        )
        return
    try:
        import cupy
    except Exception as error:  # it may fail in any way where libraries are not its own
        yield Finding("CuPy", "missing", first_line(error), failures.PACKAGES)
        return
    yield Finding("CuPy", "good", cupy.__version__)
    yield _compiler(cupy)
    yield _products(cupy)
    yield _cudnn()
    yield from _devices(cupy)


def _driver() -> int | None:
    """Return for which CUDA the driver is; None where there is no driver."""
    try:
        library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        version = ctypes.c_int()
        failed = library.cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return None
    return None if failed else version.value


def _distributions() -> Iterator[str]:
    for one in metadata.distributions():
        name = one.metadata["Name"]
        if name:
            yield name.lower()


def _compiler(cupy: Any) -> Finding:
    """Compile what all kernels share: that needs no GPU."""
    try:
        nvrtc = cupy.cuda.nvrtc
        version = ".".join(map(str, nvrtc.getVersion()[:2]))
        program = nvrtc.createProgram(PRELUDE, "graphfw.cu", [], [])
        nvrtc.compileProgram(program, ("-arch=sm_80", *OPTIONS))
    except Exception as error:
        return Finding("NVRTC", "missing", first_line(error), failures.PACKAGES)
    return Finding("NVRTC", "good", f"{version}, compiles kernels")


def _products(cupy: Any) -> Finding:
    """Look for what multiplies matrices."""
    try:
        cublaslt.load(cupy.cuda.runtime.runtimeGetVersion() // 1000)
    except ExecutorError as error:
        return Finding("cuBLASLt", "missing", error.summary, error.fix)
    return Finding("cuBLASLt", "good", "there")


def _cudnn() -> Finding:
    """Look for cuDNN, which computes convolutions and attention where it is installed."""
    reason = cudnn.why_not()
    if reason:
        detail = f"{reason}: convolutions and attention are computed by graphfw's own kernels"
        return Finding("cuDNN", "missing", detail, cudnn.INSTALL)
    try:
        version: int = cudnn.load().backend_version()
    except ExecutorError as error:
        return Finding("cuDNN", "missing", error.summary, error.fix)
    return Finding("cuDNN", "good", cudnn.shown_version(version))


def _devices(cupy: Any) -> Iterator[Finding]:
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        failure = failures.without_device(cupy, error)
        yield Finding(_NAME, "missing", failure.summary.partition(": ")[2], failure.fix)
        return
    for number in range(count):
        found = cupy.cuda.runtime.getDeviceProperties(number)
        name = found["name"].decode()
        size = shown_bytes(found["totalGlobalMem"])
        shown = f"{name}, sm_{found['major']}{found['minor']}, {size}"
        tried = _launched(number)
        yield tried._replace(name=f"{_NAME} {number}", detail=f"{shown}, {tried.detail}")
    if count:
        yield _graphs(cupy)


def _launched(number: int) -> Finding:
    """Run a kernel on a GPU."""
    # Not at the top: few ask the doctor, and a session needs everything.
    session = import_module("graphfw.runtime.session").Session
    with Graph() as graph:
        y = placeholder((3,), name="x") * 2 + 1
    try:
        with session(graph, executor=f"cupy:{number}") as run:
            found = run.run(y, {"x": [0.0, 1.0, 2.0]}, host=True)
    except ExecutorError as error:
        return Finding("", "missing", error.summary, error.fix)
    except Exception as error:  # CUDA's own, too
        fix = error.fix if isinstance(error, GraphfwError) else ""
        detail = f"it runs no kernel: {first_line(error)}"
        return Finding("", "broken", detail, fix or "see whether nvidia-smi lists it as healthy")
    if found.tolist() != [1.0, 3.0, 5.0]:
        detail = f"a kernel gives {found.tolist()} in the place of [1.0, 3.0, 5.0]"
        return Finding("", "broken", detail, "update the NVIDIA driver, and see nvidia-smi -q")
    return Finding("", "good", "runs kernels")


def _graphs(cupy: Any) -> Finding:
    """Look for what launches many kernels at once."""
    missing = capture.unavailable(cupy)
    if missing:
        advice = "update CuPy and the driver; each kernel is launched by itself as it is"
        return Finding("CUDA graphs", "missing", missing, advice)
    return Finding("CUDA graphs", "good", "there")
