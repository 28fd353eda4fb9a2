"""Transposes of squares of elements, in registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

Let = Callable[[str], str]
"""Writes an instruction and returns the name of its result."""

_BLOCK = 128
"""Bits of a register within which processors interleave two vectors by the cheapest instructions:
on some, to take any lanes of two vectors takes eight times as long."""

_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}


def transposed(let: Let, kind: str, lanes: int, rows: Sequence[str]) -> list[str]:
    """Transpose as many vectors as they have lanes.

    Args:
        let: Writes an instruction.
        kind: LLVM's type of a vector.
        lanes: How many elements it has; a power of two.
        rows: The vectors.
    """
    element = kind.rpartition(" ")[2].rstrip(">")
    size = min(_BLOCK // (_BITS.get(element) or int(element.removeprefix("i"))), lanes)
    blocks = lanes // size
    # Squares of blocks: in block b of the number k of group g are elements b * size + k of rows.
    found = list(rows)
    in_turn = [_interleaved(lanes, size, 0), _interleaved(lanes, size, size // 2)]
    for _ in range(size.bit_length() - 1):
        for begin in range(0, lanes, size):
            group = found[begin : begin + size]
            halves = zip(group[: size // 2], group[size // 2 :], strict=True)
            found[begin : begin + size] = [
                _shuffled(let, kind, lanes, *pair, order) for pair in halves for order in in_turn
            ]
    # Then blocks take the places of elements.
    alternate = [_every_second(lanes, size, first) for first in (0, 1)]
    for k in range(size):
        column = found[k::size]
        for _ in range(blocks.bit_length() - 1):
            pairs = [*pairwise(column)][::2]
            column = [
                _shuffled(let, kind, lanes, *pair, order) for order in alternate for pair in pairs
            ]
        found[k::size] = column
    return found


def _interleaved(lanes: int, size: int, begin: int) -> list[int]:
    """Return the order that takes half of each block of two vectors in turn, from `begin` on."""
    halves = [block + begin + n for block in range(0, lanes, size) for n in range(size // 2)]
    return [lane + of for lane in halves for of in (0, lanes)]


def _every_second(lanes: int, size: int, first: int) -> list[int]:
    """Return the order that takes every second block of two vectors."""
    begins = range(first * size, 2 * lanes, 2 * size)
    return [begin + n for begin in begins for n in range(size)]


def exchanged(let: Let, kind: str, lanes: int, a: str, b: str, side: int) -> tuple[str, str]:
    """Let each second block of `side` lanes of `a` be exchanged with that before it of `b`."""
    upper = [lane if not lane & side else lanes + lane - side for lane in range(lanes)]
    lower = [lane + side if not lane & side else lanes + lane for lane in range(lanes)]
    first, second = [_shuffled(let, kind, lanes, a, b, order) for order in (upper, lower)]
    return first, second


def _shuffled(let: Let, kind: str, lanes: int, a: str, b: str, order: Sequence[int]) -> str:
    taken = ", ".join([f"i32 {lane}" for lane in order])
    return let(f"shufflevector {kind} {a}, {kind} {b}, <{lanes} x i32> <{taken}>")
