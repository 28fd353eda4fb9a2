"""A program that keeps to a memory limit: where a run needs more, it computes things again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from graphfw.errors import ExecutionError, MemoryLimitError
from graphfw.ir.dim_text import evaluate
from graphfw.ir.graph import Graph
from graphfw.ir.op import Rng
from graphfw.passes.manager import PassReport, run_pipeline
from graphfw.passes.rematerialise import BUDGETS, Budget, Rematerialise
from graphfw.runtime.executor import Claim, Executable, Options, Replayed
from graphfw.runtime.limits import shown_bytes
from graphfw.runtime.memory import MemoryReport, require_room, too_much
from graphfw.runtime.numpy_executor import reports
from graphfw.runtime.numpy_executor.buffer_pool import Arenas
from graphfw.runtime.numpy_executor.build import Build
from graphfw.runtime.numpy_executor.compiled import CompiledExecutable, build_of
from graphfw.runtime.numpy_executor.executables import native_executable
from graphfw.runtime.numpy_executor.layout import Layouts
from graphfw.runtime.numpy_executor.pool import default_threads
from graphfw.runtime.profile import Profile
from graphfw.runtime.program import Program, without_passes
from graphfw.utils import forks
from graphfw.utils.collecting import without_collection
from graphfw.utils.records import record

_KNOWN_SIZES = 1024


@record(eq=False)
class _Variant:
    """The program, with some of its tensors computed again.

    Attributes:
        program: What runs.
        build: What it is compiled from.
        report: What is computed again; None for the program as it is.
    """

    program: Program
    build: Build
    report: PassReport | None
    options: Options
    arenas: Arenas

    @cached_property
    def executable(self) -> CompiledExecutable:
        """The variant, ready to run."""
        with without_collection():
            return CompiledExecutable(self.build, self.options, self.arenas)

    @cached_property
    def _layouts(self) -> Layouts:
        # Only to see how large they are: nothing is compiled yet.
        return Layouts(self.build.recipe, [0] * len(self.build.recipe.functions))

    def memory(self, sizes: Sequence[int], threads: int) -> MemoryReport:
        """Return the memory that a run takes.

        Raises:
            ArithmeticError: A size divides by 0.
        """
        return reports.memory(self.build, self._layouts.make(sizes), threads)

    def flops(self, sizes: Sequence[int]) -> int:
        """Return how many operations a run takes, as the ops declare them."""
        env = dict(zip(self.program.symbols, sizes, strict=True))
        nodes = self.program.graph.nodes
        costs = [n.op.cost(n.types, *[t.type for t in n.inputs]).flops for n in nodes]
        return sum([evaluate(cost, env) for cost in costs])


class MemoryLimitedExecutable(Executable):
    """A program under a memory limit, in variants: each computes more things again.

    Which one runs depends on the sizes: the first that keeps the limit. A variant is made for the
    sizes that need it first, and then serves others, too.
    """

    def __init__(self, program: Program, options: Options, arenas: Arenas) -> None:
        assert options.memory_limit is not None
        self._options = options
        self._limit = options.memory_limit
        require_room(program.variables, self._limit)
        self._threads = options.threads or default_threads()
        self._arenas = arenas
        self._lock = forks.renewed_lock()
        build = build_of(program, options, arenas, native_executable)
        self._as_it_is = _Variant(program, build, None, options, arenas)
        self._variants: dict[Budget, _Variant | None] = {}
        self._chosen: dict[tuple[tuple[int, ...], bool], _Variant | None] = {}
        self._as_it_is.executable  # noqa: B018  compile it now: most runs are within the limit

    def __call__(
        self,
        inputs: Sequence[Any],
        sizes: tuple[int, ...],
        rng: Rng,
        version: int,
        claim: Claim | None,
    ) -> list[Any]:
        variant = self._choice(sizes, in_place=claim is not None)
        if variant is None:
            raise self._refusal(sizes, in_place=claim is not None)
        return variant.executable(inputs, sizes, rng, version, claim)

    def explain(self, sizes: tuple[int, ...] | None) -> str:
        variant = None if sizes is None else self._choice(sizes, in_place=True)
        if variant is None or sizes is None or variant.report is None:
            return self._as_it_is.executable.explain(sizes)
        return f"{self._summary(variant, sizes)}\n{variant.executable.explain(sizes)}"

    def source(self) -> str:
        return self._as_it_is.executable.source()

    def memory(self, sizes: tuple[int, ...]) -> MemoryReport:
        """Return the memory of a run: where no variant keeps the limit, of the program as it is."""
        variant = self._choice(sizes, in_place=True) or self._as_it_is
        return variant.memory(sizes, self._threads)

    def profile(
        self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng, version: int
    ) -> Profile:
        return self._fitting(sizes).profile(inputs, sizes, rng, version)

    def replay(
        self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng, version: int
    ) -> Iterator[Replayed]:
        # Whoever compares knows the tensors of the program as it is, and no others.
        known = {*self._as_it_is.program.graph.nodes}
        for one in self._fitting(sizes).replay(inputs, sizes, rng, version):
            yield one._replace(values=[pair for pair in one.values if pair[0].node in known])

    def blame(self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng) -> ExecutionError:
        return self._as_it_is.executable.blame(inputs, sizes, rng)

    def _fitting(self, sizes: tuple[int, ...]) -> CompiledExecutable:
        variant = self._choice(sizes, in_place=False)
        if variant is None:
            raise self._refusal(sizes, in_place=False)
        return variant.executable

    def _choice(self, sizes: tuple[int, ...], *, in_place: bool) -> _Variant | None:
        """Return the first variant that keeps the limit; None where none does.

        Args:
            sizes: What the symbols stand for.
            in_place: Whether variables may be written over.
        """
        key = sizes, in_place
        try:
            return self._chosen[key]
        except KeyError:
            pass
        with self._lock:
            variant = next(self._within(sizes, in_place), None)
            if len(self._chosen) >= _KNOWN_SIZES:
                self._chosen.clear()
            self._chosen[key] = variant
        return variant

    def _within(self, sizes: tuple[int, ...], in_place: bool) -> Iterator[_Variant]:
        try:
            if self._needed(self._as_it_is, sizes, in_place) <= self._limit:
                yield self._as_it_is
        except ArithmeticError:
            yield self._as_it_is  # it has the message
        for budget in BUDGETS:
            variant = self._variant(budget, sizes)
            if variant is not None and self._needed(variant, sizes, in_place) <= self._limit:
                yield variant

    def _needed(self, variant: _Variant, sizes: Sequence[int], in_place: bool) -> int:
        return variant.memory(sizes, self._threads).needed(in_place=in_place)

    def _variant(self, budget: Budget, sizes: Sequence[int]) -> _Variant | None:
        """Return the program under a budget; None where nothing can be computed again."""
        if budget not in self._variants:
            self._variants[budget] = self._made(budget, sizes)
        return self._variants[budget]

    def _made(self, budget: Budget, sizes: Sequence[int]) -> _Variant | None:
        program = self._as_it_is.program
        graph: Graph = program.graph
        env = dict(zip(program.symbols, sizes, strict=True))
        with without_collection():
            result = run_pipeline(graph, [Rematerialise(env, budget)], verify=program.level)
            if result.graph is graph or not result.reports:
                return None
            again = without_passes(replace(program, source=result.graph))
            build = build_of(again, self._options, self._arenas, native_executable)
        return _Variant(again, build, result.reports[0], self._options, self._arenas)

    def _refusal(self, sizes: tuple[int, ...], *, in_place: bool) -> MemoryLimitError:
        report = self._as_it_is.memory(sizes, self._threads)
        needed = self._needed(self._as_it_is, sizes, in_place)
        tried = [v for v in map(self._variants.get, BUDGETS) if v is not None]
        least = min([self._needed(v, sizes, in_place) for v in tried], default=None)
        env = dict(zip(self._as_it_is.program.symbols, sizes, strict=True))
        return too_much(report, needed, self._limit, env, least)

    def _summary(self, variant: _Variant, sizes: tuple[int, ...]) -> str:
        """Say what is computed again, and what that costs."""
        assert variant.report is not None
        before = self._as_it_is.memory(sizes, self._threads).peak
        after = variant.memory(sizes, self._threads).peak
        flops = self._as_it_is.flops(sizes)
        more = variant.flops(sizes) - flops
        nodes = ", ".join([f"{n}×{c}" for n, c in sorted(variant.report.hits.items())])
        least = self._as_it_is.executable.least_seconds(sizes)
        longer = variant.executable.least_seconds(sizes) - least
        return (
            f"to keep within {shown_bytes(self._limit)}, the backward graph computes again:\n"
            f"{nodes}\n"
            f"this takes {more:,} flops more ({more / max(flops, 1):.1%}), at least "
            f"{longer / max(least, 1e-12):.1%} of the time, and {shown_bytes(before - after)} "
            f"less memory: {shown_bytes(after)}, not {shown_bytes(before)}"
        )
