"""The random bits of a run. Kernels compute these where they need them: see `ir.Draw`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphfw.ir.dtype import int64
from graphfw.ir.graph import Graph
from graphfw.ir.literal import Array
from graphfw.ir.op import Rng
from graphfw.ops.numerics import stream_key
from graphfw.ops.random.draws import RandomBits
from graphfw.runtime.kernels.steps import Temp


def drawn_keys(graph: Graph) -> tuple[str, ...]:
    """Return the keys of the streams that a graph draws from."""
    ops = [node.op for node in graph.nodes]
    return tuple(dict.fromkeys([op.key for op in ops if isinstance(op, RandomBits)]))


class Draws:
    """The source of a program's random nodes in a run: the step, then a key for each stream.

    Args:
        keys: The streams'.

    Attributes:
        storage: Where native steps find it: int64.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._indices = {key: index for index, key in enumerate(keys, 1)}
        self.storage = Temp(int64, len(self._indices) + 1, "what a run draws from")
        self._known: tuple[int, list[int]] | None = None

    def __bool__(self) -> bool:
        return bool(self._indices)

    def index_of(self, key: str) -> int:
        """Return where the key of a stream is."""
        return self._indices[key]

    def array(self, rng: Rng) -> Array:
        """Return the step and the keys of a run's draws."""
        known = self._known
        if known is None or known[0] != rng.seed:
            words = [stream_key(rng.seed, key) for key in self._indices]
            known = self._known = rng.seed, [low | high << 32 for low, high in words]
        keys = [key ^ rng.iteration_key for key in known[1]]
        return np.array([rng.step, *keys], np.uint64).view(np.int64)
