"""The kernels of attention: packing keys and values, and the result.

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

KEYS = 256
"""How many keys a block has."""


@dataclass(frozen=True)
class PackCode:
    """The kernel that packs keys into panels, and values where they don't lie densely.

    A cell packs a block of keys of one head. Operands: k, v, packed keys, packed values.

    Attributes:
        tile: The shape of the tiles that read it.
        lead: How many leading dims there are.
    """

    tile: Tile
    lead: int

    @property
    def layout(self) -> Layout:
        """What it is called with."""
        sizes = ("keys", "width", "value_width", "blocks")
        return Layout(sizes, self.lead, ("k", "v"))

    @property
    def key(self) -> str:
        return f"attention pack {self}"

    def llvm(self, symbol: str) -> str:
        t, module = self.tile, Module()
        stage, panels = define_stage(module, t), define_panels(module, t)
        f = Body(module)
        n = self.layout.loaded(f)
        at = operands(f, ("k", "v", "keys", "values"))
        head, block = f.div("%cell", n["blocks"]), f.rem("%cell", n["blocks"])
        start = self.layout.starts(f, n, head, ("k", "v"))
        first = f.mul(block, str(KEYS))
        count = f.low(str(KEYS), f.sub(n["keys"], first))
        room = f.mul(head, f.whole(n["keys"], t.columns))
        to = f.at(t.kind, at["keys"], f.mul(f.add(room, first), n["width"]))
        source = f.at(t.kind, at["k"], f.add(start["k"], f.mul(first, n["k.row"])))
        sizes = f"i64 {count}, i64 {n['width']}, i64 {n['k.row']}, i64 {n['k.col']}"
        f.do(f"call void {panels}(ptr {to}, ptr {source}, {sizes})")
        with f.when(f.let(f"xor i1 {lies_dense(f, t, n)}, true")):
            padded = f.whole(n["value_width"], t.columns)
            place = f.add(f.mul(head, n["keys"]), first)
            to = f.at(t.kind, at["values"], f.mul(place, padded))
            source = f.at(t.kind, at["v"], f.add(start["v"], f.mul(first, n["v.row"])))
            sizes = f"i64 {count}, i64 {count}, i64 {n['value_width']}, i64 {padded}"
            strides = f"i64 {n['v.row']}, i64 {n['v.col']}"
            f.do(f"call void {stage}(ptr {to}, ptr {source}, {sizes}, {strides})")
        f.do("ret i32 0")
        module.add(HEAD.format(symbol=symbol), f)
        return module.text


def lies_dense(f: Body, t: Tile, n: dict[str, str]) -> str:
    """Whether values can be read as they lie: whole tiles of columns, next to each other."""
    rest = f.rem(n["value_width"], str(t.columns))
    full = f.let(f"icmp eq i64 {rest}, 0")
    return f.let(f"and i1 {full}, {f.let('icmp eq i64 ' + n['v.col'] + ', 1')}")


@dataclass(frozen=True)
class ForwardCode:
    """The kernel of the result.

    Operands: q, v, packed keys, packed values, the mask if there is one, out, lse.

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
        views = ("q", "v", "out") if self.mask is None else ("q", "v", "out", "mask")
        return Layout(sizes, self.lead, views)

    @property
    def names(self) -> tuple[str, ...]:
        """The operands."""
        mask = () if self.mask is None else ("mask",)
        return ("q", "v", "keys", "values", *mask, "out", "lse")

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
        self._find_values()
        end = f.low(n["keys"], f.add(self.first, self.count)) if code.causal else n["keys"]
        with f.loop("0", end, KEYS) as block:
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
        fill(f, t, self.result, room, 0.0)
        fill(f, t, self.tops, n["rows"], t.lowest)
        fill(f, t, self.totals, n["rows"], 0.0)

    def _find_values(self) -> None:
        """Say where the head's keys and values lie."""
        f, t, n = self.f, self.tile, self.n
        dense = lies_dense(f, t, n)
        given = f.at(t.kind, self.operand["v"], self.start["v"])
        place = f.mul(f.mul(self.head, n["keys"]), self.value_padded)
        packed = f.at(t.kind, self.operand["values"], place)
        self.values = f.let(f"select i1 {dense}, ptr {given}, ptr {packed}")
        row = n["v.row"]
        self.values_row = f.let(f"select i1 {dense}, i64 {row}, i64 {self.value_padded}")
        room = f.mul(f.whole(n["keys"], t.columns), n["width"])
        self.keys = f.at(t.kind, self.operand["keys"], f.mul(self.head, room))

    def _strip(self, row: str, key: str, keys: str) -> None:
        """Take `keys` keys from `key` on into the strip of queries that begins at `row`."""
        f, t, n = self.f, self.tile, self.n
        if self.bias is not None:
            self._write_bias(row, key, keys)
        length = strip_length(t)
        queries = Matrix(f.at(t.kind, self.q, f.mul(row, self.padded)), self.padded)
        right = f.at(t.kind, self.keys, f.mul(key, n["width"]))
        size = f.mul(str(t.columns), n["width"])
        with f.loop("0", f.ceil(keys, t.columns)) as panel:
            packed = Matrix(f.at(t.kind, right, f.mul(panel.index, size)), str(t.columns))
            to = f.at(t.kind, self.scores, f.mul(panel.index, str(t.columns)))
            scores = Matrix(to, str(length))
            multiply(f, self.product, queries, packed, n["width"], scores, str(t.columns))
        with f.loop("0", str(t.rows)) as r:
            limit = keys
            if self.code.causal:
                behind = f.add(f.add(f.sub(f.add(self.first, row), key), "1"), r.index)
                limit = f.low(keys, behind)
            line = f.mul(r.index, str(length))
            self._softmax(f.add(row, r.index), line, keys, limit)
        weights = Matrix(self.scores, str(length))
        values = Matrix(f.at(t.kind, self.values, f.mul(key, self.values_row)), self.values_row)
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
