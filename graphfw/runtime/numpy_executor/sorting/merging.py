"""`RunMergeCode`: merges pairs of sorted runs of one line, which doubles their length.

Two sorted vectors are merged in registers: the second is reversed, and then the smaller and
the larger ones of both are sorted like the blocks of a network. The smaller ones come next in the
result, and the others meet the next vector of the run whose next element is smaller. From the ends
of the runs the larger half of the result is found likewise, at the same time: each way waits for
its own results, so that two take the time of one.
"""

from __future__ import annotations

from typing import NamedTuple

from graphfw.ir.dtype import DType
from graphfw.runtime.numpy_executor.codegen.llvm_module import LlvmFunction, LlvmModule
from graphfw.runtime.numpy_executor.sorting.keys import LaneKeys
from graphfw.runtime.numpy_executor.sorting.lines import Lines, keep_zeros

_NAMES = ("pairs", "together", "run", "size", "offset", "apart", "along")
"""Of pairs of runs, how many there are, and of a work item; of elements of a run, and of a line;
where the lines that are sorted begin, how far they are from each other, and their elements."""


class _Runs(NamedTuple):
    """A pair of runs.

    Attributes:
        first: The address of the first one.
        second: That of the second one, which follows it.
        size: How many elements each has.
    """

    first: str
    second: str
    size: str


