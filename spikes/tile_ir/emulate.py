"""Run two kernels as CUDA C++ on the CPU, as the tests of graphfw do, and compare with NumPy.

python -m spikes.tile_ir.emulate
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spikes.tile_ir.cases import _convolved
from spikes.tile_ir.cuda import CudaText
from spikes.tile_ir.kernel import Kernel
from spikes.tile_ir.run import evaluated
from spikes.tile_ir.schedules import gpu
from spikes.tile_ir.schedules.convolution import Window
from tests.support.cuda_checks import Room
from tests.support.cuda_host import host_module


def launched(kernel: Kernel, arrays: Sequence[NDArray[Any]], sizes: Sequence[int] = ()) -> None:
    """Run a kernel in emulated blocks of threads."""
    text = CudaText(kernel)
    function = host_module(text.text())[kernel.name]
    blocks = evaluated(text.grid, dict(zip(kernel.sizes, sizes, strict=True)))
    given = [*[np.uint64(a.ctypes.data) for a in arrays], *map(np.int64, sizes)]
    rooms = [Room(a.ctypes.data, a.nbytes) for a in arrays]
    function((blocks,), (text.threads,), given, rooms=rooms)


def main() -> None:
    """Compare both kernels with NumPy on new random numbers."""
    random = np.random.default_rng()
    for m, n, k in ((128, 128, 64), (130, 67, 45)):
        a, b = (
            random.standard_normal((m, k), np.float32),
            random.standard_normal((k, n), np.float32),
        )
        bias, c = random.standard_normal(n, np.float32), np.full((m, n), 77, np.float32)
        launched(gpu.matmul(), [a, b, bias, c], [m, n, k])
        error = np.abs(c - np.maximum(a.astype(np.float64) @ b + bias, 0)).max()
        print(f"matmul {m}x{k}x{n}: error {error:.2g}")
        assert error < 1e-4
    window = Window(5, 5, 56, 56, 3, 1, 1)
    x = random.standard_normal((1, 5, 56, 56), np.float32)
    w, y = random.standard_normal((5, 1, 3, 3), np.float32), np.full(x.shape, 77, np.float32)
    launched(gpu.depthwise(window), [x, w, y])
    error = np.abs(y - _convolved(x, w, window)).max()
    print(f"depthwise 5x56x56: error {error:.2g}")
    assert error < 1e-4


if __name__ == "__main__":
    main()
