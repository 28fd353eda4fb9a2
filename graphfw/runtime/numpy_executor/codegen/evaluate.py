"""`Evaluator`: writes the expressions of a kernel, each in the loop where it belongs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from graphfw.ir.dtype import DType, int64
from graphfw.runtime.kernels.ir import (
    Access,
    Call,
    Carried,
    Const,
    Draw,
    Expr,
    Load,
    Position,
    Ref,
    Size,
    SizeValue,
)
from graphfw.runtime.kernels.primitives import PRIMITIVES
from graphfw.runtime.kernels.walk import postorder
from graphfw.runtime.numpy_executor.codegen import mathlib, philox, strided
from graphfw.runtime.numpy_executor.codegen.addresses import Address, Registers, symbol_of
from graphfw.runtime.numpy_executor.codegen.facts import KernelFacts, VectorShape
from graphfw.runtime.numpy_executor.codegen.packed import Packed
from graphfw.runtime.numpy_executor.codegen.primitives import Primitives
from graphfw.runtime.numpy_executor.codegen.registers import (
    iota,
    literal,
    memory,
    register,
    splat,
    vector,
)
from graphfw.runtime.numpy_executor.codegen.writer import PAST_CACHES, Writer


class Evaluator:
    """Writes values, loads and stores.

    Attributes:
        facts: Of the kernel.
        writer: Of the function.
        shape: How many elements are computed side by side at this position of the text.
        masks: For each vector, which lanes are computed; empty: all.
        calls: Whether functions of the library are called at this position of the text; else they
            are written into it.
        index: Where each axis stands, by name; the vector axis: where its first lane does.
        transposed: Where the row at hand of an operand lies that is read across; see `Transposing`.
    """

    def __init__(self, facts: KernelFacts, writer: Writer) -> None:
        self.facts = facts
        self.writer = writer
        self.shape = VectorShape(1, 1)
        self.masks: Registers = ()
        self.calls = False
        self.index: dict[str, str] = {}
        self.transposed: dict[Load, str] = {}
        self._values: list[dict[Expr, Registers]] = [{}]
        self._results: dict[str, Registers] = {}
        self._keeps: dict[str, tuple[str, list[tuple[int, str]]]] = {}
        self._params: dict[int, str] = {}
        self._buffers: list[str] = []
        for number in facts.params:
            at = writer.let(f"getelementptr i64, ptr %params, i64 {number}", 0)
            self._params[number] = writer.let(f"load i64, ptr {at}", 0)
        for number in range(len(facts.kernel.buffers)):
            at = writer.let(f"getelementptr ptr, ptr %buffers, i64 {number}", 0)
            self._buffers.append(writer.let(f"load ptr, ptr {at}", 0))

    def size(self, size: Size) -> str:
        """Return a size as an i64."""
        return str(size) if isinstance(size, int) else self._params[size.number]

    def int64(self, instruction: str, a: str, b: str, level: int) -> str:
        """Write arithmetic of two i64."""
        if "0" in (a, b) and instruction == "mul":
            return "0"
        if "1" in (a, b) and instruction == "mul":
            return b if a == "1" else a
        if "0" in (a, b) and instruction == "add":
            return b if a == "0" else a
        flags = " nsw" if instruction in ("add", "mul") else ""
        return self.writer.pure(f"{instruction}{flags} i64 {a}, {b}", level)

    @contextmanager
    def loop(self, axis: str, begin: str, end: str, *, asks: bool = False) -> Iterator[None]:
        """Open the loop of an axis; see `Writer.loop_on`."""
        with self.writer.loop(begin, end, "1", asks=asks) as index:
            self.index[axis] = index
            self._values.append({})
            yield
            self._values.pop()

    @contextmanager
    def loop_on(
        self, axis: str, slot: str, end: str, step: str, *, asks: bool = False
    ) -> Iterator[None]:
        """Open the loop of an axis from where a variable stands; see `Writer.loop_on`."""
        with self.writer.loop_on(slot, end, step, asks=asks) as index:
            self.index[axis] = index
            self._values.append({})
            yield
            self._values.pop()

    def set_result(self, name: str, value: Registers) -> None:
        """Say what a `Ref` to a reduction or a carry, or `Carried`, stands for from here on."""
        self._results[name] = value

    def evaluate(self, wanted: Iterable[Expr]) -> None:
        """Write expressions and all that they need."""
        for expr in postorder(wanted, self._is_known):
            self._values[self.facts.loop_of(expr).level][expr] = self._write(expr)

    def value(self, expr: Expr) -> Registers:
        """Return the registers of an expression that was written."""
        return next(values[expr] for values in reversed(self._values) if expr in values)

    def vectors(self, expr: Expr) -> Registers:
        """Return the registers of an expression; where it doesn't vary, the same in all lanes."""
        loop = self.facts.loop_of(expr)
        value = self.value(expr)
        if loop.varying:
            return value
        return (self.spread(value[0], register(expr.dtype), loop.level),) * self.shape.vectors

    def spread(self, scalar: str, element: str, level: int) -> str:
        """Write a scalar to all lanes."""
        lanes = self.shape.lanes
        if lanes == 1:
            return scalar
        if not scalar.startswith("%"):
            return splat(element, scalar, lanes)
        kind = vector(element, lanes)
        first = f"insertelement {kind} poison, {element} {scalar}, i64 0"
        order = f"<{lanes} x i32> zeroinitializer"
        one = self.writer.pure(first, level)
        return self.writer.pure(f"shufflevector {kind} {one}, {kind} poison, {order}", level)

    def positions(self, index: str, level: int) -> Registers:
        """Write the positions of all lanes, the first of which is `index`."""
        kind, lanes = vector("i64", self.shape.lanes), self.shape.lanes
        first = self.spread(index, "i64", level)
        steps = [iota("i64", lanes, lanes * v) for v in range(self.shape.vectors)]
        return tuple([self.writer.pure(f"add nsw {kind} {first}, {x}", level) for x in steps])

    def _is_known(self, expr: Expr) -> bool:
        return any([expr in values for values in self._values])

    def _write(self, expr: Expr) -> Registers:
        loop = self.facts.loop_of(expr)
        if isinstance(expr, Const):
            return (literal(expr.value, expr.dtype),)
        if isinstance(expr, Position):
            index = self.index[expr.axis]
            return self.positions(index, loop.level) if loop.varying else (index,)
        if isinstance(expr, SizeValue):
            return (self.size(expr.size),)
        if isinstance(expr, Carried):
            return self._results[expr.name]
        if isinstance(expr, Ref):
            if expr.name in self.facts.keeps:
                keep = self.facts.keeps[expr.name]
                return self.load(keep.value.dtype, self.keep_address(expr.name))
            return self._results[expr.name]
        if isinstance(expr, Load) and self.facts.kernel.is_packed(expr):
            return self._load_packed(expr)
        if isinstance(expr, Load):
            dtype = self.facts.kernel.buffers[expr.buffer].dtype
            start = self.transposed.get(expr)
            if start is None:
                # An address of a result may be the same at all positions, its contents are not.
                address = self.address(expr.buffer, expr.access)._replace(level=loop.level)
                return self.load(dtype, address)
            step = [(loop.level, self.index[self.facts.vector_axis])]
            first = self._pointer(start, memory(dtype), step)
            pointers = self._in_a_row(first, memory(dtype), loop.level)
            return self.load(dtype, Address(pointers, False, True, loop.level))
        if isinstance(expr, Draw):
            return self._drawn(expr)
        if not isinstance(expr, Call):
            raise TypeError(f"{type(expr).__name__} is no expression of kernels")
        lanes = self.shape.lanes if loop.varying else 1
        get = self.vectors if loop.varying else self.value
        columns = zip(*[get(arg) for arg in expr.args], strict=True)
        p = Primitives(self.writer, lanes, loop.level)
        return tuple([self._call(p, expr, args) for args in columns])

    def _call(self, p: Primitives, expr: Call, args: Registers) -> str:
        dtype = expr.args[-1].dtype
        if expr.function == "cast":
            return p.cast(dtype, expr.dtype, args[0])
        if expr.function == "bits":
            return p.bits(dtype, expr.dtype, args[0])
        if PRIMITIVES[expr.function].source == "instruction":
            return p.call(expr.function, dtype, args)
        self.writer.math[expr.function, dtype, p.lanes] = None
        result, kind = (vector(register(d), p.lanes) for d in (expr.dtype, dtype))
        operands = ", ".join([f"{kind} {arg}" for arg in args])
        symbol = mathlib.symbol(expr.function, dtype, p.lanes)
        return p.let(f"call {result} @{symbol}({operands}){' noinline' if self.calls else ''}")

    def pointer(self, buffer: int) -> str:
        """Return where a buffer is."""
        return self._buffers[buffer]

    def check(self, expr: Expr, bound: Size) -> Registers:
        """Write a computed index as i64, and that the run fails where it is out of range."""
        loop = self.facts.loop_of(expr)
        lanes = self.shape.lanes if loop.varying else 1
        p = Primitives(self.writer, lanes, loop.level)
        kind, bits = vector("i64", lanes), vector("i1", lanes)
        limit = self.spread(self.size(bound), "i64", 0) if lanes > 1 else self.size(bound)
        indices = tuple([p.cast(expr.dtype, int64, x) for x in self.value(expr)])
        for number, index in enumerate(indices):
            # Without a sign negative numbers are large ones.
            wrong = p.let(f"icmp uge {kind} {index}, {limit}")
            if lanes > 1:
                if self.masks:
                    wrong = p.let(f"and {bits} {wrong}, {self.masks[number]}")
                wrong = p.let(f"bitcast {bits} {wrong} to i{lanes}")
                wrong = p.let(f"icmp ne i{lanes} {wrong}, 0")
            self.writer.fail_if(wrong, loop.level)
        return indices

    def _drawn(self, expr: Draw) -> Registers:
        """Write random bits: of elements in a row where they lie so, else of each lane only."""
        source = (self.writer, self._buffers[expr.buffer], self.size(expr.key))
        terms, lane_stride, varying = self._offsets(expr.access)
        level, start = self._sum(terms)
        loop = self.facts.loop_of_access(expr.access)
        lanes, vectors = self.shape if loop.varying else (1, 1)
        dtype, count = expr.dtype, lanes * vectors
        if lane_stride == "1" and not varying and philox.blocks_of(dtype, count):
            common = philox.stream(*source, philox.blocks_of(dtype, count))
            row = self._draw("words", dtype, count, f"i64 {start}, {common}", loop.level)
            return strided.split(self.writer, register(dtype), self.shape, row, loop.level)
        firsts = (self.spread(start, "i64", level),) * vectors if loop.varying else (start,)
        steps = self._steps(lane_stride, varying, loop.level) if loop.varying else ["0"]
        kind, common = vector("i64", lanes), philox.stream(*source, lanes)
        found = []
        for first, step in zip(firsts, steps, strict=True):
            number = self.writer.pure(f"add {kind} {first}, {step}", loop.level)
            text = f"{kind} {number}, {common}"
            found.append(self._draw("word", dtype, lanes, text, loop.level))
        return tuple(found)

    def _sum(self, terms: list[tuple[int, str]]) -> tuple[int, str]:
        """Write the sum of terms, each at its level; return where all of them are known."""
        level, total = 0, "0"
        for level, term in sorted(terms):
            total = self.int64("add", total, term, level)
        return level, total

    def _draw(self, function: str, dtype: DType, count: int, arguments: str, level: int) -> str:
        """Write the call of a function of random bits."""
        self.writer.math[function, dtype, count] = None
        symbol = mathlib.symbol(function, dtype, count)
        return self.writer.pure(
            f"call {vector(register(dtype), count)} @{symbol}({arguments})", level
        )

    # Memory

    def address(self, buffer: int, access: Access, first: str = "0") -> Address:
        """Write where the elements of an access lie.

        Args:
            buffer: Which buffer.
            access: Which elements of it.
            first: The element that the access counts from.
        """
        facts = self.facts
        terms, lane_stride, varying = self._offsets(access)
        terms.append((0, first))
        element = memory(facts.kernel.buffers[buffer].dtype)
        loop = facts.loop_of_access(access)
        start = self._pointer(self._buffers[buffer], element, terms)
        if not loop.varying:
            return Address((start,), False, False, loop.level)
        if not varying and lane_stride == "1":
            return Address(self._in_a_row(start, element, loop.level), False, True, loop.level)
        lanes = self._steps(lane_stride, varying, loop.level)
        kind = vector("i64", self.shape.lanes)
        texts = [f"getelementptr {element}, ptr {start}, {kind} {x}" for x in lanes]
        pointers = tuple([self.writer.pure(text, loop.level) for text in texts])
        stride = int(lane_stride) if not varying and strided.is_near(lane_stride) else 0
        return Address(pointers, self.shape.lanes > 1, True, loop.level, stride)

    def _offsets(
        self, access: Access
    ) -> tuple[list[tuple[int, str]], str, list[tuple[Registers, str]]]:
        """Write the terms of an offset, each at its level.

        Return those that are the same in all lanes, how far lanes are apart by the vector axis, and
        indices that differ between lanes, with their strides.
        """
        facts, varying = self.facts, []
        terms = [(0, self.size(access.offset))]
        lane_stride = "0"
        for axis, stride in access.strides:
            level = facts.levels[axis]
            terms.append((level, self.int64("mul", self.index[axis], self.size(stride), level)))
            if axis == facts.vector_axis:
                lane_stride = self.size(stride)
        for term in access.terms:
            loop = facts.loop_of(term.value)
            indices = self.check(term.value, term.bound)
            if loop.varying:
                varying.append((indices, self.size(term.stride)))
            else:
                step = self.int64("mul", indices[0], self.size(term.stride), loop.level)
                terms.append((loop.level, step))
        return terms, lane_stride, varying

    def _steps(
        self, lane_stride: str, varying: list[tuple[Registers, str]], level: int
    ) -> list[str]:
        """Write for each vector how far its lanes are from the first one of all."""
        lanes = [self._lane_offsets(v, lane_stride) for v in range(self.shape.vectors)]
        for indices, step in varying:
            pairs = zip(lanes, indices, strict=True)
            lanes = [self._plus(x, index, step, level) for x, index in pairs]
        return lanes

    def keep_address(self, name: str) -> Address:
        """Write where the elements of a kept row lie."""
        start, strides = self._keeps[name]
        inner = self.facts.kernel.inner
        element = memory(self.facts.keeps[name].value.dtype)
        terms = [
            (level, self.int64("mul", self.index[axis.name], stride, level))
            for axis, (level, stride) in zip(inner, strides, strict=True)
        ]
        pointer = self._pointer(start, element, terms)
        depth = self.facts.depth
        return Address(self._in_a_row(pointer, element, depth), False, True, depth)

    def reserve_keeps(self, block: int) -> str:
        """Give kept rows their positions in scratch memory; return where the rest of it begins.

        Args:
            block: How many elements lie there for each inner position.
        """
        facts, start = self.facts, "%scratch"
        strides: list[tuple[int, str]] = []
        total = str(block)
        for axis in reversed(facts.kernel.inner):
            strides.insert(0, (facts.levels[axis.name], total))
            total = self.int64("mul", total, self.size(axis.extent), 0)
        for name, keep in facts.keeps.items():
            self._keeps[name] = (start, strides)
            nbytes = self.int64("mul", total, str(keep.value.dtype.itemsize), 0)
            aligned = self.int64("and", self.int64("add", nbytes, "63", 0), "-64", 0)
            start = self.writer.pure(f"getelementptr i8, ptr {start}, i64 {aligned}", 0)
        return start

    def load(self, dtype: DType, address: Address) -> Registers:
        """Write loads."""
        lanes = self.shape.lanes if address.varying else 1
        p = Primitives(self.writer, lanes, address.level)
        loaded = [self._load(dtype, address, number) for number in range(len(address.pointers))]
        return tuple([p.from_memory(dtype, x) for x in loaded])

    def _load(self, dtype: DType, address: Address, number: int) -> str:
        """Write the load of one vector."""
        lanes = self.shape.lanes if address.varying else 1
        element, level, pointer = memory(dtype), address.level, address.pointers[number]
        kind = vector(element, lanes)
        masked = self.masks[number] if address.varying and self.masks else ""
        if not address.scattered and not masked:
            return self.writer.let(f"load {kind}, ptr {pointer}, align {dtype.itemsize}", level)
        if address.scattered and address.stride:
            how = dtype.itemsize, lanes, pointer, address.stride, masked, level
            return strided.load(self.writer, element, *how)
        if address.scattered:
            # Without a mask, which LLVM would make branches of on processors where scalar loads are
            # faster than gathers: the lanes that are off read what the first of all does.
            first = address.pointers[0]
            pointer, masked = self._first_for_others(first, pointer, masked, level), ""
        operands = [
            (vector("ptr", lanes) if address.scattered else "ptr", pointer),
            ("i32", str(dtype.itemsize)),
            (vector("i1", lanes), masked or splat("i1", "true", lanes)),
            (kind, "zeroinitializer"),
        ]
        return self.writer.call(
            kind, symbol_of(address, "gather", "load", lanes, element), operands, level
        )

    def _load_packed(self, expr: Load) -> Registers:
        """Write the vectors of a load of packed elements, or where it does not vary one scalar."""
        terms, lane_stride, varying = self._offsets(expr.access)
        level, first = self._sum(terms)
        loop, pointer = self.facts.loop_of_access(expr.access), self._buffers[expr.buffer]
        packed = Packed(self.writer, loop.level, expr.dtype)
        if not loop.varying:
            return (packed.one(pointer, first),)
        lanes, vectors = self.shape
        masks = self.masks or ("",) * vectors
        if lane_stride == "1" and not varying:
            numbers = [self.int64("add", first, str(lanes * v), level) for v in range(vectors)]
            pairs = zip(numbers, masks, strict=True)
            return tuple([packed.row(pointer, number, lanes, mask) for number, mask in pairs])
        steps = zip(self._steps(lane_stride, varying, loop.level), masks, strict=True)
        return tuple([packed.scattered(pointer, first, step, lanes, mask) for step, mask in steps])

    def _first_for_others(self, start: str, pointers: str, mask: str, level: int) -> str:
        """Write the pointers of the lanes of a mask, in other lanes the first one of `start`."""
        if not mask:
            return pointers
        kind = vector("ptr", self.shape.lanes)
        first = self.writer.pure(f"extractelement {kind} {start}, i64 0", level)
        bits = vector("i1", self.shape.lanes)
        every = self.spread(first, "ptr", level)
        return self.writer.pure(f"select {bits} {mask}, {kind} {pointers}, {kind} {every}", level)

    def store(
        self,
        dtype: DType,
        address: Address,
        values: Registers,
        masked: bool,
        past_caches: bool = False,
    ) -> None:
        """Write stores, at the innermost level that is open.

        Args:
            dtype: Of the elements in memory.
            address: Where.
            values: What.
            masked: Whether only the lanes of the mask are stored.
            past_caches: Whether whole vectors go past the caches; their addresses are aligned then.
        """
        lanes = self.shape.lanes if address.varying else 1
        element, level = memory(dtype), self.writer.depth
        kind = vector(element, lanes)
        masks = self.masks if masked and address.varying else ()
        for number, (value, pointer) in enumerate(zip(values, address.pointers, strict=True)):
            content = Primitives(self.writer, lanes, level).to_memory(dtype, value)
            if not address.scattered and not masks:
                how = f"align {dtype.itemsize}"
                if past_caches:
                    how = f"align {lanes * dtype.itemsize}, {PAST_CACHES}"
                self.writer.line(f"store {kind} {content}, ptr {pointer}, {how}", level)
                continue
            operands = [
                (kind, content),
                (vector("ptr", lanes) if address.scattered else "ptr", pointer),
                ("i32", str(dtype.itemsize)),
                (vector("i1", lanes), masks[number] if masks else splat("i1", "true", lanes)),
            ]
            symbol = symbol_of(address, "scatter", "store", lanes, element)
            self.writer.call("void", symbol, operands, level)

    def store_beside(self, buffer: int, access: Access, values: Sequence[Registers]) -> None:
        """Write whole vectors whose elements lie beside one another in turn, from an access on."""
        address, level = self.address(buffer, access), self.writer.depth
        dtype, lanes = self.facts.kernel.buffers[buffer].dtype, self.shape.lanes
        p = Primitives(self.writer, lanes, level)
        for pointers, components in zip(address.pointers, zip(*values, strict=True), strict=True):
            contents = [p.to_memory(dtype, value) for value in components]
            element, align = memory(dtype), dtype.itemsize
            strided.store(self.writer, element, align, lanes, pointers, contents, level)

    def _pointer(self, start: str, element: str, terms: list[tuple[int, str]]) -> str:
        """Write an address as the sum of terms, each at its level."""
        for level, term in sorted(terms):
            if term != "0":
                start = self.writer.pure(f"getelementptr {element}, ptr {start}, i64 {term}", level)
        return start

    def _in_a_row(self, start: str, element: str, level: int) -> Registers:
        lanes = self.shape.lanes
        following = [
            self.writer.pure(f"getelementptr {element}, ptr {start}, i64 {lanes * v}", level)
            for v in range(1, self.shape.vectors)
        ]
        return (start, *following)

    def _lane_offsets(self, number: int, stride: str) -> str:
        """Write how far the lanes of a vector are from the first element."""
        if stride == "0":
            return splat("i64", "0", self.shape.lanes)
        steps = iota("i64", self.shape.lanes, self.shape.lanes * number)
        kind = vector("i64", self.shape.lanes)
        return self.writer.pure(f"mul nsw {kind} {steps}, {self.spread(stride, 'i64', 0)}", 0)

    def _plus(self, offset: str, index: str, stride: str, level: int) -> str:
        kind = vector("i64", self.shape.lanes)
        scaled = f"mul nsw {kind} {index}, {self.spread(stride, 'i64', 0)}"
        return self.writer.pure(
            f"add nsw {kind} {offset}, {self.writer.pure(scaled, level)}", level
        )
