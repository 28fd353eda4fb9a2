"""The micro-kernels: a tile of the product that stays in registers while k runs.

    @tile(ptr a, i64 rs, i64 ks, ptr b, i64 bs, ptr c, i64 cs, i64 n, i1 more, i64 columns,
        i64 rows)

computes r rows and v vectors of columns, of which only `columns` are stored: the sum over n
positions of the elements of `a` (`rs` bytes from row to row, `ks` from position to position) times
the rows of `b` (`bs` bytes apart, all v vectors readable). It is stored to `c` (`cs` bytes from row
to row), or with `more` added to the values there. All elements have the dtype of the computation;
with dot products of pairs, a position is two neighbouring bfloat16, in `a` and in `b`. There are r
rows or more. A ragged tile needs one row only: it computes the last row several times, which
changes nothing. Where positions of `a` are not equally far apart, `ks` is the address of n offsets
in bytes, and `rows` that of n lines of memory to prefetch for the next tile.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from graphfw.ir.dtype import DType, bfloat16, float32
from graphfw.runtime.numpy_executor.codegen.registers import iota, memory, vector
from graphfw.runtime.numpy_executor.codegen.target import Processor
from graphfw.runtime.numpy_executor.codegen.writer import ATTRIBUTES

_CHAINS = 8
"""The number of sums in flight with which no addition waits for the one before it."""

_AHEAD = {"a": 4096, "b": 512}
"""The bytes in advance for which an operand is prefetched."""

LINE = 64
"""The bytes of a cache line."""

DOT_OF_PAIRS = "llvm.x86.avx512bf16.dpbf16ps.512"
"""Adds the products of two elements to each lane."""

Ahead: TypeAlias = Literal["", "a", "b", "list"]
"""The operand that a tile prefetches; "list" where `a` is read by a list of offsets."""


class TileShape(NamedTuple):
    """The shape of the tiles of a dtype on a processor.

    Attributes:
        stored: The dtype of the operands and of the product.
        dtype: The dtype of the computation: float32 for floats of 16 bits.
        lanes: The number of elements of a vector register.
        rows: The rows of the largest tile.
        k_pack: The positions of k that a multiplication takes: two in dot products of pairs of
            bfloat16.
    """

    stored: DType
    dtype: DType
    lanes: int
    rows: int
    k_pack: int = 1

    @property
    def key(self) -> str:
        """Return all fields as a text."""
        return f"{self.stored} {self.lanes} {self.rows}{' in pairs' * (self.k_pack == 2)}"

    @property
    def words(self) -> str:
        """The LLVM type of a vector of factors."""
        return self.vector if self.k_pack == 1 else f"<{2 * self.lanes} x bfloat>"

    @property
    def sums(self) -> int:
        """The number of vectors of sums that fit into registers, beside the factors."""
        return 2 * self.rows

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
        """The suffix of the names of LLVM's vector functions."""
        return f"v{self.lanes}f{self.dtype.itemsize * 8}"

    @property
    def size(self) -> int:
        """The bytes of an element in the dtype of the computation."""
        return self.dtype.itemsize

    @property
    def converts(self) -> bool:
        """Whether elements in memory have another dtype than the computation."""
        return self.stored is not self.dtype


def shape_for(dtype: DType, target: Processor, *, pairs: bool = False) -> TileShape:
    """Return the tiles for a dtype: 28 sums of 32 registers, or 12 of 16.

    With `pairs`, tiles of bfloat16 use dot products of pairs, which AVX-512 has.
    """
    computed = float32 if dtype.is_low_precision else dtype
    lanes = target.vector_bytes // computed.itemsize
    k_pack = 2 if pairs and dtype is bfloat16 and target.masked else 1
    return TileShape(dtype, computed, lanes, 14 if target.masked else 6, k_pack)


def chains_for(shape: TileShape, rows: int, vectors: int) -> int:
    """Return the number of sums of each element of a tile.

    Each sum is over every position of k, every second or every fourth. With few rows there are
    several sums, as far as registers hold them.
    """
    most = min(2 * _CHAINS, shape.sums)
    return max([1, *(n for n in (2, 4) if rows * vectors * n <= most)])


