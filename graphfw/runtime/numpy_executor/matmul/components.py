"""Splitting operands into bfloat16 components, laid out as tiles, and storing results.

    i1 @split_a(ptr a, i64 rs, i64 ks, ptr to, i64 rows, i64 n, i1 dense)
    i1 @split_b(ptr b, i64 ks, ptr to, i64 n, i64 columns)
    @unload(ptr from, ptr c, i64 cs, i64 rows, i64 columns, i1 more)

`a` is read as it is stored where it is `dense` along k, else as the float32 that `@widen` makes;
`b` as it is stored where its rows are contiguous, else as packed panels.

The layout of components is [32 rows of a, or columns of b][32 positions of k][component][tile],
padded with 0. Before it is split a number is multiplied by 2^30, and the product by 2^-60. The
functions return whether all numbers are 0 or from 2^-70 up to 2^28. Then every component of one,
scaled, is a multiple of 2^-63, hence all products and sums are of 2^-126: none is subnormal,
which tiles would take for 0. And the sum of 512 products stays below 2^126: nothing overflows.
"""

from __future__ import annotations

from graphfw.ir.dtype import DType, bfloat16, float32
from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody, declared
from graphfw.runtime.numpy_executor.codegen.registers import iota, literal, splat
from graphfw.runtime.numpy_executor.matmul.amx import SIDE, TILE, Tiles
from graphfw.runtime.numpy_executor.matmul.elements import Elements
from graphfw.runtime.numpy_executor.matmul.tile import TileShape

_SMALLEST, END = -70, 28
"""The exponents of the smallest numbers that are split, and of the first that are too large."""

_SCALE = 30

_V, _BITS, _MASK = f"<{SIDE} x float>", f"<{SIDE} x i32>", f"<{SIDE} x i1>"


def _exponent(power: int) -> int:
    """The bits of the float32 2^power."""
    return (power + 127) << 23


class Splitter:
    """Splits vectors of 32 elements, and notes which are out of range.

    Args:
        body: The function's body.
        components: The number of components.
        end: The exponent of the first numbers that are too large.
    """

    def __init__(self, body: FunctionBody, components: int, end: int = END) -> None:
        self.body = body
        self.components = components
        self._end = end
        self._bad = body.slot(_BITS)
        body.set(self._bad, "zeroinitializer", _BITS)

    def gather(self, address: str, step: str, mask: str) -> str:
        """Read float32, `step` bytes apart."""
        body, lanes = self.body, f"<{SIDE} x i64>"
        first = body.let(f"insertelement {lanes} poison, i64 {step}, i32 0")
        steps = body.let(
            f"shufflevector {lanes} {first}, {lanes} poison, <{SIDE} x i32> zeroinitializer"
        )
        offsets = body.let(f"mul {lanes} {steps}, {iota('i64', SIDE)}")
        addresses = body.let(f"getelementptr i8, ptr {address}, {lanes} {offsets}")
        return body.let(
            f"call {_V} @llvm.masked.gather.v32f32.v32p0(<{SIDE} x ptr> {addresses}, i32 4, "
            f"{_MASK} {mask}, {_V} zeroinitializer)"
        )

    def split(self, x: str) -> list[str]:
        """Return the components of float32, each rounded to nearest, in the upper halves of i32."""
        body = self.body
        self._check(body.let(f"bitcast {_V} {x} to {_BITS}"), 32)
        rest = body.let(f"fmul {_V} {x}, {splat('float', literal(2.0**_SCALE, float32), SIDE)}")
        components = []
        for number in range(self.components):
            bits = body.let(f"bitcast {_V} {rest} to {_BITS}")
            # Halfway cases are rounded up in magnitude; numbers in range are all finite.
            above = body.let(f"add {_BITS} {bits}, splat (i32 32768)")
            component = body.let(f"and {_BITS} {above}, splat (i32 -65536)")
            components.append(component)
            if number < self.components - 1:
                value = body.let(f"bitcast {_BITS} {component} to {_V}")
                rest = body.let(f"fsub {_V} {rest}, {value}")
        return components

    def scaled(self, bits: str) -> list[str]:
        """Return bfloat16 as its one component."""
        body, kind = self.body, f"<{SIDE} x i16>"
        self._check(bits, 16)
        more = body.let(f"add {kind} {bits}, splat (i16 {_SCALE << 7})")
        is_zero = body.let(f"icmp eq {kind} {bits}, zeroinitializer")
        component = body.let(f"select {_MASK} {is_zero}, {kind} {bits}, {kind} {more}")
        wide = body.let(f"zext {kind} {component} to {_BITS}")
        return [body.let(f"shl {_BITS} {wide}, splat (i32 16)")]

    def paired(self, even: str, odd: str) -> str:
        """Return components of two positions of k side by side."""
        body = self.body
        low = body.let(f"lshr {_BITS} {even}, splat (i32 16)")
        return body.let(f"or {_BITS} {low}, {odd}")

    def _check(self, bits: str, width: int) -> None:
        """Note numbers out of range that are not 0: of float32, or bfloat16, its upper half."""
        body, kind = self.body, f"<{SIDE} x i{width}>"
        lowest = _exponent(_SMALLEST) >> 32 - width
        count = (_exponent(self._end) >> 32 - width) - lowest
        size = body.let(f"and {kind} {bits}, splat (i{width} {2 ** (width - 1) - 1})")
        above = body.let(f"sub {kind} {size}, splat (i{width} {lowest})")
        outside = body.let(f"icmp uge {kind} {above}, splat (i{width} {count})")
        some = body.let(f"select {_MASK} {outside}, {kind} {size}, {kind} zeroinitializer")
        if width < 32:
            some = body.let(f"zext {kind} {some} to {_BITS}")
        body.set(self._bad, body.let(f"or {_BITS} {body.get(self._bad, _BITS)}, {some}"), _BITS)

    def verdict(self) -> str:
        """Return whether all numbers were in range."""
        body = self.body
        bad = body.let(
            f"call i32 @llvm.vector.reduce.or.v32i32({_BITS} {body.get(self._bad, _BITS)})"
        )
        return body.let(f"icmp eq i32 {bad}, 0")


