"""The work of a run at given sizes, piece by piece."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from graphfw.ir.tensor import Node
from graphfw.runtime.cupy_executor.codegen import Launch
from graphfw.runtime.cupy_executor.cublaslt import BoundGemm
from graphfw.runtime.cupy_executor.cudnn import CudnnPlan
from graphfw.runtime.cupy_executor.regions import BoundRegion


class StorageAddress(NamedTuple):
    """Where a storage lies in a run: in the arena, or in an array of its own.

    Attributes:
        slot: The number of the array; -1: the arena.
        offset: In the arena, in bytes.
    """

    slot: int
    offset: int

    def offset_by(self, nbytes: int) -> StorageAddress:
        """Return the place so many bytes behind it."""
        return StorageAddress(self.slot, self.offset + nbytes)


class BoundKernel(NamedTuple):
    """A kernel at known sizes.

    Attributes:
        function: What is launched.
        launch: How.
        operands: Where its buffers lie.
        params: Its run-time integers.
    """

    function: Any
    launch: Launch
    operands: list[StorageAddress]
    params: list[np.int64]


class BoundProduct(NamedTuple):
    """A matrix product at known sizes.

    Attributes:
        product: What is run; None where there is nothing to add up.
        operands: Where a, b, the result and the others lie: see `ProductCode`.
        nbytes: The bytes of the result.
    """

    product: BoundGemm | None
    operands: list[StorageAddress]
    nbytes: int


class BoundCudnn(NamedTuple):
    """A step of cuDNN at known sizes.

    Attributes:
        plan: What is run.
        operands: Where its operands lie: see `CudnnCode`.
    """

    plan: CudnnPlan
    operands: list[StorageAddress]


class Cleared(NamedTuple):
    """A piece of the arena that becomes zeros.

    Attributes:
        offset: Where it begins, in bytes.
        nbytes: Its size.
    """

    offset: int
    nbytes: int


class Evaluated(NamedTuple):
    """A node at known sizes that CuPy computes, or NumPy: see `runs_on_host`.

    Attributes:
        node: The node.
        call: What computes it.
    """

    node: Node
    call: Any


Native: TypeAlias = "BoundKernel | BoundProduct | BoundCudnn | Cleared | BoundRegion"
"""A piece that can be part of a CUDA graph: one launch, or the iterations of a loop."""

Wave: TypeAlias = "list[Native]"
"""Launches that need not wait for one another, but for the memory that they share."""

Part: TypeAlias = "list[Wave] | Evaluated | BoundRegion"
"""A stretch of launches, or what lies between two of them: it can't be part of a CUDA graph."""


def parts_of(steps: Sequence[tuple[int, int, Native | Evaluated]]) -> list[Part]:
    """Cut what a run does where CuPy computes something.

    Each has its level, and the number of the piece of work that it belongs to: what belongs to one
    happens in order.
    """
    parts: list[Part] = []
    before = work = None
    for level, number, one in steps:
        if isinstance(one, Evaluated) or (isinstance(one, BoundRegion) and one.alone):
            parts.append(one)
            continue
        if not parts or not isinstance(parts[-1], list):
            parts.append([])
            before = None
        last = parts[-1]
        assert isinstance(last, list)
        if level != before or number == work:
            last.append([])
        last[-1].append(one)
        before, work = level, number
    return parts


def launches_of(part: Part) -> int:
    """Return how many launches a CUDA graph of a part is; 0 where it can't be one."""
    if not isinstance(part, list):
        return 0
    return sum([_launches(one) for wave in part for one in wave])


def _launches(one: Native) -> int:
    if isinstance(one, BoundRegion):
        return one.launches
    return max(1, len(one.plan.parts)) if isinstance(one, BoundCudnn) else 1
