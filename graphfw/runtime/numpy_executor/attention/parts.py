"""What the attention kernels are put together from: tiles of matrix products, packing, exp."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from graphfw.ir.dtype import DType
from graphfw.runtime.numpy_executor.attention.text import Body, Module
from graphfw.runtime.numpy_executor.codegen.registers import literal, memory, vector

LOG2_E = 1 / math.log(2)


@dataclass(frozen=True)
class Tile:
    """The shape of the pieces that a kernel works on, and how they are written.

    A tile of a matrix product is `rows` rows of two vectors each: all of it stays in registers.

    Attributes:
        dtype: float32 or float64.
        lanes: How many elements a vector has.
        rows: How many rows a tile has.
    """

    dtype: DType
    lanes: int
    rows: int

    @classmethod
    def of(cls, dtype: DType, vector_bytes: int) -> Tile:
        """Return the tile for a processor: as large as its registers allow."""
        return cls(dtype, vector_bytes // dtype.itemsize, 8 if vector_bytes == 64 else 4)

    @property
    def columns(self) -> int:
        """How many columns a tile has: two vectors."""
        return 2 * self.lanes

    @property
    def kind(self) -> str:
        """The LLVM type of an element."""
        return memory(self.dtype)

    @property
    def vector(self) -> str:
        """The LLVM type of a vector."""
        return vector(self.kind, self.lanes)

    @property
    def bytes(self) -> int:
        """The size of an element."""
        return self.dtype.itemsize

    @property
    def suffix(self) -> str:
        """How LLVM's names of functions of vectors end."""
        return f"v{self.lanes}f{8 * self.bytes}"

    @property
    def lowest(self) -> float:
        """The lowest finite number."""
        return -float((2 - 2.0**-23) * 2.0**127 if self.bytes == 4 else (2 - 2.0**-52) * 2.0**1023)

    def number(self, value: float) -> str:
        """Return a scalar constant."""
        return literal(value, self.dtype)

    def constant(self, value: float, lanes: int = 0) -> str:
        """Return a vector constant."""
        number = f"{self.kind} {self.number(value)}"
        return "<" + ", ".join([number] * (lanes or self.lanes)) + ">"

    def load(self, f: Body, address: str) -> str:
        """Load a vector, which may lie anywhere."""
        return f.let(f"load {self.vector}, ptr {address}, align {self.bytes}")

    def store(self, f: Body, value: str, address: str) -> None:
        """Store a vector anywhere."""
        f.do(f"store {self.vector} {value}, ptr {address}, align {self.bytes}")

    def splat(self, f: Body, scalar: str) -> str:
        """Return a vector whose lanes are all the scalar."""
        one = f.let(f"insertelement {self.vector} poison, {self.kind} {scalar}, i32 0")
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        return f.let(f"shufflevector {self.vector} {one}, {self.vector} poison, {zeros}")

    def fma(self, f: Body, a: str, b: str, c: str) -> str:
        """a b + c, for vectors; rounded once where the processor does that in one instruction."""
        kind = self.vector
        return f.call(kind, f"llvm.fmuladd.{self.suffix}", (kind, a), (kind, b), (kind, c))


def exp2(f: Body, t: Tile, x: str) -> str:
    """Write 2^x for a vector of numbers that are not above 128, as scores minus their maximum are.

    Within 2 ULP; 0 where the result would be below the normal numbers; NaN stays. x = n + r with n
    whole and |r| <= 1/2: 2^n is made from its bits, 2^r by the Taylor series of exp(r log 2).
    """
    mantissa, degree = (23, 7) if t.bytes == 4 else (52, 13)
    kind, lanes, bits = t.vector, t.lanes, 8 * t.bytes
    whole = f"<{lanes} x i{bits}>"

    # Adding 1.5 · 2^mantissa leaves no bits for the fraction, and n in the lowest bits.
    magic = 1.5 * 2.0**mantissa
    shifted = f.let(f"fadd {kind} {x}, {t.constant(magic)}")
    n = f.let(f"fsub {kind} {shifted}, {t.constant(magic)}")
    r = f.let(f"fsub {kind} {x}, {n}")
    power = t.constant(math.log(2) ** degree / math.factorial(degree))
    for k in reversed(range(degree)):
        factor = t.constant(math.log(2) ** k / math.factorial(k))
        power = t.fma(f, power, r, factor)
    bias = (1 << (bits - mantissa - 2)) - 1
    as_int = f.let(f"bitcast {kind} {shifted} to {whole}")
    biases = "<" + ", ".join([f"i{bits} {bias}"] * lanes) + ">"
    biased = f.let(f"add {whole} {as_int}, {biases}")
    places = "<" + ", ".join([f"i{bits} {mantissa}"] * lanes) + ">"
    exponent = f.let(f"shl {whole} {biased}, {places}")
    scale = f.let(f"bitcast {whole} {exponent} to {kind}")
    # A product, not a sum of bits: a NaN times whatever stays one.
    value = f.let(f"fmul {kind} {power}, {scale}")
    small = f.let(f"fcmp olt {kind} {x}, {t.constant(1 - bias)}")
    return f.let(f"select <{lanes} x i1> {small}, {kind} {t.constant(0.0)}, {kind} {value}")


