"""The tiles of attention kernels: matrix products, packing, exp."""

from __future__ import annotations

import math
from typing import NamedTuple

from graphfw.ir.dtype import DType
from graphfw.ops.composed import wide_dtype
from graphfw.runtime.numpy_executor.attention.elements import read, write
from graphfw.runtime.numpy_executor.codegen.llvm_module import LlvmFunction, LlvmModule
from graphfw.runtime.numpy_executor.codegen.registers import (
    literal,
    memory,
    register,
    splat,
    vector,
)
from graphfw.runtime.numpy_executor.codegen.transpose import exchanged, transposed
from graphfw.utils.records import record


@record
class AttentionTile:
    """The shape of a kernel's tiles, and the writer of their code.

    A tile of a matrix product is `rows` rows of two vectors, which stay in registers. Scratch
    memory and partial results have the dtype `wide`.

    Attributes:
        dtype: The dtype of operands and results: any float.
        lanes: The number of elements of a vector.
        rows: The number of rows of a tile.
    """

    dtype: DType
    lanes: int
    rows: int

    @classmethod
    def of(cls, dtype: DType, vector_bytes: int) -> AttentionTile:
        """Return the tile for a processor: as large as its registers allow."""
        lanes = vector_bytes // wide_dtype(dtype).itemsize
        return cls(dtype, lanes, 8 if vector_bytes == 64 else 4)

    @property
    def wide(self) -> DType:
        """The dtype of the computation: float32 for 16-bit floats."""
        return wide_dtype(self.dtype)

    @property
    def columns(self) -> int:
        """The number of columns of a tile: two vectors."""
        return 2 * self.lanes

    @property
    def kind(self) -> str:
        """The LLVM type of an element in the computation."""
        return register(self.dtype)

    @property
    def element(self) -> str:
        """The LLVM type of an element of an operand or result."""
        return memory(self.dtype)

    @property
    def vector(self) -> str:
        """The LLVM type of a vector."""
        return vector(self.kind, self.lanes)

    @property
    def bytes(self) -> int:
        """The bytes of an element in the computation."""
        return self.wide.itemsize

    @property
    def suffix(self) -> str:
        """The suffix of the names of LLVM's vector functions."""
        return f"v{self.lanes}f{8 * self.bytes}"

    @property
    def lowest(self) -> float:
        """The lowest finite number."""
        return -float((2 - 2.0**-23) * 2.0**127 if self.bytes == 4 else (2 - 2.0**-52) * 2.0**1023)

    def number(self, value: float) -> str:
        """Return a scalar constant."""
        return literal(value, self.wide)

    def constant(self, value: float) -> str:
        """Return a vector constant."""
        return splat(self.kind, self.number(value), self.lanes)

    def load(self, f: LlvmFunction, address: str, lanes: int = 0) -> str:
        """Load a vector, or so many elements, from scratch memory; it may lie anywhere."""
        return read(f, self.wide, lanes or self.lanes, address)

    def store(self, f: LlvmFunction, value: str, address: str, lanes: int = 0) -> None:
        """Store a vector, or so many elements, anywhere in scratch memory."""
        write(f, self.wide, lanes or self.lanes, value, address)

    def read(self, f: LlvmFunction, address: str, lanes: int = 0) -> str:
        """Load a vector, or so many elements, of an operand."""
        return read(f, self.dtype, lanes or self.lanes, address)

    def write(self, f: LlvmFunction, value: str, address: str, lanes: int = 0) -> None:
        """Store a vector, or some of its elements, in a result, rounded to its dtype."""
        write(f, self.dtype, lanes or self.lanes, value, address)

    def splat(self, f: LlvmFunction, scalar: str) -> str:
        """Return a vector of a scalar in all lanes."""
        one = f.let(f"insertelement {self.vector} poison, {self.kind} {scalar}, i32 0")
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        return f.let(f"shufflevector {self.vector} {one}, {self.vector} poison, {zeros}")

    def fma(self, f: LlvmFunction, a: str, b: str, c: str) -> str:
        """a b + c, for vectors; rounded once where the processor does that in one instruction."""
        kind = self.vector
        return f.call(kind, f"llvm.fmuladd.{self.suffix}", (kind, a), (kind, b), (kind, c))


