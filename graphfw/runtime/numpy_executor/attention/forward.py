"""The kernel of attention.

A work item is some queries of one head. It goes over the keys in blocks, and in a block over strips
of a few queries. For a strip it computes the scores of the block, which stay in the first-level
cache, updates the maximum and the sums of the strip, and adds the block's weights times values to
the strip's result: softmax in one pass.
M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018; T. Dao et al.,
"FlashAttention", 2022.
"""

from __future__ import annotations

from graphfw.runtime.numpy_executor.attention.kernel import ScoresCode, ScoresKernel, finished
from graphfw.runtime.numpy_executor.attention.layout import AttentionParams
from graphfw.runtime.numpy_executor.attention.packing import (
    KEYS,
    lies_dense,
    pack_block,
    packed_keys,
    packed_values,
)
from graphfw.runtime.numpy_executor.attention.tile import (
    AttentionTile,
    MatrixView,
    define_panels,
    define_product,
    define_unstage,
    exp,
    fill,
    greater,
    multiply,
)


class ForwardCode(ScoresCode):
    """The kernel of the result.

    Operands: q, k, v, packed keys, packed values, the mask if there is one, out, lse, rest. Where a
    head has only one work item, it packs keys and values itself, block by block.
    """

    @property
    def layout(self) -> AttentionParams:
        """The arguments: a work item has `rows` queries, a head has `groups` work items."""
        sizes = ("queries", "keys", "width", "value_width", "rows", "groups")
        return AttentionParams(sizes, self.lead, ("q", "k", "v", "out", *self.masks))

    @property
    def names(self) -> tuple[str, ...]:
        return ("q", "k", "v", "keys", "values", *self.masks, "out", "lse", "rest")

    def llvm(self, symbol: str) -> str:
        return _Forward(self).text(symbol)


def strip_length(t: AttentionTile) -> int:
    """Return the length of a row of a strip of scores: it starts in another cache set each time."""
    return KEYS + t.lanes


