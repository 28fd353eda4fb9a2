"""The bodies of loops and branches as programs of their own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from graphfw.errors import ExecutionError
from graphfw.ir import time_limits
from graphfw.ir.body import Body
from graphfw.ir.constants import constant_array
from graphfw.ir.dim_text import evaluate
from graphfw.ir.literal import Array
from graphfw.ir.op import Rng
from graphfw.ir.tensor import Tensor
from graphfw.runtime.numpy_executor.buffer_pool import NO_MEMORY, ArenaMemory
from graphfw.runtime.numpy_executor.build import Build
from graphfw.runtime.numpy_executor.layout import ARENA, Layout
from graphfw.runtime.numpy_executor.loops import IterationWork, work_of
from graphfw.runtime.numpy_executor.native_executable import NativeExecutable
from graphfw.runtime.numpy_executor.nested_loops import IndirectAddress, NestedLoops
from graphfw.runtime.numpy_executor.node_regions import LentBody, Sizes
from graphfw.runtime.planning.arena import rounded
from graphfw.runtime.program import Program, body_program

Compile: TypeAlias = "Callable[[Program], NativeExecutable]"
"""Makes a program native, with the options and in the memory of the program that it is in."""

Maker: TypeAlias = "Callable[[], Array]"
"""Makes arrays with any contents."""

_versions = itertools.count(1)


def new_version() -> int:
    """Return a number for captures: they are others in each run of a loop."""
    return next(_versions)


class Compiled:
    """A body as a program. What the captures are, its last parameters, is prepared once a run."""

    def __init__(
        self,
        body: Body,
        captures: int,
        compile: Compile,
        *,
        is_iteration: bool,
        carried: Iterable[int] = (),
    ) -> None:
        self.body = body
        self.captures = captures
        self.program = body_program(body, captures, is_iteration=is_iteration, carried=carried)
        self.made = compile(self.program)
        self.is_native = self.made.loaded.recipe.is_plain or self._is_chain()
        self.is_random = body.is_random

    def __call__(
        self, inputs: Sequence[Array], own: tuple[int, ...], rng: Rng, version: int
    ) -> list[Array]:
        """Compute the outputs, at sizes as `own` gives them."""
        time_limits.check()
        result: list[Array] = self.made(inputs, own, rng, version, None)
        return result

    def _is_chain(self) -> bool:
        """Return whether all that is not native in it are loops that are."""
        build = self.made.build
        return build is not None and all(
            node in build.regions and build.regions[node].fits_inside
            for stretch in build.recipe.stretches
            for node in stretch.nodes
        )

    def own(self, sizes: Sizes) -> tuple[int, ...]:
        """Return the numbers of its own symbols."""
        return tuple([sizes[name] for name in self.program.symbols])

    def nbytes(self, sizes: Sizes) -> int:
        """Return how much memory it takes besides its captures; outputs are written in turns."""
        report = self.made.memory(self.own(sizes))
        return report.arena + report.of("prepared", "outside", "scratch") + 2 * report.of("output")

    def explain(self, sizes: Sizes | None) -> Iterator[str]:
        """Yield the explanation, line by line."""
        text = self.made.explain(None if sizes is None else self.own(sizes))
        yield from text.splitlines()

    @property
    def in_place(self) -> frozenset[int]:
        """The carries that an iteration may write over what it is given."""
        return frozenset(self.made.loaded.recipe.carried)

    def address_slot(self, array: int) -> int:
        """Return where the address of an input goes; outputs come after the inputs."""
        return self.made.loaded.recipe.fixed + array


class FailedError(ExecutionError):
    """A check in native code has failed: the reference path knows the message."""

    def __init__(self) -> None:
        super().__init__("native code refuses values that the operations themselves accept")


class NotNativeError(Exception):
    """At these sizes Python has something to do in a body."""


class ReadyBody:
    """A native body at some sizes, with tables that only its owner uses.

    Attributes:
        run: The tables.
        work: What an iteration computes.
        nbytes: How much memory it is lent for all iterations, with that of loops inside.

    Raises:
        NotNativeError: Python has to make the iterations.
    """

    def __init__(self, body: Compiled, sizes: Sizes) -> None:
        try:
            layout = body.made.layout(body.own(sizes))
        except ArithmeticError as error:  # an iteration says why, if there is one
            raise NotNativeError from error
        self._body = body
        self.run = body.made.ready_run(layout)
        self._inside: list[tuple[LentBody, int]] = []
        self.nbytes = self.run.nbytes
        if self.run.whole is not None:
            self.work = work_of(self.run)
        else:
            self.work = self._chained(layout)

    def prepare(self, captures: Sequence[Array]) -> None:
        """Compute what is the same in all iterations."""
        if self._body.made.loaded.recipe.prepared:
            inputs: list[Any] = [None] * (len(self._body.body.parameters) - len(captures))
            inputs += whole(captures)
            self._body.made.preparation.provide(self.run, inputs, new_version())

    def join(self, chain: NestedLoops, sources: Sequence[IndirectAddress]) -> None:
        """Add what prepares its captures, the last of the sources, to a chain."""
        made = self._body.made
        if not made.loaded.recipe.prepared:
            return
        run, read = made.preparation.inside(self.run)
        skipped = len(self._body.body.parameters) - len(sources)
        chain.add_addresses([(sources[number - skipped], word) for number, word in read])
        chain.add_stretch(run.record_of(0, 1))

    def take(self) -> ArenaMemory:
        """Return an arena for it, to be given back."""
        if not self.nbytes:
            return NO_MEMORY
        arena = self._body.made.arenas.take(self.nbytes)
        self.lie_at(arena.address)
        return arena

    def give(self, arena: ArenaMemory) -> None:
        """Give an arena back, and let go of what `prepare` has computed."""
        self._body.made.preparation.forget(self.run)
        if self.nbytes:
            self._body.made.arenas.give(arena)

    def lie_at(self, address: int) -> None:
        """Say where the memory is that it is lent."""
        self.run.lie_at(address)
        for body, offset in self._inside:
            body.lie_at(address + offset)

    def _chained(self, layout: Layout) -> IterationWork:
        """Lay out a body with loops inside."""
        build, run = self._body.made.build, self.run.run
        assert build is not None  # what has nodes outside of native code was compiled here
        chain = NestedLoops()
        words = run.bases.ctypes.data

        def room(nbytes: int) -> IndirectAddress:
            begin = rounded(self.nbytes)
            self.nbytes = begin + nbytes
            return IndirectAddress(words + 8 * ARENA, begin)

        for stretch in build.recipe.stretches:
            if stretch.waves:
                chain.add_stretch(run.record_of(stretch.first, stretch.waves))
            for node in stretch.nodes:
                loop = build.regions[node].inside(layout.sizes)
                sources = [self._source(build, tensor, layout, chain) for tensor in node.inputs]
                results = loop.join(chain, sources, room)
                numbers = [build.bases[tensor] for tensor in node.outputs]
                pairs = zip(results, numbers, strict=True)
                chain.add_addresses([(result, words + 8 * number) for result, number in pairs])
                self._inside += [(body, room(body.nbytes).offset) for body in loop.bodies]
        return chain.work(run)

    def _source(
        self, build: Build, tensor: Tensor, layout: Layout, chain: NestedLoops
    ) -> IndirectAddress:
        """Return where a tensor is in the run."""
        known = build.view_at(tensor, layout)
        if not known.is_dense:
            raise NotNativeError
        words = self.run.run.bases.ctypes.data
        number = build.bases.get(known.storage)
        if number is not None:
            return IndirectAddress(words + 8 * number, known.offset)
        block = build.block_of.get(known.storage)
        if block is not None:
            return IndirectAddress(words + 8 * ARENA, layout.offsets[block] + known.offset)
        assert isinstance(known.storage, Tensor)
        constant = constant_array(known.storage)
        assert constant is not None  # one that no step reads
        return chain.source_of(constant).offset_by(known.offset)


def shape_of(tensor: Tensor, sizes: Sizes) -> tuple[int, ...]:
    """Return a tensor's shape at some sizes."""
    return tuple([evaluate(dim, sizes) for dim in tensor.shape])


def whole(arrays: Sequence[Array]) -> list[Array]:
    """Return arrays whose elements are contiguous, in C order."""
    return [np.require(a, requirements=["C", "A"]) for a in arrays]


def iteration_number(iteration: int) -> Array:
    """Return an iteration's number as a body takes it."""
    return np.array(iteration, np.int64)
