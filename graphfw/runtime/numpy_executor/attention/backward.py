"""The kernels of the gradient of attention.

A cell is a chunk of the keys of one head. It goes over the chunk in blocks of keys, and for each
over blocks of queries: it makes the weights P of the block again, from the scores and their lse,
and the gradient of the scores dS = P (dP - delta), which stay in cache, and adds Pᵀ d_out to d_v,
dSᵀ q to d_k (both kept for the block of keys) and dS k to d_q. That one gets a part from each chunk
of keys, in memory of its own; a second kernel adds the parts up, in order, so that the result does
not depend on which thread computes what.  T. Dao, "FlashAttention-2", 2023.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphfw.ir.dtype import DType
from graphfw.runtime.numpy_executor.attention.layout import HEAD, Layout, operands
from graphfw.runtime.numpy_executor.attention.parts import (
    LOG2_E,
    Matrix,
    Tile,
    define_bias,
    define_panels,
    define_product,
    define_stage,
    define_unstage,
    exp2,
    fill,
    multiply,
)
from graphfw.runtime.numpy_executor.attention.scores import (
    biased,
    masked,
    natural_scale,
    score_scale,
)
from graphfw.runtime.numpy_executor.attention.text import Body, Module

KEYS = 128
QUERIES = 64
"""How many keys and queries a block has."""


def block_length(t: Tile) -> int:
    """Return the length of a row of a block: it starts in another cache set each time."""
    return KEYS + t.lanes


@dataclass(frozen=True)
class BackwardCode:
    """The kernel that computes d_k, d_v and the parts of d_q.

    Operands: q, k, v, lse, delta, d_out, the mask if there is one, d_k, d_v, the parts of d_q: for
    each chunk and head [Tq, D], both rounded up to whole tiles.

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
        """What it is called with; `chunk` is the size of a chunk, `heads` how many there are."""
        sizes = ("queries", "keys", "width", "value_width", "chunk", "heads")
        return Layout(sizes, self.lead, tuple(name for name in self.names if name != "parts"))

    @property
    def names(self) -> tuple[str, ...]:
        """The operands."""
        mask = () if self.mask is None else ("mask",)
        return ("q", "k", "v", "lse", "delta", "d_out", *mask, "d_k", "d_v", "parts")

    @property
    def key(self) -> str:
        return f"attention_grad {self}"

    def llvm(self, symbol: str) -> str:
        module = Module()
        _Backward(self, module, symbol)
        return module.text


