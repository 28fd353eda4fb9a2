"""The kernel of attention.

A cell of the result is some rows of queries of one head. It goes over the keys in blocks, and in a
block over strips of a few queries. For a strip it computes the scores of the block (a strip of
scores stays in the first-level cache), moves the maximum and the sums of the strip on, and adds the
block's weights times values to the strip's result: softmax in one pass.
M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018; T. Dao et al.,
"FlashAttention", 2022. Scores are in base 2: that saves a product an exponential.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from graphfw.ir.dtype import DType
from graphfw.runtime.numpy_executor.attention.layout import HEAD, Layout, operands
from graphfw.runtime.numpy_executor.attention.packing import (
    KEYS,
    lies_dense,
    pack_block,
    packed_keys,
    packed_values,
)
from graphfw.runtime.numpy_executor.attention.parts import (
    Matrix,
    Tile,
    define_bias,
    define_panels,
    define_product,
    define_stage,
    define_unstage,
    exp2,
    fill,
    folded,
    greater,
    multiply,
)
from graphfw.runtime.numpy_executor.attention.scores import biased, masked, score_scale
from graphfw.runtime.numpy_executor.attention.text import Body, Module


@dataclass(frozen=True)
class ForwardCode:
    """The kernel of the result.

    Operands: q, k, v, packed keys, packed values, the mask if there is one, out, lse. Where a head
    has only one cell, that packs keys and values itself, block by block, and reads no packed ones.

    Attributes:
        tile: The shape of its tiles.
        lead: How many leading dims there are.
        causal, scale: As those of the op.
        mask: The mask's dtype; None where there is none.
    """

    tile: Tile
    lead: int
    causal: bool
    scale: float | None
    mask: DType | None

    @property
    def layout(self) -> Layout:
        """What it is called with: a cell has `rows` queries, a head has `groups` cells."""
        sizes = ("queries", "keys", "width", "value_width", "rows", "groups")
        mask = () if self.mask is None else ("mask",)
        return Layout(sizes, self.lead, ("q", "k", "v", "out", *mask))

    @property
    def names(self) -> tuple[str, ...]:
        """The operands."""
        mask = () if self.mask is None else ("mask",)
        return ("q", "k", "v", "keys", "values", *mask, "out", "lse")

    @property
    def key(self) -> str:
        return f"attention {self}"

    def llvm(self, symbol: str) -> str:
        module = Module()
        _Forward(self, module, symbol)
        return module.text


def strip_length(t: Tile) -> int:
    """Return the length of a row of a strip of scores: it starts in another cache set each time."""
    return KEYS + t.lanes


class _Forward:
    """Writes the kernel."""

    def __init__(self, code: ForwardCode, module: Module, symbol: str) -> None:
        self.code, self.tile = code, code.tile
        t = code.tile
        stage, unstage = define_stage(module, t), define_unstage(module, t)
        define_panels(module, t)
        self.product = define_product(module, t, adds=False)
        self.add_product = define_product(module, t, adds=True)
        self.bias = (
            None if code.mask is None else define_bias(module, t, code.mask, strip_length(t))
        )
        f = self.f = Body(module)
        n = self.n = code.layout.loaded(f)
        self.operand = operands(f, code.names)
        self.padded = f.whole(n["width"], t.lanes)
        self.value_padded = f.whole(n["value_width"], t.columns)
        self.head, group = f.div("%cell", n["groups"]), f.rem("%cell", n["groups"])
        if code.causal:  # the last queries see most keys: they come first
            group = f.sub(f.sub(n["groups"], "1"), group)
        self.first = f.mul(group, n["rows"])
        self.count = f.low(n["rows"], f.sub(n["queries"], self.first))
        self.start = code.layout.starts(f, n, self.head, code.layout.views)
        self.factor = t.splat(f, score_scale(f, t, code.scale, n["width"]))
        self._lay_out_scratch()
        source = f.add(self.start["q"], f.mul(self.first, n["q.row"]))
        source = f.at(t.kind, self.operand["q"], source)
        sizes = f"i64 {self.count}, i64 {n['rows']}, i64 {n['width']}, i64 {self.padded}"
        strides = f"i64 {n['q.row']}, i64 {n['q.col']}"
        f.do(f"call void {stage}(ptr {self.q}, ptr {source}, {sizes}, {strides})")
        self._find_operands()
        end = f.low(n["keys"], f.add(self.first, self.count)) if code.causal else n["keys"]
        with f.loop("0", end, KEYS) as block:
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
            self._finish(each.index, unstage)
        f.do("ret i32 0")
        module.add(HEAD.format(symbol=symbol), f)

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
        """Say where the head's keys and values lie."""
        f, t, n = self.f, self.tile, self.n
        self.k, self.v = (f.at(t.kind, self.operand[x], self.start[x]) for x in ("k", "v"))
        self.packed_keys = packed_keys(f, t, n, self.operand["keys"], self.head)
        self.packed_values = packed_values(f, t, n, self.operand["values"], self.head)
        self.dense = lies_dense(f, t, n)
        row = n["v.row"]
        self.values_row = f.let(f"select i1 {self.dense}, i64 {row}, i64 {self.value_padded}")
        self.packs = f.let(f"icmp eq i64 {n['groups']}, 1")

    def _pack(self, key: str) -> None:
        """Pack a block of keys if nobody has, and say where it and its values lie."""
        f, t = self.f, self.tile
        with f.when(self.packs):
            pack_block(f, t, self.n, self.k, self.v, key, self.own_keys, self.own_values)
        keys = f.at(t.kind, self.packed_keys, f.mul(key, self.n["width"]))
        self.keys = f.let(f"select i1 {self.packs}, ptr {self.own_keys}, ptr {keys}")
        values = f.at(t.kind, self.packed_values, f.mul(key, self.value_padded))
        values = f.let(f"select i1 {self.packs}, ptr {self.own_values}, ptr {values}")
        given = f.at(t.kind, self.v, f.mul(key, self.values_row))
        self.values = f.let(f"select i1 {self.dense}, ptr {given}, ptr {values}")

    def _strip(self, row: str, key: str, keys: str) -> None:
        """Take `keys` keys from `key` on into the strip of queries that begins at `row`."""
        f, t, n = self.f, self.tile, self.n
        if self.bias is not None:
            self._write_bias(row, key, keys)
        length = strip_length(t)
        queries = Matrix(f.at(t.kind, self.q, f.mul(row, self.padded)), self.padded)
        size = f.mul(str(t.columns), n["width"])
        with f.loop("0", f.ceil(keys, t.columns)) as panel:
            here = f.at(t.kind, self.keys, f.mul(panel.index, size))
            packed = Matrix(here, str(t.columns))
            to = f.at(t.kind, self.scores, f.mul(panel.index, str(t.columns)))
            scores = Matrix(to, str(length))
            multiply(f, self.product, queries, packed, n["width"], scores, str(t.columns))
        with f.loop("0", f.low(str(t.rows), f.sub(self.count, row))) as r:
            limit = keys
            if self.code.causal:
                behind = f.add(f.add(f.sub(f.add(self.first, row), key), "1"), r.index)
                limit = f.low(keys, behind)
            line = f.mul(r.index, str(length))
            self._softmax(f.add(row, r.index), line, keys, limit)
        weights = Matrix(self.scores, str(length))
        values = Matrix(self.values, self.values_row)
        here = f.at(t.kind, self.result, f.mul(row, self.value_padded))
        result = Matrix(here, self.value_padded)
        multiply(f, self.add_product, weights, values, keys, result, self.value_padded)

    def _write_bias(self, row: str, key: str, keys: str) -> None:
        f, n = self.f, self.n
        query = f.add(self.first, row)
        place = f.add(f.mul(query, n["mask.row"]), f.mul(key, n["mask.col"]))
        assert self.code.mask is not None
        element = f"i{8 * self.code.mask.itemsize}"
        source = f.at(element, self.operand["mask"], f.add(self.start["mask"], place))
        rows = f.low(str(self.tile.rows), f.sub(self.count, row))
        sizes = f"i64 {rows}, i64 {keys}, i64 {n['mask.row']}, i64 {n['mask.col']}"
        f.do(f"call void {self.bias}(ptr {self.bias_rows}, ptr {source}, {sizes})")

    def _softmax(self, row: str, line: str, keys: str, limit: str) -> None:
        """Make a row's products weights, and move its maximum, sum and result on.

        Args:
            row: The query's place in the cell.
            line: Where its products begin in the strip.
            keys: How many there are.
            limit: How many of these keys it sees.
        """
        f, t, kind = self.f, self.tile, self.tile.kind
        products = f.at(kind, self.scores, line)
        bias = f.at(kind, self.bias_rows, line)
        width = f.whole(keys, t.columns)
        step = 2 * t.lanes
        with f.loop("0", width, step, [(t.vector, t.constant(-math.inf))] * 2) as at:
            for j in range(2):
                column = f.add(at.index, str(j * t.lanes))
                place = f.at(kind, products, column)
                score = t.load(f, place)
                if self.bias is None:
                    score = f.let(f"fmul {t.vector} {score}, {self.factor}")
                else:
                    added = t.load(f, f.at(kind, bias, column))
                    score = biased(f, t, score, self.factor, added, self.code.mask)
                score = masked(f, t, score, column, limit)
                t.store(f, score, place)
                at.following.append(greater(f, t.vector, score, at.values[j]))
        here = folded(f, t, greater(f, t.vector, *at.values), "max")
        at_top, at_total = f.at(kind, self.tops, row), f.at(kind, self.totals, row)
        top = f.let(f"load {kind}, ptr {at_top}, align {t.bytes}")
        new = greater(f, kind, here, top)
        f.do(f"store {kind} {new}, ptr {at_top}, align {t.bytes}")
        shrink = exp2(f, t, t.splat(f, f.let(f"fsub {kind} {top}, {new}")))
        new = t.splat(f, new)
        with f.loop("0", width, step, [(t.vector, t.constant(0.0))] * 2) as at:
            for j in range(2):
                place = f.at(kind, products, f.add(at.index, str(j * t.lanes)))
                weight = exp2(f, t, f.let(f"fsub {t.vector} {t.load(f, place)}, {new}"))
                t.store(f, weight, place)
                at.following.append(f.let(f"fadd {t.vector} {at.values[j]}, {weight}"))
        added = folded(f, t, f.let(f"fadd {t.vector} {at.values[0]}, {at.values[1]}"), "add")
        total = f.let(f"load {kind}, ptr {at_total}, align {t.bytes}")
        one = f.let(f"extractelement {t.vector} {shrink}, i32 0")
        total = f.let(f"fmul {kind} {total}, {one}")
        total = f.let(f"fadd {kind} {total}, {added}")
        f.do(f"store {kind} {total}, ptr {at_total}, align {t.bytes}")
        result = f.at(kind, self.result, f.mul(row, self.value_padded))
        with f.loop("0", self.value_padded, t.lanes) as at:
            place = f.at(kind, result, at.index)
            t.store(f, f.let(f"fmul {t.vector} {t.load(f, place)}, {shrink}"), place)

    def _finish(self, row: str, unstage: str) -> None:
        """Divide a row by its sum and write it, and its lse."""
        f, t, n, kind = self.f, self.tile, self.n, self.tile.kind
        total = f.let(f"load {kind}, ptr {f.at(kind, self.totals, row)}, align {t.bytes}")
        top = f.let(f"load {kind}, ptr {f.at(kind, self.tops, row)}, align {t.bytes}")
        empty = f.let(f"fcmp oeq {kind} {total}, {t.number(0.0)}")
        one = t.number(1.0)
        total = f.let(f"select i1 {empty}, {kind} {one}, {kind} {total}")
        inverse = f.let(f"fdiv {kind} {one}, {total}")
        query = f.add(self.first, row)
        to = f.add(self.start["out"], f.mul(query, n["out.row"]))
        to = f.at(kind, self.operand["out"], to)
        source = f.at(kind, self.result, f.mul(row, self.value_padded))
        sizes = f"i64 1, i64 {n['value_width']}, i64 {self.value_padded}, i64 0"
        f.do(f"call void {unstage}(ptr {to}, ptr {source}, {sizes}, {kind} {inverse})")
        log = f.call(kind, f"llvm.log.f{8 * t.bytes}", (kind, total))
        natural = f.let(f"fmul {kind} {top}, {t.number(math.log(2))}")
        lse = f.let(f"fadd {kind} {natural}, {log}")
        lse = f.let(f"select i1 {empty}, {kind} {t.number(t.lowest)}, {kind} {lse}")
        place = f.add(f.mul(self.head, n["queries"]), query)
        f.do(f"store {kind} {lse}, ptr {f.at(kind, self.operand['lse'], place)}, align {t.bytes}")
