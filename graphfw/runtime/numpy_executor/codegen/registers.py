"""The LLVM types of each dtype in memory and in registers, and the texts of literals.

Bools are bytes in memory and single bits in registers. The 16-bit floats are loaded and stored as
their bits, and are float32 in registers, rounded to their dtype after each operation.
"""

from __future__ import annotations

import struct

import numpy as np

from graphfw.ir.dtype import DType

_FLOATS = {"float16": "i16", "bfloat16": "i16", "float32": "float", "float64": "double"}


def memory(dtype: DType) -> str:
    """Return the LLVM type of an element in memory."""
    return _FLOATS.get(dtype.name) or f"i{dtype.itemsize * 8}"


def register(dtype: DType) -> str:
    """Return the LLVM type of an element in a register."""
    if dtype.is_bool:
        return "i1"
    return "float" if dtype.is_low_precision else memory(dtype)


def width(dtype: DType) -> int:
    """Return how many bytes of a vector register an element takes; a bool is one bit of a mask."""
    if dtype.is_bool:
        return 1
    return 4 if dtype.is_low_precision else dtype.itemsize


def vector(element: str, lanes: int) -> str:
    """Return the type of `lanes` elements; of one: the scalar type.

    >>> vector("float", 16), vector("float", 1)
    ('<16 x float>', 'float')
    """
    return f"<{lanes} x {element}>" if lanes > 1 else element


def literal(value: bool | int | float, dtype: DType) -> str:
    """Return a scalar constant, without its type, as register content.

    >>> from graphfw.ir.dtype import float32
    >>> literal(1.5, float32)
    '0x3FF8000000000000'
    """
    if dtype.is_bool:
        return "true" if value else "false"
    if dtype.is_integer:
        return str(int(value))
    with np.errstate(over="ignore"):
        rounded = float(np.asarray(value, dtype=dtype.dtype).astype(np.float64))
    # LLVM writes floats of all sizes as the bits of the equal double.
    return f"0x{struct.unpack('>Q', struct.pack('>d', rounded))[0]:016X}"


def splat(element: str, text: str, lanes: int) -> str:
    """Return a constant, without its type, whose lanes are all `text`.

    >>> splat("i32", "7", 4), splat("i32", "7", 1)
    ('splat (i32 7)', '7')
    """
    return f"splat ({element} {text})" if lanes > 1 else text


def iota(element: str, lanes: int, start: int = 0) -> str:
    """Return the constant `start, start + 1, ...`, without its type.

    >>> iota("i64", 2, 4)
    '<i64 4, i64 5>'
    """
    if lanes == 1:
        return str(start)
    return "<" + ", ".join([f"{element} {start + i}" for i in range(lanes)]) + ">"
