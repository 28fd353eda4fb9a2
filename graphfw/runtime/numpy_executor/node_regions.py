"""`NodeRegion`: what computes a loop or a branch, for those that bodies are compiled with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

from graphfw.ir.literal import Array
from graphfw.ir.op import Rng
from graphfw.runtime.memory import PerIteration
from graphfw.runtime.numpy_executor.nested_loops import IndirectAddress, NestedLoops

Sizes: TypeAlias = Mapping[str, int]

BoundRegion: TypeAlias = "Callable[[Sequence[Array], Rng], Sequence[Array]]"
"""Computes a node at known sizes; for one thread at a time."""


class LentBody(Protocol):
    """A body of an inner loop, in memory that it is lent.

    Attributes:
        nbytes: How much it is lent.
    """

    nbytes: int

    def lie_at(self, address: int) -> None:
        """Say where the memory is."""


class JoinedLoop(Protocol):
    """A loop inside of a native one, at some sizes."""

    @property
    def bodies(self) -> Sequence[LentBody]:
        """Its bodies."""

    def join(
        self,
        chain: NestedLoops,
        sources: Sequence[IndirectAddress],
        room: Callable[[int], IndirectAddress],
    ) -> list[IndirectAddress]:
        """Add it to a chain, and return where its results are."""


class NodeRegion(Protocol):
    """The executable of a node with bodies: see `regions.CompiledRegion`."""

    how: str

    @property
    def fits_inside(self) -> bool:
        """Whether it may be a loop inside of a native one, at some sizes at least."""

    def inside(self, sizes: Sizes) -> JoinedLoop:
        """Return it as a loop inside of another."""

    def ready(self, sizes: Sizes) -> BoundRegion:
        """Return a function that computes the node at some sizes."""

    def nbytes(self, sizes: Sizes) -> int:
        """Return how much memory it takes besides what it reads and yields."""

    def per_iteration(self, sizes: Sizes, location: str) -> Iterator[PerIteration]:
        """Yield the memory that each iteration of a loop keeps."""

    def explain(self, sizes: Sizes | None) -> Iterator[str]:
        """Yield the bodies' explanations, line by line."""