def exp(f: LlvmFunction, t: AttentionTile, x: str) -> str:
    """Write the exponential of a vector of numbers not above 88, as scores minus their maximum are.

    The error is 2 ULP, and that of log2(e), which is rounded: 1.3e-8 x for float32 and 2e-17 x for
    float64, and on processors without FMA |x| ULP more. Results below the normal numbers are 0; NaN
    stays.
    x log2(e) = n + r with n whole and |r| <= 1/2: 2^n is made from its bits, 2^r by the Taylor
    series of exp(r log 2).
    """
    mantissa, degree = (23, 7) if t.bytes == 4 else (52, 13)
    kind, lanes, bits = t.vector, t.lanes, 8 * t.bytes
    whole = f"<{lanes} x i{bits}>"

    # Adding 1.5 · 2^mantissa leaves no bits for the fraction, and n in the lowest bits.
    magic, log2_e = 1.5 * 2.0**mantissa, t.constant(1 / math.log(2))
    shifted = t.fma(f, x, log2_e, t.constant(magic))
    n = f.let(f"fsub {kind} {shifted}, {t.constant(magic)}")
    r = t.fma(f, x, log2_e, f.let(f"fneg {kind} {n}"))
    power = t.constant(math.log(2) ** degree / math.factorial(degree))
    for k in reversed(range(degree)):
        factor = t.constant(math.log(2) ** k / math.factorial(k))
        power = t.fma(f, power, r, factor)
    bias = (1 << (bits - mantissa - 2)) - 1
    as_int = f.let(f"bitcast {kind} {shifted} to {whole}")
    biases = "<" + ", ".join([f"i{bits} {bias}"] * lanes) + ">"
    biased = f.let(f"add {whole} {as_int}, {biases}")
    shifts = "<" + ", ".join([f"i{bits} {mantissa}"] * lanes) + ">"
    exponent = f.let(f"shl {whole} {biased}, {shifts}")
    scale = f.let(f"bitcast {whole} {exponent} to {kind}")
    # A product, not a sum of bits: a NaN times any number is NaN.
    value = f.let(f"fmul {kind} {power}, {scale}")
    small = f.let(f"fcmp olt {kind} {x}, {t.constant((1 - bias) * math.log(2))}")
    return f.let(f"select <{lanes} x i1> {small}, {kind} {t.constant(0.0)}, {kind} {value}")


def define_product(module: LlvmModule, t: AttentionTile, *, adds: bool) -> str:
    """Define a product of matrices with as many rows as a tile has: c = a b, or c += a b.

    Its arguments: the address of a, the strides of its rows and columns; the address of b, the
    stride of its rows; how many columns and rows these have; the address of c, the stride of its
    rows, and how many columns it has: whole tiles.
    """
    f = LlvmFunction(module)
    kind = t.kind
    with f.loop("0", "%width", t.columns) as column:
        rows = [f.at(kind, "%a", f.mul(str(r), "%a.row")) for r in range(t.rows)]
        right = f.at(kind, "%b", column.index)
        first = f.at(kind, "%c", column.index)
        lines = [f.at(kind, first, f.mul(str(r), "%c.row")) for r in range(t.rows)]
        positions = [f.at(kind, line, str(j * t.lanes)) for line in lines for j in range(2)]
        start = [t.load(f, address) if adds else t.constant(0.0) for address in positions]
        with f.loop("0", "%count", 1, [(t.vector, x) for x in start]) as k:
            here = f.at(kind, right, f.mul(k.index, "%b.row"))
            pair = [t.load(f, f.at(kind, here, str(j * t.lanes))) for j in range(2)]
            left = f.mul(k.index, "%a.col")
            for r, row in enumerate(rows):
                factor = t.splat(f, t.load(f, f.at(kind, row, left), 1))
                for j in range(2):
                    k.following.append(t.fma(f, factor, pair[j], k.values[2 * r + j]))
        for address, x in zip(positions, k.values, strict=True):
            t.store(f, x, address)
    name = "@add_product" if adds else "@product"
    arguments = "ptr noalias %a, i64 %a.row, i64 %a.col, ptr noalias %b, i64 %b.row, i64 %count"
    arguments += ", ptr noalias %c, i64 %c.row, i64 %width"
    f.define(f"define internal void {name}({arguments})")
    return name


