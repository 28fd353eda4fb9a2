"""`TransformCode`: the native function that runs the stages of a transform, one after the other.

A work item is some groups, and a group is what goes through all stages while it is in cache: some
rows, or some columns of one array. Params: `_HEAD`; then, for each stage, those of its kernel, its
`WorkItems`, and of each of its buffers where the first group's begins and how far apart those of
groups are, in bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from graphfw.ir.dim import DimLike
from graphfw.runtime.kernels.steps import Code
from graphfw.runtime.numpy_executor.codegen import FunctionText, KernelCode, module
from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody, declared
from graphfw.runtime.numpy_executor.codegen.writer import WORK_ITEM
from graphfw.runtime.numpy_executor.names import name_of
from graphfw.utils.records import record

SCRATCH = -1
"""Stands for the thread's memory among the operands."""

_HEAD = ("groups", "groups of a work item", "groups after which buffers begin anew")


class BufferAddress(NamedTuple):
    """The memory of a buffer of a stage.

    Attributes:
        operand: The number of an operand, or `SCRATCH`.
        begin: Where the first group's elements begin, in bytes.
        apart: How far apart those of groups are, in bytes.
    """

    operand: int
    begin: DimLike = 0
    apart: DimLike = 0


class WorkItems(NamedTuple):
    """The work items of a kernel that a group runs: `group * per_group + number * apart`.

    Attributes:
        many: How many there are.
        per_group: See above; 0 for one that stays in the thread's memory.
        apart: Likewise.
    """

    many: DimLike
    per_group: DimLike
    apart: DimLike


class StageCall(NamedTuple):
    """A stage as a group runs it.

    Attributes:
        code: Its kernel.
        params: What that is called with.
        addresses: Of its buffers.
        items: Its work items.
    """

    code: KernelCode
    params: tuple[DimLike, ...]
    addresses: tuple[BufferAddress, ...]
    items: WorkItems


@record
class TransformCode:
    """The function.

    Attributes:
        callees: The kernels of the stages, in order.
        operands: Of each stage, the operands that its buffers lie in.
        counts: Of each stage, how many params its kernel has.
    """

    callees: tuple[Code, ...]
    operands: tuple[tuple[int, ...], ...]
    counts: tuple[int, ...]

    @cached_property
    def key(self) -> str:
        called = [callee.key for callee in self.callees]
        return f"transform {self.operands} {self.counts}\n{''.join(called)}"

    def llvm(self, symbol: str) -> str:
        body = FunctionBody()
        groups, per_item, turn = [body.param(n) for n in range(len(_HEAD))]
        begin = body.mul("%work_item", per_item)
        end = body.min(body.add(begin, per_item), groups)
        known = declared("i64 @llvm.smin.i64(i64, i64)")
        with body.loop(begin, end, asks=True) as group:
            number, index = body.rem(group, turn), len(_HEAD)
            for callee, operands, count in zip(
                self.callees, self.operands, self.counts, strict=True
            ):
                params = body.at("%params", 8 * index)
                items = [body.param(index + count + n) for n in range(len(WorkItems._fields))]
                index += count + len(items)
                buffers = self._buffers(body, operands, number, index)
                index += 2 * len(operands)
                first, name = body.mul(group, items[1]), name_of(callee)
                with body.loop(0, items[0]) as nth:
                    item = body.add(first, body.mul(nth, items[2]))
                    body.line(
                        f"call i32 @{name}(ptr {buffers}, ptr {params}, i64 {item}, ptr %scratch, "
                        "ptr %run, i64 %thread)"
                    )
                known[name] = f"declare i32 @{name}(ptr, ptr, i64, ptr, ptr, i64)"
        text = body.function(f"define i32 @{symbol}({WORK_ITEM})", "ret i32 0")
        return module([FunctionText(text, known | body.declarations, ())])

    @staticmethod
    def _buffers(body: FunctionBody, operands: tuple[int, ...], number: str, index: int) -> str:
        """Write the addresses of a stage's buffers into an array, and return where that is."""
        buffers = body.slot(f"[{len(operands)} x ptr]")
        for n, operand in enumerate(operands):
            base = "%scratch" if operand == SCRATCH else body.operand(operand)
            first, apart = [body.param(index + 2 * n + i) for i in range(2)]
            address = body.at(base, body.add(first, body.mul(number, apart)))
            body.set(body.let(f"getelementptr ptr, ptr {buffers}, i64 {n}"), address, "ptr")
        return buffers


def code_of(calls: list[StageCall]) -> TransformCode:
    """Return the function of some stages."""
    return TransformCode(
        callees=tuple([call.code for call in calls]),
        operands=tuple([tuple([address.operand for address in call.addresses]) for call in calls]),
        counts=tuple([len(call.params) for call in calls]),
    )


def params_of(
    calls: list[StageCall], groups: DimLike, per_item: DimLike, turn: DimLike
) -> tuple[DimLike, ...]:
    """Return the params of a function: see `_HEAD`."""
    return (groups, per_item, turn, *_params(calls))


def _params(calls: list[StageCall]) -> Iterator[DimLike]:
    for call in calls:
        yield from call.params
        yield from call.items
        for address in call.addresses:
            yield from (address.begin, address.apart)
