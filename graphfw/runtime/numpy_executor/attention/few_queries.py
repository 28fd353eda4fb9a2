"""The kernels of attention with few queries: each key and value is read once, unpacked.

A decoder has one query a step. Its time is that of reading its cache of keys and values, so nothing
is packed, and heads are cut into chunks of keys, so that threads have enough to read. A work item
is a chunk of one head, up to the last key that a mask lets through. For each query it writes the
result over its keys, the maximum of their scores and the sum of their weights. A second kernel
combines the chunks in order, so that results do not depend on the threads.  T. Dao et al.,
"Flash-Decoding", 2023.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from graphfw.ir.dtype import DType
from graphfw.runtime.numpy_executor.attention.elements import read
from graphfw.runtime.numpy_executor.attention.kernel import ScoresCode, ScoresKernel, finished
from graphfw.runtime.numpy_executor.attention.layout import AttentionParams, operands
from graphfw.runtime.numpy_executor.attention.scores import masked
from graphfw.runtime.numpy_executor.attention.tile import (
    AttentionTile,
    define_unstage,
    exp,
    greater,
    sums,
)
from graphfw.runtime.numpy_executor.codegen import RecordCode
from graphfw.runtime.numpy_executor.codegen.llvm_module import LlvmFunction, LlvmModule
from graphfw.runtime.numpy_executor.codegen.registers import memory
from graphfw.utils.records import record

_Use = Callable[[DType, str, str], None]
"""Writes code for rows of a dtype; its arguments are their dtype, address and distance."""


class FewQueriesCode(ScoresCode):
    """The kernel of chunks.

    Operands: q, k, v, the mask if there is one, the partial results: for each head, chunk and query
    a row of as many elements as whole vectors of values have, the maximum, the sum, and room up to
    a vector.
    """

    @property
    def layout(self) -> AttentionParams:
        """The arguments; a head has `chunks` of `chunk` keys, a multiple of a tile's."""
        sizes = ("queries", "keys", "width", "value_width", "chunk", "chunks")
        return AttentionParams(sizes, self.lead, ("q", "k", "v", *self.masks))

    @property
    def names(self) -> tuple[str, ...]:
        return ("q", "k", "v", *self.masks, "partials")

    def llvm(self, symbol: str) -> str:
        return _FewQueries(self).text(symbol)


