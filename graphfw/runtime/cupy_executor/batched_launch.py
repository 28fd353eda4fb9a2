"""Small kernels that are alike become one launch: see `codegen.together`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from graphfw.runtime.cupy_executor.bound_steps import BoundKernel
from graphfw.runtime.cupy_executor.build import KernelStep, Work
from graphfw.runtime.cupy_executor.codegen import GpuCode, Launch
from graphfw.runtime.cupy_executor.codegen.batched_launch import joined, kind_of, most

S = TypeVar("S")


def batched(
    steps: Sequence[tuple[int, int, S]],
    work: Sequence[Work],
    alike: Collection[str],
    function: Callable[[GpuCode, Launch], Any],
) -> list[tuple[int, int, S | BoundKernel]]:
    """Return steps, of which some do what several did; they stand where the first of these stood.

    In profiles their time is that of the first.

    Args:
        steps: What is done, in order; each with its level, and the number of its piece of work.
        work: What its numbers mean.
        alike: The symbols of kernels that have functions for several launches.
        function: Returns what is launched.
    """
    groups: dict[tuple[object, ...], list[tuple[int, KernelStep, BoundKernel]]] = {}
    for index, (level, number, one) in enumerate(steps):
        piece = work[number]
        if (
            isinstance(one, BoundKernel)
            and isinstance(piece, KernelStep)
            and piece.code.symbol in alike
        ):
            kind = kind_of(one.launch)
            if kind is not None:
                key = (level, piece.code.symbol, kind)
                groups.setdefault(key, []).append((index, piece, one))
    joint: dict[int, BoundKernel] = {}
    gone: set[int] = set()
    for group in groups.values():
        _, piece, first = group[0]
        count = most(len(first.operands) + len(first.params))
        for begin in range(0, len(group), count):
            some = group[begin : begin + count]
            if len(some) > 1:
                joint[some[0][0]] = _one(piece.code, [one for *_, one in some], count, function)
                gone.update([index for index, *_ in some[1:]])
    return [
        (level, number, joint.get(index, one))
        for index, (level, number, one) in enumerate(steps)
        if index not in gone
    ]


def _one(
    code: GpuCode,
    some: Sequence[BoundKernel],
    count: int,
    function: Callable[[GpuCode, Launch], Any],
) -> BoundKernel:
    launch = joined([one.launch for one in some])
    # The function has arguments for so many; those that are left over are never looked at.
    every = [*some, *[some[0]] * (count - len(some))]
    operands = [address for one in every for address in one.operands]
    params = [param for one in every for param in one.params]
    return BoundKernel(function(code, launch), launch, operands, params)
