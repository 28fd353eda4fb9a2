"""Floats of 16 bits: as bits in memory, as float32 in registers.

`let` adds an instruction to a function and returns the name of its result.
"""

from __future__ import annotations

from collections.abc import Callable

from graphfw.ir.dtype import DType, float16
from graphfw.runtime.numpy_executor.codegen.registers import splat, vector

Let = Callable[[str], str]


def widened(let: Let, dtype: DType, lanes: int, bits: str) -> str:
    """Write the float32s of what is in memory."""
    floats = vector("float", lanes)
    if dtype is float16:
        return let(f"fpext {vector('half', lanes)} {bits} to {floats}")
    kind = vector("i32", lanes)
    wide = let(f"zext {vector('i16', lanes)} {bits} to {kind}")
    upper = let(f"shl {kind} {wide}, {splat('i32', '16', lanes)}")
    return let(f"bitcast {kind} {upper} to {floats}")


def narrowed(let: Let, dtype: DType, lanes: int, value: str) -> str:
    """Write what float32s are in memory: rounded, halves to even.

    To bfloat16 by integers: the instruction that there is for it drops numbers that are not normal.
    """
    floats = vector("float", lanes)
    if dtype is float16:
        return let(f"fptrunc {floats} {value} to {vector('half', lanes)}")
    kind = vector("i32", lanes)

    def number(n: int) -> str:
        return splat("i32", str(n), lanes)

    bits = let(f"bitcast {floats} {value} to {kind}")
    upper = let(f"lshr {kind} {bits}, {number(16)}")
    odd = let(f"and {kind} {upper}, {number(1)}")
    bias = let(f"add {kind} {odd}, {number(0x7FFF)}")
    near = let(f"add {kind} {bits}, {bias}")
    rounded = let(f"lshr {kind} {near}, {number(16)}")
    # The sum would carry a NaN over into an infinity or a zero: its upper half, made quiet.
    quiet = let(f"or {kind} {upper}, {number(0x40)}")
    nan = let(f"fcmp uno {floats} {value}, {value}")
    chosen = let(f"select {vector('i1', lanes)} {nan}, {kind} {quiet}, {kind} {rounded}")
    return let(f"trunc {kind} {chosen} to {vector('i16', lanes)}")