class _FewQueries(ScoresKernel):
    """Writes the kernel of chunks."""

    def __init__(self, code: FewQueriesCode) -> None:
        super().__init__(code)
        f, t, n = self.f, self.tile, self.n
        kinds = dict.fromkeys((t.dtype, t.wide))
        self.dots = {x: _define_dots(self.module, t, x) for x in kinds}
        self.blend = {x: _define_blend(self.module, t, x) for x in kinds}
        self.padded = f.whole(n["width"], t.lanes)
        self.value_padded = f.whole(n["value_width"], t.lanes)
        head, chunk = f.div("%work_item", n["chunks"]), f.rem("%work_item", n["chunks"])
        self.begin(head)
        self.key = f.mul(chunk, n["chunk"])
        self.keys = f.low(n["chunk"], f.sub(n["keys"], self.key))
        self._lay_out_scratch()
        self.write_bias(self.bias_rows, "0", n["queries"], self.key, self.keys, n["chunk"])
        if self.bias is not None:
            self.keys = self._seen_keys()
        self.copy(self.q, "q", "0", n["queries"], n["queries"], self.padded)
        self._for_rows_of("k", self._multiply)
        with f.loop("0", n["queries"]) as query:
            self._softmax(query.index)
        self._for_rows_of("v", self._blend)

    def _lay_out_scratch(self) -> None:
        f, t, n = self.f, self.tile, self.n
        strips = f.mul(n["queries"], n["chunk"])
        self.scores = "%scratch"
        self.bias_rows = f.at(t.kind, "%scratch", strips)
        self.q = self.bias_rows if self.bias is None else f.at(t.kind, self.bias_rows, strips)
        self.copied = f.at(t.kind, self.q, f.mul(n["queries"], self.padded))
        self.length = f.add(self.value_padded, str(t.lanes))
        offset = f.mul(f.mul("%work_item", n["queries"]), self.length)
        self.partials = f.at(t.kind, self.operand["partials"], offset)

    def _seen_keys(self) -> str:
        """Return the number of the chunk's keys up to the last one that a query sees.

        In a cache that is not full the others are not read.
        """
        f, t, n = self.f, self.tile, self.n
        flags = f"<{t.lanes} x i1>"
        with f.loop("0", n["queries"], 1, [("i64", "0")]) as query:
            row = f.at(t.kind, self.bias_rows, f.mul(query.index, n["chunk"]))
            with f.loop("0", self.keys, t.lanes, [("i64", query.values[0])]) as at:
                bias = masked(f, t, t.load(f, f.at(t.kind, row, at.index)), at.index, self.keys)
                seen = f.let(f"fcmp une {t.vector} {bias}, {t.constant(-math.inf)}")
                some = f.call("i1", f"llvm.vector.reduce.or.v{t.lanes}i1", (flags, seen))
                end = f.let(f"select i1 {some}, i64 {f.add(at.index, str(t.lanes))}, i64 0")
                at.following.append(f.high(at.values[0], end))
            query.following.append(at.values[0])
        return f.low(self.keys, query.values[0])

    def _for_rows_of(self, name: str, use: _Use) -> None:
        """Write code for the chunk's keys or values: without a copy if rows are whole vectors."""
        f, t, n = self.f, self.tile, self.n
        width, padded = n["width"], self.padded
        if name == "v":
            width, padded = n["value_width"], self.value_padded
        full = f.let(f"icmp eq i64 {width}, {padded}")
        dense = f.let(f"and i1 {full}, {f.let('icmp eq i64 ' + n[f'{name}.col'] + ', 1')}")
        with f.when(dense):
            use(t.dtype, self.address(name, self.key), n[f"{name}.row"])
        with f.when(f.let(f"xor i1 {dense}, true")):
            self.copy(self.copied, name, self.key, self.keys, self.keys, padded)
            use(t.wide, self.copied, padded)

    def _multiply(self, dtype: DType, rows: str, distance: str) -> None:
        """Write the products of all queries with keys."""
        f, t, n = self.f, self.tile, self.n
        with f.loop("0", n["queries"]) as query:
            to = f.at(t.kind, self.scores, f.mul(query.index, n["chunk"]))
            q = f.at(t.kind, self.q, f.mul(query.index, self.padded))
            sizes = f"i64 {distance}, i64 {self.keys}, i64 {self.padded}"
            f.do(f"call void {self.dots[dtype]}(ptr {to}, ptr {q}, ptr {rows}, {sizes})")

    def _softmax(self, query: str) -> None:
        """Turn a query's products into weights, and write the maximum and the sum."""
        f, t, n = self.f, self.tile, self.n
        line = f.mul(query, n["chunk"])
        scores, bias = (f.at(t.kind, x, line) for x in (self.scores, self.bias_rows))
        top = self.top(scores, bias, self.keys, self.keys)
        # The maximum of a query that sees no key is -inf, and -inf - -inf is NaN.
        top = greater(f, t.kind, top, t.number(t.lowest))
        total = self.weigh(scores, self.keys, top)
        to = f.at(t.kind, self._partial(query), self.value_padded)
        t.store(f, top, to, 1)
        t.store(f, total, f.at(t.kind, to, "1"), 1)

    def _blend(self, dtype: DType, rows: str, distance: str) -> None:
        """Write the sums of weights times values for all queries."""
        f, t, n = self.f, self.tile, self.n
        with f.loop("0", n["queries"]) as query:
            weights = f.at(t.kind, self.scores, f.mul(query.index, n["chunk"]))
            to = self._partial(query.index)
            sizes = f"i64 {distance}, i64 {self.keys}, i64 {self.value_padded}"
            f.do(f"call void {self.blend[dtype]}(ptr {to}, ptr {weights}, ptr {rows}, {sizes})")

    def _partial(self, query: str) -> str:
        return self.f.at(self.tile.kind, self.partials, self.f.mul(query, self.length))