def define_product(module: Module, t: Tile, *, adds: bool) -> str:
    """Define a product of matrices with as many rows as a tile has: c = a b, or c += a b.

    Its arguments: the address of a, the strides of its rows and columns; the address of b, the
    stride of its rows; how many columns and rows these have; the address of c, the stride of its
    rows, and how many columns it has: whole tiles.
    """
    f = Body(module)
    kind = t.kind
    with f.loop("0", "%width", t.columns) as column:
        rows = [f.at(kind, "%a", f.mul(str(r), "%a.row")) for r in range(t.rows)]
        right = f.at(kind, "%b", column.index)
        first = f.at(kind, "%c", column.index)
        lines = [f.at(kind, first, f.mul(str(r), "%c.row")) for r in range(t.rows)]
        places = [f.at(kind, line, str(j * t.lanes)) for line in lines for j in range(2)]
        start = [t.load(f, place) if adds else t.constant(0.0) for place in places]
        with f.loop("0", "%count", 1, [(t.vector, x) for x in start]) as k:
            here = f.at(kind, right, f.mul(k.index, "%b.row"))
            pair = [t.load(f, f.at(kind, here, str(j * t.lanes))) for j in range(2)]
            left = f.mul(k.index, "%a.col")
            for r, row in enumerate(rows):
                element = f.let(f"load {kind}, ptr {f.at(kind, row, left)}, align {t.bytes}")
                factor = t.splat(f, element)
                for j in range(2):
                    k.following.append(t.fma(f, factor, pair[j], k.values[2 * r + j]))
        for place, x in zip(places, k.values, strict=True):
            t.store(f, x, place)
    f.do("ret void")
    name = "@add_product" if adds else "@product"
    arguments = "ptr noalias %a, i64 %a.row, i64 %a.col, ptr noalias %b, i64 %b.row, i64 %count"
    arguments += ", ptr noalias %c, i64 %c.row, i64 %width"
    module.add(f"define internal void {name}({arguments})", f)
    return name


class Matrix(NamedTuple):
    """A matrix in memory: the address of its first element and its strides."""

    address: str
    row: str
    col: str = "1"


def multiply(f: Body, name: str, a: Matrix, b: Matrix, count: str, c: Matrix, width: str) -> None:
    """Call what `define_product` defined."""
    left = f"ptr {a.address}, i64 {a.row}, i64 {a.col}"
    right = f"ptr {b.address}, i64 {b.row}, i64 {count}"
    f.do(f"call void {name}({left}, {right}, ptr {c.address}, i64 {c.row}, i64 {width})")


def folded(f: Body, t: Tile, x: str, join: str) -> str:
    """Return the maximum (`join` "max"; NaN don't count) or the sum ("add") of a vector's lanes."""
    span = t.lanes // 2
    while span:
        order = ", ".join([f"i32 {(i + span) % t.lanes}" for i in range(t.lanes)])
        kind = f"<{t.lanes} x i32>"
        other = f.let(f"shufflevector {t.vector} {x}, {t.vector} poison, {kind} <{order}>")
        x = (
            greater(f, t.vector, other, x)
            if join == "max"
            else f.let(f"fadd {t.vector} {x}, {other}")
        )
        span //= 2
    return f.let(f"extractelement {t.vector} {x}, i32 0")


def greater(f: Body, kind: str, a: str, b: str) -> str:
    """The greater of each pair; b where a is NaN."""
    flag = f"<{kind[1 : kind.index(' ')]} x i1>" if kind.startswith("<") else "i1"
    above = f.let(f"fcmp ogt {kind} {a}, {b}")
    return f.let(f"select {flag} {above}, {kind} {a}, {kind} {b}")


