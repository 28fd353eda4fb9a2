"""Sorting networks of lines in a thread's memory: vector n has the n-th element of each.

Blocks of a few vectors are sorted in registers, and sorted runs are merged in pairs, which doubles
their length (Batcher, AFIPS Spring Joint Computer Conference 1968, p. 307): first the n-th vector
from the begin of a pair is exchanged with the n-th from its end, then vectors half a run apart, and
so on. Where the second run of a pair is shorter, the keys that it lacks would come after all the
others: no exchange would move them, so those with them are left out. Two distances at a time take
half as many loads and stores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphfw.runtime.numpy_executor.codegen.llvm_module import LlvmFunction
from graphfw.runtime.numpy_executor.sorting.keys import LaneKeys

BLOCK = 16
"""Vectors that are sorted in registers."""

_SHIFT = BLOCK.bit_length() - 1

Encode = Callable[[Sequence[str], Sequence[str]], tuple[list[str], list[str]]]

Exchanges = Sequence[tuple[int, int]]
"""Pairs of vectors, of which the first becomes the smaller one."""


class Network:
    """Writes the sort of vectors in scratch memory.

    Args:
        f: The writer.
        keys: What they hold.
        count: How many there are, a multiple of `BLOCK`.
    """

    def __init__(self, f: LlvmFunction, keys: LaneKeys, count: str) -> None:
        self._f = f
        self._keys = keys
        self._count = count

    def address(self, index: str) -> str:
        """Return where a vector lies."""
        f = self._f
        return f.at(
            "i8", "%scratch", f.mul(index, str(self._keys.lanes * self._keys.dtype.itemsize))
        )

    def get(self, index: str) -> str:
        """Load a vector."""
        return self._f.let(
            f"load {self._keys.kind}, ptr {self.address(index)}, align {self._align}"
        )

    def put(self, index: str, value: str) -> None:
        """Store a vector."""
        self._f.do(
            f"store {self._keys.kind} {value}, ptr {self.address(index)}, align {self._align}"
        )

    @property
    def _align(self) -> int:
        return self._keys.lanes * self._keys.dtype.itemsize

    def sort_blocks(self, encode: Encode, carried: Sequence[tuple[str, str]]) -> list[str]:
        """Sort the keys of each block.

        Args:
            encode: Returns the keys of vectors, and what is carried on.
            carried: Types and first values of what goes from block to block.

        Returns:
            What is carried last.
        """
        f = self._f
        with f.loop("0", self._count, BLOCK, carried) as block:
            indices = [f.add(block.index, str(n)) for n in range(BLOCK)]
            found, block.following = encode([self.get(index) for index in indices], block.values)
            self._exchange(found, _sorting(BLOCK))
            for index, value in zip(indices, found, strict=True):
                self.put(index, value)
        return block.values

    def merge(self, levels: str) -> None:
        """Merge runs, as often as it takes until there is one."""
        f = self._f
        with f.loop("0", levels) as level:
            run = f.let(f"shl i64 {BLOCK}, {level.index}")
            is_first = f.let(f"icmp eq i64 {level.index}, 0")
            with f.when(is_first):
                self._fold_once(run)
            with f.when(f.let(f"xor i1 {is_first}, true")):
                self._fold_twice(run)
            # The distances left are from a quarter of a run down to a block.
            left = f.high(f.sub(level.index, "1"), "0")
            with f.loop("0", f.let(f"lshr i64 {left}, 1")) as pair:
                shift = f.add(f.add(pair.index, pair.index), "3")
                self._halve_twice(f.let(f"lshr i64 {run}, {shift}"))
            with f.when(f.let(f"trunc i64 {left} to i1")):
                self._halve_once()
            self._finish_blocks()

    def _fold_once(self, run: str) -> None:
        """Exchange vectors of runs with those of the next, from the end."""
        f = self._f
        last = str(2 * BLOCK - 1)
        with f.loop("0", f.sub(self._count, run), 2 * BLOCK) as pair, f.loop("0", run) as n:
            at = [f.add(pair.index, n.index), f.add(pair.index, f.sub(last, n.index))]
            self._exchange_at(at, [(0, 1)])

    def _fold_twice(self, run: str) -> None:
        """Do so, and exchange vectors half a run apart."""
        f = self._f
        half = f.let(f"lshr i64 {run}, 1")
        span = f.mul(half, "4")
        pairs = f.let(f"udiv i64 {f.sub(f.add(f.sub(self._count, run), span), '1')}, {span}")
        with f.loop("0", pairs) as pair:
            begin = f.mul(pair.index, span)
            size = f.sub(self._count, begin)
            # Of the second run there may be less.
            third, fourth = [
                f.low(f.high(f.sub(f.mul(half, str(n)), size), "0"), half) for n in (3, 4)
            ]
            for first, end, present in (("0", third, 2), (third, fourth, 3), (fourth, half, 4)):
                with f.loop(first, end) as n:
                    low = f.add(begin, n.index)
                    back = f.sub(f.add(begin, f.sub(f.mul(half, "3"), "1")), n.index)
                    at = [low, f.add(low, half), back, f.add(back, half)][:present]
                    self._exchange_at(at, [(0, 3), (1, 2), (0, 1), (2, 3)])

    def _halve_twice(self, distance: str) -> None:
        """Exchange vectors twice a distance apart, then those a distance apart."""
        f = self._f
        span = f.mul(distance, "4")
        groups = f.let(f"udiv i64 {f.sub(f.add(self._count, span), '1')}, {span}")
        with f.loop("0", groups) as group:
            begin = f.mul(group.index, span)
            size = f.sub(self._count, begin)
            ends = [
                f.low(f.high(f.sub(size, f.mul(distance, str(n))), "0"), distance)
                for n in (3, 2, 1)
            ]
            for first, end, present in zip(("0", *ends), ends, (4, 3, 2), strict=False):
                with f.loop(first, end) as n:
                    at = [f.add(begin, n.index)]
                    while len(at) < present:
                        at.append(f.add(at[-1], distance))
                    self._exchange_at(at, [(0, 2), (1, 3), (0, 1), (2, 3)])

    def _halve_once(self) -> None:
        """Exchange vectors a block apart."""
        f = self._f
        with (
            f.loop("0", f.sub(self._count, str(BLOCK)), 2 * BLOCK) as group,
            f.loop("0", str(BLOCK)) as n,
        ):
            low = f.add(group.index, n.index)
            self._exchange_at([low, f.add(low, str(BLOCK))], [(0, 1)])

    def _finish_blocks(self) -> None:
        """Exchange vectors of each block half a block apart, then a quarter, and so on."""
        f = self._f
        exchanges = [
            (n, n + distance)
            for distance in [BLOCK >> shift for shift in range(1, _SHIFT + 1)]
            for n in range(BLOCK)
            if not n & distance
        ]
        with f.loop("0", self._count, BLOCK) as block:
            self._exchange_at([f.add(block.index, str(n)) for n in range(BLOCK)], exchanges)

    def _exchange_at(self, indices: Sequence[str], exchanges: Exchanges) -> None:
        values = [self.get(index) for index in indices]
        self._exchange(values, exchanges)
        for index, value in zip(indices, values, strict=True):
            self.put(index, value)

    def _exchange(self, values: list[str], exchanges: Exchanges) -> None:
        for low, high in exchanges:
            if high < len(values):
                pair = values[low], values[high]
                values[low], values[high] = self._keys.exchanged(self._f, *pair)


def levels_of(size: int) -> int:
    """Return the number of merges until there is one run of so many vectors.

    >>> levels_of(16), levels_of(17), levels_of(128)
    (0, 1, 3)
    """
    return max(-(-size // BLOCK) - 1, 0).bit_length()


def _sorting(size: int) -> list[tuple[int, int]]:
    """Return the exchanges that sort a power of two: Batcher's odd-even merges."""
    found = []
    run = 1
    while run < size:
        distance = run
        while distance:
            found += [
                (low, low + distance)
                for first in range(distance % run, size - distance, 2 * distance)
                for low in range(first, min(first + distance, size - distance))
                if low // (2 * run) == (low + distance) // (2 * run)
            ]
            distance //= 2
        run *= 2
    return found
