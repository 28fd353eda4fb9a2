"""The work of a run at given sizes, piece by piece."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from graphfw.runtime.cupy_executor.bound_steps import (
    BoundCudnn,
    BoundKernel,
    BoundProduct,
    Cleared,
    Evaluated,
)
from graphfw.runtime.cupy_executor.regions.common import BoundRegion

Native: TypeAlias = "BoundKernel | BoundProduct | BoundCudnn | Cleared | BoundRegion"
"""A piece that can be part of a CUDA graph: one launch, or the iterations of a loop."""

Wave: TypeAlias = "list[Native]"
"""Launches that need not wait for one another, but for the memory that they share."""

Segment: TypeAlias = "list[Wave] | Evaluated | BoundRegion"
"""A stretch of launches, or what lies between two of them: it can't be part of a CUDA graph."""


def segments_of(steps: Sequence[tuple[int, int, Native | Evaluated]]) -> list[Segment]:
    """Cut what a run does where CuPy computes something.

    Each has its level, and the number of the piece of work that it belongs to: what belongs to one
    happens in order.
    """
    segments: list[Segment] = []
    before = work = None
    for level, number, one in steps:
        if isinstance(one, Evaluated) or (isinstance(one, BoundRegion) and one.why_not_captured):
            segments.append(one)
            continue
        if not segments or not isinstance(segments[-1], list):
            segments.append([])
            before = None
        last = segments[-1]
        assert isinstance(last, list)
        if level != before or number == work:
            last.append([])
        last[-1].append(one)
        before, work = level, number
    return segments


def launches_of(segment: Segment) -> int:
    """Return the number of launches of a segment's CUDA graph; 0 where it can't be one."""
    if not isinstance(segment, list):
        return 0
    return sum([_launches(one) for wave in segment for one in wave])


def _launches(one: Native) -> int:
    if isinstance(one, BoundRegion):
        return one.launches
    return max(1, len(one.plan.slices)) if isinstance(one, BoundCudnn) else 1
