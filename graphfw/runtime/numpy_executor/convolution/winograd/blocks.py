"""Blocks of tiles: the block of a work item, and the transforms of images' tiles."""

from __future__ import annotations

from typing import NamedTuple

from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody
from graphfw.runtime.numpy_executor.convolution.winograd.algorithm import Algorithm
from graphfw.runtime.numpy_executor.convolution.winograd.images import ImagesCode
from graphfw.runtime.numpy_executor.convolution.winograd.layout import (
    Planes,
    WinogradParams,
    planes,
)
from graphfw.runtime.numpy_executor.matmul.tile import TileShape


class TileBlock(NamedTuple):
    """A block of tiles: its images, and the rows and columns of tiles in each."""

    images: tuple[str, str]
    down: tuple[str, str]
    across: tuple[str, str]


def block_of(body: FunctionBody, algorithm: Algorithm, number: str) -> TileBlock:
    """Return the block of a number."""
    across, down = (
        body.ceil(body.param(params), algorithm.positions)
        for params in (WinogradParams.ACROSS, WinogradParams.DOWN)
    )
    found = []
    for total, param in (
        (across, WinogradParams.BLOCK_ACROSS),
        (down, WinogradParams.BLOCK_DOWN),
        (body.param(WinogradParams.IMAGES), WinogradParams.BLOCK_IMAGES),
    ):
        blocks = body.ceil(total, body.param(param))
        found.append(body.share(total, number, blocks))
        number = body.div(number, blocks)
    return TileBlock(found[2], found[1], found[0])


def block_count(body: FunctionBody, algorithm: Algorithm) -> str:
    """Return the number of blocks of tiles."""
    count = body.ceil(
        body.param(WinogradParams.IMAGES),
        body.param(WinogradParams.BLOCK_IMAGES),
    )
    for params, block in (
        (WinogradParams.ACROSS, WinogradParams.BLOCK_ACROSS),
        (WinogradParams.DOWN, WinogradParams.BLOCK_DOWN),
    ):
        tiles = body.ceil(body.param(params), algorithm.positions)
        count = body.mul(count, body.ceil(tiles, body.param(block)))
    return count


def seen_planes(body: FunctionBody, shape: TileShape, address: str) -> Planes:
    """Return the transformed tiles of a block."""
    channels, room = (body.param(param) for param in (WinogradParams.CHANNELS, WinogradParams.ROOM))
    columns = body.mul(body.ceil(channels, shape.lanes), shape.lanes)
    return planes(body, shape, address, columns, room)


def transform(
    body: FunctionBody, code: ImagesCode, block: TileBlock, channels: tuple[str, str], seen: Planes
) -> None:
    """Transform a block of tiles, of the channels from one up to another."""
    size, x = code.shape.size, body.operand(0)
    offset, batch = (
        body.mul(body.param(i), size) for i in (WinogradParams.X, WinogradParams.X_BATCH)
    )
    rows, columns = (body.sub(high, low) for low, high in (block.down, block.across))
    tiles = body.mul(rows, columns)
    with body.loop(*block.images) as image:
        here = body.at(x, body.add(offset, body.mul(image, batch)))
        number = body.mul(body.sub(image, block.images[0]), tiles)
        to = body.at(seen.address, body.mul(number, seen.gap))
        body.line(
            f"call fastcc void @{code.name}(ptr {here}, ptr %params, i64 {block.down[0]}, "
            f"i64 {block.across[0]}, i64 {rows}, i64 {columns}, i64 {channels[0]}, "
            f"i64 {channels[1]}, ptr %scratch, ptr {to}, i64 {seen.gap}, i64 {seen.plane})"
        )
