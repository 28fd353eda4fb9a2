"""`input_dilation_steps`: the steps of convolutions with input dilation, gradients of strided ones.

Positions of the result with the same remainder by the input dilation see the same taps, and x
without gaps. Each such phase is a convolution, and the last step interleaves the phases.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

from graphfw.ir.dim import DimLike, dim_max
from graphfw.ir.dtype import DType
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node
from graphfw.ops.nn.convolution_ops import Conv
from graphfw.runtime.kernels.steps import Step, Storage, Temp, View
from graphfw.runtime.limits import Precision
from graphfw.runtime.numpy_executor.choice import Choose
from graphfw.runtime.numpy_executor.codegen import FunctionText, Processor, host, module
from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody
from graphfw.runtime.numpy_executor.convolution.lowering import why_never
from graphfw.runtime.numpy_executor.convolution.strategies import conv_steps
from graphfw.runtime.numpy_executor.matmul.amx import Form
from graphfw.utils.records import record

_MOST = 16
"""The most phases: the code that interleaves them grows with their number."""

_WORK_ITEM = 1 << 14
"""About the number of elements of a work item."""


class _Phase(NamedTuple):
    """The taps that the positions of a phase see along one dim.

    Attributes:
        first: The first tap.
        step: The distance of the taps.
        taps: The number of taps.
        dilation: The distance of the taps in x.
        before: The zeros that the first position sees before x.
    """

    first: int
    step: int
    taps: int
    dilation: int
    before: DimLike


def why_not_input_dilation(node: Node) -> str:
    """Return why there is no native code for a convolution with input dilation; "" if there is."""
    op = node.op
    assert isinstance(op, Conv)
    reason = why_never(node)
    if reason:
        return reason
    for spread, stride, before in zip(op.input_dilations, op.strides, op.before, strict=True):
        if spread != 1 and (stride != 1 or not isinstance(before, int)):
            return "x is dilated, and the stride is not 1"
    return "" if math.prod(op.input_dilations) <= _MOST else "x is dilated too far"


def input_dilation_steps(
    node: Node,
    inputs: Sequence[View],
    outputs: Sequence[View],
    *,
    winograd: bool,
    precision: Precision,
    tiles: Form | None,
    choose: Choose,
) -> list[Step]:
    """Return the steps of a convolution with input dilation; none where there is a reason not to.

    The phases are steps of `conv_steps`.
    """
    if why_not_input_dilation(node):
        return []
    op, (x, weight), (result,) = node.op, inputs, outputs
    assert isinstance(op, Conv)
    steps: list[Step] = []
    temps: list[Temp] = []
    is_there = []
    lead = (x.shape[0], weight.shape[0])
    for phases in itertools.product(*map(range, op.input_dilations)):
        facts = zip(
            *(phases, op.input_dilations, op.dilations, op.before, weight.shape[2:]), strict=True
        )
        seen = [_phase(*fact) for fact in facts]
        is_there.append(all([one.taps for one in seen]))
        if not is_there[-1]:
            continue
        phase_sizes = tuple(map(_phase_size, op.output_sizes, op.input_dilations, phases))
        before = tuple([one.before for one in seen])
        dilations = tuple([one.dilation for one in seen])
        rank = len(phase_sizes)
        phase_conv = Conv(phase_sizes, before, op.strides, dilations, (1,) * rank, op.groups)
        temp = Temp(x.storage.dtype, size_of((*lead, *phase_sizes)), "a phase of a convolution")
        steps += conv_steps(
            (node,),
            phase_conv,
            x,
            _phase_weight(weight, seen),
            temp,
            None,
            winograd=winograd,
            precision=precision,
            tiles=tiles,
            choose=choose,
        )
        temps.append(temp)
    code = PhasesCode(x.storage.dtype, op.input_dilations, tuple(is_there), host())
    size = size_of(op.output_sizes)
    together = dim_max(1, _WORK_ITEM // dim_max(1, size))
    planes = size_of(lead)
    operands: tuple[Storage, ...] = (*temps, result.storage)
    written = (*[False] * len(temps), True)
    params = (planes, together, *op.output_sizes)
    work_items = (planes + together - 1) // together
    return [*steps, Step((node,), code, operands, written, params, work_items)]


def _phase_size(size: DimLike, spread: int, phase: int) -> DimLike:
    return (size - phase + spread - 1) // spread


def _phase(phase: int, spread: int, dilation: int, before: DimLike, taps: DimLike) -> _Phase:
    """Return the taps t that positions `spread * q + phase` see: x at q + t * dilation - before."""
    if spread == 1:
        assert isinstance(taps, int)
        return _Phase(0, 1, taps, dilation, before)
    assert isinstance(before, int)
    assert isinstance(taps, int)
    step = spread // math.gcd(spread, dilation)
    seen = [k for k in range(taps) if (phase + k * dilation - before) % spread == 0]
    first = seen[0] if seen else 0
    begin = (phase + first * dilation - before) // spread
    return _Phase(first, step, len(seen), step * dilation // spread, -begin)


def _phase_weight(weight: View, seen: Sequence[_Phase]) -> View:
    """Return a view of the weights of a phase's taps."""
    offset = weight.offset
    for one, stride in zip(seen, weight.strides[2:], strict=True):
        offset = offset + one.first * stride
    pairs = zip(seen, weight.strides[2:], strict=True)
    return View(
        weight.storage,
        offset,
        (*weight.shape[:2], *[one.taps for one in seen]),
        (*weight.strides[:2], *[one.step * stride for one, stride in pairs]),
    )


