"""Products of few rows with a `b` whose rows are contiguous: `b` streams through, row by row.

    @stream(ptr a, i64 rs, i64 ks, ptr b, i64 bs, ptr c, i64 cs, i64 more, i64 columns)

adds to r rows of the product what p positions of k contribute, or with `more` = 0 sets them to it;
the strides are those of `tile`. Where a prologue computes `b`, `ptr operands, ptr params_of_b,
i64 row, i64 column` stand for `b` and `bs`: see `sources.ComputedRows`. Each of the p rows of `b`
has load instructions of its own: so the processor sees p streams, and guesses what comes next.
"""

from __future__ import annotations

from collections.abc import Callable

from graphfw.runtime.kernels.ir import Kernel
from graphfw.runtime.numpy_executor.codegen import FunctionText
from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody
from graphfw.runtime.numpy_executor.matmul.elements import Elements
from graphfw.runtime.numpy_executor.matmul.sources import (
    COMPUTED,
    ComputedRows,
    InMemory,
    RowSource,
)
from graphfw.runtime.numpy_executor.matmul.tile import TileShape

MOST = 4
"""The most rows."""

K_STEPS = {4: 4, 2: 8, 1: 8}
"""The number of rows of `b` that stream at once, by height; the others stream one by one."""


def stream(
    symbol: str, shape: TileShape, rows: int, k_steps: int, operand: Kernel | None = None
) -> FunctionText:
    """Return the function for a number of rows and of positions of k, under a name.

    Args:
        symbol: The name.
        shape: The shape of tiles, for its vectors.
        rows: The number of rows of the product.
        k_steps: The number of positions of k.
        operand: The prologue that computes `b`; None if it is read.
    """
    v, body = shape.vector, FunctionBody()
    stored, computed = Elements(body, shape, shape.stored), Elements(body, shape, shape.dtype)
    factors = {}
    for r in range(rows):
        row = body.at("%a", body.mul("%rs", r))
        for p in range(k_steps):
            factors[r, p] = stored.spread(body.at(row, body.mul("%ks", p)))
    source: RowSource
    if operand is None:
        source = InMemory(stored, [body.at("%b", body.mul("%bs", p)) for p in range(k_steps)])
    else:
        # With several rows, fewer columns are multiplied at a time.
        source = ComputedRows(body, shape, operand, k_steps, long=rows == 1)
    targets = [body.at("%c", body.mul("%cs", r)) for r in range(rows)]

    def multiply(column: str, mask: str, old: Callable[[str], str]) -> list[tuple[str, str]]:
        """Return the new elements of each row, and their addresses."""
        to, right = body.mul(column, shape.size), source.load(column, mask)
        results = []
        for r, target in enumerate(targets):
            address = body.at(target, to)
            total = old(address)
            for p, value in enumerate(right):
                total = body.let(
                    f"call {v} @llvm.fmuladd.{shape.suffix}({v} {factors[r, p]}, {v} {value}, "
                    f"{v} {total})"
                )
            results.append((total, address))
        return results

    whole = body.mul(body.div("%columns", shape.lanes), shape.lanes)
    adds = body.test("ne", "%more", 0)
    ways = (adds, computed.load), (body.opposite(adds), lambda _: "zeroinitializer")
    for _ in source.forms():
        for bit, old in ways:
            with body.where(bit), body.loop(0, whole, shape.lanes) as column:
                for total, address in multiply(column, "", old):
                    computed.store(total, address)
    rest = body.sub("%columns", whole)
    with body.where(body.test("ne", rest, 0)):
        kept, bits = stored.mask(rest), stored.mask_type
        known = body.let(f"select i1 {adds}, {bits} {kept}, {bits} zeroinitializer")
        for total, address in multiply(whole, kept, lambda p: computed.load_some(p, known)):
            computed.store_some(total, address, kept)
    right = "ptr %b, i64 %bs" if operand is None else COMPUTED
    text = body.function(
        f"define fastcc void @{symbol}(ptr %a, i64 %rs, i64 %ks, {right}, ptr %c, "
        "i64 %cs, i64 %more, i64 %columns)"
    )
    return FunctionText(text, body.declarations, ())