def fill(f: Body, t: Tile, begin: str, count: str, value: float) -> None:
    """Write `count` elements, a multiple of the lanes, that all are `value`."""
    with f.loop("0", count, t.lanes) as loop:
        t.store(f, t.constant(value), f.at(t.kind, begin, loop.index))


def define_stage(module: Module, t: Tile) -> str:
    """Define what copies rows with any strides to rows of a given length, padded with zeros.

    Its arguments: where to; from where; how many rows there are; how many rows to make; how many
    columns there are; how many to make, a multiple of the lanes; the strides of rows and columns.
    """
    f = Body(module)
    kind = t.kind
    with f.loop("0", "%total") as row:
        to = f.at(kind, "%to", f.mul(row.index, "%padded"))
        fill(f, t, to, "%padded", 0.0)
        with f.when(f.let(f"icmp slt i64 {row.index}, %valid")):
            start = f.at(kind, "%from", f.mul(row.index, "%row"))
            dense = f.let("icmp eq i64 %col, 1")
            full = f.mul(f.div("%columns", str(t.lanes)), str(t.lanes))
            vectors = f.let(f"select i1 {dense}, i64 {full}, i64 0")
            with f.loop("0", vectors, t.lanes) as at:
                t.store(f, t.load(f, f.at(kind, start, at.index)), f.at(kind, to, at.index))
            with f.loop(vectors, "%columns") as at:
                place = f.at(kind, start, f.mul(at.index, "%col"))
                x = f.let(f"load {kind}, ptr {place}, align {t.bytes}")
                f.do(f"store {kind} {x}, ptr {f.at(kind, to, at.index)}, align {t.bytes}")
    f.do("ret void")
    names = ("valid", "total", "columns", "padded", "row", "col")
    numbers = ", ".join([f"i64 %{name}" for name in names])
    module.add(f"define internal void @stage(ptr noalias %to, ptr noalias %from, {numbers})", f)
    return "@stage"


def define_panels(module: Module, t: Tile) -> str:
    """Define what transposes rows with any strides into panels of as many as a tile has columns.

    Row i, column d goes to panel i // n, there to row d, column i % n. Where the last panel is not
    full, its last row is repeated. Its arguments: where to; from where; how many rows; how many
    columns; the strides of rows and columns.
    """
    f = Body(module)
    kind, lanes, n = t.kind, t.lanes, t.columns
    last = f.sub("%rows", "1")
    dense = f.let("icmp eq i64 %col, 1")
    full = f.mul(f.div("%columns", str(lanes)), str(lanes))
    blocks = f.let(f"select i1 {dense}, i64 {full}, i64 0")
    with f.loop("0", f.ceil("%rows", n)) as panel:
        first = f.mul(panel.index, str(n))
        to = f.at(kind, "%to", f.mul(first, "%columns"))
        with f.loop("0", str(n), lanes) as half:
            begin = f.add(first, half.index)
            rows = [
                f.at(kind, "%from", f.mul(f.low(f.add(begin, str(i)), last), "%row"))
                for i in range(lanes)
            ]
            place = f.at(kind, to, half.index)
            with f.loop("0", blocks, lanes) as at:
                block = [t.load(f, f.at(kind, row, at.index)) for row in rows]
                for i, x in enumerate(_transposed(f, t, block)):
                    line = f.mul(f.add(at.index, str(i)), str(n))
                    t.store(f, x, f.at(kind, place, line))
            with f.loop(blocks, "%columns") as at:
                x = "poison"
                offset = f.mul(at.index, "%col")
                for i, row in enumerate(rows):
                    one = f.let(f"load {kind}, ptr {f.at(kind, row, offset)}, align {t.bytes}")
                    x = f.let(f"insertelement {t.vector} {x}, {kind} {one}, i32 {i}")
                t.store(f, x, f.at(kind, place, f.mul(at.index, str(n))))
    f.do("ret void")
    numbers = ", ".join([f"i64 %{name}" for name in ("rows", "columns", "row", "col")])
    module.add(f"define internal void @panels(ptr noalias %to, ptr noalias %from, {numbers})", f)
    return "@panels"


