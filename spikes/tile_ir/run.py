"""Compile kernels of the tile IR with graphfw's engine, and run them with its threads."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphfw.runtime.numpy_executor.buffer_pool import aligned
from graphfw.runtime.numpy_executor.engine import compile_codes
from graphfw.runtime.numpy_executor.runner import Run, StepCall, Tables, Wave
from spikes.tile_ir.indices import Index, Quotient, Size
from spikes.tile_ir.ir import SIZES, ForTile
from spikes.tile_ir.kernel import Kernel
from spikes.tile_ir.llvm import LlvmText, work_items


class TileCode:
    """A kernel as graphfw's engine takes it."""

    tidy = True

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    @property
    def key(self) -> str:
        """All that the code depends on: its text."""
        return _text(self.kernel)

    def llvm(self, symbol: str) -> str:
        """Return the LLVM module."""
        return self.key.replace("@SYMBOL", f"@{symbol}")


@functools.lru_cache
def _text(kernel: Kernel) -> str:
    return LlvmText(kernel).text("SYMBOL")


@dataclass
class Call:
    """One call of a kernel: its arrays, by number, and its run-time integers."""

    kernel: Kernel
    arrays: Sequence[int]
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def items(self) -> int:
        """The number of work items."""
        values = {size: self.sizes[size.name] for size in self.kernel.sizes}
        total, body = 1, self.kernel.body
        while len(body) == 1 and isinstance(body[0], ForTile) and body[0].kind == "parallel":
            total *= evaluated(work_items(body[0]), values)
            body = body[0].body
        return total

    @property
    def scratch(self) -> int:
        """The bytes of scratch memory of a thread."""
        return sum(-(-b.size * SIZES[b.dtype] // 64) * 64 for b in self.kernel.scratch)


class Program:
    """Kernels, one after the other.

    Args:
        calls: In order.
        prepared: Those that are done once, before the first run: weights that are packed ahead.
    """

    def __init__(self, calls: Sequence[Call], prepared: Sequence[Call] = ()) -> None:
        self.calls = [*prepared, *calls]
        self.prepared = len(prepared)
        self.codes = [TileCode(call.kernel) for call in self.calls]

    def bind(self, arrays: Sequence[NDArray[Any]], threads: int = 1) -> Callable[[], None]:
        """Compile, do what is prepared, and return what does the rest on some arrays."""
        addresses = compile_codes(self.codes)
        waves = [
            Wave(
                [
                    StepCall(
                        address,
                        [(n, 0) for n in call.arrays],
                        [call.sizes[size.name] for size in call.kernel.sizes],
                        call.items,
                        call.scratch,
                    )
                ]
            )
            for address, call in zip(addresses, self.calls, strict=True)
        ]
        run = Run(Tables(waves, len(arrays), 0), threads)
        run.bases[:] = [array.ctypes.data for array in arrays]

        def done(compute: Callable[[tuple[()]], int], kept: object) -> None:
            del kept  # the run must live as long as its arrays
            failed = compute(())
            assert failed == 0, failed

        if self.prepared:
            done(run.stretch(0, self.prepared, hold=False), run)
        rest = run.stretch(self.prepared, len(waves) - self.prepared, hold=False)
        return functools.partial(done, rest, (run, arrays))


def evaluated(value: Index, sizes: Mapping[Size, int]) -> int:
    """Return an index whose sizes are known."""
    total = 0
    for monomial, factor in value.terms:
        for atom in monomial:
            if isinstance(atom, Size):
                factor *= sizes[atom]
            else:
                assert isinstance(atom, Quotient)
                x, y = evaluated(atom.x, sizes), evaluated(atom.y, sizes)
                whole = {"div": x // y, "rem": x % y, "min": min(x, y), "max": max(x, y)}
                factor *= whole[atom.name]
        total += factor
    return total


def empty(shape: Sequence[int], dtype: Any = np.float32) -> NDArray[Any]:
    """Return an array that begins at a multiple of 64 bytes."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    array: NDArray[Any] = aligned(size, boundary=64).view(dtype).reshape(shape)
    return array
