"""The LLVM printer: a kernel of the tile IR as the text of a function.

Each statement is repeated for all registers of its tile. An address is a chain of additions, each
placed at the loop that its variables belong to, so that nothing is computed more often than it
changes. Tiles are stack slots, which LLVM turns into registers.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from graphfw.ir.dtype import float32
from graphfw.runtime.numpy_executor.codegen.mathlib import Use, library, symbol
from graphfw.runtime.numpy_executor.codegen.transpose import transposed
from graphfw.runtime.numpy_executor.codegen.writer import ATTRIBUTES, PAST_CACHES, WORK_ITEM
from spikes.tile_ir.indices import Axis, Index, Var, variables
from spikes.tile_ir.ir import (
    SIZES,
    Apply,
    Block,
    Const,
    Contract,
    Expr,
    Fold,
    ForTile,
    Load,
    Pack,
    Prefetch,
    Set,
    Statement,
    Store,
    Tile,
    When,
)
from spikes.tile_ir.kernel import Kernel
from spikes.tile_ir.scopes import Scope, Scopes, Value

_TYPES = {
    "float32": "float",
    "float64": "double",
    "int32": "i32",
    "int64": "i64",
    "bfloat16": "i16",
    "int8": "i8",
}
_FLOATS = {
    "add": "fadd",
    "sub": "fsub",
    "mul": "fmul",
    "div": "fdiv",
    "max": "llvm.maximum",
    "min": "llvm.minimum",
}
_INTEGERS = {"add": "add", "sub": "sub", "mul": "mul", "max": "llvm.smax", "min": "llvm.smin"}


class _Ambient(NamedTuple):
    """Where in a tile a value is computed: the number of each axis, and the axis of the lanes."""

    at: Mapping[Var, int]
    lanes: Axis | None


class LlvmText(Scopes):
    """Writes a kernel."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = kernel
        self._slots: dict[tuple[Tile, tuple[int, ...]], Value] = {}
        self._uses_of_library: set[Use] = set()
        self._memo: dict[object, Value] = {}
        self._axes: dict[int, frozenset[Var]] = {}
        self._kept: list[Expr] = []
        """Expressions whose numbers are keys of `_axes`: they must not be freed meanwhile."""

    def text(self, symbol: str) -> str:
        """Return the module."""
        kernel = self.kernel
        for i, buffer in enumerate(kernel.buffers):
            at = self._let(f"getelementptr ptr, ptr %buffers, i64 {i}")
            self._bases[buffer] = self._let(f"load ptr, ptr {at}")
        offset = 0
        for buffer in kernel.scratch:
            self._bases[buffer] = self._let(f"getelementptr i8, ptr %scratch, i64 {offset}")
            offset += -(-buffer.size * SIZES[buffer.dtype] // 64) * 64
        self._many(self._work_item(kernel.body))
        lines = [*self._scopes[0].lines, "ret i32 0"]
        head = f"define i32 @{symbol}({WORK_ITEM}) {ATTRIBUTES} {{\nentry:"
        slots = [f"{slot.name} = alloca {slot.type}" for slot in self._slots.values()]
        made = library(sorted(self._uses_of_library))
        declared = {**self._functions, **made.declarations}
        parts = [head, *slots, *lines, "}", *declared.values(), made.definitions]
        return "\n".join([*parts, "!0 = !{i32 1}", ""])

    # Loops.

    def _work_item(self, body: Sequence[Statement]) -> Sequence[Statement]:
        """Take the loops over work items off; the innermost goes fastest."""
        loops = []
        while len(body) == 1 and isinstance(body[0], ForTile) and body[0].kind == "parallel":
            loops.append(body[0])
            body = body[0].body
        rest = "%work_item"
        for loop in reversed(loops):
            count = self._integer(work_items(loop))
            number = rest
            if loop is not loops[0]:
                number = self._let(f"urem i64 {rest}, {count}")
                rest = self._let(f"udiv i64 {rest}, {count}")
            here = self._let(f"mul nsw i64 {number}, {loop.step}")
            here = self._let(f"add nsw i64 {here}, {self._integer(loop.begin)}")
            self._depths[loop.var] = 0
            self._scopes[0].known[loop.var] = Value(here, "i64", 0)
        return body

    def _many(self, body: Sequence[Statement]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, s: Statement) -> None:
        self._memo.clear()
        match s:
            case Set():
                for at in self._places(s.tile.axes):
                    value = self._eval(s.value, at)
                    slot = self._slot(s.tile, at)
                    self._line(f"store {self._widened(value, slot.lanes)}, ptr {slot.name}")
            case Store():
                for at in self._places(s.axes):
                    self._store(s, at)
            case ForTile():
                self._loop(s)
            case When():
                bit = self._let(f"icmp slt i64 {self._integer(s.x)}, {self._integer(s.y)}")
                with self._branch(bit):
                    self._many(s.then)
                if s.otherwise:
                    with self._branch(self._let(f"xor i1 {bit}, true")):
                        self._many(s.otherwise)
            case Contract() | Pack():
                self._statement(s.lowered())
            case Block():
                self._many(s.body)
            case Prefetch():
                pointer = self._pointer(s.at.buffer, s.at.at)
                self._declare("llvm.prefetch.p0", "void", ["ptr", "i32", "i32", "i32"])
                self._line(
                    f"call void @llvm.prefetch.p0(ptr {pointer}, i32 0, i32 {s.level}, i32 1)"
                )
            case _:
                raise TypeError(f"not for a processor: {s}")

    def _loop(self, s: ForTile) -> None:
        begin, end = self._integer(s.begin), self._integer(s.end)
        n = next(self._names)
        outer = self._scopes[-1]
        before = outer.label
        first = [f"br label %body{n}"]
        if not s.nonempty:
            some = self._let(f"icmp slt i64 {begin}, {end}")
            first = [f"br i1 {some}, label %body{n}, label %end{n}"]
        scope = Scope(f"body{n}", certain=s.nonempty)
        self._scopes.append(scope)
        self._depths[s.var] = len(self._scopes) - 1
        scope.known[s.var] = Value(f"%i{n}", "i64", 0)
        self._made[f"%i{n}"] = len(self._scopes) - 1
        self._many(s.body)
        self._scopes.pop()
        outer.lines += [
            *first,
            f"body{n}:",
            f"%i{n} = phi i64 [ {begin}, %{before} ], [ %n{n}, %{scope.label} ]",
            *scope.lines,
            f"%n{n} = add nsw i64 %i{n}, {s.step}",
            f"%c{n} = icmp slt i64 %n{n}, {end}",
            f"br i1 %c{n}, label %body{n}, label %end{n}",
            f"end{n}:",
        ]
        outer.label = f"end{n}"

    # Values.

    def _places(self, axes: Sequence[Axis]) -> Iterator[_Ambient]:
        lanes = next((a for a in axes if a.lanes > 1), None)
        for at in itertools.product(*[range(0, a.size, a.lanes) for a in axes]):
            yield _Ambient(dict(zip([a.var for a in axes], at, strict=True)), lanes)

    def _slot(self, tile: Tile, at: _Ambient) -> Value:
        """The register of a tile at some place."""
        key = tile, tuple(at.at[a.var] // a.lanes for a in tile.axes)
        if key not in self._slots:
            lanes = max([a.lanes for a in tile.axes], default=1)
            name = f"%{tile.name}{next(self._names)}"
            self._slots[key] = Value(name, _TYPES[tile.dtype], lanes if lanes > 1 else 0)
        return self._slots[key]

    def _uses(self, x: Expr) -> frozenset[Var]:
        """The variables that an expression depends on."""
        if id(x) not in self._axes:
            self._kept.append(x)
            found: set[Var] = set()
            if isinstance(x, Load):
                for part in (x.at, *[one for pair in x.inside for one in pair]):
                    found |= variables(part)
            elif isinstance(x, Tile):
                found = {a.var for a in x.axes}
            elif isinstance(x, Apply):
                found = set().union(*map(self._uses, x.args))
            elif isinstance(x, Fold):
                found = {a.var for a in x.tile.axes if a.lanes == 1}
            self._axes[id(x)] = frozenset(found)
        return self._axes[id(x)]

    def _eval(self, x: Expr, at: _Ambient) -> Value:
        used = self._uses(x)
        own = {var: n for var, n in at.at.items() if var in used}
        lanes = at.lanes if at.lanes and at.lanes.var in used else None
        key = id(x), tuple(own.values()), lanes
        if key not in self._memo or isinstance(x, Tile):
            self._memo[key] = self._computed(x, _Ambient(own, lanes))
        return self._memo[key]

    def _computed(self, x: Expr, at: _Ambient) -> Value:
        match x:
            case Load():
                return self._load(x, at)
            case Const():
                return Value(_literal(x.value), "float", 0)
            case Tile():
                return self._read(x, at)
            case Fold():
                return self._fold(x, at)
            case Apply():
                return self._apply(x.name, [self._eval(one, at) for one in x.args])
        raise TypeError(x)

    def _read(self, tile: Tile, at: _Ambient) -> Value:
        own = next((a for a in tile.axes if a.lanes > 1), None)
        if own is None or (at.lanes and at.lanes.var is own.var):
            slot = self._slot(tile, at)
            return slot._replace(name=self._let(f"load {slot.type}, ptr {slot.name}"))
        lane = at.at[own.var] % own.lanes
        start = {**at.at, own.var: at.at[own.var] - lane}
        if at.lanes is None:
            slot = self._slot(tile, _Ambient(start, own))
            whole = self._let(f"load {slot.type}, ptr {slot.name}")
            one = self._let(f"extractelement {slot.type} {whole}, i64 {lane}")
            return Value(one, slot.element, 0)
        key = "turned", tile, tuple(start.items())
        if (*key, 0) not in self._memo:
            var, rows = at.lanes.var, []
            for n in range(own.lanes):
                slot = self._slot(tile, _Ambient({**start, var: at.at[var] + n}, own))
                rows.append(self._let(f"load {slot.type}, ptr {slot.name}"))
            for n, name in enumerate(transposed(self._let, slot.type, own.lanes, rows)):
                self._memo[*key, n] = slot._replace(name=name)
        return self._memo[*key, lane]

    def _fold(self, x: Fold, at: _Ambient) -> Value:
        own = next(a for a in x.tile.axes if a.lanes > 1)
        parts = [
            self._read(x.tile, _Ambient({**at.at, own.var: n}, own))
            for n in range(0, own.size, own.lanes)
        ]
        while len(parts) > 1:
            parts = [self._apply(x.name, parts[i : i + 2]) for i in range(0, len(parts), 2)]
        (whole,) = parts
        lanes, total = whole.lanes, whole
        while lanes > 1:
            lanes //= 2
            order = ", ".join(f"i32 {i}" for i in range(lanes))
            rest = ", ".join(f"i32 {i + lanes}" for i in range(lanes))
            halves = [
                total._replace(
                    name=self._let(f"shufflevector {total}, {total}, <{lanes} x i32> <{part}>"),
                    lanes=lanes,
                )
                for part in (order, rest)
            ]
            total = self._apply(x.name, halves)
        one = self._let(f"extractelement {total}, i64 0")
        return Value(one, whole.element, 0)

    def _widened(self, value: Value, lanes: int) -> Value:
        """A value in all lanes."""
        if value.lanes == lanes:
            return value
        if value.name == _zero(value.element):
            return Value("zeroinitializer", value.element, lanes)
        key = "wide", value, lanes
        found = self._found(key)
        if found is None:
            kind, depth = f"<{lanes} x {value.element}>", self._made.get(value.name, 0)
            one = self._let(f"insertelement {kind} poison, {value}, i32 0", depth)
            order = f"<{lanes} x i32> zeroinitializer"
            wide = self._let(f"shufflevector {kind} {one}, {kind} poison, {order}", depth)
            found = self._scopes[depth].known[key] = Value(wide, value.element, lanes)
        return found

    def _found(self, key: object) -> Value | None:
        return next((s.known[key] for s in reversed(self._scopes) if key in s.known), None)

    def _apply(self, name: str, args: list[Value]) -> Value:
        if name == "f32":
            return self._float(args[0])
        lanes = max(one.lanes for one in args)
        args = [self._widened(one, lanes) for one in args]
        first = args[0]
        if name in ("fma", "muladd") and first.element in ("float", "double"):
            name = f"llvm.fmuladd.{first.suffix}"
        elif name in ("fma", "muladd"):
            product = self._apply("mul", args[:2])
            return self._apply("add", [product, args[2]])
        elif name == "dot4":
            name, args = "llvm.x86.avx512.vpdpbusd.512", [args[2], *args[:2]]
        elif name == "greater":  # the second where either is no number: one instruction
            bit = self._let(f"fcmp ogt {first}, {args[1].name}")
            bits = f"<{lanes} x i1>" if lanes else "i1"
            return first._replace(name=self._let(f"select {bits} {bit}, {first}, {args[1]}"))
        elif name == "exp":
            use = (name, float32, max(first.lanes, 1))
            self._uses_of_library.add(use)
            return first._replace(name=self._let(f"call {first.type} @{symbol(*use)}({first})"))
        else:
            table = _FLOATS if first.element in ("float", "double") else _INTEGERS
            name = table[name]
            if not name.startswith("llvm"):
                other = args[1].name
                return first._replace(name=self._let(f"{name} {first}, {other}"))
            name = f"{name}.{first.suffix}"
        self._declare(name, first.type, [one.type for one in args])
        text = ", ".join(map(str, args))
        return first._replace(name=self._let(f"call {first.type} @{name}({text})"))

    def _float(self, x: Value) -> Value:
        wide = Value("", "i32", x.lanes).type
        new = Value("", "float", x.lanes)
        if x.element == "i16":
            bits = self._let(f"zext {x} to {wide}")
            shift = self._widened(Value("16", "i32", 0), x.lanes).name if x.lanes else "16"
            bits = self._let(f"shl {wide} {bits}, {shift}")
            return new._replace(name=self._let(f"bitcast {wide} {bits} to {new.type}"))
        return new._replace(name=self._let(f"sitofp {x} to {new.type}"))

    # Memory.

    def _inside(self, load: Load, at: _Ambient) -> tuple[str | None, str | None]:
        """Where a load is inside: a bit for all, and one for each lane; None is everywhere."""
        whole, each = None, None
        for i, size in load.inside:
            factor = i.factor(at.lanes.var) if at.lanes else 0
            here = i.at(at.at)
            last = here + factor * (at.lanes.lanes - 1 if at.lanes else 0)
            ends = (here, last) if factor >= 0 else (last, here)
            low, room = ends[0].bounds()[0], (size - ends[1]).bounds()[0]
            if low is not None and low >= 0 and room is not None and room > 0:
                continue
            depth = max([self._depth(m) for m, _ in (*here.terms, *size.terms)], default=0)
            x, n = self._integer(here), self._integer(size)
            if not factor:
                bit = self._known(("in", here, size), depth, f"icmp ult i64 {x}, {n}", "i1")
                whole = bit if whole is None else self._let(f"and i1 {whole}, {bit}")
                continue
            assert at.lanes is not None
            bit = self._mask((here, size, factor, at.lanes.lanes), x, n, depth)
            kind = f"<{at.lanes.lanes} x i1>"
            each = bit if each is None else self._let(f"and {kind} {each}, {bit}")
        return whole, each

    def _mask(self, key: tuple[Index, Index, int, int], x: str, n: str, depth: int) -> str:
        scope, (_, _, factor, lanes) = self._scopes[depth], key
        if key not in scope.known:
            kind, wide = f"<{lanes} x i32>", []
            for number in (x, n):
                short = self._let(f"trunc i64 {number} to i32", depth)
                one = self._let(f"insertelement {kind} poison, i32 {short}, i32 0", depth)
                order = f"<{lanes} x i32> zeroinitializer"
                wide.append(self._let(f"shufflevector {kind} {one}, {kind} poison, {order}", depth))
            iota = ", ".join(f"i32 {i * factor}" for i in range(lanes))
            place = self._let(f"add {kind} {wide[0]}, <{iota}>", depth)
            bits = self._let(f"icmp ult {kind} {place}, {wide[1]}", depth)
            scope.known[key] = Value(bits, "i1", lanes)
        return scope.known[key].name

    def _load(self, load: Load, at: _Ambient) -> Value:
        factor = load.at.factor(at.lanes.var) if at.lanes else 0
        here = load.at.at(at.at)
        lanes = at.lanes.lanes if at.lanes and (factor or load.inside) else 0
        whole, each = self._inside(load, at)
        key = "load", load.buffer, here, factor, lanes, whole, each, load.outside
        if not load.buffer.readonly:
            return self._loaded(load, here, factor, lanes, whole, each)
        found = self._found(key)
        if found is None:
            # As far out as its address is known and it is sure to be needed.
            depth = max([self._depth(m) for m, _ in here.terms], default=0)
            if whole or each:
                depth = len(self._scopes)
            inner: list[Scope] = []
            while len(self._scopes) - 1 > depth and self._scopes[-1].certain:
                inner.append(self._scopes.pop())
            found = self._loaded(load, here, factor, lanes, whole, each)
            self._scopes[-1].known[key] = found
            self._scopes += reversed(inner)
        return found

    def _loaded(
        self, load: Load, here: Index, factor: int, lanes: int, whole: str | None, each: str | None
    ) -> Value:
        buffer = load.buffer
        size = SIZES[buffer.dtype]
        pointer = self._pointer(buffer, here)
        value = Value("", _TYPES[buffer.dtype], lanes if factor else 0)
        outside = Value(_zero(value.element), value.element, 0)
        if load.outside:
            outside = Value(_literal(load.outside), value.element, 0)
        if whole is not None:
            base = self._bases[buffer]
            pointer = self._let(f"select i1 {whole}, ptr {pointer}, ptr {base}")
        if factor > 1:
            many = value._replace(lanes=lanes * factor)
            name = self._let(f"load {many.type}, ptr {pointer}, align {size}")
            order = ", ".join(f"i32 {i * factor}" for i in range(lanes))
            text = (
                f"shufflevector {many.type} {name}, {many.type} poison, <{lanes} x i32> <{order}>"
            )
            value = value._replace(name=self._let(text))
        elif each is None:
            name = self._let(f"load {value.type}, ptr {pointer}, align {size}")
            value = value._replace(name=name)
        else:
            symbol = f"llvm.masked.load.{value.suffix}.p0"
            bits = f"<{lanes} x i1>"
            self._declare(symbol, value.type, ["ptr", "i32", bits, value.type])
            name = self._let(
                f"call {value.type} @{symbol}(ptr {pointer}, i32 {size}, {bits} {each}, "
                f"{self._widened(outside, value.lanes)})"
            )
            value = value._replace(name=name)
        if whole is not None:
            rest = self._widened(outside, value.lanes)
            name = self._let(f"select i1 {whole}, {value}, {rest}")
            value = value._replace(name=name)
        return value

    def _store(self, s: Store, at: _Ambient) -> None:
        whole, each = self._inside(s.to, at)
        value = self._eval(s.value, at)
        if at.lanes:
            value = self._widened(value, at.lanes.lanes)
        size = SIZES[s.to.buffer.dtype]
        factor = s.to.at.factor(at.lanes.var) if at.lanes else 0
        if at.lanes and factor != 1:
            raise ValueError("a store of lanes that are not neighbours")
        pointer = self._pointer(s.to.buffer, s.to.at.at(at.at))
        text = f"store {value}, ptr {pointer}, align {size}"
        if s.streaming:
            text = f"store {value}, ptr {pointer}, align 64, {PAST_CACHES}"
        if each is not None:
            symbol, bits = f"llvm.masked.store.{value.suffix}.p0", f"<{value.lanes} x i1>"
            self._declare(symbol, "void", [value.type, "ptr", "i32", bits])
            text = f"call void @{symbol}({value}, ptr {pointer}, i32 {size}, {bits} {each})"
        if whole is None:
            self._line(text)
            return
        with self._branch(whole):
            self._line(text)


def work_items(loop: ForTile) -> Index:
    """Return how many work items a parallel loop has."""
    return (loop.end - loop.begin + (loop.step - 1)) // loop.step


def _zero(element: str) -> str:
    return "0.0" if element in ("float", "double") else "0"


def _literal(value: float) -> str:
    """Return LLVM's text of a float32."""
    (rounded,) = struct.unpack("f", struct.pack("f", value))
    (bits,) = struct.unpack("<Q", struct.pack("<d", rounded))
    return f"0x{bits:016X}"