class SplitSource:
    """Reads 32 elements that lie side by side, and splits them."""

    def __init__(self, splitter: Splitter, shape: TileShape, dtype: DType) -> None:
        self._splitter = splitter
        self._dtype = dtype
        self._elements = Elements(splitter.body, shape._replace(lanes=SIDE), dtype)

    def mask(self, count: str) -> str:
        """The lanes before `count`."""
        return self._elements.mask(count)

    def components(self, address: str, mask: str) -> list[str]:
        """Return the components of a mask's lanes, zeros elsewhere: see `Splitter.split`."""
        if self._dtype is bfloat16:
            return self._splitter.scaled(self._elements.moved(address, mask))
        return self._splitter.split(self._elements.load_some(address, mask))


def splitting(shape: TileShape) -> dict[str, str]:
    """Return the declarations of the functions that `@split_a` and `@split_b` call."""
    wide, body = shape._replace(lanes=SIDE), FunctionBody()
    known = declared(
        f"{_V} @llvm.masked.gather.v32f32.v32p0(<{SIDE} x ptr>, i32, {_MASK}, {_V})",
        f"i32 @llvm.vector.reduce.or.v32i32({_BITS})",
    )
    for dtype in (shape.stored, shape.dtype):
        known |= Elements(body, wide, dtype).declarations()
    return known


