"""The kernels of the gradient of attention.

A work item is a chunk of the keys of one head. It goes over the chunk in blocks of keys, and for
each block over blocks of queries. It computes the weights P of the block again, as exp((score -
lse) - rest), and the gradient of the scores dS = P (dP - delta), which stay in cache. It adds Pᵀ
d_out to d_v and dSᵀ q to d_k, which it keeps for the block of keys, and dS k to d_q. For d_q each
chunk of keys leaves a partial sum in memory of its own. A second kernel adds these in order, so
that the result does not depend on the threads.  T. Dao, "FlashAttention-2", 2023.
"""

from __future__ import annotations

from graphfw.runtime.numpy_executor.attention.kernel import ScoresCode, ScoresKernel
from graphfw.runtime.numpy_executor.attention.layout import AttentionParams, operands
from graphfw.runtime.numpy_executor.attention.scores import score_scale
from graphfw.runtime.numpy_executor.attention.tile import (
    AttentionTile,
    MatrixView,
    define_panels,
    define_product,
    define_unstage,
    exp,
    fill,
    multiply,
)
from graphfw.runtime.numpy_executor.codegen import RecordCode
from graphfw.runtime.numpy_executor.codegen.llvm_module import LlvmFunction, LlvmModule
from graphfw.utils.records import record

KEYS = 128
QUERIES = 64
"""The keys, and the queries, of a block."""

_ROWS = ("lse", "rest", "delta")
"""The operands with one number a query."""


def block_length(t: AttentionTile) -> int:
    """Return the length of a row of a block: it starts in another cache set each time."""
    return KEYS + t.lanes


class BackwardCode(ScoresCode):
    """The kernel that computes d_k, d_v and the partial sums of d_q.

    Operands: q, k, v, lse, rest, delta, d_out, the mask if there is one, d_k, d_v, the partial sums
        of
    d_q: for each chunk and head [Tq, D], both rounded up to whole tiles.
    """

    @property
    def layout(self) -> AttentionParams:
        """The arguments; `chunk` is the size of a chunk, `heads` the number of heads."""
        sizes = ("queries", "keys", "width", "value_width", "chunk", "heads")
        return AttentionParams(
            sizes, self.lead, tuple(name for name in self.names if name != "partials")
        )

    @property
    def names(self) -> tuple[str, ...]:
        return ("q", "k", "v", *_ROWS, "d_out", *self.masks, "d_k", "d_v", "partials")

    def llvm(self, symbol: str) -> str:
        return _Backward(self).text(symbol)


