"""The real cuDNN's plans for GPUs that are not there; run as a program, it prints them as JSON.

Since version 9.11 cuDNN plans for GPUs whose properties it is told. Its libraries are not loaded
without a driver, so where there is none one is made that can do nothing; and so that nobody else
finds that, this is a program of its own.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import graphfw as gf
from graphfw.runtime.cupy_executor import cudnn, device
from graphfw.runtime.cupy_executor.attention.cudnn import CudnnAttention
from tests.support.cuda_compilers import nvrtc
from tests.support.cuda_host import compiler
from tests.support.fake_cublaslt import FakeCublasLt
from tests.support.fake_cupy import FakeCupy

_DRIVER = (
    *("GetErrorString", "TensorMapEncodeIm2col", "TensorMapEncodeTiled", "GetErrorName"),
    *("CtxGetCurrent", "CtxGetLimit", "CtxPopCurrent", "CtxPushCurrent", "DeviceGet"),
    *("DeviceGetCount", "LaunchCooperativeKernel", "LaunchKernel", "LaunchKernelEx", "LinkAddData"),
    *("LinkComplete", "LinkCreate", "LinkDestroy", "OccupancyMaxPotentialClusterSize"),
    *("StreamGetCtx", "LibraryLoadFromFile", "ThreadExchangeStreamCaptureMode"),
)
_LOADING = (
    *("ModuleLoadData", "ModuleGetFunction", "LibraryLoadData", "LibraryGetKernel"),
    "KernelGetFunction",
)
"""The driver's functions by which plans of attention load kernels as they are made."""

_SETTING = (
    *("ModuleUnload", "LibraryUnload", "KernelGetAttribute", "KernelSetAttribute"),
    "FuncSetAttribute",
)
_NO_DEVICE = 100
_NEWEST = 13000
_EVERY = {
    "maxGridSize": [2**31 - 1, 65535, 65535],
    "maxBlockSize": [1024, 1024, 64],
    "regsPerBlock": 65536,
    "smCountOrigin": 0,
    "warpSize": 32,
    "maxSharedMemoryPerBlock": 48 << 10,
    "reservedSharedMemoryPerBlock": 1 << 10,
    "oversizedSharedMemoryPerBlock": 0,
    "maxRegistersPerSM": 65536,
    "maxCtasPerSM": 32,
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerSM": 2048,
    "pciDeviceId": 0,
    "isTccDriver": 0,
    "supportCoopLaunch": 1,
    "cudaDeviceId": 0,
    "driverVer": 13000,
    "memoryBusWidth": 5120,
}
GPUS = {
    "A100": {
        "deviceName": "NVIDIA A100-SXM4-40GB",
        "deviceVer": 800,
        "multiProcessorCount": 108,
        "maxSharedMemoryPerBlockOptin": 163 << 10,
        "totalGlobalMem": 40 << 30,
        "smClockRateKHz": 1410000,
        "memClockRateKHz": 1215000,
        "l2CacheSize": 40 << 20,
    },
    "H100": {
        "deviceName": "NVIDIA H100 80GB HBM3",
        "deviceVer": 900,
        "multiProcessorCount": 132,
        "maxSharedMemoryPerBlockOptin": 227 << 10,
        "totalGlobalMem": 80 << 30,
        "smClockRateKHz": 1980000,
        "memClockRateKHz": 2619000,
        "l2CacheSize": 50 << 20,
    },
}


def _load_driver(folder: str) -> None:
    """Load a driver by which nothing can be done, where there is none."""
    name = "libcuda.so.1"
    try:
        ctypes.CDLL(name)
    except OSError:
        lines = [f"int cu{function}(...) {{ return {_NO_DEVICE}; }}" for function in _DRIVER]
        lines += [f"int cu{f}(void** it, ...) {{ *it = (void*)1; return 0; }}" for f in _LOADING]
        lines += [f"int cu{function}(...) {{ return 0; }}" for function in _SETTING]
        lines.append(f"int cuDriverGetVersion(int* it) {{ *it = {_NEWEST}; return 0; }}")
        source = Path(folder, "driver.cpp")
        source.write_text('extern "C" {\n' + "\n".join(lines) + "\n}\n")
        made = str(source.with_suffix(".so"))
        command = [compiler(), "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", made, str(source)]
        subprocess.run(command, check=True)
        ctypes.CDLL(made, ctypes.RTLD_GLOBAL)


def _block(dtype: str, channels: int = 64, size: int = 28) -> Iterator[gf.Tensor]:
    """Residual blocks, as a network for images has them, and the gradients of their kernels."""
    images = (8, channels, size, size)
    x, r = gf.placeholder(images, dtype, name="x"), gf.placeholder(images, dtype, name="r")
    w = gf.placeholder((channels, channels, 3, 3), dtype, name="w")
    b = gf.placeholder((channels,), dtype, name="b")
    yield from (x, r, w, b)
    y = gf.relu(gf.conv(x, w, b, padding=1))
    y = gf.relu(gf.conv(y, w, b, padding=1) + r)
    y = gf.gelu(gf.conv(y, w, b, padding=1, stride=2))
    yield y
    yield from gf.grad(gf.sum(y * y), [w, x])