_ARGUMENTS = "ptr noalias %to, ptr noalias %factors, ptr noalias %rows"
_ARGUMENTS += ", i64 %row, i64 %count, i64 %width"
"""The arguments of the functions here: the rows are `row` apart, and of whole vectors."""


def _define_dots(module: LlvmModule, t: AttentionTile, dtype: DType) -> str:
    """Define the products of rows of a dtype with one row, of whole vectors.

    Each iteration does as many rows as a vector has lanes: their sums become a vector of products.
    """
    f = LlvmFunction(module)
    kind, element = t.kind, memory(dtype)
    distances = [f.mul(str(i), "%row") for i in range(t.lanes)]

    def write(begin: str, distances: list[str]) -> None:
        first = f.at(element, "%rows", f.mul(begin, "%row"))
        rows = [f.at(element, first, distance) for distance in distances]
        zeros = [(t.vector, t.constant(0.0))] * t.lanes
        with f.loop("0", "%width", t.lanes, zeros) as at:
            factor = t.load(f, f.at(kind, "%factors", at.index))
            for row, total in zip(rows, at.values, strict=True):
                x = read(f, dtype, t.lanes, f.at(element, row, at.index))
                at.following.append(t.fma(f, x, factor, total))
        t.store(f, sums(f, t, at.values), f.at(kind, "%to", begin))

    whole = f.mul(f.div("%count", str(t.lanes)), str(t.lanes))
    with f.loop("0", whole, t.lanes) as begin:
        write(begin.index, distances)
    with f.loop(whole, "%count", t.lanes) as begin:  # after the last row it comes again
        last = f.mul(f.sub(f.sub("%count", begin.index), "1"), "%row")
        above = f.let("icmp slt i64 %row, 0")
        nearer = []
        for distance in distances:
            low, high = f.low(distance, last), f.high(distance, last)
            nearer.append(f.let(f"select i1 {above}, i64 {high}, i64 {low}"))
        write(begin.index, nearer)
    name = f"@dots.{dtype.name}"
    f.define(f"define internal void {name}({_ARGUMENTS})")
    return name


def _define_blend(module: LlvmModule, t: AttentionTile, dtype: DType) -> str:
    """Define the sum of rows of a dtype, each times a factor."""
    f = LlvmFunction(module)
    kind, element = t.kind, memory(dtype)

    def write(column: str, vectors: int) -> None:
        zeros = [(t.vector, t.constant(0.0))] * vectors
        first = f.at(element, "%rows", column)
        with f.loop("0", "%count", 1, zeros) as row:
            factor = t.splat(f, t.load(f, f.at(kind, "%factors", row.index), 1))
            here = f.at(element, first, f.mul(row.index, "%row"))
            for i, total in enumerate(row.values):
                x = read(f, dtype, t.lanes, f.at(element, here, str(i * t.lanes)))
                row.following.append(t.fma(f, x, factor, total))
        to = f.at(kind, "%to", column)
        for i, total in enumerate(row.values):
            t.store(f, total, f.at(kind, to, str(i * t.lanes)))

    block = 4 * t.lanes
    whole = f.mul(f.div("%width", str(block)), str(block))
    with f.loop("0", whole, block) as column:
        write(column.index, 4)
    with f.loop(whole, "%width", t.lanes) as column:
        write(column.index, 1)
    name = f"@blend.{dtype.name}"
    f.define(f"define internal void {name}({_ARGUMENTS})")
    return name


