"""The micro-kernels: a tile of the product that stays in registers while k runs.

    @tile(ptr a, i64 rs, i64 ks, ptr b, i64 bs, ptr c, i64 cs, i64 n, i1 more, i64 columns,
        i64 rows)

computes r rows and v vectors of columns, of which only `columns` are stored: the sum over n places
of the elements of `a` (`rs` bytes from row to row, `ks` from place to place) times the rows of `b`
(`bs` bytes apart, all v vectors readable), stored to `c` (`cs` bytes from row to row), or added to
what is there with `more`. All are of the dtype that is computed in. There are r rows or more; where
a tile is ragged, one is enough: it computes the last of them several times, which changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from graphfw.ir.dtype import DType, float32
from graphfw.runtime.numpy_executor.codegen.registers import iota, memory, vector
from graphfw.runtime.numpy_executor.codegen.target import Target
from graphfw.runtime.numpy_executor.codegen.writer import ATTRIBUTES

_CHAINS = 8
"""How many sums must be under way so that no addition waits for the one before it."""

_AHEAD = 512
"""How many bytes ahead memory is asked for."""


class Shape(NamedTuple):
    """What the tiles of a dtype look like on a processor.

    Attributes:
        stored: The dtype of the operands and of the product.
        dtype: The dtype that is computed in: float32 for floats of 16 bits.
        lanes: How many elements a vector register holds.
        rows: The rows of the largest tile.
    """

    stored: DType
    dtype: DType
    lanes: int
    rows: int

    @property
    def columns(self) -> int:
        """The width of a panel: two vectors."""
        return 2 * self.lanes

    @property
    def element(self) -> str:
        """The LLVM type of an element."""
        return memory(self.dtype)

    @property
    def vector(self) -> str:
        """The LLVM type of a vector."""
        return vector(self.element, self.lanes)

    @property
    def suffix(self) -> str:
        """How names of LLVM's functions of vectors end."""
        return f"v{self.lanes}f{self.dtype.itemsize * 8}"

    @property
    def size(self) -> int:
        """The bytes of an element, as it is computed with."""
        return self.dtype.itemsize

    @property
    def converts(self) -> bool:
        """Whether elements in memory are of another dtype than those that are computed with."""
        return self.stored is not self.dtype


def shape_for(dtype: DType, target: Target) -> Shape:
    """Return the tiles for a dtype: 28 sums of 32 registers, or 12 of 16."""
    computed = float32 if dtype.is_low_precision else dtype
    lanes = target.vector_bytes // computed.itemsize
    return Shape(dtype, computed, lanes, 14 if target.masked else 6)


def tile(symbol: str, shape: Shape, rows: int, vectors: int, ahead: bool, ragged: bool) -> str:
    """Return the micro-kernel of a number of rows and vectors, under a name.

    With `ahead` it asks for the memory of `b` before it needs it: for a `b` that is not packed,
    where what follows in memory is the next panel.
    """
    return _Tile(shape, rows, vectors, ahead, ragged).text(symbol)