@record
class PhasesCode:
    """A work item: some planes of the result, interleaved from the phases.

    Operands: the phases that are not 0 everywhere, the result. Integers: how many planes there are,
    how many a work item has, the sizes of a plane.

    Attributes:
        dtype: The dtype of the elements.
        input_dilations: The number of phases along each dim.
        is_there: For each phase whether it is an operand; else it is 0.
        target: The processor.
    """

    dtype: DType
    input_dilations: tuple[int, ...]
    is_there: tuple[bool, ...]
    target: Processor

    @property
    def key(self) -> str:
        what = f"{self.input_dilations} {self.is_there} for {self.target.name}"
        return f"phases of {self.dtype.itemsize} bytes {what}\n"

    def llvm(self, symbol: str) -> str:
        body, item = FunctionBody(), self.dtype.itemsize
        kind, rank = f"i{8 * item}", len(self.input_dilations)
        planes, together = body.param(0), body.param(1)
        sizes = [body.param(2 + dim) for dim in range(rank)]
        gaps = [str(item)]
        for size in reversed(sizes):
            gaps.insert(0, body.mul(size, gaps[0]))
        begin = body.mul("%work_item", together)
        end = body.min(body.add(begin, together), planes)
        result = body.operand(sum(self.is_there))
        operand = 0
        phases = itertools.product(*map(range, self.input_dilations))
        for phase, is_there in zip(phases, self.is_there, strict=True):
            counts = [
                body.div(body.add(size, spread - 1 - one), spread)
                for size, spread, one in zip(sizes, self.input_dilations, phase, strict=True)
            ]
            source = ""
            if is_there:
                source = body.operand(operand)
                operand += 1
            with ExitStack() as loops:
                plane = loops.enter_context(body.loop(begin, end))
                position, to = plane, body.at(result, body.mul(plane, gaps[0]))
                facts = zip(counts, self.input_dilations, phase, gaps[1:], strict=True)
                for count, spread, one, gap in facts:
                    index = loops.enter_context(body.loop(0, count))
                    position = body.add(body.mul(position, count), index)
                    along = body.add(body.mul(index, spread), one)
                    to = body.at(to, body.mul(along, gap))
                value = "0"
                if source:
                    value = body.let(
                        f"load {kind}, ptr {body.at(source, body.mul(position, item))}, align "
                        f"{item}"
                    )
                body.line(f"store {kind} {value}, ptr {to}, align {item}")
        declared = {
            name: f"declare i64 @{name}(i64, i64)" for name in ("llvm.smin.i64", "llvm.smax.i64")
        }
        return module([FunctionText(body.work_item(symbol), declared, ())])
