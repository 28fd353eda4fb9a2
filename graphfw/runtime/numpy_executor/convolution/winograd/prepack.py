"""`PrepackCode`: tiles of images that a step of its own transforms in advance."""

from __future__ import annotations

from graphfw.runtime.numpy_executor.codegen import RecordCode
from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody
from graphfw.runtime.numpy_executor.convolution.winograd.algorithm import Algorithm
from graphfw.runtime.numpy_executor.convolution.winograd.blocks import (
    block_of,
    seen_planes,
    transform,
)
from graphfw.runtime.numpy_executor.convolution.winograd.images import ImagesCode
from graphfw.runtime.numpy_executor.convolution.winograd.layout import WinogradParams
from graphfw.runtime.numpy_executor.matmul.shared_function import calling
from graphfw.runtime.numpy_executor.matmul.tile import TileShape
from graphfw.utils.records import record


@record
class PrepackCode(RecordCode):
    """A work item: a vector of channels of a block of tiles, transformed in advance.

    Operands: x, the transformed tiles of all blocks. Integers: those of the work item that needs
        them.
    """

    shape: TileShape
    algorithm: Algorithm

    @property
    def images(self) -> ImagesCode:
        """The function that transforms tiles of images."""
        return ImagesCode(self.shape, self.algorithm)

    @property
    def callees(self) -> tuple[ImagesCode]:
        """The functions that it calls by name."""
        return (self.images,)

    def llvm(self, symbol: str) -> str:
        body = FunctionBody()
        channels, lanes = body.param(WinogradParams.CHANNELS), self.shape.lanes
        groups = body.ceil(channels, lanes)
        number, first = (
            body.div("%work_item", groups),
            body.mul(body.rem("%work_item", groups), lanes),
        )
        bounds = first, body.min(body.add(first, lanes), channels)
        seen = seen_planes(body, self.shape, "")
        before = body.mul(body.mul(number, seen.plane), self.algorithm.products)
        here = body.at(body.operand(1), before)
        block = block_of(body, self.algorithm, number)
        transform(body, self.images, block, bounds, seen._replace(address=here))
        return calling(body.work_item(symbol), self.shape, self.callees)
