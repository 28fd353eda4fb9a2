"""The arguments of the functions of this package, and the layout of their results."""

from __future__ import annotations

from typing import NamedTuple

from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody
from graphfw.runtime.numpy_executor.codegen.param_block import ParamBlock
from graphfw.runtime.numpy_executor.matmul.tile import TileShape


class WinogradParams(ParamBlock):
    """The integers of a work item; the epilogue's follow."""

    CHANNELS: int
    OUTPUTS: int
    IMAGES: int
    X: int
    X_BATCH: int
    X_CHANNEL: int
    X_ROW: int
    HEIGHT: int
    WIDTH: int
    PADDING_DOWN: int
    PADDING_ACROSS: int
    DOWN: int
    ACROSS: int
    """The output positions along both dims."""
    BLOCK_IMAGES: int
    BLOCK_DOWN: int
    BLOCK_ACROSS: int
    ROOM: int
    """A block of tiles: of how many images, how many along both dims, the product of all."""
    OUTPUT_BLOCKS: int
    CHUNK: int
    """Into how many blocks the outputs are cut; how many panels are done at a time."""
    SEEN: int
    PRODUCTS: int
    ROWS: int
    LINE: int
    """The offset of the scratch memory after the strips; the elements of a row of results."""
    IS_AHEAD: int
    """Whether the tiles of images have been transformed before."""


class Planes(NamedTuple):
    """Matrices side by side, one for each product of a tile; rows are tiles.

    Attributes:
        address: The address of the first matrix.
        gap: The bytes from row to row.
        plane: The bytes from matrix to matrix.
    """

    address: str
    gap: str
    plane: str


def planes(body: FunctionBody, shape: TileShape, address: str, columns: str, rows: str) -> Planes:
    """Return matrices of some columns and rows.

    A cache line between them keeps equal positions of the matrices out of one set of a cache.
    """
    gap = body.add(body.mul(columns, shape.size), 64)
    return Planes(address, gap, body.add(body.mul(gap, rows), 64))


def planes_bytes(shape: TileShape, columns: int, rows: int, count: int) -> int:
    """Return the bytes of matrices."""
    return count * ((columns * shape.size + 64) * rows + 64)