class _Backward:
    """Writes the kernel."""

    def __init__(self, code: BackwardCode, module: Module, symbol: str) -> None:
        self.code, self.tile = code, code.tile
        t = code.tile
        self.stage, self.unstage = define_stage(module, t), define_unstage(module, t)
        self.panels = define_panels(module, t)
        self.product = define_product(module, t, adds=False)
        self.add_product = define_product(module, t, adds=True)
        mask = code.mask
        self.bias = None if mask is None else define_bias(module, t, mask, block_length(t))
        f = self.f = Body(module)
        n = self.n = code.layout.loaded(f)
        self.operand = operands(f, code.names)
        self.padded = f.whole(n["width"], t.columns)
        self.value_padded = f.whole(n["value_width"], t.columns)
        chunk, head = f.div("%cell", n["heads"]), f.rem("%cell", n["heads"])
        self.start = code.layout.starts(f, n, head, code.layout.views)
        self.factor = t.splat(f, score_scale(f, t, code.scale, n["width"]))
        self.natural = t.splat(f, natural_scale(f, t, code.scale, n["width"]))
        self._lay_out_scratch()
        rows = f.whole(n["queries"], t.rows)
        room = f.mul(rows, self.padded)
        self.parts = f.at(t.kind, self.operand["parts"], f.mul("%cell", room))
        fill(f, t, self.parts, room, 0.0)
        first = f.mul(chunk, n["chunk"])
        end = f.low(n["keys"], f.add(first, n["chunk"]))
        with f.loop(first, end, KEYS) as block:
            self._keys(block.index, f.low(str(KEYS), f.sub(end, block.index)))
        f.do("ret i32 0")
        module.add(HEAD.format(symbol=symbol), f)

    def _lay_out_scratch(self) -> None:
        """Give each array its place: `scratch_size` has the sum of the sizes."""
        f, t, n = self.f, self.tile, self.n
        block = str(QUERIES * block_length(t))
        at = "%scratch"

        def place(size: str) -> str:
            nonlocal at
            here = at
            at = f.at(t.kind, at, size)
            return here

        self.weights, self.d_scores = place(block), place(block)
        self.bias_rows = place("0" if self.bias is None else block)
        self.lse, self.delta = place(str(QUERIES)), place(str(QUERIES))
        self.key_panels = place(f.mul(str(KEYS), n["width"]))
        self.value_panels = place(f.mul(str(KEYS), n["value_width"]))
        of_keys, of_queries = f.mul(str(KEYS), self.padded), f.mul(str(QUERIES), self.padded)
        self.k, self.d_k, self.q = place(of_keys), place(of_keys), place(of_queries)
        self.d_v = place(f.mul(str(KEYS), self.value_padded))
        self.d_out = place(f.mul(str(QUERIES), self.value_padded))

    def _address(self, name: str, row: str, element: str = "") -> str:
        """The address of a row of an operand's matrix."""
        f = self.f
        place = f.add(self.start[name], f.mul(row, self.n[f"{name}.row"]))
        return f.at(element or self.tile.kind, self.operand[name], place)

    def _staged(self, to: str, name: str, row: str, rows: str, total: int, width: str) -> None:
        """Copy rows of an operand, padded to whole tiles of columns, and zeros up to `total`."""
        f, n = self.f, self.n
        padded = self.padded if width == "width" else self.value_padded
        sizes = f"i64 {rows}, i64 {total}, i64 {n[width]}, i64 {padded}"
        strides = f"i64 {n[f'{name}.row']}, i64 {n[f'{name}.col']}"
        f.do(
            f"call void {self.stage}(ptr {to}, ptr {self._address(name, row)}, {sizes}, {strides})"
        )

    def _keys(self, key: str, keys: str) -> None:
        """Compute a block of d_k and d_v."""
        f, t, n = self.f, self.tile, self.n
        for name, to, width in (
            ("k", self.key_panels, "width"),
            ("v", self.value_panels, "value_width"),
        ):
            sizes = f"i64 {keys}, i64 {n[width]}, i64 {n[f'{name}.row']}, i64 {n[f'{name}.col']}"
            f.do(f"call void {self.panels}(ptr {to}, ptr {self._address(name, key)}, {sizes})")
        self._staged(self.k, "k", key, keys, KEYS, "width")
        fill(f, t, self.d_k, f.mul(str(KEYS), self.padded), 0.0)
        fill(f, t, self.d_v, f.mul(str(KEYS), self.value_padded), 0.0)
        begin = "0"
        if self.code.causal:  # queries before the first key of the block see none of them
            begin = f.mul(f.div(key, str(QUERIES)), str(QUERIES))
        with f.loop(begin, n["queries"], QUERIES) as block:
            queries = f.low(str(QUERIES), f.sub(n["queries"], block.index))
            self._queries(key, keys, block.index, queries)
        one = f"{t.kind} {t.number(1.0)}"
        for name, source, width, padded in (
            ("d_k", self.d_k, "width", self.padded),
            ("d_v", self.d_v, "value_width", self.value_padded),
        ):
            sizes = f"i64 {keys}, i64 {n[width]}, i64 {padded}, i64 {n[f'{name}.row']}, {one}"
            to = self._address(name, key)
            f.do(f"call void {self.unstage}(ptr {to}, ptr {source}, {sizes})")

    def _queries(self, key: str, keys: str, query: str, queries: str) -> None:
        """Add what a block of queries gives."""
        f, t, n, kind = self.f, self.tile, self.n, self.tile.kind
        self._staged(self.q, "q", query, queries, QUERIES, "width")
        self._staged(self.d_out, "d_out", query, queries, QUERIES, "value_width")
        self._load_rows(query, queries)
        if self.bias is not None:
            place = f.mul(key, n["mask.col"])
            assert self.code.mask is not None
            element = f"i{8 * self.code.mask.itemsize}"
            source = f.at(element, self._address("mask", query, element), place)
            sizes = f"i64 {queries}, i64 {keys}, i64 {n['mask.row']}, i64 {n['mask.col']}"
            f.do(f"call void {self.bias}(ptr {self.bias_rows}, ptr {source}, {sizes})")
        length = str(block_length(t))
        with f.loop("0", queries, t.rows) as strip:
            behind = f.add(f.sub(f.add(query, strip.index), key), "1")
            seen = keys
            if self.code.causal:
                seen = f.high("0", f.low(keys, f.add(behind, str(t.rows - 1))))
            self._write_strip(strip.index, behind, keys, seen)
            row = f.add(query, strip.index)
            d_q = Matrix(f.at(kind, self.parts, f.mul(row, self.padded)), self.padded)
            left = Matrix(f.at(kind, self.d_scores, f.mul(strip.index, length)), length)
            k = Matrix(self.k, self.padded)
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
                result = Matrix(f.at(kind, to, f.mul(strip.index, padded)), padded)
                left = Matrix(f.at(kind, x, left_at), "1", length)
                below = Matrix(f.at(kind, right, f.mul(skipped, padded)), padded)
                count = f.sub(queries, skipped)
                multiply(f, self.add_product, left, below, count, result, padded)

    def _load_rows(self, query: str, queries: str) -> None:
        """Copy lse, in base 2, and delta of a block of queries; zeros behind the last one."""
        f, t, kind = self.f, self.tile, self.tile.kind
        for to in (self.lse, self.delta):
            fill(f, t, to, str(QUERIES), 0.0)
        with f.loop("0", queries) as row:
            at = f.add(query, row.index)
            lse = f.let(f"load {kind}, ptr {self._address('lse', at)}, align {t.bytes}")
            lse = f.let(f"fmul {kind} {lse}, {t.number(LOG2_E)}")
            # That of a query which sees no key would become -inf, and -inf - -inf is no number.
            low = f.let(f"fcmp olt {kind} {lse}, {t.number(t.lowest)}")
            lse = f.let(f"select i1 {low}, {kind} {t.number(t.lowest)}, {kind} {lse}")
            delta = f.let(f"load {kind}, ptr {self._address('delta', at)}, align {t.bytes}")
            for value, to in ((lse, self.lse), (delta, self.delta)):
                f.do(f"store {kind} {value}, ptr {f.at(kind, to, row.index)}, align {t.bytes}")

    def _write_strip(self, row: str, behind: str, keys: str, seen: str) -> None:
        """Write a strip of weights and of the scores' gradients, for `seen` keys.

        Args:
            row: The strip's first query in the block.
            behind: How many keys of the block it sees, if causal.
            keys: How many keys the block has.
            seen: How many of them the strip's last query sees.
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
            rows = Matrix(f.at(kind, left, f.mul(row, padded)), padded)
            size = f.mul(columns, width)
            with f.loop("0", panels) as panel:
                packed = Matrix(f.at(kind, right, f.mul(panel.index, size)), columns)
                result = Matrix(f.at(kind, to, f.mul(panel.index, columns)), str(length))
                multiply(f, self.product, rows, packed, width, result, columns)
        with f.loop("0", str(t.rows)) as r:
            limit = keys
            if self.code.causal:
                limit = f.low(keys, f.add(behind, r.index))
            query = f.add(row, r.index)
            lse, delta = (self._row_value(x, query) for x in (self.lse, self.delta))
            line = f.mul(r.index, str(length))
            end = f.mul(panels, columns)
            with f.loop("0", end, t.lanes) as at:
                place = f.add(line, at.index)
                score = t.load(f, f.at(kind, weights, place))
                if self.bias is None:
                    score = f.let(f"fmul {t.vector} {score}, {self.factor}")
                else:
                    added = t.load(f, f.at(kind, bias, place))
                    score = biased(f, t, score, self.factor, added, self.code.mask)
                score = masked(f, t, score, at.index, limit)
                weight = exp2(f, t, f.let(f"fsub {t.vector} {score}, {lse}"))
                t.store(f, weight, f.at(kind, weights, place))
                d_weight = t.load(f, f.at(kind, d_scores, place))
                centred = f.let(f"fsub {t.vector} {d_weight}, {delta}")
                scaled = f.let(f"fmul {t.vector} {centred}, {self.natural}")
                d_score = f.let(f"fmul {t.vector} {weight}, {scaled}")
                t.store(f, d_score, f.at(kind, d_scores, place))

    def _row_value(self, of: str, row: str) -> str:
        """Return a vector of a row's number."""
        f, t = self.f, self.tile
        return t.splat(f, f.let(f"load {t.kind}, ptr {f.at(t.kind, of, row)}, align {t.bytes}"))


