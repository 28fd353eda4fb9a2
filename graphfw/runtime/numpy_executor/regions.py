"""Compiled loops and branches: their bodies are programs of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from graphfw.ir.literal import Array
from graphfw.ir.op import LOOSE, Op, Rng
from graphfw.ops.control.branch_op import Branch
from graphfw.ops.control.loop_op import Loop
from graphfw.ops.control.region_op import Region
from graphfw.ops.control.scan_op import Scan
from graphfw.runtime.memory import PerIteration
from graphfw.runtime.numpy_executor.bodies import Compile, Compiled, FailedError
from graphfw.runtime.numpy_executor.node_regions import BoundRegion, Sizes
from graphfw.runtime.numpy_executor.region_loop import LoopRegion, NativeLoop
from graphfw.runtime.numpy_executor.region_scan import NativeScan, ScanRegion


class CompiledRegion:
    """The executable of a node with bodies, compiled here and now.

    Attributes:
        how: Who makes the iterations, or chooses, for reports.
        bodies: The bodies.
    """

    def __init__(self, op: Region, compile: Compile) -> None:
        self._op = op
        self._kind: ScanRegion | LoopRegion | _Branch = _KINDS[type(op)](op, compile)
        self.bodies = self._kind.bodies
        if isinstance(op, Branch):
            self.how = "one of its bodies is run"
        elif self._kind.is_native:
            self.how = "its iterations are one native call"
        else:
            self.how = "Python makes its iterations"

    def ready(self, sizes: Sizes) -> BoundRegion:
        """Return a function that computes the node at some sizes."""
        return partial(self._computed, self._kind.ready(sizes), sizes)

    def _computed(
        self, call: BoundRegion, sizes: Sizes, arrays: Sequence[Array], rng: Rng
    ) -> Sequence[Array]:
        try:
            return call(arrays, rng)
        except FailedError:  # the reference path has the message
            bound = self._op.bind(sizes)
            with np.errstate(all="ignore"):
                found = bound.eval(np, *arrays, **({"rng": rng} if self._op.is_random else {}))
            if LOOSE not in self._op.traits:
                raise
            return [np.array(array, order="C") for array in found]

    @property
    def fits_inside(self) -> bool:
        """Whether it may be a loop inside of a native one, at some sizes at least."""
        return (
            not isinstance(self._kind, _Branch)
            and self._kind.is_native
            and not any(body.is_random for body in self.bodies)
        )

    def inside(self, sizes: Sizes) -> NativeScan | NativeLoop:
        """Return it as a loop inside of another.

        Raises:
            NotNativeError: At these sizes Python has something to do.
        """
        assert not isinstance(self._kind, _Branch)
        return self._kind.native(sizes)

    def nbytes(self, sizes: Sizes) -> int:
        """Return how much memory it takes besides what it reads and yields."""
        return sum(body.nbytes(sizes) for body in self.bodies)

    def per_iteration(self, sizes: Sizes, location: str) -> Iterator[PerIteration]:
        """Yield the memory that each iteration of a loop keeps, of loops in the bodies, too."""
        own = self._kind.per_iteration(sizes) if isinstance(self._kind, LoopRegion) else 0
        if own:
            yield PerIteration(own, self._op.name, location)
        for body in self.bodies:
            yield from body.made.memory(body.own(sizes)).per_iteration

    def explain(self, sizes: Sizes | None) -> Iterator[str]:
        """Yield the bodies' explanations, line by line."""
        for body in self.bodies:
            yield from body.explain(sizes)


class _Branch:
    """One of several bodies."""

    def __init__(self, op: Branch, compile: Compile) -> None:
        self.bodies = tuple([Compiled(body, 0, compile, is_iteration=False) for body in op.choices])

    def ready(self, sizes: Sizes) -> BoundRegion:
        return partial(self._chosen, [body.own(sizes) for body in self.bodies])

    def _chosen(
        self, own: Sequence[tuple[int, ...]], arrays: Sequence[Array], rng: Rng
    ) -> Sequence[Array]:
        number = min(max(int(arrays[0]), 0), len(self.bodies) - 1)
        return self.bodies[number](arrays[1:], own[number], rng, 0)


_KINDS: Mapping[type[Op], Any] = {Scan: ScanRegion, Loop: LoopRegion, Branch: _Branch}
