"""Programs as executables: compiled here, or recalled from what another process has compiled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from graphfw.ir.op import Rng
from graphfw.ir.sources import ConstantOp
from graphfw.runtime.array_executor import ArrayExecutable
from graphfw.runtime.executor import Executable, Options, Replayed
from graphfw.runtime.memory import MemoryReport
from graphfw.runtime.numpy_executor.buffer_pool import Arenas
from graphfw.runtime.numpy_executor.cache_key import key_of
from graphfw.runtime.numpy_executor.engine import ahead, disk, keep, recalled
from graphfw.runtime.numpy_executor.feed_variants import FeedVariants, Layouts
from graphfw.runtime.numpy_executor.layout import Layout
from graphfw.runtime.numpy_executor.native import RunnerCode
from graphfw.runtime.numpy_executor.native_executable import NativeExecutable
from graphfw.runtime.numpy_executor.ready_run import LoadedRecipe
from graphfw.runtime.numpy_executor.recipe import Measured
from graphfw.runtime.program import Program
from graphfw.utils.collecting import without_collection

if TYPE_CHECKING:
    from graphfw.runtime.numpy_executor.compiled import CompiledExecutable
    from graphfw.runtime.numpy_executor.labels import Described, Labels


class RecalledExecutable(NativeExecutable):
    """A program whose recipe another process has made. To look into it, it is compiled here."""

    _twin: CompiledExecutable | None = None

    def __init__(
        self, program: Program, options: Options, arenas: Arenas, loaded: LoadedRecipe, key: str
    ) -> None:
        super().__init__(program, options, arenas, loaded)
        self._key = key

    def explain(self, sizes: tuple[int, ...] | None) -> str:
        return self._compiled().explain(sizes)

    def source(self) -> str:
        return self._compiled().source()

    def memory(self, sizes: tuple[int, ...]) -> MemoryReport:
        return self._compiled().memory(sizes)

    def _memory(self, layout: Layout) -> MemoryReport:
        return self._compiled()._memory(layout)

    def described(self, sizes: tuple[int, ...]) -> list[Described]:
        # Not at the top: what is only run does without.
        labels = import_module("graphfw.runtime.numpy_executor.labels")
        kept: Labels | None = labels.recalled_labels(disk(), self._key)
        if kept is None:
            return self._compiled().described(sizes)
        return kept.at(sizes, self.program.source.nodes)

    def replay(
        self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng, version: int
    ) -> Iterator[Replayed]:
        return self._compiled().replay(inputs, sizes, rng, version)

    def _compiled(self) -> CompiledExecutable:
        with self._lock:
            if self._twin is None:
                with without_collection():
                    self._twin = _compiled(
                        self.program, self._options, self.arenas, self.loaded.recipe.measured
                    )
            return self._twin


def executable(program: Program, options: Options, arenas: Arenas) -> Executable:
    """Return a program with native code; without, where it has numbers of more than 64 bits."""
    try:
        made = native_executable(program, options, arenas)
    except OverflowError:
        return ArrayExecutable(program, np)
    # Where strategies are measured, two plans of one program may not give the same bits.
    if program.feeds and not options.tune:
        made.variants = FeedVariants(program, partial(_variant, program, options, arenas))
    return made


def _variant(
    program: Program, options: Options, arenas: Arenas, layouts: Layouts
) -> NativeExecutable:
    """Return a program with native code for feeds of some layouts."""
    # Not at the top: it imports the compiler.
    programs = import_module("graphfw.runtime.numpy_executor.feed_programs")
    with without_collection():
        return native_executable(programs.for_layouts(program, layouts, options), options, arenas)


def native_executable(program: Program, options: Options, arenas: Arenas) -> NativeExecutable:
    """Return a program with native code: that of an earlier process, where it is kept."""
    key = key_of(program, options)
    if key is None:
        return _compiled(program, options, arenas)
    ops = [node.op for node in program.source.nodes]
    own = [op.value for op in ops if isinstance(op, ConstantOp)]
    found = recalled(key, own)
    if found is not None:
        return RecalledExecutable(program, options, arenas, LoadedRecipe(*found), key)
    made = _compiled(program, options, arenas)
    if keep(key, made.loaded.recipe, own):
        made.labels().keep(disk(), key)
    return made


def _compiled(
    program: Program, options: Options, arenas: Arenas, measured: Measured | None = None
) -> CompiledExecutable:
    with ahead(RunnerCode()):  # which every program needs
        # Not at the top: half of what importing the executor would take; who recalls does without.
        compiled = import_module("graphfw.runtime.numpy_executor.compiled")
        build = compiled.build_of(program, options, arenas, native_executable, measured)
        made: CompiledExecutable = compiled.CompiledExecutable(build, options, arenas)
    return made
