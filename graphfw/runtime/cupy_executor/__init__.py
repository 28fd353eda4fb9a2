"""The executor `"cupy"`: CuPy arrays out, NumPy or CuPy arrays in, on a CUDA GPU.

The only folder that imports cupy, and only when such an executor is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np

from graphfw.errors import ExecutionError, ExecutorError, FeedError, a_type
from graphfw.ir.dtype import DType, as_dtype
from graphfw.ir.literal import Array
from graphfw.ir.op import Op, Rng
from graphfw.ir.tensor import Node, Tensor
from graphfw.passes.base import Pass
from graphfw.runtime import feeding
from graphfw.runtime.array_executor import ArrayExecutable, NodeCall
from graphfw.runtime.cupy_executor import failures
from graphfw.runtime.cupy_executor.capture import Capturing
from graphfw.runtime.cupy_executor.deferred_check import SessionFlags
from graphfw.runtime.cupy_executor.device import Device
from graphfw.runtime.cupy_executor.executable import GpuExecutable
from graphfw.runtime.cupy_executor.staging import HostArray
from graphfw.runtime.cupy_executor.stored import (
    Edge,
    StoredArray,
    array_dtype,
    bytes_of,
    runs_on_host,
    to_device,
    to_host,
)
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
        self._capturing = Capturing(self._cupy)
        self._halts = SessionFlags(self._gpu)

    def load(self, program: Program, options: Options) -> Executable:
        failures.require_bfloat16(self._cupy, program)
        if compiles():
            self._gpu.require_capability()
            return GpuExecutable(program, options, self._gpu, self._capturing, self._halts)
        options.require_no_limit("GRAPHFW_JIT=0", "leave it out, or unset GRAPHFW_JIT")
        with self._working():
            return _OnDevice(program, self._gpu)

    def passes(self) -> Sequence[Pass]:
        if not compiles():
            return super().passes()
        module = import_module(f"{__name__}.passes")
        found: Sequence[Pass] = module.passes(self._gpu.capability)
        return found

    def feed(self, placeholder: Tensor, value: Any) -> Any:
        """Return an array of this GPU as it is, in place; what is on the host stays there.

        The run copies it, together with the others that it is fed.
        """
        if not isinstance(value, (self._cupy.ndarray, StoredArray)):
            if not _is_on_gpu(value):
                return feeding.host_array(placeholder, value)
            value = self._taken(placeholder, value)
        if value.device.id != self._device:
            raise FeedError(
                f'"{placeholder.name}" is fed an array of GPU {value.device.id}, '
                f"and the session runs on GPU {self._device}",
                fix=f'make the session with executor="cupy:{value.device.id}", or move the array',
            )
        wanted = placeholder.dtype
        if value.dtype != wanted.dtype:
            raise FeedError(
                f'"{placeholder.name}" is {wanted.name} and is fed {value.dtype.name}',
                fix=_conversion(value, wanted),
            )
        return value

    def _taken(self, placeholder: Tensor, value: Any) -> Any:
        """Return an array of another framework as CuPy's, in the same memory."""
        cupy = self._cupy
        take = cupy.from_dlpack if hasattr(value, "__dlpack__") else cupy.asarray
        with self._working():
            try:
                return take(value)  # which makes streams wait for one another
            except failures.lasting(cupy):
                raise
            except Exception as error:
                raise FeedError(
                    f"{feeding.label(placeholder)} can't take the memory of {a_type(value)}: "
                    f"{error}",
                    fix="hand over a tensor without gradients: tensor.detach()",
                ) from error

    def from_host(self, array: Array) -> Any:
        with self._working():
            # New contents of variables: CUDA graphs know where the old ones are, and keep them.
            self._capturing.forget_variables()
            stream = self._cupy.cuda.get_current_stream()
            self._gpu.streams.reads(stream)
            dtype = as_dtype(array.dtype)
            empty = self._cupy.empty(array.shape, array_dtype(dtype))
            made = self._gpu.streams.lasting(empty)
            self._gpu.staging.send([HostArray(array, 0)], made.data.ptr, stream)
            self._gpu.streams.has_written(stream)
            return StoredArray(made, dtype) if dtype.is_storage else made

    def release(self) -> None:
        self._capturing.drop()

    def to_host(self, array: Any) -> Array:
        (host,) = self.to_hosts([array])
        return host

    def to_hosts(self, arrays: Sequence[Any]) -> list[Array]:
        kind = (self._cupy.ndarray, StoredArray)
        with self._working():
            stream = self._cupy.cuda.get_current_stream()
            self._gpu.streams.reads(stream)
            there = [bytes_of(a) for a in arrays if isinstance(a, kind)]
            fetched = iter(self._gpu.staging.fetch(there, stream))
        return [next(fetched).view(a.dtype) if isinstance(a, kind) else np.array(a) for a in arrays]

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Work on the GPU, and tell where it fails."""
        with self._gpu.current(), self._gpu.translated():
            yield


class _OnDevice(ArrayExecutable):
    """Runs on one GPU, whichever is current in the thread that calls."""

    def __init__(self, program: Program, gpu: Device) -> None:
        super().__init__(program, gpu.cupy)
        self._gpu = gpu
        self._edge = Edge(program)

    def __call__(
        self,
        inputs: Sequence[Any],
        sizes: tuple[int, ...],
        rng: Rng,
        version: int,
        claim: Claim | None,
    ) -> list[Any]:
        cupy = self._gpu.cupy
        with self._gpu.current(), self._gpu.translated():
            arrays = [cupy.asarray(array) for array in self._edge.taken(inputs)]
            try:
                return self._edge.handed(super().__call__(arrays, sizes, rng, version, claim))
            except ExecutionError as error:
                own = (cupy.cuda.memory.OutOfMemoryError, *failures.lasting(cupy))
                cause = error.__cause__
                if cause is not None and isinstance(cause, own):
                    raise cause from None  # it is the GPU's, not the operation's
                raise

    def blame(self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng) -> ExecutionError:
        host = self._edge.to_host_copies(self.xp, inputs)
        return ArrayExecutable(self.program, np).blame(host, sizes, rng)

    def _constant(self, node: Node) -> Any:
        return to_device(self.xp, node.op.eval(np), node.types[0].dtype)

    def _step(self, node: Node, op: Op, freed: tuple[int, ...], into: int | None) -> NodeCall:
        if not runs_on_host(node, has_kernels=False):
            return super()._step(node, op, freed, into)
        call = op.kernel(np, *[tensor.dtype for tensor in node.inputs])

        def computed(*arrays: Any, **random: Any) -> Any:
            pairs = zip(arrays, node.inputs, strict=True)
            found = call(*[to_host(self.xp, a, t.dtype) for a, t in pairs], **random)
            values = zip(found if op.multiple else (found,), node.types, strict=True)
            made = [to_device(self.xp, value, kind.dtype) for value, kind in values]
            return made if op.multiple else made[0]

        return super()._step(node, op, freed, None)._replace(call=computed, into=None)


def _conversion(array: Any, wanted: DType) -> str:
    """Return how an array of this GPU becomes one of another dtype."""
    if wanted.is_storage and array.dtype == np.uint8:
        return f'if these are its bytes, say so: {__name__}.StoredArray(array, "{wanted.name}")'
    if wanted.is_storage or isinstance(array, StoredArray):
        return f"feed it as {array.dtype.name}, and convert it in the graph: gf.astype"
    return f'convert it: array.astype("{wanted.name}")'


_CUDA = 2
"""DLPack's number for memory of an NVIDIA GPU."""


def _is_on_gpu(value: Any) -> bool:
    device_of = getattr(value, "__dlpack_device__", None)
    if callable(device_of):
        return bool(device_of()[0] == _CUDA)
    return hasattr(value, "__cuda_array_interface__")


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
            fix=f'use "cupy:0" to "cupy:{count - 1}"',
        )
    return number
