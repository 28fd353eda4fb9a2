"""Vectors of elements that lie a few elements apart: dense loads and stores, and shuffles.

A gather reads one element after the other. The elements of a vector whose stride is s lie in s
dense vectors, of which shuffles take them. What writes every other element, and what writes those
between, as of the parts of complex numbers, are dense stores of both together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from graphfw.runtime.kernels.ir import Store
from graphfw.runtime.numpy_executor.codegen.facts import Statement
from graphfw.runtime.numpy_executor.codegen.registers import vector
from graphfw.runtime.numpy_executor.codegen.writer import Writer

NEAR = 8
"""Elements that are farther apart are gathered."""


def is_near(stride: str) -> bool:
    """Whether a stride is a number, and few dense loads read the elements of a vector."""
    return stride.removeprefix("-").isdigit() and 0 < abs(int(stride)) <= NEAR


def load(
    writer: Writer, element: str, align: int, lanes: int, pointers: str, stride: int, level: int
) -> str:
    """Write the load of a vector; nothing is read beyond its first and its last element.

    Args:
        writer: Writes it.
        element: LLVM's type of an element in memory.
        align: Of an element, in bytes.
        lanes: How many elements.
        pointers: Their addresses.
        stride: How far apart they are, in elements; not 0.
        level: Where it is written.
    """
    lowest = lanes - 1 if stride < 0 else 0
    text = f"extractelement {vector('ptr', lanes)} {pointers}, i64 {lowest}"
    start = writer.pure(text, level)
    step, kind = abs(stride), vector(element, lanes)
    found, taken = "poison", 0
    while taken < lanes:
        # The last dense vector ends with the last element, so it may overlap the one before.
        begin = min(taken * step, (lanes - 1) * (step - 1))
        until = min(lanes, (begin + lanes - 1) // step + 1)
        address = writer.pure(f"getelementptr {element}, ptr {start}, i64 {begin}", level)
        dense = writer.let(f"load {kind}, ptr {address}, align {align}", level)
        picked = [
            str(lane if lane < taken else lanes + lane * step - begin) if lane < until else "poison"
            for lane in range(lanes)
        ]
        if stride < 0 and until == lanes:
            picked.reverse()
        places = ", ".join([f"i32 {place}" for place in picked])
        text = f"shufflevector {kind} {found}, {kind} {dense}, <{lanes} x i32> <{places}>"
        found, taken = writer.pure(text, level), until
    return found


def pairs(statements: Sequence[Statement], axis: str) -> Mapping[Store, Store]:
    """Return the stores of every other element along an axis, with those of the elements between.

    Args:
        statements: Of one loop body.
        axis: What vectors run along.
    """
    stores = [one for one in statements if isinstance(one, Store)]
    return {
        even: odd
        for even, odd in pairwise(stores)
        if even.buffer == odd.buffer
        and dict(even.access.strides).get(axis) == 2
        and not even.access.terms
        and even.access.offset == 0
        and odd.access == even.access._replace(offset=1)
    }


def store_pair(
    writer: Writer,
    element: str,
    align: int,
    lanes: int,
    pointers: str,
    values: Sequence[str],
    level: int,
) -> None:
    """Write the stores of two vectors whose elements alternate.

    Args:
        writer: Writes them.
        element: LLVM's type of an element in memory.
        align: Of an element, in bytes.
        lanes: How many elements a vector has.
        pointers: The addresses of the first vector's elements.
        values: The vectors.
        level: Where they are written.
    """
    kind = vector(element, lanes)
    start = writer.let(f"extractelement {vector('ptr', lanes)} {pointers}, i64 0", level)
    for begin in (0, lanes):
        picked = [i // 2 + lanes * (i % 2) for i in range(begin, begin + lanes)]
        places = ", ".join([f"i32 {place}" for place in picked])
        text = f"shufflevector {kind} {values[0]}, {kind} {values[1]}, <{lanes} x i32> <{places}>"
        dense = writer.let(text, level)
        address = writer.let(f"getelementptr {element}, ptr {start}, i64 {begin}", level)
        writer.line(f"store {kind} {dense}, ptr {address}, align {align}", level)
