"""`WindowBounds`: the elements of an image that positions in a row of the result see."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Literal, TypeAlias

from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody
from graphfw.runtime.numpy_executor.codegen.param_block import ParamBlock
from graphfw.runtime.numpy_executor.codegen.registers import iota
from graphfw.runtime.numpy_executor.matmul.elements import Elements
from graphfw.runtime.numpy_executor.matmul.tile import TileShape

DenseStride: TypeAlias = Literal[1, 2, 0]
"""The stride along the last dim, where that is contiguous in memory; 0 for all other cases."""


class Spatial(ParamBlock):
    """The integers of a spatial dim."""

    SIZE: int
    """The size of the image."""
    ELEMENT_STRIDE: int
    """The distance of its elements in memory."""
    POSITIONS: int
    """The size of the output."""
    TAPS: int
    """The size of the window."""
    STRIDE: int
    DILATION: int
    PADDING: int


_LONG = 1024


def is_long(window: Sequence[int]) -> bool:
    """Return whether a window is so long that a run may have to end inside of it."""
    return max(window, default=0) > _LONG


class WindowBounds:
    """Writes code that finds and reads elements, into a function with `%params`.

    Args:
        shape: The vectors, and the dtype in memory.
        rank: The number of spatial dims.
        step: See `DenseStride`.
        first: The index of the dims' first run-time integer.
        is_long: See `is_long`.
    """

    def __init__(
        self, shape: TileShape, rank: int, step: DenseStride, first: int, *, is_long: bool = False
    ) -> None:
        self.shape = shape
        self.is_long = is_long
        self.step = step
        self.body = body = FunctionBody()
        self.stored = Elements(body, shape, shape.stored)
        self.computed = Elements(body, shape, shape.dtype)
        self.dims = [
            [body.param(first + Spatial.COUNT * dim + i) for i in range(Spatial.COUNT)]
            for dim in range(rank)
        ]

    def split(self, index: str, which: int, dims: list[list[str]]) -> list[str]:
        """Return the indices along each dim of an index along joined dims."""
        found: list[str] = []
        for dim in reversed(dims[1:]):
            found.insert(0, self.body.rem(index, dim[which]))
            index = self.body.div(index, dim[which])
        return [index, *found] if dims else []

    def seen(self, image: str, position: list[str], tap: list[str]) -> tuple[str, str, str]:
        """Return the address of the first position's element, and the positions that see one.

        The address may be one that is not in memory; `high` is not above the positions of the
        image.
        """
        row, is_outside = self.row_seen(image, position[:-1], tap[:-1])
        offset, low, high = self.seen_along(position[-1], tap[-1])
        return self.body.at(row, offset), low, self.body.select(is_outside, "0", high)

    def row_seen(self, image: str, position: list[str], tap: list[str]) -> tuple[str, str]:
        """Return the offset of the row that a row of positions sees, and whether there is none."""
        body, is_outside = self.body, "false"
        for dim, p, k in zip(self.dims, position, tap, strict=False):
            index, offset = self.index(dim, p, k)
            image = body.at(image, offset)
            # A negative number is large as an unsigned one.
            off = body.test("uge", index, dim[Spatial.SIZE])
            is_outside = body.let(f"or i1 {is_outside}, {off}")
        return image, is_outside

    def taps(self, dim: list[str], positions: tuple[str, str]) -> AbstractContextManager[str]:
        """Repeat for the taps of a window along a dim; yield the tap.

        Args:
            dim: Its run-time integers.
            positions: The first and the last of those that see something. Of a long window, the
                taps at which no position from one to the other sees an element are left out: it may
                be far larger than the image.
        """
        body = self.body
        if not self.is_long:
            return body.loop(0, dim[Spatial.TAPS])
        (first, _), (last, _) = [self.index(dim, position, "0") for position in positions]
        begin = body.ceil(body.max(body.sub("0", last), "0"), dim[Spatial.DILATION])
        end = body.ceil(body.max(body.sub(dim[Spatial.SIZE], first), "0"), dim[Spatial.DILATION])
        return body.long_loop(begin, body.min(end, dim[Spatial.TAPS]))

    def seen_along(self, position: str, tap: str) -> tuple[str, str, str]:
        """Return `seen` along a row, in bytes: position l of a run reads index + l * stride."""
        body, dim = self.body, self.dims[-1]
        index, offset = self.index(dim, position, tap)
        stride = self.step or dim[Spatial.STRIDE]
        low = body.ceil(body.max(body.sub("0", index), "0"), stride)
        return offset, low, body.ceil(body.max(body.sub(dim[Spatial.SIZE], index), "0"), stride)

    def index(self, dim: list[str], position: str, tap: str) -> tuple[str, str]:
        """Return the element that a position sees along a dim, and its offset in bytes."""
        body = self.body
        index = body.add(
            body.mul(position, dim[Spatial.STRIDE]), body.mul(tap, dim[Spatial.DILATION])
        )
        index = body.sub(index, dim[Spatial.PADDING])
        distance = body.mul(dim[Spatial.ELEMENT_STRIDE], self.shape.stored.itemsize)
        return index, body.mul(index, distance)

    def distance(self) -> str:
        """Return the bytes between elements that neighbouring positions see."""
        stride, in_memory = self.dims[-1][Spatial.STRIDE], self.dims[-1][Spatial.ELEMENT_STRIDE]
        return self.body.mul(self.body.mul(stride, in_memory), self.shape.stored.itemsize)

    def is_inside(self, low: str, high: str, run: str) -> str:
        """Return whether all positions of a run see an element."""
        body = self.body
        return body.let(f"and i1 {body.test('sle', low, 0)}, {body.test('sge', high, run)}")

    def masks(self, low: str, high: str, vectors: int) -> list[str]:
        """Return masks of the lanes to read, for positions from `low` up to `high`."""
        body, lanes = self.body, self.shape.lanes
        if self.step == 2:
            # Nothing after the last position is read: it may not be in memory.
            low, high = body.mul(low, 2), body.sub(body.mul(high, 2), 1)
        return [self.between(low, high, n * lanes) for n in range(self.step * vectors)]

    def read(self, here: str, masks: list[str], others: float = 0.0) -> list[str]:
        """Read vectors of the elements that positions see; lanes that see none get a number.

        If a mask is "", all lanes are read.
        """
        shape, item = self.shape, self.shape.stored.itemsize
        addresses = [self.body.at(here, n * shape.lanes * item) for n in range(len(masks))]
        values = [
            self.stored.load_some(address, mask, others) if mask else self.stored.load(address)
            for address, mask in zip(addresses, masks, strict=True)
        ]
        return values if self.step == 1 else self.every_second(values)

    def every_second(self, values: list[str]) -> list[str]:
        """Return vectors of every second lane of pairs of vectors."""
        shape = self.shape
        order = ", ".join([f"i32 {2 * i}" for i in range(shape.lanes)])
        return [
            self.body.let(
                f"shufflevector {shape.vector} {first}, {shape.vector} {second}, "
                f"<{shape.lanes} x i32> <{order}>"
            )
            for first, second in zip(values[::2], values[1::2], strict=True)
        ]

    def between(self, low: str, high: str, first: int) -> str:
        """Return a mask of the lanes from `low` up to `high`, where the first lane is `first`."""
        body, lanes = self.body, self.shape.lanes
        kind = f"<{lanes} x i64>"
        bits = []
        for how, bound in (("sge", low), ("slt", high)):
            one = body.let(f"insertelement {kind} poison, i64 {bound}, i32 0")
            every = body.let(
                f"shufflevector {kind} {one}, {kind} poison, <{lanes} x i32> zeroinitializer"
            )
            bits.append(body.let(f"icmp {how} {kind} {iota('i64', lanes, first)}, {every}"))
        return body.let(f"and <{lanes} x i1> {bits[0]}, {bits[1]}")