class RunMergeCode:
    """Merges the keys of runs.

    Operands: output, runs, and what is sorted if `is_last`. Params: `_NAMES`.

    Args:
        dtype: Of the elements.
        bits: Of a vector.
        is_last: Whether there is one pair a line, whose elements and not keys are written.
        descending: Whether the largest come first.
        stable: Whether zeros of two signs keep their order.
    """

    def __init__(
        self, dtype: DType, bits: int, *, is_last: bool, descending: bool, stable: bool
    ) -> None:
        self._dtype = dtype
        self._bits = bits
        self._is_last = is_last
        self._descending = descending
        self._stable = stable

    @property
    def key(self) -> str:
        if not self._is_last:  # keys are integers
            return f"merge i{8 * self._dtype.itemsize} {self._bits}"
        return f"merge {self._dtype.name} {self._bits} {self._descending} {self._stable}"

    def llvm(self, symbol: str) -> str:
        f = LlvmFunction(LlvmModule())
        keys = LaneKeys(
            self._dtype, self._bits // (8 * self._dtype.itemsize), descending=self._descending
        )
        n = f.read_sizes(_NAMES)
        target, source = f.operand(0), f.operand(1)
        begin = f.mul("%work_item", n["together"])
        end = f.low(f.add(begin, n["together"]), n["pairs"])
        with f.loop(begin, end, asks=True) as pair:
            start = f.mul(pair.index, f.add(n["run"], n["run"]))
            first = f.at(keys.single, source, start)
            runs = _Runs(first, f.at(keys.single, first, n["run"]), n["run"])
            if self._is_last:
                to = f.at(keys.single, target, f.mul(pair.index, n["size"]))
            else:
                to = f.at(keys.single, target, start)
            for asks in f.briefly_or_not(n["run"], keys.lanes):
                self._merge(f, keys, runs, to, n["size"], asks=asks)
            if self._is_last and keys.has_zeros and self._stable:
                at = f.add(n["offset"], f.mul(pair.index, n["apart"]))
                line = Lines(f.at(keys.single, f.operand(2), at), n["along"], "0", "1", n["size"])
                self._keep_zeros(f, keys, line, to)
        return f.work_item(symbol)

    def _merge(
        self, f: LlvmFunction, keys: LaneKeys, runs: _Runs, to: str, size: str, *, asks: bool
    ) -> None:
        """Write the first half of a result from its begin, and the other one from its end."""
        lanes, kind, single = str(keys.lanes), keys.kind, keys.single
        last = f.sub(runs.size, lanes)
        low = self._load(f, keys, runs.second)
        high = self._load(f, keys, f.at(single, runs.second, last))
        carried = [
            (kind, low),
            ("i64", "0"),
            ("i64", lanes),
            (kind, high),
            ("i64", last),
            ("i64", f.sub(last, lanes)),
        ]
        with f.walk(runs.size, keys.lanes, carried, asks=asks) as loop:
            low, i, j, high, p, q = loop.values
            # From the begin: the run whose next element is smaller, while it has any.
            is_left = f.let(f"icmp slt i64 {i}, {runs.size}")
            heads = [
                self._key(f, keys, run, f.low(index, last))
                for run, index in ((runs.first, i), (runs.second, j))
            ]
            is_first = f.let(f"icmp sle {single} {heads[0]}, {heads[1]}")
            is_over = f.let(f"icmp sge i64 {j}, {runs.size}")
            is_first = f.let(f"or i1 {is_first}, {is_over}")
            is_first = f.let(f"and i1 {is_first}, {is_left}")
            taken = self._taken(f, keys, runs, is_first, i, j)
            found, low = self._exchanged(f, keys, low, taken)
            self._store(f, keys, found, to, loop.index, size)
            # From the end: the run whose last element is larger.
            is_left = f.let(f"icmp sge i64 {p}, 0")
            tails = [
                self._key(f, keys, run, f.add(f.high(index, "0"), f.sub(lanes, "1")))
                for run, index in ((runs.first, p), (runs.second, q))
            ]
            is_larger = f.let(f"icmp sgt {single} {tails[0]}, {tails[1]}")
            is_over = f.let(f"icmp slt i64 {q}, 0")
            is_larger = f.let(f"or i1 {is_larger}, {is_over}")
            is_larger = f.let(f"and i1 {is_larger}, {is_left}")
            taken = self._taken(f, keys, runs, is_larger, p, q)
            high, found = self._exchanged(f, keys, high, taken)
            back = f.sub(f.sub(f.add(runs.size, runs.size), lanes), loop.index)
            self._store(f, keys, found, to, back, size)
            loop.following = [
                low,
                *self._moved(f, is_first, i, j, lanes),
                high,
                *self._moved(f, is_larger, p, q, f"-{lanes}"),
            ]

    def _taken(
        self, f: LlvmFunction, keys: LaneKeys, runs: _Runs, is_first: str, i: str, j: str
    ) -> str:
        base = f.let(f"select i1 {is_first}, ptr {runs.first}, ptr {runs.second}")
        index = f.let(f"select i1 {is_first}, i64 {i}, i64 {j}")
        return self._load(f, keys, f.at(keys.single, base, index))

    def _moved(self, f: LlvmFunction, is_first: str, i: str, j: str, by: str) -> list[str]:
        ahead = [f.add(index, by) for index in (i, j)]
        return [
            f.let(f"select i1 {is_first}, i64 {ahead[0]}, i64 {i}"),
            f.let(f"select i1 {is_first}, i64 {j}, i64 {ahead[1]}"),
        ]

    def _exchanged(self, f: LlvmFunction, keys: LaneKeys, x: str, y: str) -> tuple[str, str]:
        """Return the smaller and the larger ones of two sorted vectors, sorted."""
        lanes = keys.lanes
        backwards = _shuffled(f, keys, y, y, list(reversed(range(lanes))))
        low, high = keys.exchanged(f, x, backwards)
        return self._sorted(f, keys, low), self._sorted(f, keys, high)

    def _sorted(self, f: LlvmFunction, keys: LaneKeys, x: str) -> str:
        """Sort a vector that rises and then falls, or the other way around."""
        lanes, distance = keys.lanes, keys.lanes // 2
        while distance:
            other = _shuffled(f, keys, x, x, [lane ^ distance for lane in range(lanes)])
            low, high = keys.exchanged(f, x, other)
            chosen = [lane + lanes if lane & distance else lane for lane in range(lanes)]
            x = _shuffled(f, keys, low, high, chosen)
            distance //= 2
        return x

    def _load(self, f: LlvmFunction, keys: LaneKeys, address: str) -> str:
        return f.let(f"load {keys.kind}, ptr {address}, align {self._dtype.itemsize}")

    def _key(self, f: LlvmFunction, keys: LaneKeys, run: str, index: str) -> str:
        address = f.at(keys.single, run, index)
        return f.let(f"load {keys.single}, ptr {address}, align {self._dtype.itemsize}")

    def _store(
        self, f: LlvmFunction, keys: LaneKeys, x: str, to: str, index: str, size: str
    ) -> None:
        address = f.at(keys.single, to, index)
        if not self._is_last:
            f.do(f"store {keys.kind} {x}, ptr {address}, align {self._dtype.itemsize}")
            return
        # After the line's elements come those that fill the runs.
        mask = keys.before(f, f.sub(size, index))
        name = f.module.declare(
            "void",
            f"llvm.masked.store.v{keys.lanes}{keys.single}.p0",
            *(keys.kind, "ptr", "i32", f"<{keys.lanes} x i1>"),
        )
        value, align = keys.decoded(f, x), self._dtype.itemsize
        f.do(
            f"call void {name}({keys.kind} {value}, ptr {address}, i32 {align}, "
            f"<{keys.lanes} x i1> {mask})"
        )

    def _keep_zeros(self, f: LlvmFunction, keys: LaneKeys, line: Lines, to: str) -> None:
        """Write the zeros of a line in the order that they have in what is sorted."""
        with f.loop("0", line.size, carried=[("i1", "false")]) as n:
            x = f.let(
                f"load {keys.single}, ptr {line.element(f, keys, '0', n.index)}, "
                f"align {self._dtype.itemsize}"
            )
            found = f.let(f"icmp eq {keys.single} {x}, {-1 << 8 * self._dtype.itemsize - 1}")
            n.following = [f.let(f"or i1 {n.values[0]}, {found}")]

        def put(index: str, element: str) -> None:
            address = f.at(keys.single, to, index)
            f.do(f"store {keys.single} {element}, ptr {address}, align {self._dtype.itemsize}")

        with f.when(n.values[0]):
            keep_zeros(f, keys, line, "0", put)


def _shuffled(f: LlvmFunction, keys: LaneKeys, x: str, y: str, lanes: list[int]) -> str:
    order = ", ".join([f"i32 {lane}" for lane in lanes])
    return f.let(f"shufflevector {keys.kind} {x}, {keys.kind} {y}, <{keys.lanes} x i32> <{order}>")
