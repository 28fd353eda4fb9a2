"""Products by matrix tiles, of bfloat16 components: AMX, or an emulation of it.

A tile is 16 rows of 64 bytes. A dot product of tiles adds to 16 x 16 float32 the product of
16 x 32 bfloat16 and 32 x 16, the latter with two positions of k side by side.

    @tiles(ptr a, ptr b, i64 blocks, ptr to)

computes 32 rows and 32 columns, as float32 with 128 bytes from row to row, from components as
`components` lays them out, `blocks` times 32 positions of k.

    @tiles_of(ptr a, ptr b, ptr list, i64 blocks, i64 gap, i64 component, ptr to, i64 row, i1 more)

is the same for a `b` in a larger array: a list has the offset in bytes from `b` of each 32
positions of k, rows are `gap` bytes apart and components `component` bytes. The result's rows are
`row` bytes apart; with `more` the product is added to the values there.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol, TypeAlias

from graphfw.ir.dtype import DType, bfloat16, float16
from graphfw.runtime.limits import Precision
from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody, declared

SIDE = 32
"""Rows, columns and positions of k of a block: two tiles each way, one along k."""

TILE = 1024
"""The bytes of a tile."""

Form: TypeAlias = Literal["amx", "emulated"]
"""The instructions that multiply tiles."""


class Tiles(NamedTuple):
    """The tiles that multiply, and the products of components that make up a product.

    Attributes:
        form: The instructions on tiles.
        pairs: The components of `a` and `b` that are multiplied; from one pair to the next
            only one of them changes, so that only that one is loaded.
    """

    form: Form
    pairs: tuple[tuple[int, int], ...]

    @property
    def components(self) -> int:
        """The number of components of an element."""
        return max([i for i, _ in self.pairs]) + 1


def tiles_for(form: Form, dtype: DType, precision: Precision) -> Tiles:
    """Return the tiles and the products of components for a dtype.

    A component holds 8 bits: bfloat16 is one, float16 exactly two, float32 exactly three, each at
    most 2^-8 of the one before. Six products of these leave out 2^-23 of |a b| at most, as much as
    two roundings to float32; "high" takes two components and three products, which leave out 3 *
    2^-16.
    """
    if dtype is bfloat16:
        return Tiles(form, ((0, 0),))
    if dtype is float16:
        return Tiles(form, ((0, 1), (1, 1), (1, 0), (0, 0)))
    if precision == "high":
        return Tiles(form, ((0, 1), (0, 0), (1, 0)))
    return Tiles(form, ((0, 2), (0, 1), (1, 1), (1, 0), (0, 0), (2, 0)))


_HEAD = "define internal fastcc void @tiles(ptr %a, ptr %b, i64 %blocks, ptr %to) noinline"
_HEAD_OF = (
    "define internal fastcc void @tiles_of(ptr %a, ptr %b, ptr %list, i64 %blocks, i64 %gap, "
    "i64 %component, ptr %to, i64 %row, i1 %more) noinline"
)


class _Operations(Protocol):
    """The operations on eight tiles, in the functions of a module."""

    declarations: dict[str, str]
    """The declarations of the functions that they call, by symbol."""
    definition: str
    """The definition of the type in the module."""

    def zero(self, body: FunctionBody, tile: int) -> None:
        """Set a tile to zeros."""

    def load(self, body: FunctionBody, tile: int, address: str, stride: str | int) -> None:
        """Read a tile, its rows `stride` bytes apart."""

    def dot(self, body: FunctionBody, c: int, a: int, b: int) -> None:
        """Add a product of tiles to a tile."""

    def store(self, body: FunctionBody, tile: int, address: str, stride: str | int) -> None:
        """Write a tile, its rows `stride` bytes apart."""


class _Amx:
    """The instructions; a tile is a register."""

    # Palette 1, then for each tile 64 bytes a row (from byte 16), 16 rows (from byte 48).
    _CONFIG = (1, *[0] * 15, *[64, 0] * 8, *[0] * 16, *[16] * 8, *[0] * 8)
    declarations = declared(
        "void @llvm.x86.ldtilecfg(ptr)",
        "void @llvm.x86.tilerelease()",
        "void @llvm.x86.tilezero(i8)",
        "void @llvm.x86.tileloadd64(i8, ptr, i64)",
        "void @llvm.x86.tilestored64(i8, ptr, i64)",
        "void @llvm.x86.tdpbf16ps(i8, i8, i8)",
    )
    definition = (
        f"@tile_config = internal constant [64 x i8] [{', '.join([f'i8 {n}' for n in _CONFIG])}]\n"
    )

    def zero(self, body: FunctionBody, tile: int) -> None:
        body.line(f"call void @llvm.x86.tilezero(i8 {tile})")

    def load(self, body: FunctionBody, tile: int, address: str, stride: str | int) -> None:
        body.line(f"call void @llvm.x86.tileloadd64(i8 {tile}, ptr {address}, i64 {stride})")

    def dot(self, body: FunctionBody, c: int, a: int, b: int) -> None:
        body.line(f"call void @llvm.x86.tdpbf16ps(i8 {c}, i8 {a}, i8 {b})")

    def store(self, body: FunctionBody, tile: int, address: str, stride: str | int) -> None:
        body.line(f"call void @llvm.x86.tilestored64(i8 {tile}, ptr {address}, i64 {stride})")


class _Emulated:
    """The same on memory; a tile is a slot of the function that uses it."""

    def __init__(self) -> None:
        self._slots: dict[int, str] = {}
        self.declarations = declared(
            "void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
            "void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
            "<16 x float> @llvm.fabs.v16f32(<16 x float>)",
        )
        self.definition = _emulated_dot()

    def zero(self, body: FunctionBody, tile: int) -> None:
        slot = self._slot(body, tile)
        body.line(f"call void @llvm.memset.p0.i64(ptr {slot}, i8 0, i64 {TILE}, i1 0)")

    def load(self, body: FunctionBody, tile: int, address: str, stride: str | int) -> None:
        slot = self._slot(body, tile)
        with body.loop(0, "16") as row:
            to, source = body.at(slot, body.mul(row, 64)), body.at(address, body.mul(row, stride))
            body.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 64, i1 0)")

    def _slot(self, body: FunctionBody, tile: int) -> str:
        if tile not in self._slots:
            self._slots[tile] = body.slot(f"[{TILE} x i8], align 64")
        return self._slots[tile]

    def dot(self, body: FunctionBody, c: int, a: int, b: int) -> None:
        slots = ", ".join([f"ptr {self._slots[tile]}" for tile in (c, a, b)])
        body.line(f"call fastcc void @tile_dot({slots})")

    def store(self, body: FunctionBody, tile: int, address: str, stride: str | int) -> None:
        slot = self._slot(body, tile)
        with body.loop(0, "16") as row:
            source, to = body.at(slot, body.mul(row, 64)), body.at(address, body.mul(row, stride))
            body.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 64, i1 0)")


def _emulated_dot() -> str:
    """`tdpbf16ps`: adds up even and odd positions separately; subnormal numbers are zeros."""
    body, v, bits = FunctionBody(), "<16 x float>", "<16 x i32>"

    def flushed(x: str) -> str:
        size = body.let(f"call {v} @llvm.fabs.v16f32({v} {x})")
        is_small = body.let(f"fcmp olt {v} {size}, splat (float 0x3810000000000000)")
        return body.let(f"select <16 x i1> {is_small}, {v} zeroinitializer, {v} {x}")

    def halves(pairs: str) -> list[str]:
        even = body.let(f"shl {bits} {pairs}, splat (i32 16)")
        odd = body.let(f"and {bits} {pairs}, splat (i32 -65536)")
        return [flushed(body.let(f"bitcast {bits} {half} to {v}")) for half in (even, odd)]

    with body.loop(0, "16") as row:
        sums = [body.slot(v) for _ in range(2)]
        for slot in sums:
            body.set(slot, "zeroinitializer", v)
        offset = body.mul(row, 64)
        left = body.at("%a", offset)
        with body.loop(0, "16") as pair:
            one = body.let(f"load i32, ptr {body.at(left, body.mul(pair, 4))}")
            first = body.let(f"insertelement {bits} poison, i32 {one}, i32 0")
            spread = body.let(
                f"shufflevector {bits} {first}, {bits} poison, <16 x i32> zeroinitializer"
            )
            right = body.let(f"load {bits}, ptr {body.at('%b', body.mul(pair, 64))}")
            for slot, x, y in zip(sums, halves(spread), halves(right), strict=True):
                # Exact, since both factors have 8 bits: so the result is that of an FMA.
                product = body.let(f"fmul {v} {x}, {y}")
                total = body.let(f"fadd {v} {body.get(slot, v)}, {product}")
                body.set(slot, flushed(total), v)
        both = flushed(body.let(f"fadd {v} {body.get(sums[0], v)}, {body.get(sums[1], v)}"))
        address = body.at("%c", offset)
        total = flushed(body.let(f"fadd {v} {flushed(body.get(address, v))}, {both}"))
        body.set(address, total, v)
    return body.function("define internal fastcc void @tile_dot(ptr %c, ptr %a, ptr %b) noinline")


def is_configured(tiles: Tiles | None) -> bool:
    """Return whether work items switch the tiles on and off."""
    return tiles is not None and tiles.form == "amx"


def micro_kernel(tiles: Tiles) -> tuple[str, dict[str, str]]:
    """Return `@tiles` and its declarations.

    Tiles 0 to 3 are the sums, 4 and 5 components of a, 6 and 7 components of b.
    """
    body, do = FunctionBody(), _operations(tiles)
    for c in range(4):
        do.zero(body, c)
    with body.loop(0, "%blocks") as block:
        a, b = (body.at(x, body.mul(block, 2 * TILE * tiles.components)) for x in ("%a", "%b"))
        _multiply(do, body, tiles, a, _Right(b, 64, 2 * TILE, TILE))
    for c in range(4):
        do.store(body, c, _quarter(body, c, 4 * SIDE), 4 * SIDE)
    return do.definition + body.function(_HEAD), dict(do.declarations)


def micro_kernel_of(tiles: Tiles) -> tuple[str, dict[str, str]]:
    """Return `@tiles_of` and its declarations."""
    body, do = FunctionBody(), _operations(tiles)
    with body.where("%more"):
        for c in range(4):
            do.load(body, c, _quarter(body, c, "%row"), "%row")
    with body.where(body.opposite("%more")):
        for c in range(4):
            do.zero(body, c)
    with body.loop(0, "%blocks") as block:
        a = body.at("%a", body.mul(block, 2 * TILE * tiles.components))
        b = body.at("%b", body.array("%list", block))
        _multiply(do, body, tiles, a, _Right(b, "%gap", "%component", 64))
    for c in range(4):
        do.store(body, c, _quarter(body, c, "%row"), "%row")
    return do.definition + body.function(_HEAD_OF), dict(do.declarations)


class _Right(NamedTuple):
    """A right operand of 32 positions of k: the bytes between rows, components and tiles."""

    address: str
    row: str | int
    component: str | int
    tile: int


def _operations(tiles: Tiles) -> _Operations:
    return _Amx() if tiles.form == "amx" else _Emulated()


def _quarter(body: FunctionBody, c: int, row: str | int) -> str:
    """The address of one of the four sums."""
    return body.at(body.at("%to", body.mul(str(c // 2 * 16), row)), c % 2 * 64)


def _multiply(do: _Operations, body: FunctionBody, tiles: Tiles, a: str, b: _Right) -> None:
    """Add the products of 32 positions of k."""
    known = [-1, -1]
    for pair in tiles.pairs:
        for operand, component in enumerate(pair):
            if known[operand] == component:
                continue
            known[operand] = component
            for n in range(2):
                if operand == 0:
                    do.load(body, 4 + n, body.at(a, (2 * component + n) * TILE), 64)
                else:
                    address = body.at(b.address, body.mul(str(component), b.component))
                    do.load(body, 6 + n, body.at(address, n * b.tile), b.row)
        for c in range(4):
            do.dot(body, c, 4 + c // 2, 6 + c % 2)
