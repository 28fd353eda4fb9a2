"""`KernelTarget`: what lowering asks of a compiler of kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from graphfw.ir.dim import DimLike
from graphfw.runtime.kernels.ir import Kernel
from graphfw.runtime.kernels.steps import Code, Storage


class KernelTarget(Protocol):
    """A compiler of kernels.

    Attributes:
        narrow: Rows of so many elements are narrow, and strides of so many are kernels' literals.
    """

    narrow: int

    def kernel(self, kernel: Kernel, sizes: Sequence[DimLike]) -> Code:
        """Return the code of a kernel that writes results of these numbers of elements."""
        ...

    def scratch(self, kernel: Kernel) -> tuple[int, int]:
        """Return how many bytes of scratch memory an inner position needs, and how many more."""
        ...

    def drawn(self, key: str) -> tuple[Storage, int]:
        """Return the storage of a run's draws, and the index of a stream's key: see `ir.Draw`."""
        ...
