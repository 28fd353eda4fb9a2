"""`Literal`: an array as a graph holds it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from graphfw.utils.hashing import blake2b

Array = np.ndarray[Any, np.dtype[Any]]

PYTHON_SCALARS = (bool, int, float, complex)
"""Scalars that take the dtype of what they meet. `np.float64` is a `float`, so it is one too."""


class Literal:
    """A read-only array that compares by content: what a `constant` node holds.

    Attributes:
        origin: How it is computed of another one; None where it is not.
    """

    __slots__ = ("_array", "_digest", "origin")

    def __init__(self, array: Array) -> None:
        self.origin: Scaling | None = None
        self._digest: str | None = None
        # The graph must not change when the caller writes to the array later, or to what a
        # read-only view is a view of.
        frozen = not array.flags.writeable and array.base is None
        self._array: Array | None = array if frozen else array.copy()
        self.array.flags.writeable = False

    @staticmethod
    def taken(array: Array) -> Literal:
        """Return an array as it is: nobody else writes to it, or to what it is a view of."""
        made = Literal.__new__(Literal)
        made.origin, made._digest, made._array = None, None, array
        array.setflags(write=False)
        return made

    @staticmethod
    def of(origin: Scaling) -> Literal:
        """Return the literal that is computed from another one, when it is first asked for."""
        made = Literal.__new__(Literal)
        made.origin, made._digest, made._array = origin, None, None
        return made

    @property
    def dtype(self) -> np.dtype[Any]:
        """The array's."""
        return (self if self.origin is None else self.origin.source).array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The array's."""
        found: tuple[int, ...] = (self if self.origin is None else self.origin.source).array.shape
        return found

    @property
    def array(self) -> Array:
        """The array."""
        found = self._array
        if found is None:
            assert self.origin is not None
            found = self._array = self.origin.array()
        return found

    @property
    def nbytes_to_compute(self) -> int:
        """The bytes that `lent` needs: none if the array is there."""
        if self._array is not None or self.origin is None:
            return 0
        return self.origin.source.array.nbytes

    def lent(self, memory: Array) -> Array:
        """Return the array; in the caller's memory, so many bytes, where it must be computed.

        That may be used again when the caller has done with the array.
        """
        if not memory.nbytes or self.origin is None:
            return self.array
        return self.origin.array(memory.view(self.dtype).reshape(self.shape))

    @property
    def digest(self) -> str:
        """A hash of dtype, shape and bytes."""
        if self._digest is None:
            state = blake2b(f"{self.array.dtype.name}{self.array.shape}".encode(), digest_size=10)
            content = _content(self.array)
            whole = content.nbytes // _ROW * _ROW
            if whole >= _MANY_ROWS * _ROW:
                words = _folded(content[:whole].view(np.uint64), _ROW // 8)
                state.update(_folded(words, _LANES).data)
                content = content[whole:]
            state.update(content.data)
            self._digest = state.hexdigest()
        return self._digest

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Literal):
            return NotImplemented
        a, b = self.array, other.array
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        return np.array_equal(_content(a), _content(b))

    def __hash__(self) -> int:
        # Of some elements: most constants that differ do so there, and are not compared.
        array = self.array
        some = array.flat[:: max(array.size // _SAMPLES, 1)]
        return hash((array.dtype, array.shape, some.tobytes()))

    def __reduce__(self) -> tuple[Any, ...]:
        return Literal, (self.array,)

    def __repr__(self) -> str:
        return f"Literal({self.array!r})"


class Scaling(NamedTuple):
    """A constant that is the product of another one and a number for each channel.

    Attributes:
        source: The other one.
        factor: The numbers, float64.
        axis: The axis of the channels.
    """

    source: Literal
    factor: Array
    axis: int

    def array(self, out: Array | None = None) -> Array:
        """Compute it, in the dtype of the source, in an array of the caller's or in a new one."""
        source = self.source.array
        made = np.empty(source.shape, source.dtype) if out is None else out
        with np.errstate(all="ignore"):  # who asks looks whether it is finite
            np.multiply(source, self._factor(), out=made, casting="same_kind")
        made.flags.writeable = out is not None
        return made

    def is_finite(self) -> bool:
        """Return whether all numbers are; found out in pieces, which take little memory."""
        source, factor = self.source.array, self._factor()
        rows = max(_PIECE * len(source) // max(source.size, 1), 1)
        for first in range(0, len(source), rows):
            span = slice(first, first + rows)
            own = factor[span] if self.axis == 0 and len(factor) > 1 else factor
            with np.errstate(all="ignore"):
                made = np.multiply(source[span], own, dtype=source.dtype, casting="same_kind")
            if not np.isfinite(made).all():
                return False
        return True

    def _factor(self) -> Array:
        """Return the numbers, broadcast; in the source's dtype unless that can't hold them."""
        source = self.source.array
        factor = self.factor.reshape(-1, *(1,) * (source.ndim - 1 - self.axis))
        with np.errstate(all="ignore"):
            narrow = factor.astype(source.dtype)
        sizes, limits = np.abs(narrow[factor != 0]), np.finfo(source.dtype)
        is_normal = bool(((sizes >= limits.tiny) & (sizes <= limits.max)).all())
        return narrow if is_normal else factor


_PIECE = 1 << 16
"""Elements of a piece, which stays in a cache."""


_SAMPLES = 32


_ROW = 1 << 15


_MANY_ROWS = 4


_LANES = 256


def _content(array: Array) -> Array:
    """Return the bytes: NaN is equal to itself, and the two zeros differ."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _folded(words: Array, lanes: int) -> Array:
    """Return as many words as there are lanes, which depend on each of the given ones.

    A hash at the speed of memory: in each lane words are mixed in as FNV-1a does with bytes, by XOR
    and a product with an odd number. As products carry bits upwards only, the upper half is then
    brought down. All of that can be undone, so a difference in one word is never lost.
    http://www.isthe.com/chongo/tech/comp/fnv
    """
    state = np.full(lanes, 0xCBF29CE484222325, np.uint64)
    upper = np.empty_like(state)
    factor, half = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)
    for row in words.reshape(-1, lanes):
        np.bitwise_xor(state, row, out=state)
        np.multiply(state, factor, out=state)
        np.right_shift(state, half, out=upper)
        np.bitwise_xor(state, upper, out=state)
    return state