class MatrixView(NamedTuple):
    """A matrix in memory: the address of its first element and its strides."""

    address: str
    row: str
    col: str = "1"


def multiply(
    f: LlvmFunction, name: str, a: MatrixView, b: MatrixView, count: str, c: MatrixView, width: str
) -> None:
    """Call the function of `define_product`."""
    left = f"ptr {a.address}, i64 {a.row}, i64 {a.col}"
    right = f"ptr {b.address}, i64 {b.row}, i64 {count}"
    f.do(f"call void {name}({left}, {right}, ptr {c.address}, i64 {c.row}, i64 {width})")


def folded(f: LlvmFunction, t: AttentionTile, x: str, join: str) -> str:
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


def greater(f: LlvmFunction, kind: str, a: str, b: str) -> str:
    """The greater of each pair; b where a is NaN."""
    flag = f"<{kind[1 : kind.index(' ')]} x i1>" if kind.startswith("<") else "i1"
    above = f.let(f"fcmp ogt {kind} {a}, {b}")
    return f.let(f"select {flag} {above}, {kind} {a}, {kind} {b}")


def fill(f: LlvmFunction, t: AttentionTile, begin: str, count: str, value: float) -> None:
    """Write `count` elements, a multiple of the lanes, that all are `value`."""
    with f.loop("0", count, t.lanes) as loop:
        t.store(f, t.constant(value), f.at(t.kind, begin, loop.index))


def define_stage(module: LlvmModule, t: AttentionTile) -> str:
    """Define the function that copies rows with any strides to rows padded with zeros.

    Its arguments: the addresses of the copy and of the rows; the number of rows; that of the copy;
    the number of columns; that of the copy, a multiple of the lanes; the strides of rows and
    columns.
    """
    f = LlvmFunction(module)
    kind = t.kind
    with f.loop("0", "%total") as row:
        to = f.at(kind, "%to", f.mul(row.index, "%padded"))
        fill(f, t, to, "%padded", 0.0)
        with f.when(f.let(f"icmp slt i64 {row.index}, %valid")):
            start = f.at(t.element, "%from", f.mul(row.index, "%row"))
            dense = f.let("icmp eq i64 %col, 1")
            full = f.mul(f.div("%columns", str(t.lanes)), str(t.lanes))
            vectors = f.let(f"select i1 {dense}, i64 {full}, i64 0")
            with f.loop("0", vectors, t.lanes) as at:
                x = t.read(f, f.at(t.element, start, at.index))
                t.store(f, x, f.at(kind, to, at.index))
            with f.loop(vectors, "%columns") as at:
                x = t.read(f, f.at(t.element, start, f.mul(at.index, "%col")), 1)
                t.store(f, x, f.at(kind, to, at.index), 1)
    names = ("valid", "total", "columns", "padded", "row", "col")
    numbers = ", ".join([f"i64 %{name}" for name in names])
    f.define(f"define internal void @stage(ptr noalias %to, ptr noalias %from, {numbers})")
    return "@stage"


def define_panels(module: LlvmModule, t: AttentionTile) -> str:
    """Define the function that transposes rows into panels of as many rows as a tile has columns.

    Row i, column d goes to panel i // n, there to row d, column i % n. Where the last panel is not
    full, its last row is repeated. Its arguments: the addresses of the panels and of the
    rows; the numbers of rows and columns; their strides.
    """
    f = LlvmFunction(module)
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
                f.at(t.element, "%from", f.mul(f.low(f.add(begin, str(i)), last), "%row"))
                for i in range(lanes)
            ]
            address = f.at(kind, to, half.index)
            with f.loop("0", blocks, lanes) as at:
                block = [t.read(f, f.at(t.element, row, at.index)) for row in rows]
                for i, x in enumerate(transposed(f.let, t.vector, lanes, block)):
                    line = f.mul(f.add(at.index, str(i)), str(n))
                    t.store(f, x, f.at(kind, address, line))
            with f.loop(blocks, "%columns") as at:
                x = "poison"
                offset = f.mul(at.index, "%col")
                for i, row in enumerate(rows):
                    one = t.read(f, f.at(t.element, row, offset), 1)
                    x = f.let(f"insertelement {t.vector} {x}, {kind} {one}, i32 {i}")
                t.store(f, x, f.at(kind, address, f.mul(at.index, str(n))))
    numbers = ", ".join([f"i64 %{name}" for name in ("rows", "columns", "row", "col")])
    f.define(f"define internal void @panels(ptr noalias %to, ptr noalias %from, {numbers})")
    return "@panels"