def _ended(dtype: str) -> Iterator[gf.Tensor]:
    """Convolutions that end as cuDNN knows them."""
    images = (8, 64, 28, 28)
    x, r = gf.placeholder(images, dtype, name="x"), gf.placeholder(images, dtype, name="r")
    w, b = gf.placeholder((64, 64, 3, 3), dtype, name="w"), gf.placeholder((64,), dtype, name="b")
    yield from (x, r, w, b)
    yield gf.conv(gf.conv(x, w, b, padding=1), w, b, padding=1) + r


def _of(rank: int, channels: int, groups: int, **options: Any) -> Iterator[gf.Tensor]:
    """One convolution with its gradients."""
    size = (50, 20, 12)[rank - 1]
    x = gf.placeholder((4, channels, *[size] * rank), name="x")
    w = gf.placeholder((channels * 2, channels // groups, *[3] * rank), name="w")
    yield from (x, w)
    y = gf.conv(x, w, groups=groups, **options)
    yield y
    yield from gf.grad(gf.sum(y * y), [w, x])


def _pixels(rank: int, channels: int, groups: int, **options: Any) -> Iterator[gf.Tensor]:
    """Convolutions whose images are channels-last, and what is needed to train them."""
    size = (50, 20, 12)[rank - 1]
    x = gf.placeholder((4, channels, *[size] * rank), "bfloat16", name="x")
    v = gf.placeholder((24, channels, *[3] * rank), "bfloat16", name="v")
    w = gf.placeholder((24, 24 // groups, *[3] * rank), "bfloat16", name="w")
    yield from (x, v, w)
    y = gf.relu(gf.conv(x, v, padding=1, stride=2))
    y = gf.conv(gf.relu(gf.conv(y, w, groups=groups, **options)), w, groups=groups, **options)
    y = gf.mean(gf.relu(y), axis=tuple(range(2, rank + 2)))
    yield y
    yield from gf.grad(gf.sum(y * y), [v, w])


def _transposed() -> Iterator[gf.Tensor]:
    x = gf.placeholder((4, 32, 14, 14), name="x")
    w = gf.placeholder((32, 16, 4, 4), name="w")
    yield from (x, w)
    y = gf.conv_transpose(x, w, stride=2, padding=1)
    yield y
    yield from gf.grad(gf.sum(y * y), [x])


def _attention(
    shape: tuple[int, ...], keys: tuple[int, ...] = (), *, dtype: str = "bfloat16", **form: Any
) -> Iterator[gf.Tensor]:
    """Attention with its gradients; values are as wide as keys."""
    q = gf.placeholder(shape, dtype, name="q")
    k, v = [gf.placeholder(keys or shape, dtype, name=name) for name in "kv"]
    yield from (q, k, v)
    y = gf.scaled_dot_product_attention(q, k, v, **form)
    yield y
    yield from gf.grad(gf.sum(gf.astype(y * y, "float32")), [q, k, v])


def _heads() -> Iterator[gf.Tensor]:
    """The same of heads that lie side by side, as a projection leaves them."""
    x = gf.placeholder((2, 200, 3 * 4 * 64), "bfloat16", name="x")
    yield x
    split = gf.reshape(x, (2, 200, 3, 4, 64))
    q, k, v = [gf.swapaxes(split[:, :, i], 1, 2) for i in range(3)]
    y = gf.scaled_dot_product_attention(q, k, v, causal=True)
    yield y
    yield from gf.grad(gf.sum(gf.astype(y * y, "float32")), [x])


ATTENTION: dict[str, tuple[Callable[[], Iterator[gf.Tensor]], dict[str, Any]]] = {
    "attention bfloat16": (lambda: _attention((2, 4, 256, 64)), {}),
    "attention float16": (lambda: _attention((2, 4, 256, 128), dtype="float16", causal=True), {}),
    "attention odd bfloat16": (lambda: _attention((2, 3, 77, 40), (2, 3, 45, 40)), {}),
    "attention causal bfloat16": (
        lambda: _attention((2, 3, 45, 64), (2, 3, 77, 64), causal=True),
        {},
    ),
    "attention heads bfloat16": (_heads, {}),
    "attention wide float16": (lambda: _attention((1, 2, 130, 256), dtype="float16"), {}),
    "attention grouped bfloat16": (
        lambda: _attention((2, 2, 3, 99, 64), (2, 2, 1, 99, 64), causal=True),
        {},
    ),
}

LONG: dict[str, tuple[Callable[[], Iterator[gf.Tensor]], dict[str, Any]]] = {
    f"attention {time} by {width}": (
        partial(_attention, (max(1, 16384 // time), 1024 // width, time, width), causal=True),
        {},
    )
    for time, width in ((128, 64), (512, 128), (2048, 64), (8192, 64), (8192, 128))
}
"""As the benchmarks have it: too much for a CPU to compute again."""

PROGRAMS: dict[str, tuple[Callable[[], Iterator[gf.Tensor]], dict[str, Any]]] = {
    "block float32": (lambda: _block("float32"), {}),
    "block tf32": (lambda: _block("float32"), {"matmul_precision": "high"}),
    "block strict": (lambda: _block("float32"), {"matmul_precision": "highest"}),
    "block float16": (lambda: _block("float16"), {}),
    "block bfloat16": (lambda: _block("bfloat16"), {}),
    "block float64": (lambda: _block("float64"), {}),
    "ended float32": (lambda: _ended("float32"), {}),
    "ended bfloat16": (lambda: _ended("bfloat16"), {}),
    "odd float32": (lambda: _block("float32", 7, 9), {}),
    "odd float16": (lambda: _block("float16", 7, 9), {}),
    "1d": (lambda: _of(1, 16, 1, padding=1), {}),
    "1d stride": (lambda: _of(1, 16, 1, padding=2, stride=2), {}),
    "uneven": (lambda: _of(2, 16, 1, padding=((1, 0), (2, 1)), stride=(2, 1)), {}),
    "dilation": (lambda: _of(2, 16, 1, padding=2, dilation=2), {}),
    "groups": (lambda: _of(2, 32, 4, padding=1), {}),
    "3d": (lambda: _of(3, 16, 1, padding=1, stride=2), {}),
    "transposed": (_transposed, {}),
    "pixels 1d bfloat16": (lambda: _pixels(1, 16, 1, padding=1), {}),
    "pixels bfloat16": (lambda: _pixels(2, 3, 1, padding=1, dilation=1), {}),
    "pixels odd bfloat16": (lambda: _pixels(2, 7, 1, padding=((1, 0), (2, 1))), {}),
    "pixels groups bfloat16": (lambda: _pixels(2, 16, 3, padding=1), {}),
    "pixels 3d bfloat16": (lambda: _pixels(3, 16, 1, padding=1), {}),
}


def reports(properties: dict[str, Any], folder: str) -> dict[str, str]:
    """Return the text of each program's plan, on a GPU with these properties.

    The stand-in for CuPy has its compute capability. Under "run", what cuDNN says to plans being
    run: there is no handle. Under "kept", a line for each plan of attention: how long it takes to
    make it, and to read it from disk, in seconds; then the scratch memory of both.

    Args:
        properties: See above.
        folder: Where plans are kept.
    """
    sys.modules["cupy"].cuda.Device.compute_capability = str(properties["deviceVer"] // 10)
    real = cudnn.load()
    made = real.create_device_properties(json.dumps(_EVERY | properties))
    where = {"device_property": made, "sm_version": properties["deviceVer"] // 10}
    os.environ["GRAPHFW_CACHE"] = folder
    library, other = [cudnn.Cudnn(real, properties["deviceName"], **where) for _ in range(2)]
    cudnn.Cudnn = lambda *_: library  # type: ignore[assignment,misc]  # a stand-in
    found, said, kept = {}, set(), dict[tuple[cudnn.CudnnCode, Sequence[int]], str]()
    plan = library.plan

    def tried(code: cudnn.CudnnCode, params: Sequence[int]) -> cudnn.CudnnPlan | str:
        begin = time.process_time()
        made = plan(code, params)
        if isinstance(made, cudnn.CudnnPlan):
            _refused(made, said)
            if isinstance(code, CudnnAttention) and (code, tuple(params)) not in kept:
                first, begin = time.process_time() - begin, time.process_time()
                again = other.plan(code, params)
                assert isinstance(again, cudnn.CudnnPlan)
                times = first, time.process_time() - begin
                _refused(again, said)
                line = [*times, made.workspace, again.workspace]
                kept[code, tuple(params)] = " ".join(map(str, line))
        return made

    library.plan = tried  # type: ignore[method-assign]  # a stand-in
    for name, (program, options) in (PROGRAMS | ATTENTION | LONG).items():
        with gf.Graph() as g:
            tensors = [*program()]
        inputs = [t for t in tensors if t.node.op.name == "placeholder"]
        outputs = tensors[len(inputs) :]
        with gf.Session(g, executor="cupy", **options) as session:
            found[name] = session.compile(outputs, feeds=inputs).explain()
    return {**found, "run": "\n".join(said), "kept": "\n".join(kept.values())}


def _refused(plan: cudnn.CudnnPlan, said: set[str]) -> None:
    """Run a plan, and note what cuDNN says to that."""
    try:
        plan.graph.execute({n + 1: 4096 for n in range(len(plan.offsets))}, 8192, None)
    except RuntimeError as error:
        said.add(str(error))


def main() -> None:
    """Print the reports for a GPU, whose name is the argument."""
    cublaslt, cupy = FakeCublasLt(), FakeCupy()
    sys.modules["cupy"] = cupy  # type: ignore[assignment]  # a stand-in
    cublaslt.perform = cupy.streams.perform
    vars(device)["load"] = lambda cuda: cublaslt
    nvrtc()  # in the place of CuPy, which loads all of it
    with tempfile.TemporaryDirectory() as folder:
        _load_driver(folder)
        sys.stdout.write(json.dumps(reports(GPUS[sys.argv[1]], folder)))


if __name__ == "__main__":
    main()
