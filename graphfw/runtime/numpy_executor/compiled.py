"""A program that was compiled in this process, which can say all about itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from graphfw.ir.op import Rng
from graphfw.ops.control.region_op import Region
from graphfw.runtime.executor import Options, Replayed
from graphfw.runtime.memory import MemoryReport
from graphfw.runtime.numpy_executor import reports
from graphfw.runtime.numpy_executor.buffer_pool import Arenas
from graphfw.runtime.numpy_executor.build import Build
from graphfw.runtime.numpy_executor.engine import compile_codes
from graphfw.runtime.numpy_executor.labels import Described, Labels
from graphfw.runtime.numpy_executor.layout import Layout
from graphfw.runtime.numpy_executor.native import RunnerCode
from graphfw.runtime.numpy_executor.native_executable import NativeExecutable
from graphfw.runtime.numpy_executor.ready_run import LoadedRecipe
from graphfw.runtime.numpy_executor.recipe import Measured
from graphfw.runtime.numpy_executor.regions import CompiledRegion
from graphfw.runtime.program import Program


def build_of(
    program: Program,
    options: Options,
    arenas: Arenas,
    compile: Callable[[Program, Options, Arenas], NativeExecutable],
    measured: Measured | None = None,
) -> Build:
    """Return the build of a program, whose bodies a function compiles."""

    def region_of(op: Region) -> CompiledRegion:
        return CompiledRegion(op, lambda body: compile(body, options, arenas))

    return Build(program, options, region_of, measured)


class CompiledExecutable(NativeExecutable):
    """A program that was compiled here, which can say all about itself."""

    build: Build

    def __init__(self, build: Build, options: Options, arenas: Arenas) -> None:
        self.build = build
        # The runner too: whoever compiles it by itself has the other cores idle.
        *addresses, _ = compile_codes([*build.codes.values(), RunnerCode()])
        super().__init__(build.program, options, arenas, LoadedRecipe(build.recipe, addresses))

    def explain(self, sizes: tuple[int, ...] | None) -> str:
        return reports.explain(self.build, sizes)

    def least_seconds(self, sizes: tuple[int, ...]) -> float:
        """Return how long the machine needs at least for all steps, one after the other."""
        return reports.least_seconds(self.build, sizes)

    def labels(self) -> Labels:
        """Return the names and the costs of the native steps, for all sizes."""
        return reports.labels(self.build)

    def source(self) -> str:
        return reports.source(self.build)

    def memory(self, sizes: tuple[int, ...]) -> MemoryReport:
        with self._lock:
            layout = self._layouts.get(sizes) or self.loaded.layouts.make(sizes)
        return self._memory(layout)

    def _memory(self, layout: Layout) -> MemoryReport:
        return reports.memory(self.build, layout, self._threads)

    def described(self, sizes: tuple[int, ...]) -> list[Described]:
        return reports.described(self.build, self.layout(sizes).sizes)

    def replay(
        self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng, version: int
    ) -> Iterator[Replayed]:
        with self._apart(self.layout(sizes), inputs, rng, version) as (_, execution):
            yield from reports.replayed(self.build, execution, rng)