class _Forward(ScoresKernel):
    """Writes the kernel."""

    def __init__(self, code: ForwardCode) -> None:
        super().__init__(code)
        f, t, n, module = self.f, self.tile, self.n, self.module
        self.unstage = define_unstage(module, t)
        define_panels(module, t)
        self.product = define_product(module, t, adds=False)
        self.add_product = define_product(module, t, adds=True)
        self.padded = f.whole(n["width"], t.lanes)
        self.value_padded = f.whole(n["value_width"], t.columns)
        self.head, group = f.div("%work_item", n["groups"]), f.rem("%work_item", n["groups"])
        if code.causal:  # the last queries see most keys: they come first
            group = f.sub(f.sub(n["groups"], "1"), group)
        self.first = f.mul(group, n["rows"])
        self.count = f.low(n["rows"], f.sub(n["queries"], self.first))
        self.begin(self.head)
        self._lay_out_scratch()
        self.copy(self.q, "q", self.first, self.count, n["rows"], self.padded)
        self._find_operands()
        end = f.low(n["keys"], f.add(self.first, self.count)) if code.causal else n["keys"]
        with f.loop("0", end, KEYS, asks=True) as block:
            self._pack(block.index)
            with f.loop("0", self.count, t.rows) as strip:
                limit = n["keys"]
                if code.causal:
                    row = f.add(f.add(self.first, strip.index), str(t.rows))
                    limit = f.low(limit, row)
                with f.when(f.let(f"icmp slt i64 {block.index}, {limit}")):
                    keys = f.low(str(KEYS), f.sub(limit, block.index))
                    self._strip(strip.index, block.index, keys)
        with f.loop("0", self.count) as each:
            self._finish(each.index)

    def _lay_out_scratch(self) -> None:
        f, t, n = self.f, self.tile, self.n
        self.scores = "%scratch"
        strip = t.rows * strip_length(t)
        self.bias_rows = f.at(t.kind, "%scratch", str(strip))
        self.q = f.at(t.kind, "%scratch", str(strip if self.bias is None else 2 * strip))
        self.result = f.at(t.kind, self.q, f.mul(n["rows"], self.padded))
        room = f.mul(n["rows"], self.value_padded)
        self.tops = f.at(t.kind, self.result, room)
        self.totals = f.at(t.kind, self.tops, n["rows"])
        self.own_keys = f.at(t.kind, self.totals, n["rows"])
        self.own_values = f.at(t.kind, self.own_keys, f.mul(str(KEYS), n["width"]))
        fill(f, t, self.result, room, 0.0)
        fill(f, t, self.tops, n["rows"], t.lowest)
        fill(f, t, self.totals, n["rows"], 0.0)

    def _find_operands(self) -> None:
        """Write the addresses of the head's keys and values."""
        f, t, n = self.f, self.tile, self.n
        self.k, self.v = (self.address(x, "0") for x in ("k", "v"))
        self.packed_keys = packed_keys(f, t, n, self.operand["keys"], self.head)
        self.packed_values = packed_values(f, t, n, self.operand["values"], self.head)
        self.dense = lies_dense(f, t, n)
        row = n["v.row"]
        self.values_row = f.let(f"select i1 {self.dense}, i64 {row}, i64 {self.value_padded}")
        self.packs = f.let(f"icmp eq i64 {n['groups']}, 1")

    def _pack(self, key: str) -> None:
        """Pack a block of keys unless it is packed, and return the addresses of keys and values."""
        f, t = self.f, self.tile
        with f.when(self.packs):
            pack_block(f, t, self.n, self.k, self.v, key, self.own_keys, self.own_values)
        keys = f.at(t.kind, self.packed_keys, f.mul(key, self.n["width"]))
        self.keys = f.let(f"select i1 {self.packs}, ptr {self.own_keys}, ptr {keys}")
        values = f.at(t.kind, self.packed_values, f.mul(key, self.value_padded))
        values = f.let(f"select i1 {self.packs}, ptr {self.own_values}, ptr {values}")
        source = f.at(t.kind, self.v, f.mul(key, self.values_row))
        self.values = f.let(f"select i1 {self.dense}, ptr {source}, ptr {values}")

    def _strip(self, row: str, key: str, keys: str) -> None:
        """Update the strip of queries that begins at `row` by `keys` keys from `key` on."""
        f, t, n = self.f, self.tile, self.n
        length = strip_length(t)
        rows = f.low(str(t.rows), f.sub(self.count, row))
        query = f.add(self.first, row)
        self.write_bias(self.bias_rows, query, rows, key, keys, str(length))
        queries = MatrixView(f.at(t.kind, self.q, f.mul(row, self.padded)), self.padded)
        size = f.mul(str(t.columns), n["width"])
        with f.loop("0", f.ceil(keys, t.columns)) as panel:
            here = f.at(t.kind, self.keys, f.mul(panel.index, size))
            packed = MatrixView(here, str(t.columns))
            to = f.at(t.kind, self.scores, f.mul(panel.index, str(t.columns)))
            scores = MatrixView(to, str(length))
            multiply(f, self.product, queries, packed, n["width"], scores, str(t.columns))
        with f.loop("0", rows) as r:
            limit = keys
            if self.code.causal:
                seen_keys = f.add(f.add(f.sub(query, key), "1"), r.index)
                limit = f.low(keys, seen_keys)
            line = f.mul(r.index, str(length))
            self._softmax(f.add(row, r.index), line, keys, limit)
        weights = MatrixView(self.scores, str(length))
        values = MatrixView(self.values, self.values_row)
        here = f.at(t.kind, self.result, f.mul(row, self.value_padded))
        result = MatrixView(here, self.value_padded)
        multiply(f, self.add_product, weights, values, keys, result, self.value_padded)

    def _softmax(self, row: str, line: str, keys: str, limit: str) -> None:
        """Turn a row's products into weights, and update its maximum, sum and result.

        Args:
            row: The query's position in the work item.
            line: The offset of its products in the strip.
            keys: The number of keys.
            limit: The number of these keys that it sees.
        """
        f, t, kind = self.f, self.tile, self.tile.kind
        products = f.at(kind, self.scores, line)
        bias = f.at(kind, self.bias_rows, line)
        here = self.top(products, bias, keys, limit)
        at_top, at_total = f.at(kind, self.tops, row), f.at(kind, self.totals, row)
        top = t.load(f, at_top, 1)
        new = greater(f, kind, here, top)
        t.store(f, new, at_top, 1)
        shrink = exp(f, t, t.splat(f, f.let(f"fsub {kind} {top}, {new}")))
        added = self.weigh(products, keys, new)
        one = f.let(f"extractelement {t.vector} {shrink}, i32 0")
        total = f.let(f"fmul {kind} {t.load(f, at_total, 1)}, {one}")
        t.store(f, f.let(f"fadd {kind} {total}, {added}"), at_total, 1)
        result = f.at(kind, self.result, f.mul(row, self.value_padded))
        with f.loop("0", self.value_padded, t.lanes) as at:
            address = f.at(kind, result, at.index)
            t.store(f, f.let(f"fmul {t.vector} {t.load(f, address)}, {shrink}"), address)

    def _finish(self, row: str) -> None:
        """Divide a row by its sum and write it, its lse and its rest."""
        f, t, n, kind = self.f, self.tile, self.n, self.tile.kind
        total = t.load(f, f.at(kind, self.totals, row), 1)
        top = t.load(f, f.at(kind, self.tops, row), 1)
        inverse, lse, rest = finished(f, t, total, top)
        query = f.add(self.first, row)
        source = f.at(kind, self.result, f.mul(row, self.value_padded))
        sizes = f"i64 1, i64 {n['value_width']}, i64 {self.value_padded}, i64 0"
        to = self.address("out", query)
        f.do(f"call void {self.unstage}(ptr {to}, ptr {source}, {sizes}, {kind} {inverse})")
        offset = f.add(f.mul(self.head, n["queries"]), query)
        for name, x in (("lse", lse), ("rest", rest)):
            t.store(f, x, f.at(kind, self.operand[name], offset), 1)
