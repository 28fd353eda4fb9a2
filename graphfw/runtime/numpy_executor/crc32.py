"""The CRC-32 of bytes in generated code, by multiplication without carries.

The bytes are a polynomial over the integers modulo 2, and their checksum is its remainder. As in
Gopal, Ozturk, Guilford, Wolrich, Feghali, Dixon and Karakoyunlu, "Fast CRC Computation for Generic
Polynomials Using PCLMULQDQ Instruction" (Intel, 2009), 16 bytes are multiplied by a power of x,
modulo the CRC's polynomial, and added to those that lie so much further on: a shorter polynomial
with the same remainder. At the end 16 bytes are left, of which zlib computes the checksum.

Bits are in the order of the CRC of zlib: the lowest bit of the first byte belongs to the highest
power.
"""

from __future__ import annotations

import ctypes
import functools
import zlib

from graphfw.io.crc32 import Bytes, Crc32
from graphfw.runtime.numpy_executor.codegen import RecordCode
from graphfw.runtime.numpy_executor.engine import compile_codes
from graphfw.runtime.numpy_executor.machine import Machine, machine
from graphfw.utils.records import record

_POLYNOMIAL = 0xEDB88320
"""All but x^32, the lowest bit for x^31."""
_SUMS = 4
"""The number of vectors that are multiplied independently: a processor begins the next product
before the last one is done."""
_NOTHING = 0xFFFFFFFF
"""The state that zlib continues from to have a register of 0, which it inverts."""

_INTRINSICS = {1: "llvm.x86.pclmulqdq", 2: "llvm.x86.pclmulqdq.256", 4: "llvm.x86.pclmulqdq.512"}
_X86 = """
declare {vector} @{intrinsic}({vector}, {vector}, i8 immarg)

define internal {vector} @folded_{lanes}({vector} %b, {vector} %by, {vector} %onto) alwaysinline {{
  %low = call {vector} @{intrinsic}({vector} %b, {vector} %by, i8 0)
  %high = call {vector} @{intrinsic}({vector} %b, {vector} %by, i8 17)
  %both = xor {vector} %low, %high
  %sum = xor {vector} %both, %onto
  ret {vector} %sum
}}
"""
_ARM = """
declare <16 x i8> @llvm.aarch64.neon.pmull64(i64, i64)

define internal <2 x i64> @folded_1(<2 x i64> %b, <2 x i64> %by, <2 x i64> %onto) alwaysinline {
  %b0 = extractelement <2 x i64> %b, i32 0
  %b1 = extractelement <2 x i64> %b, i32 1
  %y0 = extractelement <2 x i64> %by, i32 0
  %y1 = extractelement <2 x i64> %by, i32 1
  %low = call <16 x i8> @llvm.aarch64.neon.pmull64(i64 %b0, i64 %y0)
  %high = call <16 x i8> @llvm.aarch64.neon.pmull64(i64 %b1, i64 %y1)
  %both = xor <16 x i8> %low, %high
  %words = bitcast <16 x i8> %both to <2 x i64>
  %sum = xor <2 x i64> %words, %onto
  ret <2 x i64> %sum
}
"""


def power(exponent: int) -> int:
    """Return a power of x modulo the polynomial, shifted as products of reversed bits have it."""
    rest = 1 << 31  # x^0
    for _ in range(exponent):
        rest = rest >> 1 ^ (_POLYNOMIAL if rest & 1 else 0)
    return rest << 1


def lanes_of(here: Machine) -> int:
    """Return how many times 16 bytes a machine multiplies at once; 0 where it has no such code."""
    if here.architecture == "aarch64":
        return 1 if here.has("aes") else 0
    if here.architecture != "x86_64" or not here.has("pclmul"):
        return 0
    return here.vector_bits // 128 if here.has("vpclmulqdq") else 1


