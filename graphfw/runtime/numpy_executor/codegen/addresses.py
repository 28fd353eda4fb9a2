"""`Registers`, and `Address`: where vectors of elements lie in memory."""

from __future__ import annotations

from typing import NamedTuple

Registers = tuple[str, ...]
"""One register for each vector that is computed at once; of what does not vary: one scalar."""


class Address(NamedTuple):
    """The addresses of vectors of elements.

    Attributes:
        pointers: One for each vector: of its first element, or vectors of pointers.
        scattered: Whether they are vectors of pointers.
        varying: Whether there is more than one element.
        level: Where they are computed.
        stride: How far neighbours are apart, where that is known to be little, but not 1; else 0.
    """

    pointers: Registers
    scattered: bool
    varying: bool
    level: int
    stride: int = 0


def symbol_of(address: Address, scattered: str, in_a_row: str, lanes: int, element: str) -> str:
    """Return LLVM's function that loads or stores a vector under a mask."""
    suffix = {"float": "f32", "double": "f64"}.get(element, element)
    if address.scattered:
        return f"llvm.masked.{scattered}.v{lanes}{suffix}.v{lanes}p0"
    return f"llvm.masked.{in_a_row}.v{lanes}{suffix}.p0"
