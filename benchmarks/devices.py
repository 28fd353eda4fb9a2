"""Devices of contenders, the CPU or one GPU, and the stopwatch of each.

Workloads ask here for what differs: how graphfw's session is made, how arrays are handed over. On a
GPU calls only enqueue work, so what is timed is the distance of two events around a round's calls.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any, Protocol

VARIABLE = "GRAPHFW_BENCH_DEVICE"
"""In the environment of contenders' processes: "cpu" or "cuda"."""

DEVICES = ("cpu", "cuda")

_OPTIONS: dict[str, dict[str, Any]] = {
    "float32": {},
    "tf32": {"matmul_precision": "high"},
    "bf16": {"precision": "mixed-bf16"},
}
"""Of graphfw's session, by what a workload's products compute in."""


def on_gpu() -> bool:
    """Return whether contenders of this process compute on a GPU."""
    return os.environ.get(VARIABLE, "cpu") == "cuda"


def environment(device: str) -> dict[str, str]:
    """Return what is in the environment of contenders' processes, which share one GPU."""
    if device == "cpu":
        return {}
    # By default JAX takes three quarters of the memory, and computes float32 in TF32.
    return {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "JAX_DEFAULT_MATMUL_PRECISION": "highest"}


def reset() -> None:
    """Have products be computed in the precision of their dtype, whatever came before."""
    if not on_gpu():
        return
    if "torch" in sys.modules:
        sys.modules["torch"].set_float32_matmul_precision("highest")
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_default_matmul_precision", "highest")


def release() -> None:
    """Give memory of the GPU back that this process keeps for later."""
    if not on_gpu():
        return
    if "torch" in sys.modules:
        sys.modules["torch"].cuda.empty_cache()
    if "cupy" in sys.modules:
        sys.modules["cupy"].get_default_memory_pool().free_all_blocks()


def session(graph: Any, precision: str = "float32", **options: Any) -> Any:
    """Return a session of graphfw that does not check its optimiser.

    Args:
        graph: What it runs.
        precision: In what products compute: "float32"; on GPUs also "tf32"; "bf16": mixed with
            float32.
        options: More of `gf.Session`'s.
    """
    import graphfw as gf

    executor = "cupy" if on_gpu() else "numpy"
    return gf.Session(graph, executor=executor, verify="off", **_OPTIONS[precision], **options)


def given(arrays: Sequence[Any]) -> list[Any]:
    """Return arrays as they are fed to graphfw: where they are needed."""
    if not on_gpu():
        return list(arrays)
    import cupy

    return [cupy.asarray(array) for array in arrays]


def placed(tensor: Any) -> Any:
    """Return a tensor of PyTorch where it is needed."""
    return tensor.cuda() if on_gpu() else tensor


def compiled(function: Any) -> Any:
    """Return what torch.compile makes of a function: on a GPU tuned, and in CUDA graphs."""
    import torch

    return torch.compile(function, **({"mode": "max-autotune"} if on_gpu() else {}))


def waited(results: Any) -> Any:
    """Return results of JAX, on the CPU when they are there."""
    import jax

    return results if on_gpu() else jax.block_until_ready(results)


class Stopwatch(Protocol):
    """Times a stretch of work."""

    def start(self) -> None: ...

    def stop(self) -> float:
        """Return the seconds since `start`, when everything since then is done."""


class HostWatch:
    """The clock of the CPU."""

    def start(self) -> None:
        self._begin = time.perf_counter()

    def stop(self) -> float:
        return time.perf_counter() - self._begin


class TorchWatch:
    """Events in PyTorch's current stream."""

    def start(self) -> None:
        import torch

        self._begin, self._end = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        torch.cuda.synchronize()
        self._begin.record()

    def stop(self) -> float:
        self._end.record()
        self._end.synchronize()
        return float(self._begin.elapsed_time(self._end)) / 1e3


class CupyWatch:
    """Events in CuPy's current stream."""

    def start(self) -> None:
        import cupy

        self._begin, self._end = cupy.cuda.Event(), cupy.cuda.Event()
        self._stream = cupy.cuda.get_current_stream()
        self._stream.synchronize()
        self._begin.record(self._stream)

    def stop(self) -> float:
        import cupy

        self._end.record(self._stream)
        self._end.synchronize()
        return float(cupy.cuda.get_elapsed_time(self._begin, self._end)) / 1e3


class JaxWatch(HostWatch):
    """The clock of the CPU around work that JAX does in order: JAX shows nobody its events."""

    def start(self) -> None:
        _drain()
        super().start()

    def stop(self) -> float:
        _drain()
        return super().stop()


def _drain() -> None:
    import jax

    (jax.numpy.zeros(()) + 1).block_until_ready()


def stopwatch(contender: str) -> Stopwatch:
    """Return what times a contender."""
    if not on_gpu():
        return HostWatch()
    return {"graphfw": CupyWatch, "copy": CupyWatch, "jax": JaxWatch}.get(contender, TorchWatch)()
