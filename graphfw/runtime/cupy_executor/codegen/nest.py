"""The body of a kernel's function: which threads go through which of its positions, and how.

Each form of kernel has its own way:

elements  Only stores. A thread computes one position, or several in a row that are read and
          written at once.
rows      What stands in a row needs other positions of it: a group of threads (one, a warp, a
          block) shares a row, where it is well several positions in a row each at once. Where
          rows are few and long, several blocks do.
columns   A thread for each position of the outer axes, so that neighbours read neighbours; where
          these are few, eight threads share what stands in a column, or several blocks.
items     Rows leave partial results: a block for each item.
sums      The same where rows are only added up: a block for 32 positions of an item.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from graphfw.runtime.cupy_executor.codegen.forms import (
    PARTIAL,
    can_split,
    form_of,
    is_row,
    kept_size,
)
from graphfw.runtime.cupy_executor.codegen.types import REDUCTIONS, register
from graphfw.runtime.cupy_executor.codegen.values import CudaValues, Varying
from graphfw.runtime.kernels.handwritten_cuda import memory
from graphfw.runtime.kernels.ir import (
    Accumulate,
    BoundsCheck,
    Carry,
    Expr,
    InnerLoop,
    Keep,
    Kernel,
    Load,
    Reduce,
    Ref,
    Store,
    While,
)
from graphfw.runtime.kernels.walk import (
    Statement,
    copied_buffers,
    in_turn,
    postorder,
    roots,
    statements,
)


class CudaNest:
    """Writes the body of one kernel.

    Args:
        kernel: The kernel.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.form = form_of(kernel)
        self.values = CudaValues(kernel)
        axes = kernel.inner[-1:] if self.form == "elements" else kernel.inner
        self._varying = Varying(kernel, axes)
        self._keeps = [s for s in statements(kernel) if isinstance(s, Keep)]
        self._sums: dict[Accumulate, str] = {}

    def lines(self) -> list[str]:
        """Return the body's lines."""
        values, kernel = self.values, self.kernel
        copied = copied_buffers(kernel)
        if copied is not None:
            written, read = [f"(const void*)b{buffer}" for buffer in copied]
            values.write(f"if ({written} == {read}) return;")
        values.write(f"const gf_index rows = {values.product(kernel.outer)};")
        values.write(f"const gf_index inner = {values.product(kernel.inner)};")
        {
            "elements": self._elements,
            "rows": self._rows,
            "columns": self._rows,
            "sums": self._added,
            "items": self._columns_of_items if kernel.form == "columns" else self._rows_of_items,
        }[self.form]()
        return values.lines

    # Elements: template parameter V, how many in a row.

    def _elements(self) -> None:
        values, kernel = self.values, self.kernel
        last = kernel.inner[-1]
        extent = values.size(last.extent)
        values.write(f"const gf_index along = {extent} / V;")
        values.write("const gf_index all = inner == 0 ? 0 : rows * (inner / V);")
        with values.block("for (gf_index n = gf_single::first(); n < all; n += gf_single::step())"):
            values.write("const gf_index first = (gf_index)((gf_count)n % (gf_count)along) * V;")
            values.write("const gf_index rest = (gf_index)((gf_count)n / (gf_count)along);")
            values.stand("rest", [*kernel.outer, *kernel.inner[:-1]])
            for item in kernel.body:
                assert isinstance(item, InnerLoop)
                self._pass_of_elements(item, last.name)

    def _pass_of_elements(self, loop: InnerLoop, last: str) -> None:
        values, varying = self.values, self._varying
        values.index[last] = "first"
        wanted = [root for s in loop.body for root in roots(s)]
        values.evaluate(wanted, lambda expr: not varying(expr))
        self._read_rows(wanted)
        packed = self._packed_stores(loop)
        values.write("#pragma unroll")
        with values.block("for (int k = 0; k < V; k++)"):
            values.write("const gf_index j = first + k;")
            values.index[last] = "j"
            values.evaluate(wanted)
            for s in loop.body:
                if isinstance(s, BoundsCheck):
                    values.checked(s.value, s.bound)
                elif isinstance(s, Store) and s in packed:
                    self._pack(s, packed[s])
                elif isinstance(s, Store):
                    values.store(s)
        values.index[last] = "first"
        self._write_rows(packed)

    def _packed_stores(self, loop: InnerLoop) -> dict[Statement, str]:
        """Write the names of what is stored several elements at once; return them."""
        kernel = self.kernel
        found: dict[Statement, str] = {}
        for s in loop.body:
            if isinstance(s, Store) and is_row(s.access, kernel, self._varying):
                kind, found[s] = memory(kernel.buffers[s.buffer].dtype), self.values.name("y")
                self.values.write(f"gf_pack<{kind}, V> {found[s]};")
        return found

    def _pack(self, s: Store, name: str) -> None:
        """Write that one of the elements is there which are stored at once."""
        kind = memory(self.kernel.buffers[s.buffer].dtype)
        self.values.write(f"{name}.at[k] = gf_memory<{kind}>::made({self.values.value(s.value)});")

    def _write_rows(self, packed: Mapping[Statement, str]) -> None:
        """Write the stores of several elements at once."""
        values = self.values
        for store, name in packed.items():
            assert isinstance(store, Store)
            kind = f"gf_pack<{memory(self.kernel.buffers[store.buffer].dtype)}, V>"
            offset, good = values.offset(store.access)
            both = values.guarded(good)
            condition = f"if ({both}) " if both else ""
            values.write(f"{condition}*({kind}*)(b{store.buffer} + ({offset})) = {name};")

    def _read_rows(self, wanted: Sequence[Expr]) -> None:
        """Write the reads of several elements at once."""
        values = self.values
        for expr in postorder(wanted):
            if not isinstance(expr, Load) or expr in values.packs or self.kernel.is_packed(expr):
                continue
            if is_row(expr.access, self.kernel, self._varying):
                pack = f"gf_pack<{memory(self.kernel.buffers[expr.buffer].dtype)}, V>"
                offset, good = values.offset(expr.access)
                good = values.guarded(good)
                name = values.name("x")
                text = f"*(const {pack}*)(b{expr.buffer} + ({offset}))"
                if good:
                    values.write(f"{pack} {name} = {pack}();")
                    values.write(f"if ({good}) {name} = {text};")
                else:
                    values.write(f"const {pack} {name} = {text};")
                values.packs[expr] = f"{name}.at[k]"

    # Rows and columns: template parameters G, the threads that share one; V, as above; IS_SPLIT,
    # whether several blocks do.

    def _rows(self) -> None:
        values = self.values
        with values.block("for (gf_index base = G::first(); base < rows; base += G::step())"):
            values.write("const gf_index own = base + G::offset();")
            values.write("const bool on = own < rows;")
            values.write("const gf_index row = on ? own : rows - 1;")
            values.guard = "on"
            self._keep_memory()
            values.stand("row", self.kernel.outer)
            if not can_split(self.kernel):
                self._body("0", "inner")
                return
            values.write("const gf_index pieces = IS_SPLIT ? (gf_index)gridDim.y : 1;")
            values.write("const gf_index piece = IS_SPLIT ? (gf_index)blockIdx.y : 0;")
            values.write("const gf_index length = (inner / V + pieces - 1) / pieces * V;")
            values.write("const gf_index left = min(piece * length, inner);")
            values.write("const gf_index right = min(left + length, inner);")
            self._body("left", "right")

    def _body(self, begin: str, end: str) -> None:
        """Write what is done for a row, of its inner positions a range."""
        is_after = False
        for item in in_turn(self.kernel):
            if isinstance(item, InnerLoop):
                self._pass(item, begin, end)
                is_after = True
            else:
                self._once(item, is_after)

    def _once(self, found: Sequence[Statement], is_after: bool) -> None:
        """Write what is done once a row.

        Args:
            found: The statements.
            is_after: Whether a loop comes before.
        """
        values = self.values
        values.evaluate([root for s in found for root in roots(s)])
        if is_after and any(isinstance(s, Store) for s in found):
            values.write("G::sync();  // others may still read what is written over")
        for s in found:
            if isinstance(s, Store):
                values.store(s, "G::lane() == 0")
            elif isinstance(s, BoundsCheck):
                values.checked(s.value, s.bound)
            elif isinstance(s, Accumulate):
                self._add(s, "G::lane() == 0")

    def _pass(self, loop: InnerLoop, begin: str, end: str) -> None:
        """Write one pass over the inner positions of a row."""
        values, varying = self.values, self._varying
        carries = [s for s in loop.body if isinstance(s, Carry)]
        wanted = [root for s in loop.body for root in roots(s)]
        values.evaluate([carry.begin for carry in carries])
        values.evaluate(wanted, lambda expr: not varying(expr))
        for carry in carries:
            name = values.results[carry.name] = values.name("c")
            kind = register(carry.value.dtype)
            values.write(f"{kind} {name} = {values.value(carry.begin)};")
        sums = {s: values.name("s") for s in loop.body if isinstance(s, Reduce)}
        for reduce, name in sums.items():
            op = _op(reduce)
            values.write(f"typename {op}::S {name} = {op}::first();")
        head = f"for (gf_index first = {begin} + G::lane() * V; first < {end}; "
        with values.block(f"{head}first += G::lanes() * V)"):
            last = self.kernel.inner[-1].name
            values.stand("first", self.kernel.inner)
            for s in loop.body:
                if isinstance(s, While):
                    values.evaluate([s.value])
                    values.write(f"if (!{values.value(s.value)}) break;")
            begins = values.index[last]
            self._read_rows(wanted)
            self._read_kept(wanted)
            packed = self._packed_stores(loop)
            kept = self._packed_keeps(loop)
            values.write("#pragma unroll")
            with values.block("for (int k = 0; k < V; k++)"):
                values.write(f"const gf_index p = first + k, j = {begins} + k;")
                values.write("(void)p;")
                values.index[last] = "j"
                values.evaluate(wanted)
                self._statements(loop, sums, {**packed, **kept})
                # All of them first: what is carried may go into what is carried next to it.
                for carry in carries:
                    kind, value = register(carry.value.dtype), values.value(carry.value)
                    values.write(f"const {kind} n{values.results[carry.name]} = {value};")
                for carry in carries:
                    name = values.results[carry.name]
                    values.write(f"{name} = n{name};")
            values.index[last] = begins
            self._write_rows(packed)
            for keep, name in kept.items():
                assert isinstance(keep, Keep)
                values.write(f"{self._kept_at(keep)} = {name};")
        values.packs.clear()
        for reduce, name in sums.items():
            values.write(f"{name} = G::template join<{_op(reduce)} >({name});")
        if can_split(self.kernel):
            self._join_pieces(sums)
        for reduce, name in sums.items():
            has_position = reduce.kind in ("argmax", "argmin")
            kind = "gf_i64" if has_position else register(reduce.value.dtype)
            result = values.results[reduce.name] = values.name("r")
            values.write(f"const {kind} {result} = {name}{'.at' if has_position else ''};")

    def _join_pieces(self, sums: dict[Reduce, str]) -> None:
        """Write that the last of the blocks that share rows joins what all have found."""
        values = self.values
        with values.block("if (IS_SPLIT)"):
            found = {}
            for number, (reduce, name) in enumerate(sums.items()):
                kind, found[reduce] = f"typename {_op(reduce)}::S", values.name("f")
                start = f"(gf_i64){PARTIAL * number} * rows * pieces"
                values.write(f"{kind}* const {found[reduce]} = ({kind}*)(scratch + {start});")
                offset = f"{found[reduce]}[piece * rows + row]"
                values.write(f"if (on && G::lane() == 0) {offset} = {name};")
            values.write("if (!gf_is_last(failed + 1 + blockIdx.x)) return;")
            for reduce, name in sums.items():
                op = _op(reduce)
                values.write(f"{name} = {op}::first();")
                step = f"{name} = {op}::join({name}, {found[reduce]}[k * rows + row]);"
                values.write(f"for (gf_index k = 0; k < pieces; k++) {step}")

    def _statements(
        self, loop: InnerLoop, sums: dict[Reduce, str], packed: Mapping[Statement, str]
    ) -> None:
        values = self.values
        for s in loop.body:
            if isinstance(s, Store) and s in packed:
                self._pack(s, packed[s])
            elif isinstance(s, Store):
                values.store(s)
            elif isinstance(s, BoundsCheck):
                values.checked(s.value, s.bound)
            elif isinstance(s, Keep):
                values.write(f"{packed[s]}.at[k] = {values.value(s.value)};")
            elif isinstance(s, Accumulate):
                self._add(s)
            elif isinstance(s, Reduce):
                value = values.value(s.value)
                if s.kind in ("argmax", "argmin"):
                    value = f"gf_placed<{register(s.value.dtype)}>{{{value}, (gf_i64)p}}"
                values.write(f"{sums[s]} = {_op(s)}::join({sums[s]}, {value});")

    # Kept values

    def _keep_memory(self) -> None:
        """Write where kept values lie: in the memory that is given, or in the block's own."""
        if not self._keeps:
            return
        values = self.values
        values.write("const gf_index kept = scratch ? G::group() : G::local();")
        values.write("const gf_index keeping = scratch ? G::groups() : G::locals();")
        values.write("char* const memory = scratch ? scratch : gf_dynamic();")
        before = 0
        # The widest first, so that each lies where its type must.
        for keep in sorted(self._keeps, key=lambda keep: -kept_size(keep)):
            kind, name = register(keep.value.dtype), self._kept(keep)
            start = f"(gf_i64){before} * inner * keeping"
            values.write(f"{kind}* const {name} = ({kind}*)(memory + {start});")
            before += kept_size(keep)

    def _kept(self, keep: Keep) -> str:
        return f"k{self._keeps.index(keep)}"

    def _kept_at(self, keep: Keep) -> str:
        """Return those of the positions at hand, as many as a thread takes at once."""
        pack = f"gf_pack<{register(keep.value.dtype)}, V>"
        return f"*({pack}*)({self._kept(keep)} + G::kept(first, inner, kept, keeping))"

    def _read_kept(self, wanted: Sequence[Expr]) -> None:
        """Write the reads of what was kept."""
        names = {expr.name for expr in postorder(wanted) if isinstance(expr, Ref)}
        for keep in self._keeps:
            if keep.name in names:
                name, pack = self.values.name("x"), f"gf_pack<{register(keep.value.dtype)}, V>"
                self.values.write(f"const {pack} {name} = {self._kept_at(keep)};")
                self.values.results[keep.name] = f"{name}.at[k]"

    def _packed_keeps(self, loop: InnerLoop) -> dict[Statement, str]:
        """Write the names of what is kept of several positions; return them."""
        found: dict[Statement, str] = {}
        for s in loop.body:
            if isinstance(s, Keep):
                found[s] = self.values.name("y")
                self.values.write(f"gf_pack<{register(s.value.dtype)}, V> {found[s]};")
        return found

    # Work items

    @contextmanager
    def _items(self, number: str) -> Iterator[None]:
        """Open the loop over items, of which there are so many; keep sums for each."""
        values = self.values
        values.write(f"const gf_index items = {number};")
        with values.block(
            "for (gf_index item = (gf_index)blockIdx.x; item < items; item += (gf_index)gridDim.x)"
        ):
            lasting = [s for s in statements(self.kernel) if isinstance(s, Accumulate)]
            for s in lasting:
                if not s.inner or self.form == "sums":
                    name = self._sums[s] = values.name("a")
                    values.write(f"typename {_op(s)}::S {name} = {_op(s)}::first();")
            yield
            if self.form == "sums":
                return
            for s, name in self._sums.items():
                joined = values.name("r")
                kind = register(s.value.dtype)
                values.write(f"const {kind} {joined} = gf_block::join<{_op(s)} >({name});")
                self._write_line(s, "item", joined, "threadIdx.x == 0")

    def _write_line(self, s: Accumulate, first: str, value: str, condition: str) -> None:
        offset, _ = self.values.offset(s.access)
        kind = memory(self.kernel.buffers[s.buffer].dtype)
        text = f"b{s.buffer}[{first} + {offset}] = gf_memory<{kind}>::made({value});"
        self.values.write(f"if ({condition}) {text}")

    def _add(self, s: Accumulate, condition: str = "") -> None:
        """Write that a sum of the item takes up the value at hand."""
        values, op, value = self.values, _op(s), self.values.value(s.value)
        if s in self._sums:
            text = f"{self._sums[s]} = {op}::join({self._sums[s]}, {value});"
            both = values.guarded(condition)
            values.write(f"if ({both}) {text}" if both else text)
            return
        offset, _ = values.offset(s.access)
        kind = memory(self.kernel.buffers[s.buffer].dtype)
        found = f"b{s.buffer}[line * inner + {offset}]"
        if self.kernel.form == "columns":
            whole = values.name("r")
            own = f"on ? {value} : {op}::first()"
            values.write(f"const {register(s.value.dtype)} {whole} = gf_block::join<{op} >({own});")
            value, condition = whole, "threadIdx.x == 0"
        load = f"gf_memory<{kind}>::load<{register(s.value.dtype)}>({found})"
        old = f"is_first ? {op}::first() : {load}"
        text = f"{found} = gf_memory<{kind}>::made({op}::join({old}, {value}));"
        values.write(f"if ({condition}) {text}" if condition else text)

    def _rows_of_items(self) -> None:
        values, kernel = self.values, self.kernel
        per_item = values.size(kernel.per_item)
        values.write(f"const gf_index blocks = (rows + {per_item} - 1) / {per_item};")
        pieces, begin, end = "1", "0", "inner"
        if kernel.split is not None:
            split = values.size(kernel.split)
            pieces, begin, end = f"((inner + {split} - 1) / {split})", "left", "right"
        with self._items(f"blocks * {pieces}"):
            values.write(f"const gf_index line = item / {pieces};")
            if kernel.split is not None:
                values.write(f"const gf_index left = item % {pieces} * {split};")
                values.write(f"const gf_index right = min(left + {split}, inner);")
            values.write(f"const gf_index top = line * {per_item};")
            values.write(f"const gf_index bottom = min(top + {per_item}, rows);")
            with values.block("for (gf_index row = top; row < bottom; row++)"):
                values.write("const bool is_first = row == top;")
                values.write("(void)is_first;")
                self._keep_memory()
                values.stand("row", kernel.outer)
                self._body(begin, end)

    def _columns_of_items(self) -> None:
        values, kernel = self.values, self.kernel
        per_item, last = values.size(kernel.per_item), kernel.outer[-1]
        extent = values.size(last.extent)
        values.write(f"const gf_index blocks = ({extent} + {per_item} - 1) / {per_item};")
        with self._items(f"({values.product(kernel.outer[:-1])}) * blocks"):
            values.write("const gf_index line = item, others = item / blocks;")
            values.write("(void)line;")
            values.write(f"const gf_index left = item % blocks * {per_item};")
            values.write(f"const gf_index right = min(left + {per_item}, (gf_index){extent});")
            values.stand("others", kernel.outer[:-1])
            with values.block(
                "for (gf_index base = left; base < right; base += (gf_index)blockDim.x)"
            ):
                values.write("const gf_index own = base + (gf_index)threadIdx.x;")
                values.write("const bool on = own < right, is_first = base == left;")
                values.write("(void)is_first;")
                values.write("const gf_index column = on ? own : right - 1;")
                values.guard = "on"
                values.index[last.name] = "column"
                self._keep_memory()
                self._body("0", "inner")
            values.guard = ""

    def _added(self) -> None:
        values, kernel = self.values, self.kernel
        per_item = values.size(kernel.per_item)
        values.write("const gf_index strips = (inner + 31) / 32;")
        with self._items(f"(rows + {per_item} - 1) / {per_item} * strips"):
            values.write("const gf_index line = item / strips;")
            values.write("const gf_index own = item % strips * 32 + (gf_index)threadIdx.x;")
            values.write("const bool on = own < inner;")
            values.write("const gf_index p = on ? own : inner - 1;")
            values.write(f"const gf_index top = line * {per_item};")
            values.write(f"const gf_index bottom = min(top + {per_item}, rows);")
            values.guard = "on"
            values.stand("p", kernel.inner)
            with values.block(
                "for (gf_index row = top + (gf_index)threadIdx.y; row < bottom; "
                "row += (gf_index)blockDim.y)"
            ):
                values.stand("row", kernel.outer)
                for item in kernel.body:
                    assert isinstance(item, InnerLoop)
                    values.evaluate([root for s in item.body for root in roots(s)])
                    self._statements(item, {}, {})
            for s, name in self._sums.items():
                joined = values.name("r")
                kind = register(s.value.dtype)
                values.write(f"const {kind} {joined} = gf_across::join<{_op(s)} >({name});")
                self._write_line(s, "line * inner", joined, "on && threadIdx.y == 0")
        values.guard = ""


def _op(s: Reduce | Accumulate) -> str:
    return f"{REDUCTIONS[s.kind]}<{register(s.value.dtype)}>"
