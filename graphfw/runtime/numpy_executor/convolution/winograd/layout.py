"""The arguments of the functions of this package, and the layout of their results."""

from __future__ import annotations

from typing import NamedTuple

from graphfw.runtime.numpy_executor.matmul.text import Body
from graphfw.runtime.numpy_executor.matmul.tile import Shape


class P:
    """The places of a cell's run-time integers; distances are in elements."""

    CHANNELS, OUTPUTS, IMAGES = range(3)
    X, X_BATCH, X_CHANNEL, X_ROW = range(3, 7)
    HEIGHT, WIDTH, BEFORE_DOWN, BEFORE_ACROSS = range(7, 11)
    DOWN, ACROSS = 11, 12
    """The places of the result along both dims."""
    BLOCK_IMAGES, BLOCK_DOWN, BLOCK_ACROSS, ROOM = range(13, 17)
    """A block of tiles: of how many images, how many along both dims, the product of all."""
    OUTPUT_BLOCKS, CHUNK = 17, 18
    """Into how many blocks the outputs are cut; how many panels are done at a time."""
    SEEN, PRODUCTS, ROWS, LINE = range(19, 23)
    """Where in scratch memory what follows the strips begins; the elements of a row of results."""
    IS_AHEAD = 23
    """Whether the tiles of images have been transformed before."""
    COUNT = 24
    """From here on the epilogue's."""


class Planes(NamedTuple):
    """Matrices side by side, one for each product of a tile; rows are tiles.

    Attributes:
        address: Where the first begins.
        gap: The bytes from row to row.
        plane: Those from matrix to matrix.
    """

    address: str
    gap: str
    plane: str


def planes(body: Body, shape: Shape, address: str, columns: str, rows: str) -> Planes:
    """Return matrices of so many columns and rows.

    Lines of 64 bytes between them keep equal places of all from falling into one set of a cache.
    """
    gap = body.add(body.mul(columns, shape.size), 64)
    return Planes(address, gap, body.add(body.mul(gap, rows), 64))


def planes_bytes(shape: Shape, columns: int, rows: int, count: int) -> int:
    """Return how much memory they take."""
    return count * ((columns * shape.size + 64) * rows + 64)
