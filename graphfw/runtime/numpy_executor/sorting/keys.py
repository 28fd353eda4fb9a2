"""`LaneKeys`: the numbers that stand for elements while vectors sort them.

They are signed integers, and floats of 64 bits without NaN, which are counted. In descending order
the largest elements have the least keys.
"""

from __future__ import annotations

import numpy as np

from graphfw.ir.dtype import DType
from graphfw.runtime.numpy_executor.codegen.llvm_module import LlvmFunction
from graphfw.runtime.numpy_executor.codegen.registers import iota, literal, splat, vector


class LaneKeys:
    """Elements of a dtype, one of each line, in the lanes of a vector.

    Attributes:
        dtype: Of the elements.
        lanes: How many a vector has.
        descending: Whether the largest elements have the least keys.
        single: The type of a key, in LLVM's words.
        kind: The type of a vector of keys.
        has_zeros: Whether there are zeros of two signs.
        counts_nan: Whether NaN are counted; else they have a key.
    """

    def __init__(self, dtype: DType, lanes: int, *, descending: bool) -> None:
        self.dtype = dtype
        self.lanes = lanes
        self.descending = descending
        self._bits = 8 * dtype.itemsize
        self.has_zeros = dtype.is_floating
        # AVX2 has no smaller one of two integers of 64 bits.
        self.counts_nan = dtype.is_floating and dtype.itemsize == 8 and lanes < 8
        self.single = "double" if self.counts_nan else f"i{self._bits}"
        self.kind = vector(self.single, lanes)

    def exchanged(self, f: LlvmFunction, x: str, y: str) -> tuple[str, str]:
        """Return the smaller and the larger of two keys; equal ones may change places."""
        kind = self.kind
        if self.counts_nan:
            # Of zeros of two signs each is in one of the results.
            less = f.let(f"fcmp olt {kind} {x}, {y}")
            low = f.let(f"select <{self.lanes} x i1> {less}, {kind} {x}, {kind} {y}")
            return low, f.let(f"select <{self.lanes} x i1> {less}, {kind} {y}, {kind} {x}")
        suffix = f"v{self.lanes}{self.single}"
        low, high = [
            f.call(kind, f"llvm.{name}.{suffix}", (kind, x), (kind, y)) for name in ("smin", "smax")
        ]
        return low, high

    def last(self) -> str:
        """Return an element after which none comes, as a constant vector."""
        if self.counts_nan:
            infinite = literal(-np.inf if self.descending else np.inf, self.dtype)
            return splat(self.single, infinite, self.lanes)
        if self.dtype.is_floating:
            return self.splat(self._pattern(-np.inf) if self.descending else self._nan)
        limits = np.iinfo(self.dtype.dtype)
        return self.splat(int(limits.min if self.descending else limits.max))

    def splat(self, value: int) -> str:
        """Return a vector of integers that are all the same."""
        return splat(f"i{self._bits}", str(value), self.lanes)

    def encoded(self, f: LlvmFunction, x: str, lanes: int = 0) -> str:
        """Return the keys of elements; that of NaN which are counted is an infinity.

        Args:
            f: The writer.
            x: The elements.
            lanes: How many there are, if not as many as a vector has.
        """
        lanes = lanes or self.lanes
        kind, integers = vector(self.single, lanes), vector(f"i{self._bits}", lanes)
        if self.counts_nan:
            if self.descending:
                x = f.let(f"fneg {kind} {x}")
            infinite = literal(-np.inf if self.descending else np.inf, self.dtype)
            end = splat(self.single, infinite, lanes)
            is_nan = f.let(f"fcmp uno {kind} {x}, {x}")
            choose = f"select {vector('i1', lanes)} {is_nan}"
            return f.let(f"{choose}, {kind} {end}, {kind} {x}")
        if self.dtype.is_floating:
            size = f.let(f"and {integers} {x}, {self._of(lanes, self._nan)}")
            infinite = self._of(lanes, self._pattern(np.inf))
            is_nan = f.let(f"icmp ugt {integers} {size}, {infinite}")
            choose = f"select {vector('i1', lanes)} {is_nan}"
            x = f.let(f"{choose}, {integers} {self._of(lanes, self._nan)}, {integers} {x}")
        x = self._signed(f, x, integers, lanes)
        return f.let(f"xor {integers} {x}, {self._of(lanes, -1)}") if self.descending else x

    def decoded(self, f: LlvmFunction, key: str) -> str:
        """Return the elements that have some keys."""
        integers = vector(f"i{self._bits}", self.lanes)
        if self.counts_nan:
            return f.let(f"fneg {self.kind} {key}") if self.descending else key
        if self.descending:
            key = f.let(f"xor {integers} {key}, {self.splat(-1)}")
        return self._signed(f, key, integers, self.lanes)

    def _signed(self, f: LlvmFunction, x: str, integers: str, lanes: int) -> str:
        """Turn bits into signed integers of the same order, or these into the bits."""
        if self.dtype.is_floating:  # of negative ones all bits but the sign are flipped
            sign = f.let(f"ashr {integers} {x}, {self._of(lanes, self._bits - 1)}")
            flipped = f.let(f"and {integers} {sign}, {self._of(lanes, self._nan)}")
            return f.let(f"xor {integers} {x}, {flipped}")
        if np.dtype(self.dtype.dtype).kind == "u":
            return f.let(f"xor {integers} {x}, {self._of(lanes, -1 << self._bits - 1)}")
        return x

    def _of(self, lanes: int, value: int) -> str:
        return splat(f"i{self._bits}", str(value), lanes)

    def _pattern(self, value: float) -> int:
        """Return the bits of a float."""
        return int(np.array(value).astype(self.dtype.dtype).view(f"u{self.dtype.itemsize}"))

    @property
    def _nan(self) -> int:
        """Return all bits but the sign, which are those of a NaN, too."""
        return (1 << self._bits - 1) - 1

    def before(self, f: LlvmFunction, count: str) -> str:
        """Return a mask of so many lanes, of all if there are more, of none if it is negative."""
        numbers = f"<{self.lanes} x i64>"
        one = f.let(f"insertelement {numbers} poison, i64 {count}, i64 0")
        every = f.let(
            f"shufflevector {numbers} {one}, {numbers} poison, <{self.lanes} x i32> zeroinitializer"
        )
        return f.let(f"icmp slt {numbers} {iota('i64', self.lanes)}, {every}")

    def nan(self) -> str:
        """Return NaN, as a constant vector."""
        return splat(self.single, literal(np.nan, self.dtype), self.lanes)

    def is_nan(self, f: LlvmFunction, x: str) -> str:
        """Return the mask of NaN, 1 for each, as integers of their size."""
        found = f.let(f"fcmp uno {self.kind} {x}, {x}")
        integers = vector(f"i{self._bits}", self.lanes)
        return f.let(f"zext <{self.lanes} x i1> {found} to {integers}")

    def is_negative_zero(self, f: LlvmFunction, x: str) -> str:
        """Return the mask of -0.0, as bits."""
        integers = vector(f"i{self._bits}", self.lanes)
        if self.counts_nan:
            x = f.let(f"bitcast {self.kind} {x} to {integers}")
        return f.let(f"icmp eq {integers} {x}, {self.splat(-1 << self._bits - 1)}")

    def is_below_zero(self, f: LlvmFunction, key: str) -> str:
        """Return whether one key is less than those of zeros."""
        if self.counts_nan:
            return f.let(f"fcmp olt {self.single} {key}, 0.0")
        return f.let(f"icmp slt {self.single} {key}, -1")

    def is_zero(self, f: LlvmFunction, key: str) -> str:
        """Return whether one key is that of 0.0 or of -0.0."""
        if self.counts_nan:
            return f.let(f"fcmp oeq {self.single} {key}, 0.0")
        return f.let(f"icmp ult {self.single} {f.let(f'add {self.single} {key}, 1')}, 2")
