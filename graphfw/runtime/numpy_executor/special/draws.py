"""Random bits: what a run draws from, and the native step of `random_bits`.

The bits are those of `ops.numerics.philox`, to the last one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphfw.ir.dim import DimLike
from graphfw.ir.dtype import int64
from graphfw.ir.graph import Graph
from graphfw.ir.literal import Array
from graphfw.ir.op import RANDOM, Rng
from graphfw.ir.tensor import Node
from graphfw.ops.numerics import stream_key
from graphfw.runtime.kernels.steps import Step, Temp, View
from graphfw.runtime.numpy_executor.attention.layout import HEAD
from graphfw.runtime.numpy_executor.attention.text import Module
from graphfw.runtime.numpy_executor.special.moves import ceil
from graphfw.runtime.numpy_executor.special.text import Writer

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_INCREMENTS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10

_LANES = 16
"""Blocks that are computed at once."""

_TURN = 2 * _LANES
"""Pairs of words that they are."""

_CELL = 64 * _TURN
"""Pairs of words that are drawn by one claim."""


class Draws:
    """What the random nodes of a program draw from in a run: the step, then a key for each stream.

    Attributes:
        storage: Where native steps find it: int64.
    """

    def __init__(self, graph: Graph) -> None:
        keys = [node.op.key for node in graph.nodes if RANDOM in node.op.traits]  # type: ignore[attr-defined]
        self._places = {key: place for place, key in enumerate(dict.fromkeys(keys), 1)}
        self.storage = Temp(int64, len(self._places) + 1, "what a run draws from")
        self._known: tuple[int, list[int]] | None = None

    def __bool__(self) -> bool:
        return bool(self._places)

    def place(self, key: str) -> int:
        """Return where the key of a stream is."""
        return self._places[key]

    def array(self, rng: Rng) -> Array:
        """Return what a run draws from."""
        known = self._known
        if known is None or known[0] != rng.seed:
            words = [stream_key(rng.seed, key) for key in self._places]
            known = self._known = rng.seed, [low | high << 32 for low, high in words]
        return np.array([rng.step, *known[1]], np.uint64).view(np.int64)


class PhiloxCode:
    """Fills an array with the words of a stream.

    Params: where the stream's key is among what the run draws from, how many bytes are wanted.
    Operands: output, what the run draws from.
    """

    key = "philox"

    def llvm(self, symbol: str) -> str:
        module = Module()
        f = Writer(module)
        kind = f"<{_LANES} x i64>"
        place, nbytes = f.read("%params", 0), f.read("%params", 1)
        y, drawn = f.operand(0), f.operand(1)
        key = f.let(f"load i64, ptr {f.at('i64', drawn, place)}")
        step = f.let(f"load i64, ptr {drawn}")
        keys = self._keys(f, key)
        low = f.let(f"shl i64 {step}, 32")
        high = f.let(f"lshr i64 {step}, 32")
        counter = _all(f, f.let(f"or i64 {low}, {high}"))
        pairs = f.let(f"lshr i64 {f.add(nbytes, '7')}, 3")
        begin = f.mul("%cell", str(_CELL))
        end = f.low(f.add(begin, str(_CELL)), pairs)
        lanes = ", ".join([f"i64 {i}" for i in range(_LANES)])
        with f.loop(begin, end, _TURN) as loop:
            first = _all(f, f.let(f"lshr i64 {loop.index}, 1"))
            block = f.let(f"add {kind} {first}, <{lanes}>")
            words = self._words(f, _turned(f, block), counter, keys)
            room = f.let(f"shl i64 {loop.index}, 3")
            left = f.sub(nbytes, room)
            target = f.let(f"getelementptr i8, ptr {y}, i64 {room}")
            # The last words may be too many: those that are wanted are copied.
            fits = f.let(f"icmp sge i64 {left}, {8 * _TURN}")
            to = f.let(f"select i1 {fits}, ptr {target}, ptr %scratch")
            f.do(f"store <{_TURN} x i64> {words}, ptr {to}, align 4")
            with f.when(f.let(f"xor i1 {fits}, true")):
                memcpy = module.declare("void", "llvm.memcpy.p0.p0.i64", "ptr", "ptr", "i64", "i1")
                f.do(f"call void {memcpy}(ptr {target}, ptr %scratch, i64 {left}, i1 false)")
        f.do("ret i32 0")
        module.add(HEAD.format(symbol=symbol), f)
        return module.text

    def _keys(self, f: Writer, key: str) -> list[tuple[str, str]]:
        """Return the round keys, each word in the upper half of all lanes."""
        words = [f.let(f"shl i64 {key}, 32"), f.let(f"and i64 {key}, {-1 << 32}")]
        keys = []
        for number in range(_ROUNDS):
            parts = []
            for word, increment in zip(words, _KEY_INCREMENTS, strict=True):
                more = (number * increment % (1 << 32)) << 32
                # As a signed number: what does not fit into the upper half is lost.
                more -= (more >> 63) << 64
                parts.append(_all(f, f.let(f"add i64 {word}, {more}")))
            keys.append((parts[0], parts[1]))
        return keys

    def _words(self, f: Writer, a: str, b: str, keys: Sequence[tuple[str, str]]) -> str:
        """Return the words of blocks, from the counters' words, packed: the first one above."""
        kind = f"<{_LANES} x i64>"
        half = _constant(32)
        for key_a, key_b in keys:
            upper_a, upper_b = (f.let(f"lshr {kind} {x}, {half}") for x in (a, b))
            product_a = f.let(f"mul {kind} {upper_b}, {_constant(_MULTIPLIERS[1])}")
            product_b = f.let(f"mul {kind} {upper_a}, {_constant(_MULTIPLIERS[0])}")
            lower_a, lower_b = (f.let(f"shl {kind} {x}, {half}") for x in (a, b))
            a = _xor(f, product_a, lower_a, key_a)
            b = _xor(f, product_b, lower_b, key_b)
        order = ", ".join([f"i32 {i}, i32 {i + _LANES}" for i in range(_LANES)])
        a, b = _turned(f, a), _turned(f, b)
        return f.let(f"shufflevector {kind} {a}, {kind} {b}, <{_TURN} x i32> <{order}>")


