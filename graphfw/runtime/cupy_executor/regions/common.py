"""The base of loops and branches: bodies, and where these find what they take and yield."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from graphfw.ir.body import Body
from graphfw.ir.op import NO_RNG, Rng
from graphfw.ir.tensor import Node
from graphfw.runtime.cupy_executor.addresses import GpuAddress, StorageAddress
from graphfw.runtime.cupy_executor.build import BodiesCode, GpuProgram
from graphfw.runtime.kernels.steps import Storage
from graphfw.runtime.planning.arena import rounded
from graphfw.runtime.planning.blocks import bytes_at

if TYPE_CHECKING:
    from graphfw.runtime.cupy_executor.layouts import GpuLayout, GpuLayouts
    from graphfw.runtime.cupy_executor.runs import RunMemory, Worker

Sizes: TypeAlias = Mapping[str, int]

MOST_LAUNCHES = 4096
"""A loop of more launches is no part of a CUDA graph: each of them takes some kilobytes there, and
a loop that long keeps the GPU busy for longer than it takes to begin."""


class Maker(Protocol):
    """Compiles bodies; see `body_program`."""

    def __call__(self, body: Body, captures: int, carried: Iterable[int] = (), /) -> GpuProgram:
        """Return a body's program."""
        ...


class RefusedError(Exception):
    """A body refuses what it is given: the reference path knows the message."""


class RegionCode(BodiesCode, ABC):
    """The code of a loop or a branch that can be laid out: see `BodiesCode`."""

    @abstractmethod
    def ready(self, at: RegionSite) -> BoundRegion:
        """Return it at known sizes."""


class RegionSite(NamedTuple):
    """The facts that a loop or a branch at known sizes depends on.

    Attributes:
        env: What the symbols stand for.
        params: What the params are.
        operands: Where the operands are, the inputs from their first element on.
        inside: What lays out the bodies.
    """

    env: Sizes
    params: Sequence[int]
    operands: Sequence[StorageAddress]
    inside: Sequence[GpuLayouts]

    def laid_out(self) -> list[GpuLayout | None]:
        """Lay out the bodies; None stands for those that can't be computed at these sizes."""
        return [_laid_out(layouts, self.env) for layouts in self.inside]

    def bytes_of(self, storages: Sequence[Storage]) -> list[int]:
        """Return how many bytes storages have."""
        return [bytes_at(storage, self.env) for storage in storages]


class BoundRegion(ABC):
    """A loop or a branch at known sizes.

    After the arena of the program that it is part of there is room for the arena of a body, and
    for what it hands from iteration to iteration: all regions of a program share it, one after the
    other.

    Attributes:
        node: The node.
        operands: Where its inputs, then its outputs lie.
        bodies: How the bodies are laid out; None where one can't be computed at these sizes.
        nbytes: How much room it wants.
        launches: How many launches it is; of a loop of unknown length, one iteration's.
        why_not_captured: Why it is no part of a CUDA graph; empty where it may be.
        drawn: How many words its bodies draw from.
        begin: Where these lie after those of the program that it is part of, in bytes.
        per_iteration: The bytes that it asks for in each iteration of unknown number, until it is
            done.
        outside: The bytes that it asks for besides.
    """

    begin = 0
    per_iteration = 0
    outside = 0

    def __init__(self, node: Node, at: RegionSite, bodies: Sequence[GpuLayout | None]) -> None:
        self.node = node
        self.operands = at.operands
        self.bodies = bodies
        known = [body for body in bodies if body is not None]
        users = [*known, *[body.of.once for body in known]]
        self.nbytes = rounded(max([one.arena for one in users], default=0))
        self.scratch = max([one.scratch_nbytes for one in users], default=0)
        self.counters = max([one.counters for one in users], default=0)
        self._kept = [
            {slot: self.room(nbytes) for slot, nbytes in body.of.kept.items()} if body else {}
            for body in bodies
        ]
        self.launches = sum([body.launches for body in known])
        self.why_not_captured = next(
            (f"in a body, {body.why_not_captured}" for body in known if body.why_not_captured), ""
        )
        self.drawn = 0

    @property
    @abstractmethod
    def how(self) -> str:
        """A description of the computation, for reports."""

    @abstractmethod
    def run(self, worker: Worker, run: RunMemory, rng: Rng) -> None:
        """Compute it.

        Args:
            worker: Launches what a body is.
            run: The run of the program that it is part of.
            rng: What random operations draw from.

        Raises:
            RefusedError: A body refuses what it is given.
        """

    def fill(self, rng: Rng, table: Any, begin: int) -> None:  # noqa: B027  most draw nothing
        """Write what the bodies draw from.

        Args:
            rng: What the program draws from that it is part of.
            table: The words of a run, int64.
            begin: Where its own begin there.
        """

    def room(self, nbytes: int) -> int:
        """Make room for so many bytes, and return where it begins."""
        begin = self.nbytes
        self.nbytes += rounded(nbytes)
        return begin

    def end(
        self,
        worker: Worker,
        carry: Sequence[GpuAddress],
        ends: Sequence[GpuAddress],
        sizes: Sequence[int],
    ) -> None:
        """Bring the last carry, of these bytes, where the node's results lie."""
        for spot, end, nbytes in zip(carry, ends, sizes, strict=False):
            if spot.address != end.address:
                worker.copy(end.address, spot.address, nbytes)

    def started(self, run: RunMemory, number: int) -> RunMemory:
        """Return the run of a body.

        Raises:
            RefusedError: At these sizes the body can't be computed.
        """
        layout = self.bodies[number]
        if layout is None:
            raise RefusedError
        return run.body(layout)

    def begun(
        self, worker: Worker, run: RunMemory, number: int, captures: Sequence[GpuAddress]
    ) -> RunMemory:
        """Return the run of a body, which has its captures, and what is made of them once.

        Raises:
            RefusedError: At these sizes the body can't be computed.
        """
        body = self.started(run, number)
        layouts = body.layout.of
        before = run.body(layouts.once)
        kept = {slot: run.inside(begin) for slot, begin in self._kept[number].items()}
        first = len(layouts.build.program.feeds)
        for slot, spot in [*enumerate(captures, first), *kept.items()]:
            body.lie(slot, spot)
            before.lie(slot, spot)
        worker.work(before, before.layout.segments, NO_RNG)
        return body


def _laid_out(layouts: GpuLayouts, env: Sizes) -> GpuLayout | None:
    try:
        return layouts.body(env)
    except ArithmeticError:
        return None
