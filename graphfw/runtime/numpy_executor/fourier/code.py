"""`TransformCode`: the native function that runs the stages of a transform, one after the other.

A work item is some groups, and a group is what goes through all stages while it is in cache: some
rows, or some columns of one array. Params: `_HEAD`; then, for each stage, those of its kernel, and
of each of its buffers where the first group's begins and how far apart those of groups are, in
bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from graphfw.ir.dim import DimLike
from graphfw.runtime.kernels.steps import Code
from graphfw.runtime.numpy_executor.codegen import FunctionText, KernelCode, module
from graphfw.runtime.numpy_executor.codegen.writer import WORK_ITEM
from graphfw.runtime.numpy_executor.matmul.text import FunctionBody, declared
from graphfw.runtime.numpy_executor.names import name_of
from graphfw.utils.records import record

SCRATCH = -1
"""Stands for the thread's memory among the operands."""

_HEAD = ("groups", "groups of a work item", "groups after which buffers begin anew")


class Place(NamedTuple):
    """Where a buffer of a stage lies.

    Attributes:
        operand: The number of an operand, or `SCRATCH`.
        begin: Where the first group's elements begin, in bytes.
        apart: How far apart those of groups are, in bytes.
    """

    operand: int
    begin: DimLike = 0
    apart: DimLike = 0


class StageCall(NamedTuple):
    """A stage as a group runs it.

    Attributes:
        code: Its kernel.
        params: What that is called with.
        places: Of its buffers.
        is_inside: Whether it stays in the thread's memory; else the group is its work item.
    """

    code: KernelCode
    params: tuple[DimLike, ...]
    places: tuple[Place, ...]
    is_inside: bool


@record
class TransformCode:
    """The function.

    Attributes:
        parts: The kernels of the stages, in order.
        operands: Of each stage, the operands that its buffers lie in.
        counts: Of each stage, how many params its kernel has.
        inside: Of each stage, see `StageCall`.
    """

    parts: tuple[Code, ...]
    operands: tuple[tuple[int, ...], ...]
    counts: tuple[int, ...]
    inside: tuple[bool, ...]

    @cached_property
    def key(self) -> str:
        """All that the code depends on."""
        called = [part.key for part in self.parts]
        return f"transform {self.operands} {self.counts} {self.inside}\n{''.join(called)}"

    def llvm(self, symbol: str) -> str:
        """Return the LLVM module."""
        body = FunctionBody()
        groups, per_item, turn = [body.array("%params", n) for n in range(len(_HEAD))]
        begin = body.mul("%work_item", per_item)
        end = body.min(body.add(begin, per_item), groups)
        known = declared("i64 @llvm.smin.i64(i64, i64)")
        with body.loop(begin, end, asks=True) as group:
            number, place = body.rem(group, turn), len(_HEAD)
            stages = zip(self.parts, self.operands, self.counts, self.inside, strict=True)
            for part, operands, count, is_inside in stages:
                buffers = self._buffers(body, operands, number, place + count)
                params = body.at("%params", 8 * place)
                item = "0" if is_inside else group
                name = name_of(part)
                body.line(
                    f"call i32 @{name}(ptr {buffers}, ptr {params}, i64 {item}, ptr %scratch, "
                    "ptr %run, i64 %thread)"
                )
                known[name] = f"declare i32 @{name}(ptr, ptr, i64, ptr, ptr, i64)"
                place += count + 2 * len(operands)
        text = body.function(f"define i32 @{symbol}({WORK_ITEM})", "ret i32 0")
        return module([FunctionText(text, known | body.declarations, ())])

    @staticmethod
    def _buffers(body: FunctionBody, operands: tuple[int, ...], number: str, place: int) -> str:
        """Write the addresses of a stage's buffers into an array, and return where that is."""
        buffers = body.slot(f"[{len(operands)} x ptr]")
        for n, operand in enumerate(operands):
            base = "%scratch" if operand == SCRATCH else body.array("%buffers", operand, "ptr")
            first, apart = [body.array("%params", place + 2 * n + i) for i in range(2)]
            address = body.at(base, body.add(first, body.mul(number, apart)))
            body.set(body.let(f"getelementptr ptr, ptr {buffers}, i64 {n}"), address, "ptr")
        return buffers


def code_of(calls: list[StageCall]) -> TransformCode:
    """Return the function of some stages."""
    return TransformCode(
        parts=tuple([call.code for call in calls]),
        operands=tuple([tuple([place.operand for place in call.places]) for call in calls]),
        counts=tuple([len(call.params) for call in calls]),
        inside=tuple([call.is_inside for call in calls]),
    )


def params_of(
    calls: list[StageCall], groups: DimLike, per_item: DimLike, turn: DimLike
) -> tuple[DimLike, ...]:
    """Return the params of a function: see `_HEAD`."""
    return (groups, per_item, turn, *_params(calls))


def _params(calls: list[StageCall]) -> Iterator[DimLike]:
    for call in calls:
        yield from call.params
        for place in call.places:
            yield from (place.begin, place.apart)