@record
class MergeCode(RecordCode):
    """The kernel that joins chunks. A work item is a number of heads.

    Operands: the partial results, out, lse, rest.

    Attributes:
        tile: The shape of the tiles.
        lead: The number of leading dims.
    """

    tile: AttentionTile
    lead: int

    @property
    def layout(self) -> AttentionParams:
        """The arguments; a work item has `group` of all `heads`."""
        sizes = ("queries", "value_width", "chunks", "heads", "group")
        return AttentionParams(sizes, self.lead, ("out",))

    def llvm(self, symbol: str) -> str:
        t, module = self.tile, LlvmModule()
        unstage = define_unstage(module, t)
        f = LlvmFunction(module)
        n = self.layout.loaded(f)
        at = operands(f, ("partials", "out", "lse", "rest"))
        padded = f.whole(n["value_width"], t.lanes)
        length = f.add(padded, str(t.lanes))
        distance = f.mul(n["queries"], length)
        first = f.mul("%work_item", n["group"])
        with f.loop(first, f.low(n["heads"], f.add(first, n["group"]))) as head:
            start = self.layout.starts(f, n, head.index, ("out",))["out"]
            partials = f.at(t.kind, at["partials"], f.mul(f.mul(head.index, n["chunks"]), distance))
            with f.loop("0", n["queries"]) as query:
                partial = f.at(t.kind, partials, f.mul(query.index, length))
                total, top = _join(f, t, partial, padded, distance, n["chunks"])
                inverse, lse, rest = finished(f, t, total, top)
                to = f.at(t.element, at["out"], f.add(start, f.mul(query.index, n["out.row"])))
                sizes = f"i64 1, i64 {n['value_width']}, i64 {padded}, i64 0, {t.kind} {inverse}"
                f.do(f"call void {unstage}(ptr {to}, ptr %scratch, {sizes})")
                offset = f.add(f.mul(head.index, n["queries"]), query.index)
                for name, x in (("lse", lse), ("rest", rest)):
                    t.store(f, x, f.at(t.kind, at[name], offset), 1)
        return f.work_item(symbol)


def _join(
    f: LlvmFunction, t: AttentionTile, partial: str, padded: str, distance: str, chunks: str
) -> tuple[str, str]:
    """Write the sum of a query's partial results to scratch memory; return it and the maximum."""
    tops = f.at(t.kind, partial, padded)
    with f.loop("0", chunks, 1, [(t.kind, t.number(t.lowest))]) as chunk:
        x = t.load(f, f.at(t.kind, tops, f.mul(chunk.index, distance)), 1)
        chunk.following.append(greater(f, t.kind, x, chunk.values[0]))
    top = chunk.values[0]

    def shrink(chunk: str) -> str:
        x = t.load(f, f.at(t.kind, tops, f.mul(chunk, distance)), 1)
        return exp(f, t, t.splat(f, f.let(f"fsub {t.kind} {x}, {top}")))

    with f.loop("0", padded, t.lanes) as column:
        source = f.at(t.kind, partial, column.index)
        with f.loop("0", chunks, 1, [(t.vector, t.constant(0.0))]) as chunk:
            x = t.load(f, f.at(t.kind, source, f.mul(chunk.index, distance)))
            chunk.following.append(t.fma(f, x, shrink(chunk.index), chunk.values[0]))
        t.store(f, chunk.values[0], f.at(t.kind, "%scratch", column.index))
    with f.loop("0", chunks, 1, [(t.vector, t.constant(0.0))]) as chunk:
        total = f.at(t.kind, tops, f.add(f.mul(chunk.index, distance), "1"))
        x = t.splat(f, t.load(f, total, 1))
        chunk.following.append(t.fma(f, x, shrink(chunk.index), chunk.values[0]))
    return f.let(f"extractelement {t.vector} {chunk.values[0]}, i32 0"), top
