"""The executor `"cupy"`: CuPy arrays out, NumPy or CuPy arrays in, on a CUDA GPU.

The only folder that imports cupy, and only when such an executor is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from graphfw.errors import ExecutorError, FeedError
from graphfw.ir.literal import Array
from graphfw.ir.op import Rng
from graphfw.ir.tensor import Tensor
from graphfw.passes.base import Pass
from graphfw.runtime import feeding
from graphfw.runtime.array_executor import ArrayExecutable
from graphfw.runtime.cupy_executor import failures
from graphfw.runtime.cupy_executor.device import Device
from graphfw.runtime.cupy_executor.executable import GpuExecutable
from graphfw.runtime.executor import Claim, Executable, Executor, Options
from graphfw.runtime.limits import compiles
from graphfw.runtime.program import Program


class CupyExecutor(Executor):
    """Compiles programs for a GPU; `GRAPHFW_JIT=0` has CuPy compute node by node instead."""

    name = "cupy"

    def __init__(self, device: str = "") -> None:
        self._cupy = _import_cupy()
        self._device = _find_device(self._cupy, device)
        self._gpu = Device(self._cupy, self._device)

    def load(self, program: Program, options: Options) -> Executable:
        if compiles():
            return GpuExecutable(program, options, self._gpu)
        options.require_no_limit("GRAPHFW_JIT=0")
        device = self._cupy.cuda.Device(self._device)
        with device:
            return _OnDevice(program, self._cupy, device)

    def passes(self) -> Sequence[Pass]:
        if not compiles():
            return super().passes()
        found: Sequence[Pass] = import_module("graphfw.passes.pipelines").DEFAULT
        return found

    def feed(self, placeholder: Tensor, value: Any) -> Any:
        if _is_on_gpu(value) and not isinstance(value, self._cupy.ndarray):
            # PyTorch's or JAX's, in place; the exchange makes streams wait for one another.
            value = self._cupy.from_dlpack(value)
        if not isinstance(value, self._cupy.ndarray):
            return self.from_host(feeding.host_array(placeholder, value))
        if value.device.id != self._device:
            raise FeedError(
                f'"{placeholder.name}" is fed an array of GPU {value.device.id}, '
                f"and the session runs on GPU {self._device}",
                fix=f'make the session with executor="cupy:{value.device.id}", or move the array',
            )
        if value.dtype != placeholder.dtype.dtype:
            raise FeedError(
                f'"{placeholder.name}" is {placeholder.dtype.name} and is fed {value.dtype.name}',
                fix=f'convert it: array.astype("{placeholder.dtype.name}")',
            )
        return value

    def from_host(self, array: Array) -> Any:
        with self._cupy.cuda.Device(self._device):
            return self._cupy.array(array)

    def to_host(self, array: Any) -> Array:
        host: Array = self._cupy.asnumpy(array)
        return host


class _OnDevice(ArrayExecutable):
    """Runs on one GPU, whichever is current in the thread that calls."""

    def __init__(self, program: Program, cupy: Any, device: Any) -> None:
        super().__init__(program, cupy)
        self._device = device

    def __call__(
        self,
        inputs: Sequence[Any],
        sizes: tuple[int, ...],
        rng: Rng,
        version: int,
        claim: Claim | None,
    ) -> list[Any]:
        with self._device:
            return super().__call__(inputs, sizes, rng, version, claim)


_CUDA = 2
"""What DLPack calls memory of an NVIDIA GPU."""


def _is_on_gpu(value: Any) -> bool:
    place = getattr(value, "__dlpack_device__", None)
    return callable(place) and place()[0] == _CUDA


def _import_cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        raise failures.without_cupy(error) from None
    return cupy


def _find_device(cupy: Any, device: str) -> int:
    """Return the number of the device that is meant, if it is there."""
    if device and not device.isdigit():
        raise ExecutorError(f'"cupy:{device}" names no device', fix='write "cupy:0"')
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise failures.without_device(cupy, error) from None
    number = int(device or 0)
    if number >= count:
        raise ExecutorError(
            f"there is no GPU {number}: this machine has {count}",
            fix='use executor="numpy"' if count == 0 else f'use "cupy:0" to "cupy:{count - 1}"',
        )
    return number