def split_a(shape: TileShape, tiles: Tiles, end: int = END) -> str:
    """Return `@split_a`: row by row, 32 positions of k at a time; `end` is that of `Splitter`."""
    body = FunctionBody()
    splitter = Splitter(body, tiles.components, end)
    source = SplitSource(splitter, shape, shape.stored)
    blocks = body.ceil("%n", SIDE)
    rows = body.mul(body.ceil("%rows", SIDE), SIDE)
    for bit in ("%dense", body.opposite("%dense")):
        with body.where(bit), body.loop(0, rows) as row:
            exists = body.test("slt", row, "%rows")
            start = body.at("%a", body.mul(row, "%rs"))
            first = body.mul(body.div(row, SIDE), blocks)
            within = body.mul(body.rem(row, SIDE), 64)
            with body.loop(0, blocks) as block:
                k = body.mul(block, SIDE)
                mask = source.mask(body.select(exists, body.sub("%n", k), "0"))
                address = body.at(start, body.mul(k, "%ks"))
                if bit == "%dense":
                    components = source.components(address, mask)
                else:
                    components = splitter.split(splitter.gather(address, "%ks", mask))
                to = body.mul(body.add(first, block), 2 * TILE * tiles.components)
                to = body.at("%to", body.add(to, within))
                for number, component in enumerate(components):
                    upper = body.let(f"lshr {_BITS} {component}, splat (i32 16)")
                    half = body.let(f"trunc {_BITS} {upper} to <{SIDE} x i16>")
                    address = body.at(to, 2 * TILE * number)
                    body.line(f"store <{SIDE} x i16> {half}, ptr {address}, align 64")
    head = "define internal fastcc i1 @split_a(ptr %a, i64 %rs, i64 %ks, ptr %to, i64 %rows, "
    return body.function(f"{head}i64 %n, i1 %dense) noinline", f"ret i1 {splitter.verdict()}")


def split_b(shape: TileShape, tiles: Tiles, *, rows: bool) -> str:
    """Return `@split_b`: two positions of k at a time, whose elements are put side by side.

    It reads b as it is stored, its rows dense, or with `rows` False packed panels.
    """
    body, dtype = FunctionBody(), shape.stored if rows else shape.dtype
    splitter = Splitter(body, tiles.components)
    source = SplitSource(splitter, shape, dtype)
    columns = source.mask("%columns")
    pairs = body.mul(body.ceil("%n", SIDE), 16)
    with body.loop(0, pairs) as pair:
        both = []
        for n in range(2):
            k = body.add(body.mul(pair, 2), n)
            exists = body.test("slt", k, "%n")
            mask = body.let(f"select i1 {exists}, {_MASK} {columns}, {_MASK} zeroinitializer")
            both.append(source.components(body.at("%b", body.mul(k, "%ks")), mask))
        to = body.mul(body.div(pair, 16), 2 * TILE * tiles.components)
        to = body.at("%to", body.add(to, body.mul(body.rem(pair, 16), 64)))
        for number, (even, odd) in enumerate(zip(*both, strict=True)):
            words = splitter.paired(even, odd)
            for tile in range(2):
                order = ", ".join([f"i32 {lane + 16 * tile}" for lane in range(16)])
                half = body.let(
                    f"shufflevector {_BITS} {words}, {_BITS} poison, <16 x i32> <{order}>"
                )
                address = body.at(to, (2 * number + tile) * TILE)
                body.line(f"store <16 x i32> {half}, ptr {address}, align 64")
    head = "define internal fastcc i1 @split_b(ptr %b, i64 %ks, ptr %to, i64 %n, i64 %columns)"
    return body.function(f"{head} noinline", f"ret i1 {splitter.verdict()}")


def unscaling(shape: TileShape) -> str:
    """Return the vector that products of components are multiplied by."""
    return splat("float", literal(2.0 ** (-2 * _SCALE), float32), shape.lanes)


def unload(shape: TileShape) -> str:
    """Return `@unload`: it scales the result of `@tiles` back, and stores or adds it."""
    body, v = FunctionBody(), shape.vector
    elements = Elements(body, shape, shape.dtype)
    kept = [elements.mask("%columns", n) for n in range(2)]
    bits = elements.mask_type
    known = [body.let(f"select i1 %more, {bits} {mask}, {bits} zeroinitializer") for mask in kept]
    factor = unscaling(shape)
    with body.loop(0, "%rows") as row:
        source, to = body.at("%from", body.mul(row, 4 * SIDE)), body.at("%c", body.mul(row, "%cs"))
        for n in range(2):
            offset = n * shape.lanes * shape.size
            value = body.let(f"fmul {v} {elements.load(body.at(source, offset))}, {factor}")
            address = body.at(to, offset)
            total = body.let(f"fadd {v} {elements.load_some(address, known[n])}, {value}")
            elements.store_some(total, address, kept[n])
    return body.function(
        "define internal fastcc void @unload(ptr %from, ptr %c, i64 %cs, i64 %rows, i64 %columns, "
        "i1 %more) noinline"
    )
