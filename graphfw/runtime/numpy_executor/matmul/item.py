"""`MatMulItem`: how the work items of a product are computed, and the functions that they call."""

from __future__ import annotations

import itertools
from functools import cached_property
from typing import Literal, TypeAlias

from graphfw.runtime.kernels.ir import Kernel
from graphfw.runtime.kernels.printer import show
from graphfw.runtime.numpy_executor.matmul import dots, streams
from graphfw.runtime.numpy_executor.matmul.amx import Tiles
from graphfw.runtime.numpy_executor.matmul.epilogue import FusedKernel
from graphfw.runtime.numpy_executor.matmul.packing import Layout
from graphfw.runtime.numpy_executor.matmul.pieces import Piece, packs
from graphfw.runtime.numpy_executor.matmul.shared_function import SharedFunction
from graphfw.runtime.numpy_executor.matmul.tile import Ahead, TileShape
from graphfw.utils.records import record

GemvPolicy: TypeAlias = Literal["never", "maybe", "always"]

Computed: TypeAlias = Literal["no", "a", "b", "b across"]
"""The operand that is computed; "across" if k does not run along the rows of its tensor."""

FEW_HEIGHTS = (4, 2, 1)
"""The heights of `dots` and `streams`."""

INLINE_ROWS = 16
"""The most rows for which `dots` or `streams` serve where a prologue computes `b`. It computes each
element once for `FEW_HEIGHTS[0]` rows: sooner than it is written to memory and read from there."""


def few_rows(shape: TileShape, layout: Layout) -> tuple[int, int]:
    """Return the most rows, and the least length of k, for which `dots` or `streams` serve."""
    # Short columns are faster if they are transposed.
    return (dots.MOST, 2 * shape.lanes) if layout == "columns" else (streams.MOST, 1)


def few_heights(rows: int) -> tuple[int, ...]:
    """Return the heights of `dots` and `streams` that make up a number of rows."""
    largest = FEW_HEIGHTS[0]
    return tuple([h for h in FEW_HEIGHTS if (rows >= h if h == largest else rows % (2 * h) >= h)])


@record
class MatMulItem(SharedFunction):
    """A work item: some rows and columns of the product, of members of the batch.

    Attributes:
        shape: The tiles.
        layout: The layout of b.
        few: Whether there are few rows, so that `dots` or `streams` serve.
        few_heights: The heights that these are needed for.
        batch_dims: The number of batch dims.
        rounds: Whether the product has another dtype than the computation.
        transposed: Whether this is the transposed product: a row of it is a column of the
            epilogue's.
        tiles: The matrix tiles that compute blocks; None for none.
        computed: The operand that is computed, into scratch memory, rather than read.
        inline: The prologue that computes the right operand in registers, where it is multiplied.
    """

    shape: TileShape
    layout: Layout
    few: GemvPolicy
    few_heights: tuple[int, ...]
    batch_dims: int
    rounds: bool
    transposed: bool
    tiles: Tiles | None
    computed: Computed = "no"
    inline: FusedKernel | None = None

    @property
    def may_be_in_place(self) -> bool:
        """Whether panels of b may be used where they are."""
        return self.layout == "rows" and not self.shape.converts and not self.tiles

    @property
    def ahead(self) -> Ahead:
        """The operand that its tiles prefetch."""
        return "b" if self.may_be_in_place else ""

    @cached_property
    def key(self) -> str:
        """All that the code depends on."""
        shape, inline = self.shape, ""
        if self.inline is not None:
            inline = f"inline {self.inline.operands}\n{show(self.inline.kernel)}"
        return (
            f"work item {shape.key} {self.layout} {self.few} "
            f"{self.few_heights} {self.batch_dims} {self.rounds} {self.transposed} {self.tiles} "
            f"computed {self.computed} {inline}"
        )

    def dots(self, rows: int, columns: int, is_computed: bool) -> Piece:
        """Return the function for a number of rows and columns as dot products."""
        return Piece("dots", self.shape, (rows, columns), self._operand(is_computed))

    def stream(self, rows: int, k_steps: int, is_computed: bool) -> Piece:
        """Return the function that adds the products of some positions of k to some rows."""
        return Piece("stream", self.shape, (rows, k_steps), self._operand(is_computed))

    def _operand(self, is_computed: bool) -> Kernel | None:
        return self.inline.kernel if is_computed and self.inline is not None else None

    @property
    def pack(self) -> Piece:
        """The function that packs panels of b."""
        return packs(self.shape, self.layout)

    @property
    def left(self) -> Piece:
        """The function that converts a piece of a, or makes pairs of it."""
        return Piece("widen" if self.shape.k_pack == 1 else "pair_left", self.shape, ())

    @property
    def round(self) -> Piece:
        """The function that rounds a chunk of the product."""
        return Piece("round", self.shape, ())

    @property
    def callees(self) -> tuple[Piece, ...]:
        """The functions that it calls by name."""
        found: list[Piece] = []
        if self.few != "always":
            if self.layout != "packed":
                found.append(self.pack)
            if self.shape.converts:
                found.append(self.left)
        if self.rounds:
            found.append(self.round)
        ways = [True] if self.inline is not None else []
        if self.inline is None or self.few != "always":
            ways.append(False)
        for way in ways if self.few_heights else []:
            if self.layout == "columns":
                for heights, columns in dots.ways(self.shape, self.few_heights):
                    pairs = itertools.product(heights, (columns, 1))
                    found += [self.dots(*pair, way) for pair in pairs]
            else:
                for rows in self.few_heights:
                    found += [self.stream(rows, p, way) for p in (streams.K_STEPS[rows], 1)]
        return tuple(dict.fromkeys(found))