@dataclass(frozen=True)
class SumCode:
    """The kernel that adds the parts of d_q up. A cell is a number of rows of one head.

    Operands: the parts, d_q.

    Attributes:
        tile: The shape of the tiles that wrote the parts.
        lead: How many leading dims there are.
        causal: Whether a part has nothing for queries before its chunk.
    """

    tile: Tile
    lead: int
    causal: bool

    @property
    def layout(self) -> Layout:
        """What it is called with; `chunks` is how many parts there are."""
        sizes = ("queries", "width", "chunk", "chunks", "heads", "rows", "groups")
        return Layout(sizes, self.lead, ("d_q",))

    @property
    def key(self) -> str:
        return f"attention_grad sum {self}"

    def llvm(self, symbol: str) -> str:
        t, module = self.tile, Module()
        unstage = define_unstage(module, t)
        f = Body(module)
        n = self.layout.loaded(f)
        at = operands(f, ("parts", "d_q"))
        head, group = f.div("%cell", n["groups"]), f.rem("%cell", n["groups"])
        start = self.layout.starts(f, n, head, ("d_q",))["d_q"]
        padded = f.whole(n["width"], t.columns)
        room = f.mul(f.whole(n["queries"], t.rows), padded)
        first = f.mul(group, n["rows"])
        with f.loop(first, f.low(n["queries"], f.add(first, n["rows"]))) as row:
            parts = n["chunks"]
            if self.causal:
                parts = f.low(parts, f.add(f.div(row.index, n["chunk"]), "1"))
            line = f.add(f.mul(head, room), f.mul(row.index, padded))
            source = f.at(t.kind, at["parts"], line)
            with f.loop("0", padded, t.lanes) as column:
                with f.loop("0", parts, 1, [(t.vector, t.constant(0.0))]) as part:
                    offset = f.mul(f.mul(part.index, n["heads"]), room)
                    x = t.load(f, f.at(t.kind, source, f.add(offset, column.index)))
                    part.following.append(f.let(f"fadd {t.vector} {part.values[0]}, {x}"))
                t.store(f, part.values[0], f.at(t.kind, "%scratch", column.index))
            to = f.at(t.kind, at["d_q"], f.add(start, f.mul(row.index, n["d_q.row"])))
            sizes = f"i64 1, i64 {n['width']}, i64 {padded}, i64 0, {t.kind} {t.number(1.0)}"
            f.do(f"call void {unstage}(ptr {to}, ptr %scratch, {sizes})")
        f.do("ret i32 0")
        module.add(HEAD.format(symbol=symbol), f)
        return module.text
