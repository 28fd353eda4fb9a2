"""Transposes of squares of elements, in registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Let = Callable[[str], str]
"""Writes an instruction and returns the name of its result."""


def transposed(let: Let, kind: str, lanes: int, rows: Sequence[str]) -> list[str]:
    """Transpose as many vectors as they have lanes: exchange ever smaller squares.

    Args:
        let: Writes an instruction.
        kind: LLVM's type of a vector.
        lanes: How many elements it has; a power of two.
        rows: The vectors.
    """
    found, side = list(rows), lanes // 2
    while side:
        for n in range(lanes):
            if not n & side:
                pair = found[n], found[n + side]
                found[n], found[n + side] = exchanged(let, kind, lanes, *pair, side)
        side //= 2
    return found


def exchanged(let: Let, kind: str, lanes: int, a: str, b: str, side: int) -> tuple[str, str]:
    """Let each second block of `side` lanes of `a` be exchanged with that before it of `b`."""
    upper = [lane if not lane & side else lanes + lane - side for lane in range(lanes)]
    lower = [lane + side if not lane & side else lanes + lane for lane in range(lanes)]
    first, second = [", ".join([f"i32 {lane}" for lane in order]) for order in (upper, lower)]
    operands = f"shufflevector {kind} {a}, {kind} {b}, <{lanes} x i32>"
    return let(f"{operands} <{first}>"), let(f"{operands} <{second}>")
