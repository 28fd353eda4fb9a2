"""Floats of 16 bits: as bits in memory, as float32 in registers.

`let` adds an instruction to a function and returns the name of its result.
"""

from __future__ import annotations

from collections.abc import Callable

from graphfw.ir.dtype import DType, float16, float32
from graphfw.runtime.numpy_executor.codegen.registers import literal, splat, vector
from graphfw.runtime.numpy_executor.machine import machine

Let = Callable[[str], str]


def widened(let: Let, dtype: DType, lanes: int, bits: str) -> str:
    """Write the float32s of what is in memory."""
    if dtype is float16 and machine().converts_float16:
        half = vector("half", lanes)
        near = let(f"bitcast {vector('i16', lanes)} {bits} to {half}")
        return let(f"fpext {half} {near} to {vector('float', lanes)}")
    k = _Integers(let, lanes)
    wide = let(f"zext {vector('i16', lanes)} {bits} to {k.kind}")
    return k.floats(_of_float16(k, wide) if dtype is float16 else k("shl", wide, 16))


def narrowed(let: Let, dtype: DType, lanes: int, value: str) -> str:
    """Write what float32s are in memory: rounded, halves to even.

    To bfloat16 by integers: the instruction that there is for it drops numbers that are not normal.
    """
    shorts = vector("i16", lanes)
    if dtype is float16 and machine().converts_float16:
        half = vector("half", lanes)
        near = let(f"fptrunc {vector('float', lanes)} {value} to {half}")
        return let(f"bitcast {half} {near} to {shorts}")
    k = _Integers(let, lanes)
    bits = let(f"bitcast {vector('float', lanes)} {value} to {k.kind}")
    convert = _to_float16 if dtype is float16 else _to_bfloat16
    return let(f"trunc {k.kind} {convert(k, value, bits)} to {shorts}")


_SIZE = 0x7FFF_FFFF
"""The bits of a float32 without its sign."""
_INFINITY = 0x7F80_0000
_REBIAS = 112
"""The difference between the biases of the exponents of float32 and float16."""
_LEAST_EXPONENT = 24
"""The least number of float16 is 2^-24."""


class _Integers:
    """Writes operations on the bits of float32s, `lanes` at a time.

    Calling it with the name of an instruction and two operands, numbers or results, writes that.
    """

    def __init__(self, let: Let, lanes: int) -> None:
        self.let = let
        self.lanes = lanes
        self.kind = vector("i32", lanes)
        self._float = vector("float", lanes)
        self._bool = vector("i1", lanes)

    def __call__(self, instruction: str, x: str, y: str | int) -> str:
        return self.let(f"{instruction} {self.kind} {x}, {self._text(y)}")

    def where(self, comparison: str, x: str, y: int, then: str | int, other: str) -> str:
        """Write the choice of `then` where `x` compares so to `y`, else of `other`."""
        holds = self.let(f"icmp {comparison} {self.kind} {x}, {self._text(y)}")
        return self._chosen(holds, then, other)

    def where_nan(self, value: str, then: str, other: str) -> str:
        """Write the choice of `then` where a float32 is NaN, else of `other`."""
        return self._chosen(self.let(f"fcmp uno {self._float} {value}, {value}"), then, other)

    def floats(self, x: str) -> str:
        """Write the float32s that have these bits."""
        return self.let(f"bitcast {self.kind} {x} to {self._float}")

    def arithmetic(self, instruction: str, x: str, y: float) -> str:
        """Write the bits of what an operation makes of float32s and a number."""
        constant = splat("float", literal(y, float32), self.lanes)
        result = self.let(f"{instruction} {self._float} {x}, {constant}")
        return self.let(f"bitcast {self._float} {result} to {self.kind}")

    def counted(self, x: str) -> str:
        """Write integers as float32s."""
        return self.let(f"sitofp {self.kind} {x} to {self._float}")

    def _chosen(self, holds: str, then: str | int, other: str) -> str:
        options = f"{self.kind} {self._text(then)}, {self.kind} {other}"
        return self.let(f"select {self._bool} {holds}, {options}")

    def _text(self, y: str | int) -> str:
        return splat("i32", str(y), self.lanes) if isinstance(y, int) else y


def _of_float16(k: _Integers, wide: str) -> str:
    """Move exponent and mantissa to where a float32 has them; below the normal ones, count."""
    size = k("and", wide, 0x7FFF)
    moved = k("shl", size, 13)
    found = k("add", moved, _REBIAS << 23)
    beyond = k("or", moved, _INFINITY)  # infinity, and NaN with what it says
    found = k.where("sge", size, 0x7C00, beyond, found)
    found = k.where("sgt", size, 0x7C00, k("or", beyond, 1 << 22), found)  # made quiet
    small = k.arithmetic("fmul", k.counted(size), 2.0**-_LEAST_EXPONENT)
    found = k.where("slt", size, 1 << 10, small, found)
    return k("or", found, k("shl", k("and", wide, 0x8000), 16))


def _to_float16(k: _Integers, value: str, bits: str) -> str:
    """The way back: half of the last bit is added, and carries over.

    Below the normal numbers, adding 0.5 moves the last bit of a float32 to that of a float16.
    """
    size = k("and", bits, _SIZE)
    odd = k("and", k("lshr", size, 13), 1)
    near = k("add", k("add", size, 0xFFF), odd)
    found = k("sub", k("lshr", near, 13), _REBIAS << 10)
    found = k.where("sgt", found, 0x7C00, 0x7C00, found)
    small = k("sub", k.arithmetic("fadd", k.floats(size), 0.5), 126 << 23)
    found = k.where("slt", size, (_REBIAS + 1) << 23, small, found)
    payload = k("and", k("lshr", size, 13), 0x3FF)
    found = k.where_nan(value, k("or", payload, 0x7E00), found)
    return k("or", found, k("and", k("lshr", bits, 16), 0x8000))


def _to_bfloat16(k: _Integers, value: str, bits: str) -> str:
    upper = k("lshr", bits, 16)
    near = k("add", bits, k("add", k("and", upper, 1), 0x7FFF))
    # The sum would carry a NaN over into an infinity or a zero: its upper half, made quiet.
    return k.where_nan(value, k("or", upper, 0x40), k("lshr", near, 16))
