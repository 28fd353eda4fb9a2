"""`WinogradWeightsCode`: weights transformed to the right operands of products."""

from __future__ import annotations

import itertools

from graphfw.runtime.numpy_executor.codegen import FunctionText, Processor, RecordCode, module
from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody
from graphfw.runtime.numpy_executor.codegen.param_block import ParamBlock
from graphfw.runtime.numpy_executor.convolution.winograd.algorithm import TAPS, Algorithm
from graphfw.runtime.numpy_executor.convolution.winograd.vectors import mapped_twice
from graphfw.runtime.numpy_executor.matmul.elements import Elements, declarations
from graphfw.runtime.numpy_executor.matmul.tile import TileShape
from graphfw.utils.records import record


class WinogradWeightParams(ParamBlock):
    """The integers of a work item."""

    OUTPUTS: int
    CHANNELS: int
    CHUNK: int
    OFFSET: int
    OUTPUT: int
    CHANNEL: int
    DOWN: int
    ACROSS: int


@record
class WinogradWeightsCode(RecordCode):
    """A work item: one panel of outputs, for all products.

    Panels have the order in which work items read them: chunk by chunk of panels, product by
    product, then panel by panel, `[channel][outputs]`. The last panel is padded with 0.

    Operands: the weight, the panels.
    """

    shape: TileShape
    algorithm: Algorithm
    target: Processor

    def llvm(self, symbol: str) -> str:
        body, shape, algorithm = FunctionBody(), self.shape, self.algorithm
        size, lanes, width = shape.size, shape.lanes, shape.columns
        elements = Elements(body, shape, shape.dtype)
        numbers = [body.param(i) for i in range(WinogradWeightParams.COUNT)]
        outputs, channels, chunk = numbers[:3]
        offset, output, channel, down, across = (body.mul(number, size) for number in numbers[3:])
        first = body.mul("%work_item", width)
        count = body.min(body.sub(outputs, first), width)
        source = body.at(body.operand(0), offset)
        source = body.at(source, body.mul(first, output))
        panel = body.mul(channels, width * size)
        begin = body.mul(body.div("%work_item", chunk), chunk)
        panels = body.min(chunk, body.sub(body.ceil(outputs, width), begin))
        before = body.add(body.mul(begin, algorithm.products), body.sub("%work_item", begin))
        to = body.at(body.operand(1), body.mul(before, panel))
        plane = body.mul(panels, panel)
        # The elements of the weights of one channel: [element][output].
        taps = TAPS * TAPS
        block = body.slot(f"[{taps * width} x {shape.element}], align 64")
        for n in range(taps * 2):
            elements.store("zeroinitializer", body.at(block, n * lanes * size))
        with body.loop(0, channels) as c:
            here = body.at(source, body.mul(c, channel))
            with body.loop(0, count) as o:
                one = body.at(here, body.mul(o, output))
                for tap in range(taps):
                    position = body.add(body.mul(down, tap // TAPS), body.mul(across, tap % TAPS))
                    value = elements.load(body.at(one, position), 1)
                    there = body.at(block, body.mul(body.add(o, tap * width), size))
                    body.line(f"store {shape.element} {value}, ptr {there}")
            there = body.at(to, body.mul(c, width * size))
            with body.loop(0, str(width), lanes) as lane:
                at = body.mul(lane, size)
                values = [
                    elements.load(body.at(block, body.add(at, tap * width * size)))
                    for tap in range(taps)
                ]
                rows = [values[tap : tap + TAPS] for tap in range(0, taps, TAPS)]
                last = body.at(there, at)
                products = mapped_twice(body, shape, algorithm.of_weight, rows)
                for product, value in enumerate(itertools.chain.from_iterable(products)):
                    elements.store(value, body.at(last, body.mul(plane, product)))
        return module([FunctionText(body.work_item(symbol), declarations(shape), ())])