def _constant(value: int) -> str:
    return "<" + ", ".join([f"i64 {value}"] * _LANES) + ">"


def _all(f: Writer, value: str) -> str:
    """Return an i64 in all lanes."""
    kind = f"<{_LANES} x i64>"
    one = f.let(f"insertelement {kind} poison, i64 {value}, i64 0")
    return f.let(f"shufflevector {kind} {one}, {kind} poison, <{_LANES} x i32> zeroinitializer")


def _xor(f: Writer, *values: str) -> str:
    result, *more = values
    for value in more:
        result = f.let(f"xor <{_LANES} x i64> {result}, {value}")
    return result


def _turned(f: Writer, value: str) -> str:
    """Return values with their halves exchanged."""
    kind, half = f"<{_LANES} x i64>", _constant(32)
    below = f.let(f"lshr {kind} {value}, {half}")
    return f.let(f"or {kind} {f.let(f'shl {kind} {value}, {half}')}, {below}")


def random_bits_steps(node: Node, output: View, draws: Draws) -> list[Step]:
    """Return the step of a `random_bits` node."""
    storage = output.storage
    nbytes: DimLike = storage.size * storage.dtype.itemsize
    step = Step(
        nodes=(node,),
        code=PhiloxCode(),
        operands=(storage, draws.storage),
        written=(True, False),
        params=(draws.place(node.op.key), nbytes),  # type: ignore[attr-defined]
        cells=ceil(nbytes, 8 * _CELL),
        scratch=8 * _TURN,
    )
    return [step]