def _transposed(f: Body, t: Tile, rows: list[str]) -> list[str]:
    """Transpose a square of vectors: halves of blocks off the diagonal change places, by size."""
    n, step = t.lanes, t.lanes // 2
    while step:
        for i in range(n):
            if i & step:
                continue
            a, b = rows[i], rows[i + step]
            upper = [j if not j & step else n + j - step for j in range(n)]
            lower = [j + step if not j & step else n + j for j in range(n)]
            for place, order in ((i, upper), (i + step, lower)):
                numbers = ", ".join([f"i32 {j}" for j in order])
                text = f"shufflevector {t.vector} {a}, {t.vector} {b}, <{n} x i32> <{numbers}>"
                rows[place] = f.let(text)
        step //= 2
    return rows


def define_bias(module: Module, t: Tile, mask: DType, length: int) -> str:
    """Define what makes rows of a mask into what is added to scores in base 2.

    Bools become 0 and -inf. Its arguments: where to, rows of `length`; from where; how many rows
    and columns; the strides of both.
    """
    f = Body(module)
    kind = t.kind
    element = memory(mask)

    def converted(value: str, lanes: int) -> str:
        wide = vector(kind, lanes)
        if not mask.is_bool:
            factor = t.constant(LOG2_E, lanes) if lanes > 1 else t.number(LOG2_E)
            return f.let(f"fmul {wide} {value}, {factor}")
        flag, flags = vector(element, lanes), vector("i1", lanes)
        seen = f.let(
            f"icmp ne {flag} {value}, zeroinitializer"
            if lanes > 1
            else f"icmp ne {flag} {value}, 0"
        )
        if lanes > 1:
            zero, gone = t.constant(0.0), t.constant(-math.inf)
        else:
            zero, gone = t.number(0.0), t.number(-math.inf)
        return f.let(f"select {flags} {seen}, {wide} {zero}, {wide} {gone}")

    dense = f.let("icmp eq i64 %col, 1")
    full = f.mul(f.div("%columns", str(t.lanes)), str(t.lanes))
    vectors = f.let(f"select i1 {dense}, i64 {full}, i64 0")
    with f.loop("0", "%rows") as row:
        to = f.at(kind, "%to", f.mul(row.index, str(length)))
        start = f.at(element, "%from", f.mul(row.index, "%row"))
        with f.loop("0", vectors, t.lanes) as at:
            place = f.at(element, start, at.index)
            x = f.let(f"load {vector(element, t.lanes)}, ptr {place}, align {mask.itemsize}")
            t.store(f, converted(x, t.lanes), f.at(kind, to, at.index))
        with f.loop(vectors, "%columns") as at:
            place = f.at(element, start, f.mul(at.index, "%col"))
            x = f.let(f"load {element}, ptr {place}, align {mask.itemsize}")
            value = converted(x, 1)
            f.do(f"store {kind} {value}, ptr {f.at(kind, to, at.index)}, align {t.bytes}")
    f.do("ret void")
    numbers = ", ".join([f"i64 %{name}" for name in ("rows", "columns", "row", "col")])
    module.add(f"define internal void @bias(ptr noalias %to, ptr noalias %from, {numbers})", f)
    return "@bias"


def define_unstage(module: Module, t: Tile) -> str:
    """Define what copies padded rows to rows with any stride.

    Its arguments: where to; from where; how many rows and columns; the length of a padded row; the
    stride of rows; a factor.
    """
    f = Body(module)
    kind = t.kind
    factor = t.splat(f, "%factor")
    full = f.mul(f.div("%columns", str(t.lanes)), str(t.lanes))
    with f.loop("0", "%rows") as row:
        start = f.at(kind, "%from", f.mul(row.index, "%padded"))
        to = f.at(kind, "%to", f.mul(row.index, "%row"))
        with f.loop("0", full, t.lanes) as at:
            x = t.load(f, f.at(kind, start, at.index))
            t.store(f, f.let(f"fmul {t.vector} {x}, {factor}"), f.at(kind, to, at.index))
        with f.loop(full, "%columns") as at:
            x = f.let(f"load {kind}, ptr {f.at(kind, start, at.index)}, align {t.bytes}")
            value = f.let(f"fmul {kind} {x}, %factor")
            f.do(f"store {kind} {value}, ptr {f.at(kind, to, at.index)}, align {t.bytes}")
    f.do("ret void")
    numbers = ", ".join([f"i64 %{name}" for name in ("rows", "columns", "padded", "row")])
    arguments = f"ptr noalias %to, ptr noalias %from, {numbers}, {kind} %factor"
    module.add(f"define internal void @unstage({arguments})", f)
    return "@unstage"