class _Tile:
    """Writes one micro-kernel."""

    def __init__(self, shape: Shape, rows: int, vectors: int, ahead: bool, ragged: bool) -> None:
        self.shape = shape
        self.rows = rows
        self.vectors = vectors
        self.ahead = ahead
        self.ragged = ragged
        # Few rows: several sums for each element, over every second, fourth place.
        self.chains = max([1, *(n for n in (2, 4) if rows * vectors * n <= 2 * _CHAINS)])
        # Three rows share a pointer: the next two lie rs and 2 * rs behind it. In a ragged tile all
        # share one, and have each a distance from it.
        self.pointers = ["%b"] + [f"%a{row}" for row in range(0, 1 if ragged else rows, 3)]
        self.names = [f"{r}.{v}" for r in range(rows) for v in range(vectors)]

    def text(self, symbol: str) -> str:
        shape = self.shape
        lines = [
            f"define fastcc void @{symbol}(ptr %a0, i64 %rs, i64 %ks, ptr %b, i64 %bs, ptr %c, "
            f"i64 %cs, i64 %n, i1 %more, i64 %columns, i64 %rows) {ATTRIBUTES} {{",
            "entry:",
            *self._rows(),
        ]
        zeros = {f"{c}.{n}": "zeroinitializer" for c in range(self.chains) for n in self.names}
        start = {p: p for p in self.pointers}
        if self.chains > 1:
            lines += [
                f"%rounds = udiv i64 %n, {self.chains}",
                f"%single = urem i64 %n, {self.chains}",
            ]
            lines += self._loop("many", "entry", "%rounds", self.chains, start, zeros)
            ends = {p: f"{p}.many" for p in self.pointers}
            sums = {n: f"%acc{n}.many" for n in zeros}
            lines += self._loop("one", "many.end", "%single", 1, ends, sums)
        else:
            lines += self._loop("one", "entry", "%n", 1, start, zeros)
        totals = self._totals(lines)
        return "\n".join([*lines, *self._stores(shape, totals), "}", ""])

    def _rows(self) -> list[str]:
        """Where rows of `a` begin, and how far from `c` those of the product do."""
        if self.ragged:
            lines = ["%last = sub i64 %rows, 1"]
            for row in range(self.rows):
                lines += [
                    f"%row{row} = call i64 @llvm.smin.i64(i64 {row}, i64 %last)",
                    f"%o{row} = mul i64 %rs, %row{row}",
                    f"%co{row} = mul i64 %cs, %row{row}",
                ]
            return lines
        lines = ["%rs2 = mul i64 %rs, 2"]
        for row in range(3, self.rows, 3):
            lines += [
                f"%o{row} = mul i64 %rs, {row}",
                f"%a{row} = getelementptr i8, ptr %a0, i64 %o{row}",
            ]
        return [*lines, *[f"%co{row} = mul i64 %cs, {row}" for row in range(self.rows)]]

    def _loop(
        self,
        name: str,
        before: str,
        count: str,
        places: int,
        start: dict[str, str],
        sums: dict[str, str],
    ) -> list[str]:
        """The loop over k, `places` at a time, each with sums of its own.

        Its values are named for it: `%acc0.1.0.many` when the loop is over.
        """
        v, used = self.shape.vector, [f"{c}.{n}" for c in range(places) for n in self.names]
        body, head = f"{name}.body", [f"br label %{name}", f"{name}:"]
        head.append(f"%k.{name} = phi i64 [ {count}, %{before} ], [ %kn.{name}, %{body} ]")
        head += [
            f"{p}.{name} = phi ptr [ {start[p]}, %{before} ], [ {p}n.{name}, %{body} ]"
            for p in self.pointers
        ]
        head += [
            f"%acc{n}.{name} = phi {v} [ {sums[n]}, %{before} ], [ %new{n}.{name}, %{body} ]"
            for n in used
        ]
        head += [
            f"%done.{name} = icmp eq i64 %k.{name}, 0",
            f"br i1 %done.{name}, label %{name}.end, label %{body}",
            f"{body}:",
        ]
        current = {p: f"{p}.{name}" for p in self.pointers}
        for place in range(places):
            head += self._place(name, place, current)
            for p in self.pointers:
                step = "%bs" if p == "%b" else "%ks"
                new = f"{p}n.{name}" if place == places - 1 else f"{p}.{place}.{name}"
                head.append(f"{new} = getelementptr i8, ptr {current[p]}, i64 {step}")
                current[p] = new
        return [*head, f"%kn.{name} = sub i64 %k.{name}, 1", f"br label %{name}", f"{name}.end:"]

    def _place(self, name: str, place: int, current: dict[str, str]) -> list[str]:
        """One place of k: load vectors of b, spread elements of a, multiply and add."""
        shape, lines = self.shape, []
        v, e, lanes = shape.vector, shape.element, shape.lanes
        end = f"{place}.{name}"
        for n in range(self.vectors):
            lines += [
                f"%bp{n}.{end} = getelementptr {v}, ptr {current['%b']}, i64 {n}",
                f"%bv{n}.{end} = load {v}, ptr %bp{n}.{end}, align {shape.size}",
            ]
            if self.ahead:
                lines += [
                    f"%ahead{n}.{end} = getelementptr i8, ptr %bp{n}.{end}, i64 {_AHEAD}",
                    f"call void @llvm.prefetch.p0(ptr %ahead{n}.{end}, i32 0, i32 3, i32 1)",
                ]
        for row in range(self.rows):
            shared = 0 if self.ragged else row // 3 * 3
            pointer = base = current[f"%a{shared}"]
            if row > shared:
                pointer = f"%ap{row}.{end}"
                offset = "%rs" if row - shared == 1 else "%rs2"
                if self.ragged:
                    offset = f"%o{row}"
                lines.append(f"{pointer} = getelementptr i8, ptr {base}, i64 {offset}")
            lines += [
                f"%x{row}.{end} = load {e}, ptr {pointer}, align {shape.size}",
                f"%y{row}.{end} = insertelement {v} poison, {e} %x{row}.{end}, i32 0",
                f"%z{row}.{end} = shufflevector {v} %y{row}.{end}, {v} poison, "
                f"<{lanes} x i32> zeroinitializer",
            ]
            for n in range(self.vectors):
                acc = f"{place}.{row}.{n}"
                lines.append(
                    f"%new{acc}.{name} = call {v} @llvm.fmuladd.{shape.suffix}("
                    f"{v} %z{row}.{end}, {v} %bv{n}.{end}, {v} %acc{acc}.{name})"
                )
        return lines

    def _totals(self, lines: list[str]) -> dict[str, str]:
        """Add up the chains of each element."""
        totals = {n: f"%acc0.{n}.one" for n in self.names}
        for chain in range(1, self.chains):
            for n in self.names:
                new = f"%sum{chain}.{n}"
                lines.append(f"{new} = fadd {self.shape.vector} {totals[n]}, %acc{chain}.{n}.many")
                totals[n] = new
        return totals

    def _stores(self, shape: Shape, totals: dict[str, str]) -> list[str]:
        """Whole vectors, added to what is there or not; or what the columns leave of them."""
        v, lanes, align = shape.vector, shape.lanes, shape.size
        lines = []
        for row in range(self.rows):
            for i in range(self.vectors):
                lines += [
                    f"%cr{row}.{i} = getelementptr i8, ptr %c, i64 %co{row}",
                    f"%cp{row}.{i} = getelementptr {v}, ptr %cr{row}.{i}, i64 {i}",
                ]
        lines += [
            f"%whole = icmp sge i64 %columns, {self.vectors * lanes}",
            "br i1 %whole, label %whole.yes, label %part",
            "whole.yes:",
            "br i1 %more, label %added, label %fresh",
            "fresh:",
            *[f"store {v} {totals[n]}, ptr %cp{n}, align {align}" for n in self.names],
            "ret void",
            "added:",
        ]
        # All are read before one is written: rows of a ragged tile may be the same.
        for n in self.names:
            lines += [
                f"%old{n} = load {v}, ptr %cp{n}, align {align}",
                f"%both{n} = fadd {v} %old{n}, {totals[n]}",
            ]
        lines += [f"store {v} %both{n}, ptr %cp{n}, align {align}" for n in self.names]
        mask = f"<{lanes} x i1>"
        lines += [
            "ret void",
            "part:",
            f"%cs.0 = insertelement <{lanes} x i64> poison, i64 %columns, i32 0",
            f"%cs.1 = shufflevector <{lanes} x i64> %cs.0, <{lanes} x i64> poison, "
            f"<{lanes} x i32> zeroinitializer",
            f"%more.0 = insertelement {mask} poison, i1 %more, i32 0",
            f"%more.1 = shufflevector {mask} %more.0, {mask} poison, "
            f"<{lanes} x i32> zeroinitializer",
        ]
        for i in range(self.vectors):
            lines += [
                f"%kept{i} = icmp slt <{lanes} x i64> {iota('i64', lanes, i * lanes)}, %cs.1",
                f"%there{i} = and {mask} %kept{i}, %more.1",
            ]
        for name in self.names:
            column = name.split(".")[1]
            lines += [
                f"%was{name} = call {v} @llvm.masked.load.{shape.suffix}.p0(ptr %cp{name}, "
                f"i32 {align}, {mask} %there{column}, {v} zeroinitializer)",
                f"%is{name} = fadd {v} %was{name}, {totals[name]}",
            ]
        for name in self.names:
            column = name.split(".")[1]
            lines.append(
                f"call void @llvm.masked.store.{shape.suffix}.p0({v} %is{name}, ptr %cp{name}, "
                f"i32 {align}, {mask} %kept{column})"
            )
        return [*lines, "ret void"]
