"""The names and the costs of a program's native steps: kept beside its recipe, for profiles.

So a plan that is recalled from disk is profiled without being compiled again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphfw.ir.dim_text import SizeTexts, evaluator
from graphfw.ir.tensor import Node
from graphfw.runtime.cache import Cache
from graphfw.runtime.locations import locations_of
from graphfw.runtime.numpy_executor.rates import rates
from graphfw.runtime.profile import Event, Label, Profile, profile


class Described(NamedTuple):
    """A step, at known sizes.

    Attributes:
        label: The ops inside.
        location: Where they were made.
        flops: What it computes.
        moved: The bytes of its operands.
    """

    label: str
    location: str
    flops: int
    moved: int


class Labels(NamedTuple):
    """The native steps of a program, for all sizes.

    Attributes:
        labels: The ops inside of each.
        nodes: For each the numbers of nodes of the program's source on the lines that made it.
        work: For each its flops, then the bytes of its operands.
    """

    labels: tuple[str, ...]
    nodes: tuple[tuple[int, ...], ...]
    work: SizeTexts

    def keep(self, cache: Cache, key: str) -> None:
        """Keep them on disk, beside the recipe of this key."""
        content = [self.labels, self.nodes, [self.work.parameters, self.work.texts]]
        cache.store(_name(key), json.dumps([*content, self.work.indices]).encode())

    def at(self, sizes: Sequence[int], nodes: Sequence[Node]) -> list[Described]:
        """Return them at some sizes, given the nodes of the program's source."""
        work = iter(evaluator(self.work)(*sizes))
        pairs = zip(self.labels, self.nodes, work, work, strict=True)
        return [
            Described(label, locations_of([nodes[n] for n in own]), flops, moved)
            for label, own, flops, moved in pairs
        ]


def recalled_labels(cache: Cache, key: str) -> Labels | None:
    """Return the labels kept beside the recipe of a key; None where there are none."""
    content = cache.load(_name(key))
    if content is None:
        return None
    try:
        labels, nodes, (parameters, texts), indices = json.loads(content)
        work = SizeTexts(tuple(parameters), tuple(texts), tuple(indices))
        work.check()
        return Labels(tuple(labels), tuple(map(tuple, nodes)), work)
    except (ValueError, TypeError):
        return None


def profiled(
    steps: Sequence[Described], records: NDArray[np.void], outside: Sequence[tuple[int, int]]
) -> Profile:
    """Put the times of steps together.

    Args:
        steps: The native steps, then what lies outside of native code.
        records: What the native steps took.
        outside: When each of the others began and ended, in nanoseconds.
    """
    events = [
        Event(int(r["call"]), int(r["thread"]), int(r["start"]) * 1e-9, int(r["end"]) * 1e-9)
        for r in records
    ]
    for number, (begin, end) in enumerate(outside, len(steps) - len(outside)):
        events.append(Event(number, 0, begin * 1e-9, end * 1e-9))
    took = dict.fromkeys(range(len(steps)), 0.0)
    for event in events:
        took[event.step] += event.end - event.begin
    best = rates()
    for number, one in enumerate(steps):
        best.saw(one.flops, one.moved, took[number])
    labels = [Label(s.label, s.location, best.seconds(s.flops, s.moved)) for s in steps]
    return profile(events, labels)


def _name(key: str) -> str:
    return f"labels_{key}"
