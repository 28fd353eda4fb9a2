"""`MatmulCode`: the native function that computes one work item of a matrix product."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple, Protocol

from graphfw.ir.dim import DimLike
from graphfw.ir.tensor import Node
from graphfw.runtime.kernels.steps import Code, Epilogue, Step, Storage
from graphfw.runtime.numpy_executor.codegen import FunctionText, Processor, module
from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody
from graphfw.runtime.numpy_executor.matmul import call_table
from graphfw.runtime.numpy_executor.matmul.epilogue import EpilogueFunction, FusedKernel
from graphfw.runtime.numpy_executor.matmul.item import GemvPolicy
from graphfw.runtime.numpy_executor.matmul.pieces import Piece
from graphfw.runtime.numpy_executor.matmul.tile import Ahead, TileShape
from graphfw.runtime.numpy_executor.matmul.work_item import MatMulItemCode
from graphfw.utils.records import record


class Operands(NamedTuple):
    """The operands of a step: see `steps.Step`.

    Attributes:
        storages: The inputs, the product if it is kept, the epilogue's operands.
        written: For each whether it is written.
        region: The epilogue.
        in_place: Pairs of those that may be one array.
    """

    storages: tuple[Storage, ...]
    written: tuple[bool, ...]
    region: FusedKernel | None
    in_place: tuple[tuple[int, int], ...]

    def step(
        self,
        nodes: tuple[Node, ...],
        code: Code,
        params: tuple[DimLike, ...],
        work_items: DimLike,
        scratch: DimLike,
    ) -> Step:
        """Return the step with these operands."""
        storages, written, _, in_place = self
        return Step(nodes, code, storages, written, params, work_items, scratch, in_place)


def operands_of(
    inputs: Sequence[Storage], product: Storage | None, epilogue: Epilogue | None
) -> Operands:
    """Return the operands of a step with some inputs; a product of None is not kept."""
    storages = [*inputs, *([] if product is None else [product])]
    written = [False] * len(inputs) + [True] * (len(storages) - len(inputs))
    if epilogue is None:
        return Operands(tuple(storages), tuple(written), None, ())
    numbers = []
    for storage, buffer in zip(epilogue.operands, epilogue.kernel.buffers, strict=True):
        if storage is None:
            numbers.append(-1)
            continue
        numbers.append(len(storages))
        storages.append(storage)
        written.append(buffer.written)
    pairs = [(numbers[out], numbers[read]) for out, read in epilogue.in_place]
    region = FusedKernel(epilogue.kernel, tuple(numbers))
    return Operands(tuple(storages), tuple(written), region, tuple(pairs))


class WorkItemCode(Code, Protocol):
    """The code of a work item, the same for many products: a `MatMulItemCode` or the like."""

    @property
    def shape(self) -> TileShape:
        """The tiles."""
        ...

    @property
    def few(self) -> GemvPolicy:
        """Whether it calls no tiles: "always"."""
        ...

    @property
    def ahead(self) -> Ahead:
        """The operand that its tiles prefetch."""
        ...

    @property
    def name(self) -> str:
        """The name that it is called by."""
        ...

    @property
    def declaration(self) -> dict[str, str]:
        """The line that a module needs for calling it, by its symbol."""
        ...


@record
class MatmulCode:
    """A work item: some rows and columns of the product, of one or several members of the batch.

    Operands: a, b (or its panels), then the product where it is kept, then the epilogue's.

    Attributes:
        work_item: The code that computes it.
        target: The processor.
        heights: The rows of the tiles in use, the largest first; they make up all rows. Those of
            `dots` or `streams` where these always serve.
        ragged: Whether a tile may have fewer rows than its height, as their number is unknown.
        vectors: The widths of the tiles in use, in vectors.
        kept: Whether the product is an operand.
        region: The epilogue.
        before: The prologue, for a work item that computes an operand.
        before_params: The number of the prologue's run-time integers.
    """

    work_item: WorkItemCode
    target: Processor
    heights: tuple[int, ...]
    ragged: bool
    vectors: tuple[int, ...]
    kept: bool
    region: FusedKernel | None
    before: FusedKernel | None = None
    before_params: int = 0
    tidy = True

    @cached_property
    def key(self) -> str:
        text = (
            f"matmul {self.work_item.key} {self.heights} {self.ragged} {self.vectors} {self.kept} "
            f"for {self.target.name}\n"
        )
        if self.before is not None:
            text += f"before {self.before_params} {self.before.key(self.target)}"
        return text if self.region is None else text + self.region.key(self.target)

    @property
    def note(self) -> str:
        """The kind of instructions that multiply, if not of vectors: for reports."""
        if isinstance(self.work_item, MatMulItemCode) and self.work_item.tiles is not None:
            return "matrix tiles"
        has_pairs = self.work_item.shape.k_pack == 2 and self.work_item.few != "always"
        return "dot products of pairs of bfloat16" if has_pairs else ""

    @property
    def heights_of_tiles(self) -> tuple[int, ...]:
        """The rows of the tiles that it calls."""
        return () if self.work_item.few == "always" else self.heights

    @property
    def callees(self) -> tuple[Code, ...]:
        """The functions that it calls."""
        tiles = [self.tile(h, v) for h in self.heights_of_tiles for v in self.vectors]
        called = [code for code in (self.first, self.follow) if code is not None]
        return (self.work_item, *tiles, *called)

    @cached_property
    def first(self) -> EpilogueFunction | None:
        """The function that computes pieces of an operand."""
        return (
            None
            if self.before is None
            else EpilogueFunction(self.before, self.target._replace(large=0))
        )

    @cached_property
    def follow(self) -> EpilogueFunction | None:
        """The function of the epilogue."""
        return None if self.region is None else EpilogueFunction(self.region, self.target)

    def tile(self, height: int, vectors: int) -> Piece:
        """Return the micro-kernel of a number of rows and vectors."""
        work_item = self.work_item
        return Piece("tile", work_item.shape, (height, vectors, work_item.ahead, self.ragged))

    def llvm(self, symbol: str) -> str:
        declared, follow, before = dict(self.work_item.declaration), "null", "null"
        tiles: list[call_table.TileFunctions] = []
        for height, smaller in itertools.pairwise((*self.heights_of_tiles, 0)):
            pieces = [self.tile(height, v) for v in (min(self.vectors), max(self.vectors))]
            for piece in pieces:
                declared |= piece.declaration
            names = [f"@{piece.name}" for piece in pieces]
            tiles.append(
                call_table.TileFunctions(height, smaller + 1 if self.ragged else height, *names)
            )
        if self.follow is not None:
            declared |= self.follow.declaration
            follow = f"@{self.follow.name}"
        if self.first is not None:
            declared |= self.first.declaration
            before = f"@{self.first.name}"
        table = call_table.constant(
            follow, self.kept, self.heights[0], tiles, before, self.before_params
        )
        body = FunctionBody()
        body.line(
            f"call fastcc void @{self.work_item.name}(ptr %buffers, ptr %params, i64 %work_item, "
            "ptr %scratch, ptr @calls)"
        )
        text = f"@calls = internal constant {table}\n{body.work_item(symbol)}"
        return module([FunctionText(text, declared, ())])