class _Backward(ScoresKernel):
    """Writes the kernel."""

    def __init__(self, code: BackwardCode) -> None:
        super().__init__(code)
        f, t, n, module = self.f, self.tile, self.n, self.module
        self.unstage = define_unstage(module, t)
        self.panels = define_panels(module, t)
        self.product = define_product(module, t, adds=False)
        self.add_product = define_product(module, t, adds=True)
        self.padded = f.whole(n["width"], t.columns)
        self.value_padded = f.whole(n["value_width"], t.columns)
        chunk, head = f.div("%work_item", n["heads"]), f.rem("%work_item", n["heads"])
        self.begin(head)
        self._lay_out_scratch()
        rows = f.whole(n["queries"], t.rows)
        room = f.mul(rows, self.padded)
        self.partials = f.at(t.kind, self.operand["partials"], f.mul("%work_item", room))
        fill(f, t, self.partials, room, 0.0)
        first = f.mul(chunk, n["chunk"])
        end = f.low(n["keys"], f.add(first, n["chunk"]))
        with f.loop(first, end, KEYS, asks=True) as block:
            self._keys(block.index, f.low(str(KEYS), f.sub(end, block.index)))

    def _lay_out_scratch(self) -> None:
        """Give each array its offset; `scratch_size` is the sum of the sizes."""
        f, t, n = self.f, self.tile, self.n
        block = str(QUERIES * block_length(t))
        at = "%scratch"

        def take(size: str) -> str:
            nonlocal at
            here = at
            at = f.at(t.kind, at, size)
            return here

        self.weights, self.d_scores = take(block), take(block)
        self.bias_rows = take("0" if self.bias is None else block)
        self.rows = {name: take(str(QUERIES)) for name in _ROWS}
        self.key_panels = take(f.mul(str(KEYS), n["width"]))
        self.value_panels = take(f.mul(str(KEYS), n["value_width"]))
        of_keys, of_queries = f.mul(str(KEYS), self.padded), f.mul(str(QUERIES), self.padded)
        self.k, self.d_k, self.q = take(of_keys), take(of_keys), take(of_queries)
        self.d_v = take(f.mul(str(KEYS), self.value_padded))
        self.d_out = take(f.mul(str(QUERIES), self.value_padded))

    def _keys(self, key: str, keys: str) -> None:
        """Compute a block of d_k and d_v."""
        f, t, n = self.f, self.tile, self.n
        for name, to, width in (
            ("k", self.key_panels, "width"),
            ("v", self.value_panels, "value_width"),
        ):
            sizes = f"i64 {keys}, i64 {n[width]}, i64 {n[f'{name}.row']}, i64 {n[f'{name}.col']}"
            f.do(f"call void {self.panels}(ptr {to}, ptr {self.address(name, key)}, {sizes})")
        self.copy(self.k, "k", key, keys, str(KEYS), self.padded)
        fill(f, t, self.d_k, f.mul(str(KEYS), self.padded), 0.0)
        fill(f, t, self.d_v, f.mul(str(KEYS), self.value_padded), 0.0)
        begin = "0"
        if self.code.causal:  # queries before the first key of the block see none of them
            begin = f.mul(f.div(key, str(QUERIES)), str(QUERIES))
        with f.loop(begin, n["queries"], QUERIES, asks=True) as block:
            queries = f.low(str(QUERIES), f.sub(n["queries"], block.index))
            self._queries(key, keys, block.index, queries)
        for name, source, width, padded, factor in (
            ("d_k", self.d_k, "width", self.padded, self.scale),
            ("d_v", self.d_v, "value_width", self.value_padded, t.number(1.0)),
        ):
            sizes = f"i64 {keys}, i64 {n[width]}, i64 {padded}, i64 {n[f'{name}.row']}"
            to = self.address(name, key)
            f.do(f"call void {self.unstage}(ptr {to}, ptr {source}, {sizes}, {t.kind} {factor})")

    def _queries(self, key: str, keys: str, query: str, queries: str) -> None:
        """Add the contributions of a block of queries."""
        f, t, kind = self.f, self.tile, self.tile.kind
        self.copy(self.q, "q", query, queries, str(QUERIES), self.padded)
        self.copy(self.d_out, "d_out", query, queries, str(QUERIES), self.value_padded)
        self._load_rows(query, queries)
        length = str(block_length(t))
        self.write_bias(self.bias_rows, query, queries, key, keys, length)
        with f.loop("0", queries, t.rows) as strip:
            seen_keys = f.add(f.sub(f.add(query, strip.index), key), "1")
            seen = keys
            if self.code.causal:
                seen = f.high("0", f.low(keys, f.add(seen_keys, str(t.rows - 1))))
            self._write_strip(strip.index, seen_keys, keys, seen)
            row = f.add(query, strip.index)
            d_q = MatrixView(f.at(kind, self.partials, f.mul(row, self.padded)), self.padded)
            left = MatrixView(f.at(kind, self.d_scores, f.mul(strip.index, length)), length)
            k = MatrixView(self.k, self.padded)
            multiply(f, self.add_product, left, k, seen, d_q, self.padded)
        with f.loop("0", keys, t.rows) as strip:
            skipped = "0"
            if self.code.causal:  # queries before the strip's first key see none of its keys
                before = f.sub(f.add(key, strip.index), query)
                skipped = f.high("0", f.low(before, queries))
            left_at = f.add(f.mul(skipped, length), strip.index)
            for to, x, right, padded in (
                (self.d_v, self.weights, self.d_out, self.value_padded),
                (self.d_k, self.d_scores, self.q, self.padded),
            ):
                result = MatrixView(f.at(kind, to, f.mul(strip.index, padded)), padded)
                left = MatrixView(f.at(kind, x, left_at), "1", length)
                below = MatrixView(f.at(kind, right, f.mul(skipped, padded)), padded)
                count = f.sub(queries, skipped)
                multiply(f, self.add_product, left, below, count, result, padded)

    def _load_rows(self, query: str, queries: str) -> None:
        """Copy the numbers of a block of queries, and zeros after the last one."""
        f, t = self.f, self.tile
        for to in self.rows.values():
            fill(f, t, to, str(QUERIES), 0.0)
        with f.loop("0", queries) as row:
            at = f.add(query, row.index)
            for name, to in self.rows.items():
                number = t.load(f, self.address(name, at), 1)
                t.store(f, number, f.at(t.kind, to, row.index), 1)

    def _write_strip(self, row: str, seen_keys: str, keys: str, seen: str) -> None:
        """Write a strip of weights and of the scores' gradients, for `seen` keys.

        Args:
            row: The strip's first query in the block.
            seen_keys: The number of the block's keys that it sees, if causal.
            keys: The number of keys of the block.
            seen: The number of keys that the strip's last query sees.
        """
        f, t, n, kind = self.f, self.tile, self.n, self.tile.kind
        length, columns = block_length(t), str(t.columns)
        line = f.mul(row, str(length))
        weights, d_scores, bias = (
            f.at(kind, x, line) for x in (self.weights, self.d_scores, self.bias_rows)
        )
        panels = f.ceil(seen, t.columns)
        for to, left, padded, right, width in (
            (weights, self.q, self.padded, self.key_panels, n["width"]),
            (d_scores, self.d_out, self.value_padded, self.value_panels, n["value_width"]),
        ):
            rows = MatrixView(f.at(kind, left, f.mul(row, padded)), padded)
            size = f.mul(columns, width)
            with f.loop("0", panels) as panel:
                packed = MatrixView(f.at(kind, right, f.mul(panel.index, size)), columns)
                result = MatrixView(f.at(kind, to, f.mul(panel.index, columns)), str(length))
                multiply(f, self.product, rows, packed, width, result, columns)
        with f.loop("0", str(t.rows)) as r:
            limit = keys
            if self.code.causal:
                limit = f.low(keys, f.add(seen_keys, r.index))
            query = f.add(row, r.index)
            lse, rest, delta = (self._row_value(name, query) for name in _ROWS)
            line = f.mul(r.index, str(length))
            end = f.mul(panels, columns)
            with f.loop("0", end, t.lanes) as at:
                element = f.add(line, at.index)
                score = t.load(f, f.at(kind, weights, element))
                score = self.score(score, f.at(kind, bias, element), at.index, limit)
                less = f.let(f"fsub {t.vector} {score}, {lse}")
                weight = exp(f, t, f.let(f"fsub {t.vector} {less}, {rest}"))
                t.store(f, weight, f.at(kind, weights, element))
                d_weight = t.load(f, f.at(kind, d_scores, element))
                centred = f.let(f"fsub {t.vector} {d_weight}, {delta}")
                d_score = f.let(f"fmul {t.vector} {weight}, {centred}")
                t.store(f, d_score, f.at(kind, d_scores, element))

    def _row_value(self, of: str, row: str) -> str:
        """Return a vector of a number of a row."""
        f, t = self.f, self.tile
        return t.splat(f, t.load(f, f.at(t.kind, self.rows[of], row), 1))