def sums(f: LlvmFunction, t: AttentionTile, rows: list[str]) -> str:
    """Return a vector of the sums of as many vectors as it has lanes."""
    while len(rows) > 1:
        step = len(rows) // 2
        pairs = [
            exchanged(f.let, t.vector, t.lanes, rows[i], rows[i + step], step) for i in range(step)
        ]
        rows = [f.let(f"fadd {t.vector} {a}, {b}") for a, b in pairs]
    return rows[0]


def define_bias(module: LlvmModule, t: AttentionTile, mask: DType) -> str:
    """Define the function that turns rows of a mask into summands of scores.

    Bools become 0 and -inf. Its arguments: the addresses of the summands and of the mask; the
    numbers of rows and columns; the distance of the summands' rows; the strides of the mask's rows
    and columns.
    """
    f = LlvmFunction(module)
    kind = t.kind
    element = memory(mask)

    def convert(address: str, to: str, lanes: int) -> None:
        wide = vector(kind, lanes)
        value = read(f, mask, lanes, address)
        if mask.is_bool:
            zero, gone = (splat(kind, t.number(x), lanes) for x in (0.0, -math.inf))
            flags = vector("i1", lanes)
            value = f.let(f"select {flags} {value}, {wide} {zero}, {wide} {gone}")
        t.store(f, value, to, lanes)

    dense = f.let("icmp eq i64 %col, 1")
    full = f.mul(f.div("%columns", str(t.lanes)), str(t.lanes))
    vectors = f.let(f"select i1 {dense}, i64 {full}, i64 0")
    with f.loop("0", "%rows") as row:
        to = f.at(kind, "%to", f.mul(row.index, "%length"))
        start = f.at(element, "%from", f.mul(row.index, "%row"))
        with f.loop("0", vectors, t.lanes) as at:
            convert(f.at(element, start, at.index), f.at(kind, to, at.index), t.lanes)
        with f.loop(vectors, "%columns") as at:
            address = f.at(element, start, f.mul(at.index, "%col"))
            convert(address, f.at(kind, to, at.index), 1)
    numbers = ", ".join([f"i64 %{x}" for x in ("rows", "columns", "length", "row", "col")])
    f.define(f"define internal void @bias(ptr noalias %to, ptr noalias %from, {numbers})")
    return "@bias"


def define_unstage(module: LlvmModule, t: AttentionTile) -> str:
    """Define the function that copies padded rows to a result, with any stride.

    Its arguments: the addresses of the result and of the padded rows; the numbers of rows and
    columns; the length of a padded row; the stride of rows; a factor.
    """
    f = LlvmFunction(module)
    kind = t.kind
    factor = t.splat(f, "%factor")
    full = f.mul(f.div("%columns", str(t.lanes)), str(t.lanes))
    with f.loop("0", "%rows") as row:
        start = f.at(kind, "%from", f.mul(row.index, "%padded"))
        to = f.at(t.element, "%to", f.mul(row.index, "%row"))
        with f.loop("0", full, t.lanes) as at:
            x = t.load(f, f.at(kind, start, at.index))
            x = f.let(f"fmul {t.vector} {x}, {factor}")
            t.write(f, x, f.at(t.element, to, at.index))
        with f.loop(full, "%columns") as at:
            x = t.load(f, f.at(kind, start, at.index), 1)
            x = f.let(f"fmul {kind} {x}, %factor")
            t.write(f, x, f.at(t.element, to, at.index), 1)
    numbers = ", ".join([f"i64 %{name}" for name in ("rows", "columns", "padded", "row")])
    arguments = f"ptr noalias %to, ptr noalias %from, {numbers}, {kind} %factor"
    f.define(f"define internal void @unstage({arguments})")
    return "@unstage"
