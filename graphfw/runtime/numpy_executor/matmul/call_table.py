"""`CallTable`: a work item's arguments for its product, in words of 8 bytes.

| word | what |
|---|---|
| 0 | the function that follows, see `code.MatmulCode`; null for none |
| 1 | 1 where the product is an operand, else 0 |
| 2 | of how many rows the blocks of rows are multiples |
| 3 | how many heights of tiles follow |
| 4 | the function that computes pieces of an operand, for work items that have one |
| 5 | the number of its run-time integers: they come before those of word 0 |
| 6, 10, … | a `TileFunctions`, those of the most rows first |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody

_FIRST, _EACH = 6, 4


class TileFunctions(NamedTuple):
    """The functions that compute a number of rows, as names with an `@`.

    Attributes:
        rows: The number of rows at a time.
        least: The least number of rows for which it is used.
        narrow: The function for one vector of columns.
        wide: The function for two vectors of columns.
    """

    rows: int
    least: int
    narrow: str
    wide: str


def constant(
    follow: str,
    kept: bool,
    unit: int,
    tiles: Sequence[TileFunctions],
    before: str,
    before_params: int,
) -> str:
    """Return the words as an LLVM constant; functions are names with an `@`, or null."""
    words = [f"ptr {follow}", f"i64 {int(kept)}", f"i64 {unit}", f"i64 {len(tiles)}"]
    words += [f"ptr {before}", f"i64 {before_params}"]
    for tile in tiles:
        words += [f"i64 {tile.rows}", f"i64 {tile.least}", f"ptr {tile.narrow}", f"ptr {tile.wide}"]
    kinds = ", ".join([word.split()[0] for word in words])
    return f"{{ {kinds} }} {{ {', '.join(words)} }}"


class CallTable:
    """Reads the words at `%calls`.

    Attributes:
        follow: The function that follows.
        has_epilogue: Whether there is one.
        kept: Whether the product is an operand.
        unit: The number of rows that blocks are multiples of.
        before: The function that computes pieces of an operand.
        before_params: The number of its run-time integers.
        operands: The address of the buffers of a prologue that computes the right operand in
            registers; set by a work item that has one.
        params: The prologue's run-time integers; likewise.
    """

    operands = "null"
    params = "null"

    def __init__(self, body: FunctionBody) -> None:
        self._body = body
        self.follow = body.array("%calls", 0, "ptr")
        self.has_epilogue = body.let(f"icmp ne ptr {self.follow}, null")
        self.kept = body.test("ne", body.array("%calls", 1), 0)
        self.unit = body.array("%calls", 2)
        self._heights = body.array("%calls", 3)
        self.before = body.array("%calls", 4, "ptr")
        self.before_params = body.array("%calls", 5)

    @contextmanager
    def tiles(self, rows: str, narrow: str) -> Iterator[tuple[str, str]]:
        """Go through a number of rows tile by tile; yield the function and the tile's first row.

        Args:
            rows: The number of rows.
            narrow: Whether one vector is enough.
        """
        body = self._body
        done = body.slot()
        body.set(done, 0)
        which = body.select(narrow, str(_FIRST + 2), str(_FIRST + 3))
        with body.loop(0, self._heights) as number:
            offset = body.mul(number, _EACH)
            height, least = (body.array("%calls", body.add(offset, _FIRST + i)) for i in range(2))
            function = body.array("%calls", body.add(offset, which), "ptr")
            with body.whole(done, rows, height, least) as row:
                yield function, row
