"""The executor `"cupy"`: CuPy arrays out, NumPy or CuPy arrays in, on a CUDA GPU.

The only folder that imports cupy, and only when such an executor is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphfw.errors import ExecutorError, FeedError
from graphfw.ir.literal import Array
from graphfw.ir.op import Rng
from graphfw.ir.tensor import Tensor
from graphfw.runtime import feeding
from graphfw.runtime.array_executor import ArrayExecutable
from graphfw.runtime.executor import Claim, Executor, Options
from graphfw.runtime.program import Program


class CupyExecutor(Executor):
    """Runs programs with CuPy's functions, node by node."""

    name = "cupy"

    def __init__(self, device: str = "") -> None:
        self._cupy = _import_cupy()
        self._device = _find_device(self._cupy, device)

    def load(self, program: Program, options: Options) -> ArrayExecutable:
        options.require_no_limit("CuPy")
        device = self._cupy.cuda.Device(self._device)
        with device:
            return _OnDevice(program, self._cupy, device)

    def feed(self, placeholder: Tensor, value: Any) -> Any:
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


def _import_cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        raise ExecutorError(
            f"the CuPy executor can't run here: {error}",
            fix='install CuPy: pip install "graphfw[cuda12]" or "graphfw[cuda13]"; '
            'or use executor="numpy"',
        ) from None
    return cupy


def _find_device(cupy: Any, device: str) -> int:
    """Return the number of the device that is meant, if it is there."""
    if device and not device.isdigit():
        raise ExecutorError(f'"cupy:{device}" names no device', fix='write "cupy:0"')
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise ExecutorError(
            f"the CuPy executor can't run here: CuPy is installed, but CUDA says: {error}",
            fix='install or update the NVIDIA driver, or use executor="numpy"',
        ) from None
    number = int(device or 0)
    if number >= count:
        raise ExecutorError(
            f"there is no GPU {number}: this machine has {count}",
            fix='use executor="numpy"' if count == 0 else f'use "cupy:0" to "cupy:{count - 1}"',
        )
    return number