def tile(symbol: str, shape: TileShape, rows: int, vectors: int, ahead: Ahead, ragged: bool) -> str:
    """Return the micro-kernel of a number of rows and vectors, under a name.

    It prefetches a `b` that is not packed, whose next panel follows in memory, and an `a` that is
    read once, position by position, from memory.
    """
    return _Tile(shape, rows, vectors, ahead, ragged).text(symbol)


class _Tile:
    """Writes one micro-kernel."""

    def __init__(
        self, shape: TileShape, rows: int, vectors: int, ahead: Ahead, ragged: bool
    ) -> None:
        self.shape = shape
        self.rows = rows
        self.vectors = vectors
        self.ahead = ahead
        self.ragged = ragged
        self.chains = chains_for(shape, rows, vectors)
        # Three rows share a pointer: the next two are rs and 2 * rs after it. In a ragged tile all
        # rows share one pointer, and each has a distance from it.
        self.starts = [f"%a{row}" for row in range(0, 1 if ragged else rows, 3)]
        self.pointers = ["%b", *(["%list"] if ahead == "list" else self.starts)]
        self.names = [f"{r}.{v}" for r in range(rows) for v in range(vectors)]

    def text(self, symbol: str) -> str:
        shape = self.shape
        lines = [
            f"define fastcc void @{symbol}(ptr %a0, i64 %rs, i64 %ks, ptr %b, i64 %bs, ptr %c, "
            f"i64 %cs, i64 %n, i1 %more, i64 %columns, i64 %rows) {ATTRIBUTES} {{",
            "entry:",
            f"%sums = alloca [{len(self.names)} x {shape.vector}]",
            *(self._list() if self.ahead == "list" else []),
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
        return "\n".join([*lines, *self._stores(totals), "}", ""])

    def _list(self) -> list[str]:
        """Return the list, and the lines' address less eight times the list's."""
        return [
            "%list = inttoptr i64 %ks to ptr",
            "%eight = shl i64 %ks, 3",
            "%lines = sub i64 %rows, %eight",
        ]

    def _rows(self) -> list[str]:
        """Return where rows of `a` begin, and the distances of the product's rows from `c`."""
        if self.ragged:
            lines = ["%last = sub i64 %rows, 1"]
            for row in range(self.rows):
                lines += [
                    f"%row{row} = call i64 @llvm.smin.i64(i64 {row}, i64 %last)",
                    f"%o{row} = mul i64 %rs, %row{row}",
                ]
            return lines
        lines = ["%rs2 = mul i64 %rs, 2", "%rs3 = mul i64 %rs, 3"]
        for row in range(3, self.rows, 3):
            lines += [
                f"%o{row} = mul i64 %rs, {row}",
                f"%a{row} = getelementptr i8, ptr %a0, i64 %o{row}",
            ]
        return lines

    def _loop(
        self,
        name: str,
        before: str,
        count: str,
        k_pack: int,
        start: dict[str, str],
        sums: dict[str, str],
    ) -> list[str]:
        """Write the loop over k, `k_pack` positions at a time.

        Its values are named for it: `%acc0.1.0.many` when the loop is over.
        """
        v, used = self.shape.vector, [f"{c}.{n}" for c in range(k_pack) for n in self.names]
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
        for index in range(k_pack):
            head += self._add_product(name, index, current)
            for p in self.pointers:
                step = {"%b": "%bs", "%list": "8"}.get(p, "%ks")
                new = f"{p}n.{name}" if index == k_pack - 1 else f"{p}.{index}.{name}"
                head.append(f"{new} = getelementptr i8, ptr {current[p]}, i64 {step}")
                current[p] = new
        return [*head, f"%kn.{name} = sub i64 %k.{name}, 1", f"br label %{name}", f"{name}.end:"]

    def _add_product(self, name: str, index: int, current: dict[str, str]) -> list[str]:
        """Write one position of k: load vectors of b, spread elements of a, multiply and add."""
        shape, lines = self.shape, []
        v, w, lanes = shape.vector, shape.words, shape.lanes
        # A pair is moved as one number.
        e, many = ("i32", f"<{lanes} x i32>") if shape.k_pack == 2 else (shape.element, v)
        multiply = DOT_OF_PAIRS if shape.k_pack == 2 else f"llvm.fmuladd.{shape.suffix}"
        align = shape.size // shape.k_pack
        end = f"{index}.{name}"
        if self.ahead == "list":
            # Both step from position to position: a line of memory is eight offsets long.
            lines += [
                f"%offset.{end} = load i64, ptr {current['%list']}",
                f"%here.{end} = ptrtoint ptr {current['%list']} to i64",
                f"%step.{end} = shl i64 %here.{end}, 3",
                f"%line.{end} = add i64 %step.{end}, %lines",
                f"%asked.{end} = inttoptr i64 %line.{end} to ptr",
                f"call void @llvm.prefetch.p0(ptr %asked.{end}, i32 0, i32 2, i32 1)",
            ]
            # One after the other, since registers are scarce.
            before, gap = "%a0", f"%offset.{end}"
            for p in self.starts:
                lines.append(f"{p}.{end} = getelementptr i8, ptr {before}, i64 {gap}")
                before, gap = f"{p}.{end}", "%rs3"
            current = current | {p: f"{p}.{end}" for p in self.starts}
        for n in range(self.vectors):
            lines += [
                f"%bp{n}.{end} = getelementptr {w}, ptr {current['%b']}, i64 {n}",
                f"%bv{n}.{end} = load {w}, ptr %bp{n}.{end}, align {shape.size}",
            ]
            if self.ahead == "b" and n * shape.lanes * shape.size % LINE == 0:
                lines += self._asked(f"%ahead{n}.{end}", f"%bp{n}.{end}")
        if self.ahead == "a":
            lines += self._asked(f"%ahead.{end}", current["%a0"])
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
                f"%x{row}.{end} = load {e}, ptr {pointer}, align {align}",
                f"%y{row}.{end} = insertelement {many} poison, {e} %x{row}.{end}, i32 0",
                f"%s{row}.{end} = shufflevector {many} %y{row}.{end}, {many} poison, "
                f"<{lanes} x i32> zeroinitializer",
                f"%z{row}.{end} = bitcast {many} %s{row}.{end} to {w}",
            ]
            for n in range(self.vectors):
                acc = f"{index}.{row}.{n}"
                factors = f"{w} %z{row}.{end}, {w} %bv{n}.{end}"
                total = f"{v} %acc{acc}.{name}"
                order = f"{total}, {factors}" if shape.k_pack == 2 else f"{factors}, {total}"
                lines.append(f"%new{acc}.{name} = call {v} @{multiply}({order})")
        return lines

    def _asked(self, name: str, pointer: str) -> list[str]:
        """Prefetch the memory some way after an address."""
        return [
            f"{name} = getelementptr i8, ptr {pointer}, i64 {_AHEAD[self.ahead]}",
            f"call void @llvm.prefetch.p0(ptr {name}, i32 0, i32 3, i32 1)",
        ]

    def _totals(self, lines: list[str]) -> dict[str, str]:
        """Add up the chains of each element."""
        totals = {n: f"%acc0.{n}.one" for n in self.names}
        for chain in range(1, self.chains):
            for n in self.names:
                new = f"%sum{chain}.{n}"
                lines.append(f"{new} = fadd {self.shape.vector} {totals[n]}, %acc{chain}.{n}.many")
                totals[n] = new
        return totals

    def _stores(self, totals: dict[str, str]) -> list[str]:
        """Store vectors, masked at the end of rows; in a loop where they are added to memory."""
        lanes, mask = self.shape.lanes, f"<{self.shape.lanes} x i1>"
        lines = [
            f"%whole = icmp sge i64 %columns, {self.vectors * lanes}",
            f"%cs.0 = insertelement <{lanes} x i64> poison, i64 %columns, i32 0",
            f"%cs.1 = shufflevector <{lanes} x i64> %cs.0, <{lanes} x i64> poison, "
            f"<{lanes} x i32> zeroinitializer",
        ]
        lines += [
            f"%kept{i} = icmp slt <{lanes} x i64> {iota('i64', lanes, i * lanes)}, %cs.1"
            for i in range(self.vectors)
        ]
        lines += ["br i1 %more, label %rest, label %new", "new:"]
        lines += ["br i1 %whole, label %fresh, label %masked"]
        lines += ["fresh:", *self._stored(totals, "fresh", mask=""), "ret void"]
        lines += ["masked:", *self._stored(totals, "masked", mask=mask), "ret void"]
        return [*lines, "rest:", *self._rest(totals)]

    def _stored(self, totals: dict[str, str], name: str, mask: str) -> list[str]:
        """Store all rows, under the masks `%kept` where they have a type."""
        v, align, lines = self.shape.vector, self.shape.size, []
        pointer = "%c"
        for row in range(self.rows):
            if row:
                gap = "%cs"
                if self.ragged:
                    # The last row is stored several times.
                    gap = f"%gap{row}.{name}"
                    lines += [
                        f"%in{row}.{name} = icmp slt i64 {row}, %rows",
                        f"{gap} = select i1 %in{row}.{name}, i64 %cs, i64 0",
                    ]
                lines.append(f"%c{row}.{name} = getelementptr i8, ptr {pointer}, i64 {gap}")
                pointer = f"%c{row}.{name}"
            for i in range(self.vectors):
                total, to = totals[f"{row}.{i}"], f"%cp{row}.{i}.{name}"
                lines.append(f"{to} = getelementptr {v}, ptr {pointer}, i64 {i}")
                if mask:
                    lines.append(
                        f"call void @llvm.masked.store.{self.shape.suffix}.p0({v} {total}, "
                        f"ptr {to}, i32 {align}, {mask} %kept{i})"
                    )
                else:
                    lines.append(f"store {v} {total}, ptr {to}, align {align}")
        return lines

    def _rest(self, totals: dict[str, str]) -> list[str]:
        """Store rows in a loop over sums in memory: code for each row would be most of it."""
        v, lanes, suffix = self.shape.vector, self.shape.lanes, self.shape.suffix
        align, mask, lines = self.shape.size, f"<{lanes} x i1>", []
        for n, name in enumerate(self.names):
            lines += [
                f"%kp{name} = getelementptr {v}, ptr %sums, i64 {n}",
                f"store {v} {totals[name]}, ptr %kp{name}",
            ]
        lines += [
            f"%more.0 = insertelement {mask} poison, i1 %more, i32 0",
            f"%more.1 = shufflevector {mask} %more.0, {mask} poison, "
            f"<{lanes} x i32> zeroinitializer",
        ]
        for i in range(self.vectors):
            lines.append(f"%there{i} = and {mask} %kept{i}, %more.1")
        many = str(self.rows)
        if self.ragged:
            many = "%row.many"
            lines.append(f"%row.many = call i64 @llvm.smin.i64(i64 %rows, i64 {self.rows})")
        lines += [
            "br label %row",
            "row:",
            "%row.k = phi i64 [ 0, %rest ], [ %row.next, %row.end ]",
            "%row.c = phi ptr [ %c, %rest ], [ %row.cn, %row.end ]",
            "%row.s = phi ptr [ %sums, %rest ], [ %row.sn, %row.end ]",
        ]
        for i in range(self.vectors):
            lines += [
                f"%to{i} = getelementptr {v}, ptr %row.c, i64 {i}",
                f"%from{i} = getelementptr {v}, ptr %row.s, i64 {i}",
                f"%sum{i} = load {v}, ptr %from{i}",
            ]
        # Masked stores are slower on some processors.
        lines += ["br i1 %whole, label %row.whole, label %row.rest", "row.whole:"]
        for i in range(self.vectors):
            lines += [
                f"%old{i} = load {v}, ptr %to{i}, align {align}",
                f"%both{i} = fadd {v} %old{i}, %sum{i}",
                f"store {v} %both{i}, ptr %to{i}, align {align}",
            ]
        lines += ["br label %row.end", "row.rest:"]
        for i in range(self.vectors):
            lines += [
                f"%was{i} = call {v} @llvm.masked.load.{suffix}.p0(ptr %to{i}, i32 {align}, "
                f"{mask} %there{i}, {v} zeroinitializer)",
                f"%is{i} = fadd {v} %was{i}, %sum{i}",
                f"call void @llvm.masked.store.{suffix}.p0({v} %is{i}, ptr %to{i}, "
                f"i32 {align}, {mask} %kept{i})",
            ]
        return [
            *lines,
            "br label %row.end",
            "row.end:",
            "%row.cn = getelementptr i8, ptr %row.c, i64 %cs",
            f"%row.sn = getelementptr {v}, ptr %row.s, i64 {self.vectors}",
            "%row.next = add i64 %row.k, 1",
            f"%row.last = icmp eq i64 %row.next, {many}",
            "br i1 %row.last, label %end, label %row",
            "end:",
            "ret void",
        ]
