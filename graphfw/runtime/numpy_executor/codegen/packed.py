"""`Packed`: loads of elements of which several lie in a byte, as in `ops.packed_bits`.

Lane i of a vector needs the byte in which element i begins, and, where the vector itself begins
within a byte, the next one: both are moved to a 32-bit lane of their own by one shuffle. Then two
shifts, the first by another distance in each lane, leave the element only.
"""

from __future__ import annotations

from graphfw.ir.dtype import DType
from graphfw.runtime.numpy_executor.codegen.registers import splat, vector
from graphfw.runtime.numpy_executor.codegen.writer import Writer
from graphfw.runtime.numpy_executor.machine import machine

_LANES = 16
"""The 32-bit lanes of a vector of AVX-512."""


def has_whole_rows() -> bool:
    """Return whether `Packed.whole_row` takes fewer instructions than `Packed.row_at`."""
    here = machine()
    return here.architecture == "x86_64" and here.has("avx512vbmi")


class Packed:
    """Writes loads of packed elements, as register content: the codes, a byte each.

    Args:
        writer: Of the function.
        level: Where it writes.
        dtype: Of the elements.
    """

    def __init__(self, writer: Writer, level: int, dtype: DType) -> None:
        self._writer = writer
        self._level = level
        self._bits = dtype.bits

    def address_of(self, pointer: str, number: str) -> tuple[str, str]:
        """Return the address of the byte in which an element begins, and at which bit (i32)."""
        bit = self._let(f"mul nsw i64 {number}, {self._bits}")
        byte = self._let(f"lshr i64 {bit}, 3")
        within = self._let(f"trunc i64 {bit} to i32")
        address = self._let(f"getelementptr i8, ptr {pointer}, i64 {byte}")
        return address, self._let(f"and i32 {within}, 7")

    def one(self, pointer: str, number: str) -> str:
        """Write the load of one element, by its number."""
        return self.one_at(*self.address_of(pointer, number))

    def one_at(self, address: str, bit: str) -> str:
        """Write the load of one element, from an address: see `address_of`."""
        read = self._let(f"load i8, ptr {address}, align 1")
        return self._masked(read, self._let(f"trunc i32 {bit} to i8"), 1)

    def row_at(self, address: str, bit: str, lanes: int) -> str:
        """Write the load of elements in a row, from an address on. It may read more after them.

        Args:
            address: See `address_of`.
            bit: Likewise.
            lanes: How many elements, 2 or more.
        """
        bits, words = self._bits, vector("i32", lanes)
        count = max(1 << (lanes * bits // 8).bit_length(), 2)
        read = self._let(f"load <{count} x i8>, ptr {address}, align 1")
        # The upper half of a lane is shifted out: any two bytes will do.
        first = [bits * lane // 8 for lane in range(lanes)]
        order = ", ".join([f"i32 {byte}, i32 {byte + 1}" for byte in first for _ in range(2)])
        bytes_ = f"<{count} x i8>"
        picked = self._let(
            f"shufflevector {bytes_} {read}, {bytes_} poison, <{4 * lanes} x i32> <{order}>"
        )
        pairs = self._let(f"bitcast <{4 * lanes} x i8> {picked} to {words}")
        away = ", ".join([f"i32 {32 - bits - bits * lane % 8}" for lane in range(lanes)])
        distance = self._let(f"sub {words} <{away}>, {self._spread('i32', bit, lanes)}")
        high = self._let(f"shl {words} {pairs}, {distance}")
        low = self._let(f"lshr {words} {high}, splat (i32 {32 - bits})")
        return self._let(f"trunc {words} {low} to {vector('i8', lanes)}")

    def whole_row(self, address: str, lanes: int) -> str:
        """Write the load of elements in a row that begin with a byte: see `row_at`.

        One instruction takes to each byte any 8 neighbours of the 64 bits there: here those that
        end with the lane's element, which the second shift leaves alone.
        """
        bits = self._bits
        if lanes != _LANES:
            return self.row_at(address, "0", lanes)
        read = self._let(f"load i64, ptr {address}, align 1")
        words = self._let(f"bitcast <8 x i64> {self._spread('i64', read, 8)} to <64 x i8>")
        ends = [(bits * (lane + 1) - 8) % 64 for lane in range(_LANES) for _ in range(4)]
        from_ = "<" + ", ".join([f"i8 {end}" for end in ends]) + ">"
        operands = [("<64 x i8>", from_), ("<64 x i8>", words)]
        taken = self._writer.call(
            "<64 x i8>", "llvm.x86.avx512.pmultishift.qb.512", operands, self._level
        )
        high = self._let(f"bitcast <64 x i8> {taken} to <16 x i32>")
        low = self._let(f"lshr <16 x i32> {high}, splat (i32 {32 - bits})")
        return self._let(f"trunc <16 x i32> {low} to <16 x i8>")

    def row(self, pointer: str, number: str, lanes: int, mask: str) -> str:
        """Write the load of elements in a row, by the number of the first; lanes may be off."""
        address, bit = self.address_of(pointer, number)
        if lanes == 1:
            return self.one(pointer, number)
        if mask:
            is_on = self._let(f"extractelement {vector('i1', lanes)} {mask}, i64 0")
            address = self._let(f"select i1 {is_on}, ptr {address}, ptr {pointer}")
        return self.row_at(address, bit, lanes)

    def scattered(self, pointer: str, number: str, steps: str, lanes: int, mask: str) -> str:
        """Write the loads of elements by how far their numbers are from that of the first."""
        numbers, small = vector("i64", lanes), vector("i8", lanes)
        first = self._spread("i64", number, lanes)
        bit = self._let(f"add nsw {numbers} {first}, {steps}")
        bit = self._let(f"mul nsw {numbers} {bit}, {self._number('i64', self._bits, lanes)}")
        byte = self._let(f"lshr {numbers} {bit}, {self._number('i64', 3, lanes)}")
        if mask:  # lanes that are off read the first byte
            off = self._number("i64", 0, lanes)
            chosen = f"select {vector('i1', lanes)} {mask}, {numbers} {byte}, {numbers} {off}"
            byte = self._let(chosen)
        address = self._let(f"getelementptr i8, ptr {pointer}, {numbers} {byte}")
        if lanes == 1:
            read = self._let(f"load i8, ptr {address}, align 1")
        else:
            operands = [
                (vector("ptr", lanes), address),
                ("i32", "1"),
                (vector("i1", lanes), self._number("i1", "true", lanes)),
                (small, "zeroinitializer"),
            ]
            symbol = f"llvm.masked.gather.v{lanes}i8.v{lanes}p0"
            read = self._writer.call(small, symbol, operands, self._level)
        within = self._let(f"trunc {numbers} {bit} to {small}")
        within = self._let(f"and {small} {within}, {self._number('i8', 7, lanes)}")
        return self._masked(read, within, lanes)

    def _masked(self, read: str, bit: str, lanes: int) -> str:
        kind = vector("i8", lanes)
        low = self._let(f"lshr {kind} {read}, {bit}")
        return self._let(f"and {kind} {low}, {self._number('i8', 2**self._bits - 1, lanes)}")

    def _spread(self, element: str, number: str, lanes: int) -> str:
        kind = vector(element, lanes)
        if lanes == 1:
            return number
        one = self._let(f"insertelement {kind} poison, {element} {number}, i64 0")
        order = f"<{lanes} x i32> zeroinitializer"
        return self._let(f"shufflevector {kind} {one}, {kind} poison, {order}")

    def _number(self, element: str, number: int | str, lanes: int) -> str:
        return splat(element, str(number), lanes)

    def _let(self, text: str) -> str:
        return self._writer.let(text, self._level)