@record
class FoldCode(RecordCode):
    """The function `void (ptr bytes, i64 count, ptr rest)` that leaves 16 bytes of many.

    Their checksum, continued from a register of 0, is that of the `count` bytes: a positive
    multiple of `step`.

    Attributes:
        architecture: The processor's.
        lanes: How many times 16 bytes it multiplies at once.
    """

    architecture: str
    lanes: int

    tidy = True

    @property
    def step(self) -> int:
        """The bytes that an iteration of its loop takes."""
        return 16 * self.lanes * _SUMS

    def llvm(self, symbol: str) -> str:
        vector = f"<{2 * self.lanes} x i64>"
        sums = range(_SUMS)
        width = 16 * self.lanes
        # The register begins with ones, which are added to the first 4 bytes.
        ones = _constant([0xFFFFFFFF, *[0] * (2 * self.lanes - 1)])
        lines = [self._multiplying(self.lanes)]
        if self.lanes > 1:
            lines.append(self._multiplying(1))
        lines += [
            f"define void @{symbol}(ptr %bytes, i64 %count, ptr %rest) {{",
            "entry:",
            *[self._loaded(f"%first{i}", "%bytes", i * width) for i in sums],
            f"  %begun = xor {vector} %first0, {ones}",
            f"  %many = icmp ugt i64 %count, {self.step}",
            "  br i1 %many, label %loop, label %end",
            "loop:",
            f"  %at = phi i64 [ {self.step}, %entry ], [ %next, %loop ]",
        ]
        for i in sums:
            first = "%begun" if i == 0 else f"%first{i}"
            lines.append(f"  %old{i} = phi {vector} [ {first}, %entry ], [ %new{i}, %loop ]")
        lines.append("  %here = getelementptr i8, ptr %bytes, i64 %at")
        for i in sums:
            lines += [
                self._loaded(f"%more{i}", "%here", i * width),
                self._folded(f"%new{i}", f"%old{i}", f"%more{i}", self.step, self.lanes),
            ]
        lines += [
            f"  %next = add i64 %at, {self.step}",
            "  %goes_on = icmp ult i64 %next, %count",
            "  br i1 %goes_on, label %loop, label %end",
            "end:",
        ]
        for i in sums:
            first = "%begun" if i == 0 else f"%first{i}"
            lines.append(f"  %sum{i} = phi {vector} [ {first}, %entry ], [ %new{i}, %loop ]")
        last = "%sum0"
        for i in sums[1:]:
            lines.append(self._folded(f"%joined{i}", last, f"%sum{i}", width, self.lanes))
            last = f"%joined{i}"
        for lane in range(self.lanes):
            lines.append(
                f"  %lane{lane} = shufflevector {vector} {last}, {vector} poison, "
                f"<2 x i32> <i32 {2 * lane}, i32 {2 * lane + 1}>"
            )
        last = "%lane0"
        for lane in range(1, self.lanes):
            lines.append(self._folded(f"%left{lane}", last, f"%lane{lane}", 16, 1))
            last = f"%left{lane}"
        lines += [f"  store <2 x i64> {last}, ptr %rest, align 1", "  ret void", "}"]
        return "\n".join(lines)

    def _multiplying(self, lanes: int) -> str:
        """Return the function that multiplies by two constants, and adds."""
        if self.architecture == "aarch64":
            return _ARM
        vector = f"<{2 * lanes} x i64>"
        return _X86.format(vector=vector, lanes=lanes, intrinsic=_INTRINSICS[lanes])

    def _loaded(self, name: str, base: str, offset: int) -> str:
        address = f"{name}_at = getelementptr i8, ptr {base}, i64 {offset}"
        return f"  {address}\n  {name} = load <{2 * self.lanes} x i64>, ptr {name}_at, align 1"

    def _folded(self, name: str, what: str, onto: str, distance: int, lanes: int) -> str:
        """Return the line that moves bytes by a distance, and adds those that lie there."""
        vector = f"<{2 * lanes} x i64>"
        by = _constant([power(8 * distance + 32), power(8 * distance - 32)] * lanes)
        return (
            f"  {name} = call {vector} @folded_{lanes}"
            f"({vector} {what}, {vector} {by}, {vector} {onto})"
        )


def _constant(words: list[int]) -> str:
    return f"<{', '.join(f'i64 {word}' for word in words)}>"


_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)


def crc32_by(code: FoldCode) -> Crc32:
    """Return the function that computes checksums by a code, and what that leaves by zlib."""
    fold, step = _FUNCTION(compile_codes([code])[0]), code.step

    def crc32(block: Bytes) -> int:
        whole = block.size - block.size % step
        if not whole:
            return zlib.crc32(block.data)
        rest = ctypes.create_string_buffer(16)
        fold(block.ctypes.data, whole, rest)
        return zlib.crc32(block[whole:].data, zlib.crc32(rest, _NOTHING))

    return crc32


@functools.cache
def native_crc32() -> Crc32 | None:
    """Return the function for this machine; None where it has no such instructions."""
    lanes = lanes_of(machine())
    return crc32_by(FoldCode(machine().architecture, lanes)) if lanes else None
