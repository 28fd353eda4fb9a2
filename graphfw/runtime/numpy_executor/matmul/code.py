"""`MatmulCode`: the native function that computes one cell of a matrix product."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

from graphfw.runtime.kernels.ir import Kernel
from graphfw.runtime.kernels.printer import show
from graphfw.runtime.kernels.steps import Code
from graphfw.runtime.numpy_executor.codegen import Function, Target, module, region
from graphfw.runtime.numpy_executor.matmul import calls
from graphfw.runtime.numpy_executor.matmul.cell import CellCode
from graphfw.runtime.numpy_executor.matmul.pieces import Piece
from graphfw.runtime.numpy_executor.matmul.text import Body


@dataclass(frozen=True)
class Region:
    """The epilogue inside of a cell.

    Attributes:
        kernel: See `steps.Epilogue`.
        operands: For each of its buffers which operand of the step it is; -1 for the product.
    """

    kernel: Kernel
    operands: tuple[int, ...]


@dataclass(frozen=True)
class MatmulCode:
    """A cell: some rows and columns of the product, of one or several members of the batch.

    Operands: a, b (or its panels), then the product where it is kept, then the epilogue's.

    Attributes:
        cell: How it is computed.
        target: The processor.
        heights: The rows of the tiles in use, the largest first; they make up all rows. Those of
            `dots` or `streams` where these always serve.
        ragged: Whether a tile may have fewer rows than its height, the number of all being unknown.
        vectors: The widths of the tiles in use, in vectors.
        kept: Whether the product is an operand.
        region: The epilogue.
    """

    cell: CellCode
    target: Target
    heights: tuple[int, ...]
    ragged: bool
    vectors: tuple[int, ...]
    kept: bool
    region: Region | None

    @cached_property
    def key(self) -> str:
        """All that the code depends on."""
        text = (
            f"matmul {self.cell.key} {self.heights} {self.ragged} {self.vectors} {self.kept} "
            f"for {self.target.name}\n"
        )
        if self.region is not None:
            text += f"then {self.region.operands} {self.target.large}\n{show(self.region.kernel)}"
        return text

    @property
    def heights_of_tiles(self) -> tuple[int, ...]:
        """The rows of the tiles that it calls."""
        return () if self.cell.few == "always" else self.heights

    @property
    def parts(self) -> tuple[Code, ...]:
        """What it calls."""
        tiles = [self.tile(h, v) for h in self.heights_of_tiles for v in self.vectors]
        return (self.cell, *tiles)

    def tile(self, height: int, vectors: int) -> Piece:
        """Return the micro-kernel of a number of rows and vectors."""
        return self.cell.tile(height, vectors, self.ragged)

    def llvm(self, symbol: str) -> str:
        """Return the LLVM module."""
        declared, functions, follow = dict(self.cell.declaration), [], "null"
        tiles: list[calls.Tile] = []
        for height, smaller in itertools.pairwise((*self.heights_of_tiles, 0)):
            pieces = [self.tile(height, v) for v in (min(self.vectors), max(self.vectors))]
            for piece in pieces:
                declared |= piece.declaration
            names = [f"@{piece.name}" for piece in pieces]
            tiles.append(calls.Tile(height, smaller + 1 if self.ragged else height, *names))
        if self.region is not None:
            functions += [
                region(self.region.kernel, "epilogue", self.target),
                Function(_follow(self.region), {}, ()),
            ]
            follow = "@follow"
        told = calls.constant(follow, self.kept, self.heights[0], tiles)
        body = Body()
        body.line(
            f"call fastcc void @{self.cell.name}(ptr %buffers, ptr %params, i64 %cell, "
            "ptr %scratch, ptr @calls)"
        )
        head = f"define i32 @{symbol}(ptr %buffers, ptr %params, i64 %cell, ptr %scratch)"
        text = f"@calls = internal constant {told}\n{body.function(head, 'ret i32 0')}"
        return module([*functions, Function(text, declared, ())])


def _follow(region: Region) -> str:
    """The function that a cell calls on each chunk: the epilogue, with its own buffers.

        @follow(ptr buffers, ptr product, ptr params, i64 row0, i64 row1, i64 col0, i64 col1,
            ptr scratch)

    `product` is the address that its rows and columns are counted from.
    """
    body = Body()
    buffers = body.slot(f"[{len(region.operands)} x ptr]")
    for number, operand in enumerate(region.operands):
        value = "%product" if operand < 0 else body.array("%buffers", operand, "ptr")
        body.set(body.let(f"getelementptr ptr, ptr {buffers}, i64 {number}"), value, "ptr")
    # It cannot fail: see `matmul_steps`.
    body.line(
        f"call i32 @epilogue(ptr {buffers}, ptr %params, i64 %row0, i64 %row1, i64 %col0, "
        "i64 %col1, ptr %scratch)"
    )
    return body.function(
        "define internal fastcc void @follow(ptr %buffers, ptr %product, ptr %params, i64 %row0, "
        "i64 %row1, i64 %col0, i64 %col1, ptr %scratch)"
    )
