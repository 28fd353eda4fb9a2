"""A GPU's refusals, as errors that say what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib import NumpyVersion

from graphfw.errors import ExecutorError, GraphfwError
from graphfw.ir.dtype import bfloat16
from graphfw.runtime.locations import location_of
from graphfw.runtime.program import Program

HOST = 'use executor="numpy"'
_NO_DEVICE = 100  # cudaErrorNoDevice
PACKAGES = 'pip install "cupy-cuda12x[ctk]" or "cupy-cuda13x[ctk]"'
_KNOW_BFLOAT16 = "CuPy 14 and NumPy 2.1.2"
"""The first version of CuPy with bfloat16, by ml_dtypes: cupy/cupy#9494."""
_OLD_DRIVER = 35  # cudaErrorInsufficientDriver; also where there is no driver at all


def without_cupy(error: ImportError) -> ExecutorError:
    """Say that CuPy is not there."""
    return ExecutorError(
        f"the CuPy executor can't run here: {error}",
        fix=f"install CuPy: {PACKAGES}; or {HOST}",
    )


def without_device(cupy: Any, error: Exception) -> ExecutorError:
    """Return why no device can be counted."""
    status = getattr(error, "status", None)
    if status == _OLD_DRIVER:
        driver = cupy.cuda.runtime.driverGetVersion()
        needed = cuda_version(cupy.cuda.runtime.runtimeGetVersion())
        if driver:
            return ExecutorError(
                f"the CuPy executor can't run here: the NVIDIA driver knows CUDA "
                f"{cuda_version(driver)} and CuPy needs {needed}",
                fix="update the driver, or install the CuPy of an older CUDA: "
                f'pip install "cupy-cuda12x[ctk]"; or {HOST}',
            )
        return ExecutorError(
            "the CuPy executor can't run here: there is no NVIDIA driver",
            fix=f"install the NVIDIA driver, or {HOST}",
        )
    if status == _NO_DEVICE:
        return ExecutorError(
            "the CuPy executor can't run here: the NVIDIA driver finds no GPU",
            fix=f"see whether nvidia-smi lists one and CUDA_VISIBLE_DEVICES hides none, or {HOST}",
        )
    return ExecutorError(
        f"the CuPy executor can't run here: CuPy is installed, but CUDA says: {error}",
        fix=f"install or update the NVIDIA driver, or {HOST}",
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
            fix=f"install {_KNOW_BFLOAT16}, or newer ones, or {HOST}",
        )


def without_library(what: str, error: Exception) -> ExecutorError:
    """Say that a library of CUDA is not there, and what it would have done."""
    return ExecutorError(
        f"the CuPy executor can't {what}: {str(error).strip()}",
        fix=f"install CUDA's libraries along with CuPy: {PACKAGES}",
    )


def lasting(cupy: Any) -> tuple[type[Exception], ...]:
    """Return the errors by which CUDA says that it has failed, perhaps for good."""
    return cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError


def is_missing_library(error: Exception) -> bool:
    """Return whether an error of CuPy or `cuda.pathfinder` says that a CUDA library is missing."""
    if isinstance(error, GraphfwError | ModuleNotFoundError):  # the latter is about Python's
        return False
    names = [one.__name__ for one in type(error).__mro__]
    is_known = isinstance(error, ImportError) or "DynamicLibNotFoundError" in names
    return is_known or "failed to load" in str(error)


def cuda_version(number: int) -> str:
    """Return a version of CUDA as it is written, given the driver's number of it."""
    return f"{number // 1000}.{number % 1000 // 10}"