@record
class SumCode(RecordCode):
    """The kernel that adds and scales the partial sums of d_q.

    A work item is some rows of one head.

    Operands: the partial sums, d_q.

    Attributes:
        tile: The shape of the tiles that wrote the partial sums.
        lead: The number of leading dims.
        causal: Whether a partial sum has nothing for queries before its chunk.
        scale: As that of the op.
    """

    tile: AttentionTile
    lead: int
    causal: bool
    scale: float | None

    @property
    def layout(self) -> AttentionParams:
        """The arguments; `chunks` is the number of partial sums."""
        sizes = ("queries", "width", "chunk", "chunks", "heads", "rows", "groups")
        return AttentionParams(sizes, self.lead, ("d_q",))

    def llvm(self, symbol: str) -> str:
        t, module = self.tile, LlvmModule()
        unstage = define_unstage(module, t)
        f = LlvmFunction(module)
        n = self.layout.loaded(f)
        factor = score_scale(f, t, self.scale, n["width"])
        at = operands(f, ("partials", "d_q"))
        head, group = f.div("%work_item", n["groups"]), f.rem("%work_item", n["groups"])
        start = self.layout.starts(f, n, head, ("d_q",))["d_q"]
        padded = f.whole(n["width"], t.columns)
        room = f.mul(f.whole(n["queries"], t.rows), padded)
        first = f.mul(group, n["rows"])
        with f.loop(first, f.low(n["queries"], f.add(first, n["rows"]))) as row:
            partials = n["chunks"]
            if self.causal:
                partials = f.low(partials, f.add(f.div(row.index, n["chunk"]), "1"))
            line = f.add(f.mul(head, room), f.mul(row.index, padded))
            source = f.at(t.kind, at["partials"], line)
            with f.loop("0", padded, t.lanes) as column:
                with f.loop("0", partials, 1, [(t.vector, t.constant(0.0))]) as partial:
                    offset = f.mul(f.mul(partial.index, n["heads"]), room)
                    x = t.load(f, f.at(t.kind, source, f.add(offset, column.index)))
                    partial.following.append(f.let(f"fadd {t.vector} {partial.values[0]}, {x}"))
                t.store(f, partial.values[0], f.at(t.kind, "%scratch", column.index))
            to = f.at(t.element, at["d_q"], f.add(start, f.mul(row.index, n["d_q.row"])))
            sizes = f"i64 1, i64 {n['width']}, i64 {padded}, i64 0, {t.kind} {factor}"
            f.do(f"call void {unstage}(ptr {to}, ptr %scratch, {sizes})")
        return f.work_item(symbol)
